//! The control file of remap: memory that the tool makes, and that the tool and the library
//! inside the program both map. The tool decides which bytes move where, and which copies of
//! code replace which code. The library carries that out, and asks the tool about faults.
//!
//! Everything is an atomic word, so a torn or hostile file can give wrong numbers but nothing
//! worse. Both sides check numbers before they use them.

use crate::parked::{PARKED, Parked};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};
pub use sunder_x86::copies::CONDITIONS;

/// The first eight bytes of the control file.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SUNDMOVE");
/// The version of the layout.
pub const VERSION: u32 = 9;
/// The value that comes with the signal by which the tool asks a thread to look at
/// [`Area::wanted`].
pub const TOOL_SIGNAL: u64 = 0x5355_4e44_4245_4c4c;

/// The most ranges of pages that can be moved in one program.
pub const AREAS: usize = 8;
/// The most threads that can wait for an answer at a time.
pub const REQUESTS: usize = 32;
/// The most entries into copies of code.
pub const ENTRIES: usize = 16384;
/// The number of lists of entries; see [`bucket`].
pub const BUCKETS: usize = 1024;
/// The most groups of bytes of one area that move to lines of their own.
pub const GROUPS: usize = 256;
/// The most instructions in the copies of code of one area.
pub const RESUMES: usize = 65536;

/// Bytes of copied code of one area. It is near the code that it replaces.
pub const CACHE: u64 = 512 << 10;
/// The most bytes of pages that one area moves.
pub const MOST_MOVED: u64 = 64 << 10;
/// Offset in an area's data of the moved pages.
pub const UNDERLAY: u64 = 0;
/// Offset in an area's data of the groups.
pub const POOL: u64 = UNDERLAY + MOST_MOVED;
/// The most bytes of all groups.
pub const POOL_BYTES: u64 = 64 << 10;
/// Offset in an area's data of the memory in which the pages are rebuilt for a rollback.
pub const SCRATCH: u64 = POOL + POOL_BYTES;
/// Offset of the same for the groups.
pub const SCRATCH_POOL: u64 = SCRATCH + MOST_MOVED;
/// Bytes of an area's data in the program's address space.
pub const AREA_BYTES: u64 = SCRATCH_POOL + POOL_BYTES;

/// [`Control::ready`]: the library is not loaded, or not yet.
pub const NOT_LOADED: u32 = 0;
/// [`Control::ready`]: the library is set up.
pub const READY: u32 = 1;
/// [`Control::ready`]: kernel calls can't be led through hooks, so nothing may be
/// moved.
pub const NO_HOOKS: u32 = 2;
/// [`Control::ready`]: the program has forked or confined itself (by seccomp, for example), or
/// must not be changed any more for another reason.
pub const WITHDRAWN: u32 = 3;

/// [`Area::state`]: the area is not used.
pub const FREE: u32 = 0;
/// [`Area::state`]: the bytes are being moved.
pub const APPLYING: u32 = 1;
/// [`Area::state`]: the bytes are moved.
pub const ACTIVE: u32 = 2;
/// [`Area::state`]: the bytes are being moved back.
pub const ROLLING_BACK: u32 = 3;
/// [`Area::state`]: the bytes are at their original place; they can be moved again.
pub const ROLLED_BACK: u32 = 4;
/// [`Area::state`]: the bytes could not be moved; [`Area::reason`] has the error number.
pub const REFUSED: u32 = 5;

/// [`Area::wanted`]: nothing is to be done.
pub const NOTHING: u32 = 0;
/// [`Area::wanted`]: move the bytes.
pub const APPLY: u32 = 1;
/// [`Area::wanted`]: move the bytes back.
pub const ROLL_BACK: u32 = 2;
/// [`Area::wanted`]: after a rollback, move the same bytes to the same places again. The copies
/// of code from before are valid again.
pub const APPLY_AGAIN: u32 = 3;

