//! What the isolating library in the target and `sunder protect` share: one memory
//! file, made by the tool and mapped by both. Types and constants only: nothing here
//! allocates or makes system calls. The tool must take every number that the target
//! may have written for what it is: a number of a program that may be broken.

use crate::tracking::{SHARED, Tracking};
use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64};

/// The environment variable with three paths, separated by commas: of the control file, of
/// the file that is to hold the program's memory, and of the library.
pub const ISOLATE_VARIABLE: &str = "SUNDER_ISOLATE";

/// First bytes of the control file.
pub const ISOLATE_MAGIC: u64 = u64::from_le_bytes(*b"sundisol");
/// Raised with every change of what follows.
pub const ISOLATE_VERSION: u32 = 8;

/// Call sites of allocations that are to be isolated.
pub const SITES: usize = 16;
/// Bytes of a file's name with a call site.
pub const SITE_NAME: usize = 256;
/// Living blocks from such call sites that are kept.
pub const BLOCKS: usize = 64;
/// Ranges of the program's memory that were made sharable.
pub const RANGES: usize = 4096;
/// Ranges of memory that is never made sharable since forked children are not to have it as it is.
pub const APART: usize = 1024;
/// Threads that can be isolated at a time.
pub const SLOTS: usize = 128;
/// Pages that can be private.
pub const PAGES: usize = 32;
/// Ranges of code that isolated threads may execute.
pub const CODES: usize = 1024;
/// Pages of code that isolated threads may execute but for certain instructions.
pub const GUARDED: usize = 64;
/// Areas of code that leads kernel calls through hooks.
pub const HOOK_AREAS: usize = 4;
/// Bytes of a suitcase: what a thread and its worker need while it is isolated.
pub const SUITCASE: usize = 256 << 10;
/// Where in a suitcase the thread's stack ends and its [`Registers`] lie.
pub const REGISTERS: usize = 60 << 10;
/// Where the floating-point and vector state begins.
pub const VECTORS: usize = 64 << 10;
/// Bytes for that state.
pub const VECTORS_BYTES: usize = 32 << 10;
/// The worker's signal stack: from here to the suitcase's end.
pub const WORKER_STACK: usize = 96 << 10;
/// Bytes in which the library finds the plan for the hooks and reads the list of mappings,
/// one for the conversion.
pub const SCRATCH: usize = 1 << 20;

/// How far a thread with a slot is.
pub mod state {
    /// The slot belongs to nobody.
    pub const FREE: u32 = 0;
    /// The thread runs natively.
    pub const HOME: u32 = 1;
    /// The tool has sent it into isolation, and it is on its way.
    pub const ENTERING: u32 = 2;
    /// Its worker runs, the thread is parked.
    pub const ISOLATED: u32 = 3;
    /// The worker has everything ready for the thread to go on.
    pub const RETURNING: u32 = 4;
}

/// How far the library in the target is.
pub mod ready {
    /// No program has begun.
    pub const NOBODY: u32 = 0;
    /// It is in place.
    pub const READY: u32 = 1;
    /// It is in place in another program that the process has executed: the tool forgets
    /// what it knew of the last one, and sets [`READY`].
    pub const ANOTHER: u32 = 2;
    /// Another program begins; the tool does nothing.
    pub const BEGINNING: u32 = 3;
}

/// Why a worker gave up its thread's place.
pub mod why {
    /// The tool or the thread asked for it.
    pub const RECALLED: u32 = 1;
    /// A system call.
    pub const SYSTEM_CALL: u32 = 2;
    /// A fault on memory that the worker does not have.
    pub const MEMORY: u32 = 3;
    /// Code that it may not execute.
    pub const CODE: u32 = 4;
    /// Another exception.
    pub const EXCEPTION: u32 = 5;
    /// No worker could be made.
    pub const NO_WORKER: u32 = 6;
    /// The memory could not be shared.
    pub const NO_MEMORY: u32 = 7;
    /// A page is used by others besides, and is isolated no more.
    pub const BESIDE: u32 = 8;
    /// How many there are, with 0.
    pub const COUNT: usize = 9;
}

