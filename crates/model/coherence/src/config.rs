//! The configuration of the simulated machine, and which configurations are impossible. Used by
//! the simulator's constructor; it knows nothing about the simulator's state.

/// The most nodes that a machine can have.
pub const MAX_NODES: u32 = 65_536;

/// The most granules that one private cache can hold: 1 GiB of 64-byte lines.
pub const MAX_CACHE_GRANULES: u64 = 1 << 24;

/// The largest granule, in bytes.
const MAX_GRANULE: u64 = 1 << 20;

/// The protocol by which nodes keep their copies coherent. In all three, a write invalidates
/// every other copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// A copy is read-only or writable. Even a granule that only one node has read needs a
    /// request before its first write. This is how a page-based shared memory replicates and
    /// invalidates by page protection.
    Msi,
    /// A sole clean copy is exclusive and becomes writable without a request. Clean data come
    /// from memory.
    #[default]
    Mesi,
    /// As MESI, but an exclusive copy, and the latest of several clean copies, answer requests
    /// in place of memory.
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
    /// Set-associative with least-recently-used replacement. The second level includes the
    /// first: a granule that it loses is lost by the first level too. It sees only the first
    /// level's misses, so these determine its order of use. Coherence is kept by the outermost
    /// level; a granule that only the first level loses goes back to the second without a
    /// request.
    Private {
        /// The first level.
        l1: CacheSize,
        /// The second level, if there is one.
        l2: Option<CacheSize>,
    },
}

/// A simulated machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// The unit of coherence in bytes: a power of two from 8 to 1,048,576.
    pub granule: u64,
    /// The number of nodes with a copy of their own: 1 to [`MAX_NODES`].
    pub nodes: u32,
    /// The coherence protocol.
    pub protocol: Protocol,
    /// The caches of each node.
    pub caches: Caches,
    /// The precision of the classification in bytes: 1, 2, 4 or 8.
    pub word: u32,
}

impl Config {
    /// A machine of `nodes` nodes with infinite caches, MESI, and granules of `granule` bytes.
    /// The word is the smallest that leaves at most 64 words in a granule, which is the
    /// fastest, and at most 8 bytes: 1 byte up to granules of 64, 2 at 128, 4 at 256, then 8.
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

    /// The page-based distributed shared memory of SCSTallocator, section 4.1: 16 nodes, pages
    /// of 4096 bytes. The paper does not give the precision of its classification; 8 bytes is
    /// our choice.
    pub const fn dsm() -> Self {
        Self {
            protocol: Protocol::Msi,
            ..Self::new(4096, 16)
        }
    }

    /// Checks that such a machine is possible.
    ///
    /// # Errors
    /// If a part of the configuration is impossible; the first such part.
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

/// An impossible machine, or an impossible access.
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
    /// A word size that is not 1, 2, 4 or 8, or larger than the granule.
    #[error("a word of {0} bytes: it must be 1, 2, 4 or 8")]
    Word(u32),
    /// A cache that is not a whole number of sets.
    #[error(
        "an L{level} cache of {bytes} bytes does not divide into sets of {ways} ways of {granule} bytes"
    )]
    CacheSize {
        /// The cache's level.
        level: u8,
        /// The cache's capacity.
        bytes: u64,
        /// The cache's ways.
        ways: u32,
        /// The coherence granule.
        granule: u64,
    },
    /// A cache above [`MAX_CACHE_GRANULES`].
    #[error(
        "an L{level} cache of {bytes} bytes holds more than {MAX_CACHE_GRANULES} granules: simulate infinite caches instead"
    )]
    CacheTooLarge {
        /// The cache's level.
        level: u8,
        /// The cache's capacity.
        bytes: u64,
    },
    /// A second level that is too small to include the first.
    #[error("an L2 cache of {l2} bytes cannot include an L1 cache of {l1}")]
    Inclusion {
        /// The first level's capacity.
        l1: u64,
        /// The second level's capacity.
        l2: u64,
    },
    /// An access by a node that the machine does not have.
    #[error("an access by node {node} of a machine with {nodes} nodes")]
    Node {
        /// The node.
        node: u32,
        /// The number of nodes of the machine.
        nodes: u32,
    },
    /// An access of no bytes, or one that goes beyond the end of the address space.
    #[error("an access of {width} bytes at {address:#x} is no span of memory")]
    Span {
        /// The access's first byte.
        address: u64,
        /// The access's width in bytes.
        width: u32,
    },
    /// More granules were touched than the simulator can number.
    #[error("more than {} granules touched", u32::MAX)]
    TooManyLines,
}
