//! The control file of `sunder protect`: memory that the tool makes and that the tool and the
//! isolating library in the target both map. It has only types and constants: nothing here
//! allocates or makes system calls. The target's program may be broken, so the tool must check
//! every number that the target may have written.

use crate::commits::Commits;
use crate::placing::Placing;
use crate::tracking::{SHARED, Tracking};
use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64};

/// The environment variable with three paths, separated by commas: the control file, the file
/// for the program's memory, and the library.
pub const ISOLATE_VARIABLE: &str = "SUNDER_ISOLATE";

/// The first eight bytes of the control file.
pub const ISOLATE_MAGIC: u64 = u64::from_le_bytes(*b"sundisol");
/// The version of the layout that follows.
pub const ISOLATE_VERSION: u32 = 12;

/// The most call sites whose allocations are isolated.
pub const SITES: usize = 16;
/// The most bytes of a call site's file name.
pub const SITE_NAME: usize = 256;
/// The most live blocks from these call sites.
pub const BLOCKS: usize = 64;
/// The most ranges of the program's memory that are made sharable.
pub const RANGES: usize = 4096;
/// The most ranges that are never made sharable, because forked children must get their own
/// copy.
pub const APART: usize = 1024;
/// The most threads that can be isolated at a time.
pub const SLOTS: usize = 128;
/// The most pages that can be private.
pub const PAGES: usize = 32;
/// The most private mappings of files that workers keep. Not more than [`Slot::inputs`] has bits.
pub const INPUTS: usize = 32;
/// The most ranges of code that isolated threads may execute.
pub const CODES: usize = 1024;
/// The most pages of code of which isolated threads may execute a part.
pub const GUARDED: usize = 64;
/// The most ranges of code that lead kernel calls through hooks.
pub const HOOK_AREAS: usize = 4;
/// Bytes of a suitcase: the memory that a thread and its worker need while the thread is
/// isolated.
pub const THREAD_AREA: usize = 256 << 10;
/// Offset in a suitcase of the end of the thread's stack and of its [`Registers`].
pub const REGISTERS: usize = 60 << 10;
/// Offset in a suitcase of the floating-point and vector state.
pub const VECTORS: usize = 64 << 10;
/// Bytes of that state.
pub const VECTORS_BYTES: usize = 32 << 10;
/// Offset in a suitcase of the worker's signal stack, which ends with the suitcase.
pub const WORKER_STACK: usize = 96 << 10;
/// Bytes of the scratch space: the tool puts the plan for the hooks there, and during a
/// conversion the library reads the list of mappings into it.
pub const SCRATCH: usize = 1 << 20;

/// The state of a thread with a slot.
pub mod state {
    /// No thread has the slot.
    pub const FREE: u32 = 0;
    /// The thread runs natively.
    pub const HOME: u32 = 1;
    /// The tool has redirected it to [`super::Control::entry`], and its episode is about to
    /// begin.
    pub const ENTERING: u32 = 2;
    /// Its worker runs, and the thread is parked.
    pub const ISOLATED: u32 = 3;
    /// The worker has stored the state from which the thread continues.
    pub const RETURNING: u32 = 4;
}

/// The state of the library in the target.
pub mod ready {
    /// No program has started yet.
    pub const NOBODY: u32 = 0;
    /// The library is set up.
    pub const READY: u32 = 1;
    /// The library is set up in another program that the process has executed. The tool drops
    /// what it knew about the previous program, and sets [`READY`].
    pub const ANOTHER: u32 = 2;
    /// Another program is starting; the tool does nothing.
    pub const BEGINNING: u32 = 3;
}

/// What is known of a private mapping of a file, of which workers have the file's own pages.
pub mod input {
    /// The entry is not used.
    pub const FREE: u32 = 0;
    /// It is being filled in.
    pub const TAKEN: u32 = 1;
    /// Nobody has written to the mapping, as far as is known.
    pub const READ: u32 = 2;
    /// Somebody has written to it: pages of it are the process's own, and workers don't have it.
    pub const WRITTEN: u32 = 3;
}

