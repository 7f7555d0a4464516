//! The result of replaying some buckets, as JSON: counts that add up, and what the judge found of
//! each contended line. Written where buckets are replayed, read where parts are merged.

use super::pages::Pages;
use crate::options::{PlacementAsked, Simulate};
use crate::simulate::machine::Machine;
use crate::simulate::show::Tally;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use sunder_access::{Address, Span};
use sunder_coherence::Protocol;
use sunder_findings::Simulated;
use sunder_sharing::Saved;
use sunder_tables::{About, Allocation};

const FORMAT: &str = "sunder-part";

/// The version that is written, and the only one that is read.
const VERSION: u32 = 2;

/// The most bytes of a part that are read.
const MOST_BYTES: u64 = 1 << 30;

/// The result of replaying some buckets of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    format: String,
    version: u32,
    /// The machine. Parts of different machines can't be merged.
    pub machine: Asked,
    /// The buckets that it is of, ascending.
    pub buckets: Vec<u32>,
    /// The trace.
    pub trace: About,
    /// Accesses made, granules touched, and the counts of each node: sums over the buckets.
    pub accesses: u64,
    /// See [`Part::accesses`].
    pub granules: u64,
    /// See [`Part::accesses`].
    pub nodes: Vec<Simulated>,
    /// Seconds that the replay of the buckets took, one after another.
    pub seconds: f64,
    /// What was judged.
    pub judged: Judged,
}

/// What was judged of the lines that moved, or counted of the pages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// Accesses to lines that moved, each counted once for each line.
    pub accesses: u64,
    /// The verdicts, and when threads were seen.
    pub found: Saved,
    /// The simulation's counts of the lines with verdicts.
    pub lines: BTreeMap<u64, Simulated>,
    /// The heap blocks that lay on these lines at the end, or last.
    pub blocks: Vec<Block>,
    /// The blocks that verdicts name as the owners of their memory before it was freed: their owner
    /// tags are places in this list, from 1.
    pub freed: Vec<Block>,
    /// The call stacks of these blocks, by number: return addresses, the innermost first.
    pub sites: BTreeMap<u32, Vec<u64>>,
    /// The counts of pages, which are not looked at byte by byte.
    pub pages: Pages,
}

/// A heap block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Block {
    /// Its number in the table of blocks.
    pub block: i64,
    /// Its first byte.
    pub address: u64,
    /// Requested bytes.
    pub size: u64,
    /// The thread that allocated it, by its number in results.
    pub thread: u32,
    /// The number of its call stack.
    pub site: u32,
    /// Whether it was freed.
    pub freed: bool,
}

impl Block {
    /// The block with this row in the table of blocks.
    pub const fn of(row: &Allocation, thread: u32) -> Self {
        Self {
            block: row.block,
            address: row.address,
            size: row.size,
            thread,
            site: row.site,
            freed: row.freed.is_some(),
        }
    }

    /// Its bytes; a block of none has one.
    pub fn span(&self) -> Span {
        Span::new(Address(self.address), self.size.max(1))
    }

    fn is_possible(&self) -> bool {
        self.address.checked_add(self.size.max(1)).is_some()
    }
}

/// The options of a replay that can be cut by line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    granule: u64,
    heap_only: bool,
    nodes: Option<u32>,
    most_nodes: u32,
    protocol: String,
    map: Vec<(u32, u32)>,
}

const PROTOCOLS: [(&str, Protocol); 3] = [
    ("msi", Protocol::Msi),
    ("mesi", Protocol::Mesi),
    ("mesif", Protocol::Mesif),
];

