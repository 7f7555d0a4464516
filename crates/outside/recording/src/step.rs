//! What a recording consists of: the steps by which the tool learned what it knows. Numbers are
//! those of the recorded process; nothing here is checked against another step (`check` looks at
//! each one alone).

use serde::{Deserialize, Serialize};

/// One step. The numbers of processes and threads are the kernel's, times are ns of the monotonic
/// clock, addresses those of the recorded process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Step {
    /// The first step: how the run is judged.
    Begin(Begin),
    /// Code that the samples after it refer to by its number: 1 is that of the first such step.
    Code(Code),
    /// The registers of a thread.
    Sample(Sample),
    /// An access whose address the hardware told.
    Access {
        /// Its process.
        process: u32,
        /// The access.
        access: Access,
        /// Whether the line came modified from another core's cache.
        hitm: bool,
    },
    /// Memory was mapped.
    Map {
        /// The process.
        process: u32,
        /// When.
        time: u64,
        /// The mapping.
        mapping: Mapping,
    },
    /// A thread, or a process, began.
    ThreadStart {
        /// Its process.
        process: u32,
        /// The process that created it.
        parent: u32,
        /// The thread.
        thread: u32,
        /// When.
        time: u64,
    },
    /// A thread got a name, or its process executed a program.
    ThreadName {
        /// Its process.
        process: u32,
        /// The thread.
        thread: u32,
        /// When.
        time: u64,
        /// The name.
        name: String,
        /// Whether a program was executed.
        exec: bool,
    },
    /// A thread ended.
    ThreadEnd {
        /// Its process.
        process: u32,
        /// The thread.
        thread: u32,
        /// When.
        time: u64,
    },
    /// The kernel dropped so many records.
    Lost(u64),
    /// The process was found by its number, and lives.
    Lives(u32),
    /// The process has executed programs that no event told of.
    Anew(u32),
    /// An image loaded the runtime.
    Claim(Claim),
    /// All mappings of a process, as `/proc` shows them.
    Mappings {
        /// The process.
        process: u32,
        /// The mappings.
        mappings: Vec<Mapping>,
    },
    /// A thread that `/proc` shows.
    Thread {
        /// Its process.
        process: u32,
        /// The thread.
        thread: u32,
        /// Its name.
        name: Option<String>,
    },
    /// Memory was read to find the blocks of thread-local variables.
    ThreadLocals(ThreadLocals),
    /// Pointers of the held samples were read.
    Resolved(Vec<Resolved>),
    /// The held samples were passed on.
    PassOn,
    /// Heap blocks on watched lines were allocated or freed.
    Owners {
        /// The process.
        process: u32,
        /// The changes.
        changes: Vec<OwnerChange>,
    },
    /// Watchpoints trapped accesses.
    Watched(Burst),
    /// Breakpoints on instructions were tried.
    Executed(Executed),
    /// A process ended.
    Ended(u32),
    /// What a transfer of a line costs, in ns.
    Transfer(f64),
    /// Bytes of the segment in which the runtime of an image recorded threads and heap blocks.
    Segment {
        /// The image.
        image: u32,
        /// Where in the segment.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A file that was mapped as code.
    File(File),
    /// Functions that a runtime had made when an image ended.
    Generated {
        /// The process.
        process: u32,
        /// When the image began.
        began: u64,
        /// Start, length and name of each.
        functions: Vec<(u64, u64, String)>,
    },
    /// The last step: the end of the run.
    End(End),
}

/// How the run is judged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// The only process that counts; `None` if all count.
    pub only: Option<u32>,
    /// Bytes of a cache line.
    pub line: u64,
    /// What a transfer of a line costs, in ns, as far as it was known at the beginning.
    pub transfer_ns: f64,
}

/// A piece of code with what the decoder must know of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    /// The address of the first byte.
    pub start: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether an instruction begins at the start.
    pub exact_start: bool,
    /// Addresses to which control may come from elsewhere.
    pub entries: Vec<u64>,
    /// Whether these include the targets of its own indirect jumps.
    pub tables_known: bool,
    /// Whether the bytes never change.
    pub stable: bool,
}