/// Why a worker ended its episode.
pub mod why {
    /// The tool or the thread asked the worker to.
    pub const RECALLED: u32 = 1;
    /// The program made a system call.
    pub const SYSTEM_CALL: u32 = 2;
    /// The program accessed memory that the worker does not have.
    pub const MEMORY: u32 = 3;
    /// The program reached code that the worker may not execute.
    pub const CODE: u32 = 4;
    /// The program raised another exception.
    pub const EXCEPTION: u32 = 5;
    /// No worker could be made.
    pub const NO_WORKER: u32 = 6;
    /// The program's memory could not be made sharable.
    pub const NO_MEMORY: u32 = 7;
    /// Bytes beside the isolated objects were written on a page, so that page is shared again.
    pub const OTHER_BYTES: u32 = 8;
    /// The number of reasons, including 0.
    pub const COUNT: usize = 9;
}

/// Why no thread is isolated any more.
pub mod closed {
    /// Threads are still isolated.
    pub const OPEN: u32 = 0;
    /// The program has forked, or is about to.
    pub const FORK: u32 = 1;
    /// The program orders memory accesses between threads by `membarrier`.
    pub const MEMBARRIER: u32 = 2;
    /// The program's memory could not be made sharable.
    pub const MEMORY: u32 = 3;
    /// The program moved memory in a way that can't be followed.
    pub const MOVED: u32 = 4;
    /// The program has timers of CPU time, or a limit of it.
    pub const TIMERS: u32 = 5;
    /// The first conversion found that the C library's kernel calls can't be led through hooks.
    pub const HOOKS: u32 = 6;
    /// The program may use the CPU's tiles (AMX).
    pub const TILES: u32 = 7;
    /// Isolation took too much of the threads' time ([`super::Upkeep`]).
    pub const COSTS: u32 = 8;
    /// The program has confined itself (seccomp).
    pub const CONFINED: u32 = 9;
    /// The program waits for children of all kinds, which workers are.
    pub const WAITS: u32 = 10;
}

/// What a redirected thread shall do.
pub mod order {
    /// Begin an episode.
    pub const ISOLATE: u32 = 0;
    /// First make the program's memory sharable; all other threads are stopped.
    pub const CONVERT: u32 = 1;
}

/// A thread's registers at the interrupted instruction, in the order in which the library
/// restores them. The last five are as `iretq` takes them.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Registers {
    /// r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi.
    pub general: [AtomicU64; 15],
    /// rip, cs, rflags, rsp, ss.
    pub frame: [AtomicU64; 5],
}

/// What isolation takes from a thread, in ns of CPU time. The figures only grow, and are exact to an
/// interval between commits while the thread is isolated, and to an episode while it is native.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Upkeep {
    /// The CPU time of the thread and its workers, from its first episode on.
    pub all: AtomicU64,
    /// The part of it in which it did not compute, since isolation took it: workers that are made and
    /// ended, page faults, signal handlers, commits.
    pub taken: AtomicU64,
    /// The part of `taken` that private pages took: their copies and commits.
    pub pages: AtomicU64,
}

/// The record of one thread that may be isolated.
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
    /// Set if the worker is to end the episode at its next commit.
    pub recall: AtomicU32,
    /// See [`why`].
    pub why: AtomicU32,
    /// Address of the signal frame's context, from which the thread continues.
    pub context: AtomicU64,
    /// The thread's signal mask.
    pub mask: AtomicU64,
    /// Its alternate signal stack: address, flags, size.
    pub stack: [AtomicU64; 3],
    /// The address of the access that ended the episode, if an access did.
    pub address: AtomicU64,
    /// The instruction that ended the episode.
    pub instruction: AtomicU64,
    /// When the episode began, in ns of the monotonic clock.
    pub since: AtomicU64,
    /// When the episode ended.
    pub until: AtomicU64,
    /// The number of episodes.
    pub episodes: AtomicU64,
    /// The number of periods ([`crate::tracking`]): intervals between commits, and the rest of
    /// one at each episode's end.
    pub periods: AtomicU64,
    /// The thread's CPU time in ns when the episode began; the worker's CPU time counts from 0.
    pub spent: AtomicU64,
    /// The part of the episode's CPU time that has been reported with a moment.
    pub told: AtomicU64,
    /// CPU time of earlier workers after their last commit, which has not been reported yet.
    pub left: AtomicU64,
    /// Bytes that commits wrote in this episode, or in the last one.
    pub written: AtomicU64,
    /// A bit for each of [`Control::inputs`] that the worker has kept.
    pub inputs: AtomicU32,
    /// How often the thread has checked its worker. It tells the worker that the thread is not
    /// stopped.
    pub looks: AtomicU64,
    /// The thread's CPU time in ns when its last episode ended; 0 before the first.
    pub native_since: AtomicU64,
    /// The part of the present worker's CPU time that `upkeep` has.
    pub metered: AtomicU64,
    /// What isolation takes from the thread.
    pub upkeep: Upkeep,
}