impl Asked {
    /// What `options` ask for.
    ///
    /// # Errors
    /// If they ask for something that can't be cut by line.
    pub fn of(options: &Simulate) -> Result<Self> {
        let moves = options.placement != PlacementAsked::Actual
            || !options.pad.is_empty()
            || !options.align.is_empty();
        let finite =
            matches!(options.caches, Some(caches) if caches != sunder_coherence::Caches::Infinite);
        let refused = [
            (
                finite,
                "--caches: in a finite cache lines push each other out",
            ),
            (
                moves,
                "--placement, --pad or --align: they bring bytes of different lines together",
            ),
        ];
        if let Some((_, why)) = refused.iter().find(|(refused, _)| *refused) {
            bail!(
                "buckets of a trace can't be replayed with {why}. The options whose counts add up are \
                 --granule, --heap-only, --nodes, --map and --protocol; give the trace itself for others"
            );
        }
        let protocol = PROTOCOLS.iter().find(|(_, p)| *p == options.protocol);
        Ok(Self {
            granule: options.granule,
            heap_only: options.heap_only,
            nodes: options.nodes,
            most_nodes: options.most_nodes,
            protocol: protocol.map_or("mesi", |(name, _)| name).into(),
            map: options.map.clone(),
        })
    }

    /// The options as they are given to `simulate`, without those that limit the machine.
    fn options(&self) -> String {
        let mut all = format!("--granule {} --protocol {}", self.granule, self.protocol);
        if self.heap_only {
            all += " --heap-only";
        }
        if let Some(nodes) = self.nodes {
            all += &format!(" --nodes {nodes}");
        }
        let map = self
            .map
            .iter()
            .map(|(thread, node)| format!("{thread}:{node}"));
        let map: Vec<String> = map.collect();
        if !map.is_empty() {
            all += &format!(" --map {}", map.join(","));
        }
        all
    }

    /// The machine, for the threads of `trace`; what else `options` say is kept.
    ///
    /// # Errors
    /// If such a machine can't be.
    pub fn machine(&self, trace: &About, options: &Simulate) -> Result<Machine> {
        let protocol = PROTOCOLS.iter().find(|(name, _)| *name == self.protocol);
        let (_, protocol) = protocol.context("it has a protocol that is not known")?;
        ensure!(
            self.granule <= trace.granule,
            "the trace was cut by lines of {} bytes, so replays of its buckets can't have lines of {}: \
             export it again with --granule {}",
            trace.granule,
            self.granule,
            self.granule
        );
        let options = Simulate {
            granule: self.granule,
            heap_only: self.heap_only,
            nodes: self.nodes,
            most_nodes: self.most_nodes,
            protocol: *protocol,
            map: self.map.clone(),
            ..options.clone()
        };
        Machine::new(&options, trace.threads.iter().map(|thread| thread.index))
    }
}

impl Part {
    /// A part of which nothing has been replayed yet.
    pub fn new(machine: Asked, trace: About) -> Self {
        Self {
            format: FORMAT.into(),
            version: VERSION,
            machine,
            buckets: Vec::new(),
            trace,
            accesses: 0,
            granules: 0,
            nodes: Vec::new(),
            seconds: 0.0,
            judged: Judged::default(),
        }
    }

    /// Adds what was found in other buckets.
    ///
    /// # Errors
    /// If it is of another trace or machine, or of the same buckets.
    pub fn join(&mut self, other: Self) -> Result<()> {
        ensure!(
            self.trace == other.trace,
            "parts of different exports can't be merged: one is of {}, one of {}",
            told(&self.trace),
            told(&other.trace)
        );
        ensure!(
            self.machine == other.machine,
            "parts that were replayed with different options can't be merged: {} and {}",
            self.machine.options(),
            other.machine.options()
        );
        if let Some(twice) = self.buckets.iter().find(|b| other.buckets.contains(b)) {
            bail!("bucket {twice:02} is in two parts; give each part once");
        }
        self.buckets.extend(other.buckets);
        self.buckets.sort_unstable();
        self.add(
            Tally {
                accesses: other.accesses,
                granules: other.granules,
                nodes: other.nodes,
            },
            other.seconds,
            other.judged,
        );
        Ok(())
    }