/// Why nobody is isolated any more.
pub mod closed {
    /// It goes on.
    pub const OPEN: u32 = 0;
    /// The program has forked, or is about to.
    pub const FORK: u32 = 1;
    /// The program orders memory between threads by `membarrier`.
    pub const MEMBARRIER: u32 = 2;
    /// The memory could not be shared.
    pub const MEMORY: u32 = 3;
    /// The program moved memory in a way that can't be followed.
    pub const MOVED: u32 = 4;
    /// The program has timers of CPU time.
    pub const TIMERS: u32 = 5;
    /// The C library's kernel calls can't be led through hooks, as the first conversion found.
    pub const HOOKS: u32 = 6;
    /// The program may use the CPU's tiles (AMX).
    pub const TILES: u32 = 7;
}

/// The order with which a thread is sent.
pub mod order {
    /// Be isolated.
    pub const ISOLATE: u32 = 0;
    /// First make the program's memory sharable; everybody else is stopped.
    pub const CONVERT: u32 = 1;
}

/// A thread's registers where it was interrupted: in the order in which the library
/// restores them, the last five as `iretq` takes them.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Registers {
    /// r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi.
    pub general: [AtomicU64; 15],
    /// rip, cs, rflags, rsp, ss.
    pub frame: [AtomicU64; 5],
}

/// A thread's place.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Slot {
    /// See [`state`].
    pub state: AtomicU32,
    /// The thread.
    pub thread: AtomicU32,
    /// Its worker.
    pub worker: AtomicU32,
    /// See [`order`].
    pub order: AtomicU32,
    /// The worker is to end the episode at its next tick.
    pub recall: AtomicU32,
    /// See [`why`].
    pub why: AtomicU32,
    /// Where the thread goes on: the address of the signal frame's context.
    pub context: AtomicU64,
    /// The thread's signal mask.
    pub mask: AtomicU64,
    /// Its alternate signal stack: address, flags, size.
    pub stack: [AtomicU64; 3],
    /// The address that it was sent home for, if it was.
    pub address: AtomicU64,
    /// Where it was then.
    pub instruction: AtomicU64,
    /// When the episode began (monotonic clock, ns).
    pub since: AtomicU64,
    /// When it ended.
    pub until: AtomicU64,
    /// Episodes.
    pub episodes: AtomicU64,
    /// Intervals between commits, and what was left of one at each episode's end
    /// ([`crate::tracking`]).
    pub periods: AtomicU64,
    /// The thread's CPU time when the episode began, in ns; a worker's is its own.
    pub spent: AtomicU64,
    /// What of it has been told with a moment.
    pub told: AtomicU64,
    /// What earlier workers spent after their last tick, not told yet.
    pub left: AtomicU64,
    /// Bytes that commits wrote in this episode, or in the last.
    pub written: AtomicU64,
    /// How often the thread has looked after its worker, so that this knows that it is not
    /// stopped.
    pub looks: AtomicU64,
}

/// A page that isolated threads have for themselves.
#[derive(Debug)]
#[repr(C)]
pub struct Wanted {
    /// Its address.
    pub address: AtomicU64,
    /// 0: wanted. 1: bytes beside the named ones have changed, so it is shared again. 2: its
    /// object is gone.
    pub given_up: AtomicU32,
    /// Which bytes are meant, a bit for each.
    pub bytes: [AtomicU64; 64],
}

/// A page of code of which isolated threads may execute a part.
#[derive(Debug)]
#[repr(C)]
pub struct Guarded {
    /// Its address; 0 if other code may have come there since.
    pub address: AtomicU64,
    /// Where instructions begin that are to end the episode: a bit for each byte.
    pub points: [AtomicU64; 64],
}

/// A call of an allocation function, as the tool wants it; written before the program
/// starts.
#[derive(Debug)]
#[repr(C)]
pub struct Site {
    /// Where the call returns to: the address in the file. 0 for none.
    pub offset: AtomicU64,
    /// Whether it is in the program's own file.
    pub is_program: AtomicU32,
    /// The file's path otherwise, ended by a zero.
    pub file: [AtomicU8; SITE_NAME],
}

/// A living block from one of the call sites.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Block {
    /// Its address; 0 for none.
    pub address: AtomicU64,
    /// Its bytes.
    pub bytes: AtomicU64,
    /// 1: the program itself asked for it.
    pub asked: AtomicU32,
}