/// [`PrivatePage::given_up`] of a page on which bytes beside the named ones have changed.
pub const BESIDE: u32 = 1;
/// [`PrivatePage::given_up`] of a page whose object is gone.
pub const GONE: u32 = 2;
/// [`PrivatePage::given_up`] of a page whose copies cost too much.
pub const COSTLY: u32 = 3;
/// [`PrivatePage::given_up`] of a page that must not be private after all.
pub const LEFT_OUT: u32 = 4;

/// A page of which each isolated thread has a private copy.
#[derive(Debug)]
#[repr(C)]
pub struct PrivatePage {
    /// Its address.
    pub address: AtomicU64,
    /// 1 if the program has mapped it with `MAP_SHARED`, so that it need not be made sharable.
    pub common: AtomicU32,
    /// 0: the page is to be private. Else why it is shared again: [`BESIDE`], [`GONE`], [`COSTLY`] or
    /// [`LEFT_OUT`].
    pub given_up: AtomicU32,
    /// How often threads committed a copy of it.
    pub work: AtomicU64,
    /// A bit for each byte of the page that belongs to a named object.
    pub bytes: [AtomicU64; 64],
}

/// A private, writable mapping of a file that is no program's or library's.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Input {
    /// See [`input`].
    pub state: AtomicU32,
    /// Its first address.
    pub start: AtomicU64,
    /// The address after its last byte.
    pub end: AtomicU64,
    /// Since when it is known to be only read, in ns of the monotonic clock.
    pub since: AtomicU64,
}

/// A page of code of which isolated threads may execute a part.
#[derive(Debug)]
#[repr(C)]
pub struct GuardedPage {
    /// Its address; 0 if its code may have been replaced since.
    pub address: AtomicU64,
    /// A bit for each byte of the page, set where an instruction begins that must end the
    /// episode.
    pub points: [AtomicU64; 64],
}

/// A call of an allocation function whose blocks the tool wants isolated. Written before the
/// program starts.
#[derive(Debug)]
#[repr(C)]
pub struct Site {
    /// The return address of the call, as an address in its file; 0 if the entry is not used.
    pub offset: AtomicU64,
    /// Whether the call is in the program's own file.
    pub is_program: AtomicU32,
    /// Otherwise the path of the call's file, ended by a zero.
    pub file: [AtomicU8; SITE_NAME],
}