    /// Adds counts, and what was judged.
    pub fn add(&mut self, tally: Tally, seconds: f64, mut judged: Judged) {
        self.accesses += tally.accesses;
        self.granules += tally.granules;
        if self.nodes.len() < tally.nodes.len() {
            self.nodes.resize(tally.nodes.len(), Simulated::default());
        }
        for (node, more) in self.nodes.iter_mut().zip(tally.nodes) {
            *node = *node + more;
        }
        self.seconds += seconds;
        let own = &mut self.judged;
        // Owner tags are places in the list, which gets longer.
        let before = own.freed.len() as u64;
        for verdict in &mut judged.found.verdicts {
            verdict.owner = verdict.owner.map(|owner| match owner {
                0 => 0,
                place => place + before,
            });
        }
        own.accesses += judged.accesses;
        own.found.join(judged.found);
        own.lines.extend(judged.lines);
        own.blocks.extend(judged.blocks);
        own.blocks.sort_unstable();
        own.blocks.dedup();
        own.freed.extend(judged.freed);
        own.sites.extend(judged.sites);
        own.pages.join(judged.pages);
    }

    /// The part as JSON.
    ///
    /// # Errors
    /// If a number in it is none of JSON.
    pub fn to_json(&self) -> Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    /// Reads the part in the file at `path`. Nothing in it is trusted.
    ///
    /// # Errors
    /// If it can't be read, or is no part.
    pub fn open(path: &Path) -> Result<Self> {
        let cannot = || format!("cannot read {}", path.display());
        let is_file = std::fs::metadata(path).with_context(cannot)?.is_file();
        ensure!(is_file, "{} is no regular file", path.display());
        let mut text = Vec::new();
        let opened = std::fs::File::open(path).with_context(cannot)?;
        // What grows meanwhile is not read to its end either.
        let mut limited = opened.take(MOST_BYTES + 1);
        limited.read_to_end(&mut text).with_context(cannot)?;
        ensure!(
            text.len() as u64 <= MOST_BYTES,
            "{} has more than {} MiB, and no part has that many",
            path.display(),
            MOST_BYTES >> 20
        );
        let part: Self = serde_json::from_slice(&text).with_context(|| {
            format!(
                "{} is no part: one is what sunder simulate writes for buckets",
                path.display()
            )
        })?;
        let wrong = |what: &str| format!("{} can't be used: {what}", path.display());
        ensure!(
            part.format == FORMAT && part.version == VERSION,
            wrong("it is of another version of Sunder")
        );
        part.trace
            .check()
            .map_err(|what| anyhow::anyhow!(wrong(&what)))?;
        let count = part.trace.rows.len() as u64;
        let mut buckets = part.buckets.iter();
        ensure!(
            buckets.all(|&bucket| u64::from(bucket) < count),
            wrong("it has a bucket that the trace does not have")
        );
        let judged = &part.judged;
        let mut owners = judged.found.verdicts.iter().filter_map(|v| v.owner);
        ensure!(
            owners.all(|owner| owner <= judged.freed.len() as u64),
            wrong("it names an owner that it does not have")
        );
        let mut blocks = judged.blocks.iter().chain(&judged.freed);
        ensure!(
            blocks.all(Block::is_possible),
            wrong("it has a block that ends beyond all memory")
        );
        judged
            .pages
            .check()
            .map_err(|what| anyhow::anyhow!(wrong(what)))?;
        ensure!(
            part.nodes
                .iter()
                .chain(judged.lines.values())
                .all(is_possible),
            wrong("it has a count that no replay reaches")
        );
        Ok(part)
    }
}

/// Whether counts can be added up without an overflow.
fn is_possible(of: &Simulated) -> bool {
    const MOST: u64 = 1 << 48;
    [
        of.references,
        of.hits,
        of.cold,
        of.replacement,
        of.true_sharing,
        of.false_sharing,
        of.upgrades,
        of.invalidations,
        of.hitm,
        of.forwards,
        of.write_backs,
    ]
    .iter()
    .all(|&count| count <= MOST)
}

fn told(trace: &About) -> String {
    format!(
        "process {} of {} in {} buckets ({} accesses)",
        trace.process,
        trace.program,
        trace.rows.len(),
        trace.accesses
    )
}