/// [`Area::reason`] of a rollback: the tool wanted it.
pub const BY_TOOL: u32 = 1;
/// [`Area::reason`]: an instruction can't be redirected.
pub const BY_INSTRUCTION: u32 = 2;
/// [`Area::reason`]: there were too many faults.
pub const BY_FAULTS: u32 = 3;
/// [`Area::reason`]: the kernel was given a pointer to the page.
pub const BY_KERNEL: u32 = 4;
/// [`Area::reason`]: the program changes the mapping.
pub const BY_MAPPING: u32 = 5;
/// [`Area::reason`]: the program forks or starts another program.
pub const BY_FORK: u32 = 6;
/// [`Area::reason`]: the tool does not answer.
pub const BY_SILENCE: u32 = 7;
/// [`Area::reason`]: the program confines itself.
pub const BY_CONFINEMENT: u32 = 8;
/// [`Area::reason`]: the program changes its signal handling in a way that can't be followed.
pub const BY_SIGNALS: u32 = 9;
/// [`Area::reason`]: the program dies. Whatever reads its memory then must find the bytes at
/// their original place.
pub const BY_DEATH: u32 = 10;
/// [`Area::reason`]: the thread whose stack the bytes are part of goes on.
pub const BY_OWNER: u32 = 11;
/// [`Area::reason`]: the program opens its memory as a file, which would show the bytes at their
/// original place.
pub const BY_FILE: u32 = 12;
/// [`Area::reason`]: the program ends, or a thread of it does without the C library.
pub const BY_END: u32 = 13;

/// The bits of [`Request::state`] that hold the stage of the question.
const STAGE: u32 = 3;
/// The request is free.
const UNUSED: u32 = 0;
/// A thread is filling it in.
const TAKEN: u32 = 1;
/// It waits for the tool's answer.
const ASKED: u32 = 2;
/// The tool has answered it.
const ANSWERED: u32 = 3;

/// [`Condition::what`]: this register number stands for a word on the stack.
pub const STACK: u64 = 16;

/// A group of bytes that moves to lines of its own.
#[repr(C)]
#[derive(Debug)]
pub struct Group {
    /// Offset of its first byte from the start of the pages.
    pub from: AtomicU32,
    /// The number of bytes.
    pub len: AtomicU32,
    /// Offset of its new place from the start of the area's data.
    pub to: AtomicU32,
}

/// The original of an instruction in a copy.
#[repr(C)]
#[derive(Debug)]
pub struct Resume {
    /// Offset of the copied instruction from the start of the area's code; ascending.
    pub offset: AtomicU32,
    /// Bytes by which the stack pointer has to go up for the original instruction: the copy has
    /// pushed what it has not.
    pub pushed: AtomicU32,
    /// Address of the original instruction.
    pub original: AtomicU64,
    /// What the copy has added to rdi, as a signed number.
    pub destination: AtomicU32,
    /// What the copy has added to rsi, as a signed number.
    pub source: AtomicU32,
    /// What the copy has taken off rcx, as a signed number.
    pub count: AtomicU32,
    /// 1 + the number of a register whose value lies at the top of the stack, as the copy uses the
    /// register for something else; 0 for none.
    pub saved: AtomicU32,
}

impl Resume {
    /// Makes the general registers of a thread that is stopped here, by their numbers in machine
    /// code, those of the original instruction. `top` reads the word at the top of its stack.
    pub fn restore(&self, general: &mut [u64; 16], top: impl FnOnce(u64) -> u64) {
        let saved = (self.saved.load(Relaxed) as usize).checked_sub(1);
        let [_, _, _, _, rsp, ..] = *general;
        if let Some(register) = saved.and_then(|saved| general.get_mut(saved)) {
            *register = top(rsp);
        }
        let [_, rcx, _, _, rsp, _, rsi, rdi, ..] = general;
        let signed = |word: &AtomicU32| word.load(Relaxed) as i32 as i64 as u64;
        *rdi = rdi.wrapping_sub(signed(&self.destination));
        *rsi = rsi.wrapping_sub(signed(&self.source));
        *rcx = rcx.wrapping_add(signed(&self.count));
        *rsp = rsp.wrapping_add(self.pushed.load(Relaxed).into());
    }
}