/// A live block from one of the call sites.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Block {
    /// Its address; 0 if the entry is not used.
    pub address: AtomicU64,
    /// Its size in bytes.
    pub bytes: AtomicU64,
    /// 1 if the program itself called the allocator.
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
    /// The process that is protected; other processes ignore the file.
    pub process: AtomicU32,
    /// The tool, which is the parent of the process.
    pub tool: AtomicU32,
    /// See [`ready`].
    pub ready: AtomicU32,
    /// See [`closed`].
    pub closed: AtomicU32,
    /// The address at which the target has mapped this file.
    pub base: AtomicU64,
    /// The library's entry, to which the tool redirects threads, with their slot's address in
    /// `rdi`.
    pub entry: AtomicU64,
    /// The number of conversions. A conversion makes the program's memory sharable.
    pub conversions: AtomicU32,
    /// The result of the last conversion: 0 under way, 1 done, 2 failed, 3 not possible now.
    pub converted: AtomicU32,
    /// The thread that wants all other threads stopped; 0 for none.
    pub stop: AtomicU32,
    /// 1: the other threads are stopped; 2: they can't be stopped.
    pub stopped: AtomicU32,
    /// The number of callers that need all threads to run natively at present.
    pub held: AtomicU32,
    /// The size in bytes of the plan for the hooks ([`crate::sites`]) in the scratch space. The
    /// tool puts it there before a conversion while there are no hooks; otherwise 0.
    pub plan_bytes: AtomicU32,
    /// Starts and ends of the code that leads kernel calls through hooks. Zeroes until the
    /// first conversion.
    pub hooks: [[AtomicU64; 2]; HOOK_AREAS],
    /// The number of entries of `pages` in use.
    pub page_count: AtomicU32,
    /// The number of entries of `codes` in use.
    pub code_count: AtomicU32,
    /// The interval of commits in microseconds.
    pub tick: AtomicU32,
    /// The signal by which the tool takes samples. It does not end an episode. 0 for none.
    pub our_signal: AtomicU32,
    /// The number of bytes that commits wrote.
    pub committed_bytes: AtomicU64,
    /// The number of commits.
    pub commits: AtomicU64,
    /// Bytes of memory that were made sharable.
    pub shared_bytes: AtomicU64,
    /// The number of ended episodes, by reason.
    pub returns: [AtomicU64; why::COUNT],
    /// The last error number of a system call that failed, as a negative number.
    pub error: AtomicI64,
    /// The pages that are to be private.
    pub pages: [PrivatePage; PAGES],
    /// Starts and ends of code that isolated threads may execute, in whole pages. Zeroes where
    /// the code may have been replaced since.
    pub codes: [[AtomicU64; 2]; CODES],
    /// The number of entries of `guarded` in use, which never shrinks.
    pub guarded_count: AtomicU32,
    /// Pages of code of which isolated threads may execute a part.
    pub guarded: [GuardedPage; GUARDED],
    /// Starts and ends of memory that was made sharable.
    pub ranges: [[AtomicU64; 2]; RANGES],
    /// The number of entries of `ranges` in use.
    pub range_count: AtomicU32,
    /// Starts and ends of memory that the next conversion leaves as it is. Written by the tool
    /// before.
    pub apart: [[AtomicU64; 2]; APART],
    /// The number of entries of `apart` in use.
    pub apart_count: AtomicU32,
    /// The call sites whose allocations are isolated.
    pub sites: [Site; SITES],
    /// Live blocks from these call sites.
    pub blocks: [Block; BLOCKS],
    /// Raised whenever `blocks` changes.
    pub block_changes: AtomicU32,
    /// Private mappings of files that workers have met.
    pub inputs: [Input; INPUTS],
    /// Which allocations get lines of their own.
    pub placing: Placing,
    /// The threads that may be isolated.
    pub slots: [Slot; SLOTS],
    /// What page faults and ticks record.
    pub tracking: Tracking,
    /// The log of what isolated threads do.
    pub log: Commits,
}

/// Offset of the scratch space.
pub const SCRATCH_AT: usize = size_of::<Control>().next_multiple_of(4096);
/// Offset of the suitcases.
pub const THREAD_AREAS_AT: usize = SCRATCH_AT + SCRATCH;
/// Offset of the room in which a worker maps memory of its own: first the list of mappings
/// ([`SCRATCH`] bytes), then a twin and the shared page for each page that can be private. At
/// any other address the program has memory, or may get it.
pub const ROOM_AT: usize = THREAD_AREAS_AT + SLOTS * THREAD_AREA;
/// Bytes of the room, including a page that separates it from the program's memory.
pub const ROOM: usize = SCRATCH + 2 * (PAGES + SHARED) * 4096 + 4096;
/// Bytes of the control file.
pub const CONTROL_BYTES: usize = ROOM_AT + ROOM;

/// The name of the file that holds the program's memory, as `/proc` shows it in the list of
/// mappings.
pub const MEMORY_NAME: &str = "sunder-memory";