/// The registers of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// When.
    pub time: u64,
    /// The process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// The CPU, or `u32::MAX`.
    pub cpu: u32,
    /// The CPU time that the sample stands for, in ns.
    pub period_ns: u64,
    /// The general registers by their encoding number.
    pub registers: [u64; 16],
    /// The instruction that is executed next.
    pub ip: u64,
    /// The number of the code around it; 0 if none was found.
    pub code: u32,
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Access {
    /// When.
    pub time: u64,
    /// The thread.
    pub thread: u32,
    /// The instruction; 0 if it is not known.
    pub instruction: u64,
    /// The first byte.
    pub address: u64,
    /// Bytes.
    pub width: u8,
    /// Read, write or both.
    pub kind: Kind,
    /// How it became known.
    pub provenance: Provenance,
    /// For how many accesses it stands.
    pub weight: f32,
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Kind {
    Read,
    Write,
    Update,
    Atomic,
}

/// How an access became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Provenance {
    Sampled,
    Counted,
    Watched,
    Diffed,
    Traced,
}

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// Its bytes.
    pub len: u64,
    /// The offset in the file.
    pub file_offset: u64,
    /// The file's path, or a name of the kernel's.
    pub path: String,
    /// The file's inode number.
    pub inode: u64,
    /// Whether it may be read, written, executed; whether it is shared.
    pub rights: [bool; 4],
}

/// An image that loaded the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Its number.
    pub image: u32,
    /// Its process.
    pub process: u32,
    /// The process that started it; `None` if the tool did.
    pub parent: Option<u32>,
    /// When.
    pub time: u64,
    /// The image that it was forked from, and the epoch that began with that.
    pub forked: Option<(u32, u32)>,
    /// Whether no event tells of new processes and programs.
    pub is_only_report: bool,
}

/// Memory that was read to find thread-local variables.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadLocals {
    /// The process.
    pub process: u32,
    /// Threads and thread pointers that were found in its memory.
    pub found: Vec<(u32, u64)>,
    /// Threads and thread pointers for which blocks were looked for.
    pub threads: Vec<(u32, u64)>,
    /// What was read: address, and bytes. What could not be read is left out.
    pub memory: Vec<(u64, Vec<u8>)>,
}

/// A pointer in memory that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// The sample: its number among the held ones.
    pub sample: u32,
    /// The access: its number among those of the sample without an address.
    pub near: u32,
    /// The address of the access.
    pub address: u64,
}

/// Memory got another owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerChange {
    /// Its first address.
    pub start: u64,
    /// Its bytes.
    pub len: u64,
    /// When.
    pub time: u64,
    /// The block that it held until then.
    pub freed: Option<Block>,
}

/// A heap block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Its first address.
    pub start: u64,
    /// Its bytes.
    pub len: u64,
    /// The return addresses of its allocation.
    pub stack: Vec<u64>,
    /// The thread that allocated it.
    pub thread: Option<u32>,
}

/// A burst of watchpoints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// The process.
    pub process: u32,
    /// The watched words.
    pub words: Vec<u64>,
    /// When the watchpoints were armed.
    pub started: u64,
    /// When they were taken away.
    pub ended: u64,
    /// The accesses.
    pub accesses: Vec<Access>,
}

/// The hits of threads at breakpoints.
pub type Hits = Vec<(u32, Vec<Sample>)>;

/// A burst of breakpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executed {
    /// The process.
    pub process: u32,
    /// The place that was asked about.
    pub at: u64,
    /// The suspects.
    pub suspects: Vec<u64>,
    /// The threads that were sampled there.
    pub threads: Vec<u32>,
    /// When.
    pub now: u64,
    /// The instructions with breakpoints and the hits of each thread; `None` if it was not possible.
    pub burst: Option<(Vec<u64>, Hits)>,
}

/// A file that was mapped as code, and what tells it from another with its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its path in the recorded process.
    pub path: String,
    /// Its inode number, as mappings show it.
    pub inode: u64,
    /// Its build-id, in hexadecimal digits.
    pub build_id: Option<String>,
    /// Its length in bytes.
    pub len: u64,
    /// When it was modified, in seconds and ns.
    pub modified: (i64, i64),
}

/// The end of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// When the observation began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Program, machine, run and limits, as JSON in the result's schema.
    pub observed: String,
    /// What was measured about gains, as JSON of the crate that measures them.
    pub measured: Option<String>,
}