/// A range of pages that is moved.
#[repr(C)]
#[derive(Debug)]
pub struct Area {
    /// [`FREE`] to [`REFUSED`]; a futex.
    pub state: AtomicU32,
    /// The reason for which it was refused or rolled back.
    pub reason: AtomicU32,
    /// What the tool wants: [`NOTHING`] to [`APPLY_AGAIN`].
    pub wanted: AtomicU32,
    /// Number of groups.
    pub groups: AtomicU32,
    /// Address of the first page.
    pub page: AtomicU64,
    /// Bytes of the pages.
    pub len: AtomicU64,
    /// Address of the area's data.
    pub at: AtomicU64,
    /// Address of the area's code.
    pub code: AtomicU64,
    /// The number of faults on its pages.
    pub faults: AtomicU64,
    /// The number of these faults that the tool was asked about.
    pub asked: AtomicU64,
    /// The instruction that could not be redirected, or the kernel call that failed.
    pub culprit: AtomicU64,
    /// When it was last moved, on the monotonic clock.
    pub applied: AtomicU64,
    /// When it was last moved back, on the monotonic clock.
    pub rolled_back: AtomicU64,
    /// How long moving took, in nanoseconds.
    pub took: AtomicU64,
    /// When the present window for counting faults began.
    pub window: AtomicU64,
    /// The number of faults in that window.
    pub window_faults: AtomicU64,
    /// The number of entries of `resumes` in use.
    pub resume_count: AtomicU32,
    /// Not 0 if it can't be moved again, because a part of its address ranges is in other use.
    pub spoilt: AtomicU32,
    /// The groups.
    pub group: [Group; GROUPS],
    /// The instructions of its copies of code.
    pub resumes: [Resume; RESUMES],
}

/// A thread's question where to continue after a fault.
#[repr(C)]
#[derive(Debug)]
pub struct Request {
    /// The stage, and above it the number of questions so far. The number keeps a late answer
    /// from reaching another question. A futex.
    pub state: AtomicU32,
    /// The thread that asks.
    pub thread: AtomicU32,
    /// The index of the area.
    pub area: AtomicU32,
    /// Whether string instructions of the thread go downwards.
    pub downwards: AtomicU32,
    /// Whether threads have left the copies that are known, and come back to them, very often.
    pub again: AtomicU32,
    /// Address of the original instruction.
    pub ip: AtomicU64,
    /// The address that the instruction could not access.
    pub address: AtomicU64,
    /// The general registers by number.
    pub general: [AtomicU64; 16],
    /// Where the thread continues; 0 if the area must be rolled back.
    pub answer: AtomicU64,
}

impl Request {
    /// Takes the request for filling it in; `false` if it is not free.
    pub fn take(&self) -> bool {
        let state = self.state.load(Relaxed);
        let taken = (state & !STAGE).wrapping_add(STAGE + 1) | TAKEN;
        state & STAGE == UNUSED
            && self
                .state
                .compare_exchange(state, taken, AcqRel, Relaxed)
                .is_ok()
    }

    /// Asks the question that was filled in after [`Self::take`]. The value identifies the
    /// question.
    pub fn ask(&self) -> u32 {
        let asked = self.state.load(Relaxed) & !STAGE | ASKED;
        self.state.store(asked, Release);
        asked
    }

    /// Whether the question `asked` still waits for an answer.
    pub fn waits(&self, asked: u32) -> bool {
        self.state.load(Acquire) == asked
    }

    /// Gives up waiting for the answer; `false` if the question has been answered.
    pub fn give_up(&self, asked: u32) -> bool {
        let free = asked & !STAGE | UNUSED;
        self.state
            .compare_exchange(asked, free, AcqRel, Acquire)
            .is_ok()
    }

    /// The answer to the question `asked`, which no longer waits. It makes the request free.
    /// Called by the thread that asked. `None` if there is no answer, which happens only with a
    /// damaged file.
    pub fn take_answer(&self, asked: u32) -> Option<u64> {
        let answered = self.state.load(Acquire) == asked & !STAGE | ANSWERED;
        let answer = self.answer.load(Relaxed);
        self.state.store(asked & !STAGE | UNUSED, Release);
        answered.then_some(answer)
    }

    /// For the tool: the question that waits in this request, if there is one.
    pub fn question(&self) -> Option<u32> {
        let state = self.state.load(Acquire);
        (state & STAGE == ASKED).then_some(state)
    }