/// The head of the control file.
#[derive(Debug)]
#[repr(C)]
pub struct Control {
    /// [`ISOLATE_MAGIC`].
    pub magic: u64,
    /// [`ISOLATE_VERSION`].
    pub version: u32,
    /// The process that is meant; others leave the file alone.
    pub process: AtomicU32,
    /// The tool, which is the parent of the process.
    pub tool: AtomicU32,
    /// See [`ready`].
    pub ready: AtomicU32,
    /// See [`closed`].
    pub closed: AtomicU32,
    /// Where the target has mapped this.
    pub base: AtomicU64,
    /// Where threads are sent, with their slot's address in `rdi`.
    pub entry: AtomicU64,
    /// How often memory was made sharable.
    pub conversions: AtomicU32,
    /// What the last conversion came to: 0 under way, 1 done, 2 failed, 3 not
    /// now.
    pub converted: AtomicU32,
    /// The thread that wants all others stopped; 0 for none.
    pub stop: AtomicU32,
    /// 1: they are stopped; 2: they can't be.
    pub stopped: AtomicU32,
    /// How many callers want nobody isolated just now.
    pub held: AtomicU32,
    /// Bytes in the scratch space of the plan for the hooks ([`crate::sites`]), which the
    /// tool puts there before a conversion while there are none; else 0.
    pub plan_bytes: AtomicU32,
    /// Where code lies that leads kernel calls through hooks: starts and ends. Zeroes until
    /// the first conversion.
    pub hooks: [[AtomicU64; 2]; HOOK_AREAS],
    /// Pages in use of `pages`.
    pub page_count: AtomicU32,
    /// Ranges in use of `codes`.
    pub code_count: AtomicU32,
    /// The interval of commits in microseconds.
    pub tick: AtomicU32,
    /// A signal that takes samples for the tool: nothing that a thread would have to come
    /// home for. 0 for none.
    pub our_signal: AtomicU32,
    /// Bytes that commits wrote.
    pub committed_bytes: AtomicU64,
    /// Commits.
    pub commits: AtomicU64,
    /// Bytes of memory that were made sharable.
    pub shared_bytes: AtomicU64,
    /// Returns, by reason.
    pub returns: [AtomicU64; why::COUNT],
    /// The last error number of a system call that failed, negative.
    pub error: AtomicI64,
    /// Pages.
    pub pages: [Wanted; PAGES],
    /// Starts and ends of code that may be executed, whole pages; zeroes where other code may have
    /// come since.
    pub codes: [[AtomicU64; 2]; CODES],
    /// Pages in use of `guarded`, which only grows.
    pub guarded_count: AtomicU32,
    /// Pages of code of which a part may be executed.
    pub guarded: [Guarded; GUARDED],
    /// Starts and ends of memory that was made sharable.
    pub ranges: [[AtomicU64; 2]; RANGES],
    /// How many there are.
    pub range_count: AtomicU32,
    /// Starts and ends of memory that the next conversion leaves as it is; the tool writes them before.
    pub apart: [[AtomicU64; 2]; APART],
    /// How many there are.
    pub apart_count: AtomicU32,
    /// Call sites.
    pub sites: [Site; SITES],
    /// Blocks from there.
    pub blocks: [Block; BLOCKS],
    /// Raised when blocks came or went.
    pub block_changes: AtomicU32,
    /// Threads.
    pub slots: [Slot; SLOTS],
    /// What faults and commits tell.
    pub tracking: Tracking,
}

/// Where the scratch space begins.
pub const SCRATCH_AT: usize = size_of::<Control>().next_multiple_of(4096);
/// Where the suitcases begin.
pub const SUITCASES_AT: usize = SCRATCH_AT + SCRATCH;
/// Where a worker maps what it alone has: first the list of mappings ([`SCRATCH`] bytes), then a
/// twin and the shared page for each page that can be private. Anywhere else the program has
/// memory, or gets it.
pub const ROOM_AT: usize = SUITCASES_AT + SLOTS * SUITCASE;
/// Bytes of that, and a page that keeps it apart from the program's memory.
pub const ROOM: usize = SCRATCH + 2 * (PAGES + SHARED) * 4096 + 4096;
/// Bytes of the file.
pub const CONTROL_BYTES: usize = ROOM_AT + ROOM;

/// The name of the file that holds the program's memory, as its mappings show it.
pub const MEMORY_NAME: &str = "sunder-memory";
