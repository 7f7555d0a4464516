//! What machine to simulate, and what machines there cannot be. Used by the
//! simulator's constructor; knows nothing of its state.

/// The most nodes that a machine can have.
pub const MAX_NODES: u32 = 65_536;

/// The most granules that one private cache can hold: 1 GiB of 64-byte lines.
pub const MAX_CACHE_GRANULES: u64 = 1 << 24;

/// The largest granule, in bytes.
const MAX_GRANULE: u64 = 1 << 20;

/// How nodes keep their copies coherent. In all three a write destroys every
/// other copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// A copy is read-only or writable, and a granule that one node alone has
    /// read must still ask before its first write: replication and invalidation
    /// as a page-based shared memory does it with page protection.
    Msi,
    /// A sole clean copy is exclusive and becomes writable in silence. Clean data
    /// come from memory.
    #[default]
    Mesi,
    /// As MESI, and one of several clean copies (the latest) answers requests in
    /// memory's place, as does an exclusive one.
    Mesif,
}

/// The size of one private cache. Sets are chosen by the granule's number modulo
/// the number of sets, which need not be a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheSize {
    /// Capacity in bytes.
    pub bytes: u64,
    /// Ways of each set; the least recently used one is replaced.
    pub ways: u32,
}

/// The private caches of each node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Caches {
    /// No copy is ever replaced.
    #[default]
    Infinite,
    /// Set-associative, replaced by least recent use. A second level includes the
    /// first: what it loses, the first loses too, and it sees only what the
    /// first misses, so its order of use is that of the first's misses. Coherence
    /// is kept by the outermost level; what the first loses alone goes back to
    /// the second in silence.
    Private {
        /// The first level.
        l1: CacheSize,
        /// The second, if there is one.
        l2: Option<CacheSize>,
    },
}

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The unit of coherence in bytes: a power of two from 8 to 1,048,576.
    pub granule: u64,
    /// How many nodes have a copy of their own: 1 to [`MAX_NODES`].
    pub nodes: u32,
    /// How copies are kept coherent.
    pub protocol: Protocol,
    /// How much each node can hold.
    pub caches: Caches,
    /// The precision of the classification in bytes: 1, 2, 4 or 8.
    pub word: u32,
}

impl Config {
    /// A machine of `nodes` with infinite caches, MESI, and granules of `granule`
    /// bytes. The word is the smallest that leaves at most 64 words in a granule,
    /// which is the fastest, and at most 8 bytes: 1 byte up to granules of 64, 2 at
    /// 128, 4 at 256, then 8.
    pub const fn new(granule: u64, nodes: u32) -> Self {
        let word = match granule {
            0..=64 => 1,
            65..=128 => 2,
            129..=256 => 4,
            _ => 8,
        };
        Self {
            granule,
            nodes,
            protocol: Protocol::Mesi,
            caches: Caches::Infinite,
            word,
        }
    }

    /// [`Config::new`] with the usual line of 64 bytes.
    pub const fn cache_line(nodes: u32) -> Self {
        Self::new(64, nodes)
    }

    /// The page-based distributed shared memory of SCSTallocator, section 4.1: 16
    /// nodes, pages of 4096 bytes. The precision of its classification is not
    /// given there; 8 bytes is ours.
    pub const fn dsm() -> Self {
        Self {
            protocol: Protocol::Msi,
            ..Self::new(4096, 16)
        }
    }

    /// Whether such a machine can be.
    ///
    /// # Errors
    /// The first part that cannot.
    pub fn check(&self) -> Result<(), Error> {
        let granule = self.granule;
        if !granule.is_power_of_two() || !(8..=MAX_GRANULE).contains(&granule) {
            return Err(Error::Granule(granule));
        }
        if self.nodes == 0 {
            return Err(Error::NoNodes);
        }
        if self.nodes > MAX_NODES {
            return Err(Error::TooManyNodes(self.nodes));
        }
        if !matches!(self.word, 1 | 2 | 4 | 8) {
            return Err(Error::Word(self.word));
        }
        if let Caches::Private { l1, l2 } = self.caches {
            check_cache(1, l1, granule)?;
            if let Some(l2) = l2 {
                check_cache(2, l2, granule)?;
                if l2.bytes < l1.bytes {
                    return Err(Error::Inclusion {
                        l1: l1.bytes,
                        l2: l2.bytes,
                    });
                }
            }
        }
        Ok(())
    }
}

fn check_cache(level: u8, size: CacheSize, granule: u64) -> Result<(), Error> {
    let CacheSize { bytes, ways } = size;
    let set = u64::from(ways) * granule;
    if set == 0 || bytes == 0 || bytes % set != 0 {
        return Err(Error::CacheSize {
            level,
            bytes,
            ways,
            granule,
        });
    }
    if bytes / granule > MAX_CACHE_GRANULES {
        return Err(Error::CacheTooLarge { level, bytes });
    }
    Ok(())
}

/// A machine that cannot be, or an access that none can make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The granule is no power of two, or out of range.
    #[error("{0} bytes is no coherence granule: it must be a power of two from 8 to {MAX_GRANULE}")]
    Granule(u64),
    /// A machine without nodes.
    #[error("a machine needs at least one node")]
    NoNodes,
    /// More nodes than [`MAX_NODES`].
    #[error("{0} nodes are too many: the most is {MAX_NODES}")]
    TooManyNodes(u32),
    /// An impossible precision.
    #[error("a word of {0} bytes: it must be 1, 2, 4 or 8")]
    Word(u32),
    /// A cache that is not a whole number of sets.
    #[error(
        "an L{level} cache of {bytes} bytes does not divide into sets of {ways} ways of {granule} bytes"
    )]
    CacheSize {
        /// Which level.
        level: u8,
        /// Its capacity.
        bytes: u64,
        /// Its ways.
        ways: u32,
        /// The coherence granule.
        granule: u64,
    },
    /// A cache above [`MAX_CACHE_GRANULES`].
    #[error(
        "an L{level} cache of {bytes} bytes holds more than {MAX_CACHE_GRANULES} granules: simulate infinite caches instead"
    )]
    CacheTooLarge {
        /// Which level.
        level: u8,
        /// Its capacity.
        bytes: u64,
    },
    /// A second level that cannot include the first.
    #[error("an L2 cache of {l2} bytes cannot include an L1 cache of {l1}")]
    Inclusion {
        /// The first level's capacity.
        l1: u64,
        /// The second's.
        l2: u64,
    },
    /// An access by a node that the machine does not have.
    #[error("an access by node {node} of a machine with {nodes} nodes")]
    Node {
        /// The node.
        node: u32,
        /// How many there are.
        nodes: u32,
    },
    /// An access of no bytes, or one that runs over the end of the address space.
    #[error("an access of {width} bytes at {address:#x} is no span of memory")]
    Span {
        /// Where it starts.
        address: u64,
        /// How wide it is.
        width: u32,
    },
    /// More granules touched than the simulator can number.
    #[error("more than {} granules touched", u32::MAX)]
    TooManyLines,
}