    /// For the tool: whether all values that it has read since [`Self::question`] belong to the
    /// question `asked`.
    pub fn was_read(&self, asked: u32) -> bool {
        fence(Acquire);
        self.state.load(Relaxed) == asked
    }

    /// For the tool, in one thread only: answers the question; `false` if no thread waits for
    /// the answer any more.
    pub fn answer(&self, asked: u32, answer: u64) -> bool {
        self.answer.store(answer, Relaxed);
        let answered = asked & !STAGE | ANSWERED;
        self.state
            .compare_exchange(asked, answered, AcqRel, Relaxed)
            .is_ok()
    }
}

/// A condition of an entry: the value named by `what` is at least `low` and at most `high`, and a whole
/// number of steps above `low`.
#[repr(C)]
#[derive(Debug)]
pub struct Condition {
    /// The number of a register, or [`STACK`] plus an offset from rsp shifted left by 8.
    pub what: AtomicU64,
    /// The least allowed value.
    pub low: AtomicU64,
    /// The greatest allowed value.
    pub high: AtomicU64,
    /// The distance from one allowed value to the next; 1 or 0 if all between `low` and `high` are.
    pub step: AtomicU64,
}

/// An entry into a copy of code.
#[repr(C)]
#[derive(Debug)]
pub struct Entry {
    /// Address of the original instruction.
    pub original: AtomicU64,
    /// Address of its copy.
    pub target: AtomicU64,
    /// The index of the area.
    pub area: AtomicU32,
    /// Whether the copy is of this instruction only.
    pub alone: AtomicU32,
    /// The number of conditions.
    pub count: AtomicU32,
    /// 1 + the index of the next entry of its bucket; 0 at the end.
    pub next: AtomicU32,
    /// The conditions that the registers must meet.
    pub conditions: [Condition; CONDITIONS],
}

/// The control file.
#[repr(C)]
#[derive(Debug)]
pub struct Control {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// [`NOT_LOADED`] to [`WITHDRAWN`].
    pub ready: AtomicU32,
    /// The process in which the library is set up.
    pub process: AtomicU32,
    /// The tool's process.
    pub tool: AtomicU32,
    /// Counts questions; a futex on which the tool waits.
    pub bell: AtomicU32,
    /// The number of entries of `entries` in use.
    pub entry_count: AtomicU32,
    /// The tool's: where it has written down in the program what it has changed; 0 for nowhere.
    pub ledger: AtomicU64,
    /// Threads that are kept off their stacks.
    pub parked: [Parked; PARKED],
    /// 1 + the index of the newest entry of each bucket; 0 for none.
    pub buckets: [AtomicU32; BUCKETS],
    /// The threads' questions.
    pub requests: [Request; REQUESTS],
    /// Answers that stay valid: entries into copies of code.
    pub entries: [Entry; ENTRIES],
    /// The ranges of pages that are moved.
    pub areas: [Area; AREAS],
}

/// Bytes of the control file without the code that follows it, [`CACHE`] bytes for each area.
pub const BYTES: usize = size_of::<Control>().next_multiple_of(4096);

/// Bytes of the control file with the code.
pub const TOTAL: usize = BYTES + AREAS * CACHE as usize;

/// The index of the list that has the entries of the instruction at `original`.
#[must_use]
pub const fn bucket(original: u64) -> usize {
    (original ^ original >> 10 ^ original >> 20) as usize % BUCKETS
}

/// The reason of a rollback in words.
#[must_use]
pub const fn reason(number: u32) -> &'static str {
    match number {
        BY_TOOL => "it did not help",
        BY_INSTRUCTION => "an instruction can't be redirected",
        BY_FAULTS => "too many accesses could not be redirected in advance",
        BY_KERNEL => "the kernel was given a pointer to the bytes",
        BY_MAPPING => "the program changed the mapping",
        BY_FORK => "the program started another process or program",
        BY_SILENCE => "the tool did not answer in time",
        BY_CONFINEMENT => "the program confined itself",
        BY_SIGNALS => "the program changed how it treats signals",
        BY_DEATH => "a fault or a signal came that ends a program",
        BY_END => "the program ended",
        BY_FILE => "the program opened its memory as a file",
        BY_OWNER => "the thread whose stack they are part of went on",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_an_area_do_not_overlap_and_are_whole_pages() {
        let parts = [
            (UNDERLAY, MOST_MOVED),
            (POOL, POOL_BYTES),
            (SCRATCH, MOST_MOVED),
            (SCRATCH_POOL, POOL_BYTES),
        ];
        let mut end = 0;
        for (start, len) in parts {
            assert_eq!(start, end);
            assert_eq!(len % 4096, 0);
            end = start + len;
        }
        assert_eq!(end, AREA_BYTES);
    }

    fn request() -> Request {
        Request {
            state: AtomicU32::new(0),
            thread: AtomicU32::new(0),
            area: AtomicU32::new(0),
            downwards: AtomicU32::new(0),
            again: AtomicU32::new(0),
            ip: AtomicU64::new(0),
            address: AtomicU64::new(0),
            general: [const { AtomicU64::new(0) }; 16],
            answer: AtomicU64::new(0),
        }
    }

    #[test]
    fn a_question_has_one_answer() {
        let request = request();
        assert_eq!(request.question(), None);
        assert!(request.take());
        assert!(!request.take(), "another thread's");
        assert_eq!(request.question(), None, "it is not filled in");
        let asked = request.ask();
        assert!(request.waits(asked) && !request.take());
        assert_eq!(request.question(), Some(asked));
        assert!(request.was_read(asked) && request.answer(asked, 7));
        assert!(!request.waits(asked) && !request.give_up(asked));
        assert_eq!(request.question(), None);
        assert!(!request.take(), "its answer has not been taken");
        assert_eq!(request.take_answer(asked), Some(7));
        assert!(request.take());
    }

    /// The first thread gives up, another takes the request, and only then does the tool answer
    /// the first. With that answer the second thread would continue in code that was made for
    /// the first one's registers.
    #[test]
    fn a_late_answer_is_not_given_to_another_question() {
        let request = request();
        assert!(request.take());
        let first = request.ask();
        assert_eq!(request.question(), Some(first));
        assert!(request.give_up(first));
        assert!(
            !request.was_read(first) && !request.answer(first, 7),
            "nobody waits"
        );
        assert!(request.take());
        assert!(!request.answer(first, 7), "it is not filled in");
        let second = request.ask();
        assert!(!request.was_read(first) && !request.answer(first, 7));
        assert!(request.waits(second));
        assert!(request.answer(second, 8));
        assert_eq!(request.take_answer(second), Some(8));
    }

    /// Around a string instruction, and behind the push of a call.
    #[test]
    fn what_a_copy_has_done_to_registers_is_undone() {
        let place = Resume {
            offset: AtomicU32::new(0),
            pushed: AtomicU32::new(8),
            original: AtomicU64::new(0),
            destination: AtomicU32::new((-0x100i32) as u32),
            source: AtomicU32::new(0x20),
            count: AtomicU32::new(3),
            saved: AtomicU32::new(3),
        };
        let mut general: [u64; 16] = core::array::from_fn(|n| 0x1000 * n as u64);
        place.restore(&mut general, |at| at + 1);
        let wanted = |n: usize| match n {
            1 => 0x1003,
            2 => 0x4001,
            4 => 0x4008,
            6 => 0x5fe0,
            7 => 0x7100,
            _ => 0x1000 * n as u64,
        };
        assert_eq!(general, core::array::from_fn(wanted));
    }

    #[test]
    fn question_numbers_wrap_around() {
        let request = request();
        request.state.store(!STAGE | UNUSED, Relaxed);
        assert!(request.take());
        let asked = request.ask();
        assert!(request.answer(asked, 1));
        assert_eq!(request.take_answer(asked), Some(1));
    }

    #[test]
    fn neighbouring_instructions_are_in_different_buckets() {
        let mut used = std::collections::HashSet::new();
        for at in 0..64 {
            used.insert(bucket(0x5555_5555_1234 + at));
        }
        assert_eq!(used.len(), 64);
    }
}
