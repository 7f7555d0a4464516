//! The memory through which a program whose bytes are being moved and the tool that
//! decides talk: one file, mapped by both. The library inside the program carries
//! out and asks; what is moved where, and which code replaces which, the tool says.
//!
//! Everything is an atomic word, so that a torn or hostile file can give wrong
//! numbers but nothing worse; both sides check numbers before they use them.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, fence};

/// The first eight bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SUNDMOVE");
/// The version of the layout.
pub const VERSION: u32 = 3;
/// What comes with the signal by which the tool asks a thread to look at
/// [`Area::wanted`].
pub const BELL: u64 = 0x5355_4e44_4245_4c4c;

/// Ranges of pages that can be moved in one program.
pub const AREAS: usize = 8;
/// Threads that can ask at a time.
pub const REQUESTS: usize = 32;
/// Ways into copies of code.
pub const ENTRIES: usize = 4096;
/// Lists of entries, by [`bucket`].
pub const BUCKETS: usize = 1024;
/// Conditions of one entry.
pub const CONDITIONS: usize = 8;
/// Groups of bytes of one area that move to lines of their own.
pub const GROUPS: usize = 64;
/// Instructions in the copies of one area.
pub const RESUMES: usize = 16384;

/// Bytes of code of one area; they lie near the code that they replace.
pub const CACHE: u64 = 128 << 10;
/// The most bytes of pages that one area moves.
pub const MOST_MOVED: u64 = 64 << 10;
/// Where in an area's data the moved pages lie, at their offsets.
pub const UNDERLAY: u64 = 0;
/// Where in an area's data the groups lie.
pub const POOL: u64 = UNDERLAY + MOST_MOVED;
/// Bytes for groups.
pub const POOL_BYTES: u64 = 64 << 10;
/// Where in an area's data the pages lie while they are put together again.
pub const SCRATCH: u64 = POOL + POOL_BYTES;
/// The same for the groups.
pub const SCRATCH_POOL: u64 = SCRATCH + MOST_MOVED;
/// Bytes of an area's data in the program's address space.
pub const AREA_BYTES: u64 = SCRATCH_POOL + POOL_BYTES;

/// [`Control::ready`]: the library has not been loaded (yet).
pub const NOT_LOADED: u32 = 0;
/// [`Control::ready`]: it is in place.
pub const READY: u32 = 1;
/// [`Control::ready`]: kernel calls can't be led through hooks, so nothing may be
/// moved.
pub const NO_HOOKS: u32 = 2;
/// [`Control::ready`]: the program has confined itself, forked or is otherwise not
/// to be touched any more.
pub const WITHDRAWN: u32 = 3;

/// [`Area::state`]: nothing there.
pub const FREE: u32 = 0;
/// [`Area::state`]: bytes are on their way.
pub const APPLYING: u32 = 1;
/// [`Area::state`]: moved.
pub const ACTIVE: u32 = 2;
/// [`Area::state`]: bytes are on their way back.
pub const ROLLING_BACK: u32 = 3;
/// [`Area::state`]: as it was; it can be moved again.
pub const ROLLED_BACK: u32 = 4;
/// [`Area::state`]: never moved; [`Area::reason`] has the error number.
pub const REFUSED: u32 = 5;

/// [`Area::wanted`]: nothing.
pub const NOTHING: u32 = 0;
/// [`Area::wanted`]: move.
pub const APPLY: u32 = 1;
/// [`Area::wanted`]: move back.
pub const ROLL_BACK: u32 = 2;
/// [`Area::wanted`]: move again what was moved back, the same bytes to the same places;
/// copies of code that were made before hold again.
pub const APPLY_AGAIN: u32 = 3;

/// [`Area::reason`] of a rollback: the tool wanted it.
pub const BY_TOOL: u32 = 1;
/// An instruction can't be redirected.
pub const BY_INSTRUCTION: u32 = 2;
/// Too many faults.
pub const BY_FAULTS: u32 = 3;
/// The kernel was given a pointer to the page.
pub const BY_KERNEL: u32 = 4;
/// The program changes the mapping.
pub const BY_MAPPING: u32 = 5;
/// The program forks or starts another.
pub const BY_FORK: u32 = 6;
/// The tool does not answer.
pub const BY_SILENCE: u32 = 7;
/// The program confines itself.
pub const BY_CONFINEMENT: u32 = 8;
/// The program changes how it treats signals in a way that can't be followed.
pub const BY_SIGNALS: u32 = 9;
/// The program dies, and what reads its memory then finds its bytes where they were.
pub const BY_DEATH: u32 = 10;

/// The bits of [`Request::state`] that say how far it is.
const STAGE: u32 = 3;
/// Free.
const UNUSED: u32 = 0;
/// Being filled in.
const TAKEN: u32 = 1;
/// Waits for the tool.
const ASKED: u32 = 2;
/// Answered.
const ANSWERED: u32 = 3;

/// [`Entry::conditions`]: this register number stands for a place on the stack.
pub const STACK: u64 = 16;

/// A group of bytes.
#[repr(C)]
#[derive(Debug)]
pub struct Group {
    /// Offset from the start of the pages.
    pub from: AtomicU32,
    /// Bytes.
    pub len: AtomicU32,
    /// Offset from the start of the area's data.
    pub to: AtomicU32,
}

/// What an instruction of a copy stands for.
#[repr(C)]
#[derive(Debug)]
pub struct Resume {
    /// Offset from the start of the area's code; ascending.
    pub offset: AtomicU64,
    /// The original instruction.
    pub original: AtomicU64,
}

/// A range of pages that is moved.
#[repr(C)]
#[derive(Debug)]
pub struct Area {
    /// [`FREE`] to [`REFUSED`]; a futex.
    pub state: AtomicU32,
    /// Why it was refused or rolled back.
    pub reason: AtomicU32,
    /// What the tool wants.
    pub wanted: AtomicU32,
    /// Number of groups.
    pub groups: AtomicU32,
    /// The pages.
    pub page: AtomicU64,
    /// Their bytes.
    pub len: AtomicU64,
    /// Where its data lie.
    pub at: AtomicU64,
    /// Where its code lies.
    pub code: AtomicU64,
    /// Faults on its pages.
    pub faults: AtomicU64,
    /// Of these, those that the tool was asked about.
    pub asked: AtomicU64,
    /// The instruction that could not be redirected or the call that failed.
    pub culprit: AtomicU64,
    /// When it was moved, on the monotonic clock.
    pub applied: AtomicU64,
    /// When it was moved back.
    pub rolled_back: AtomicU64,
    /// Nanoseconds that moving took.
    pub took: AtomicU64,
    /// Start of the window in which faults are counted, and how many these are.
    pub window: AtomicU64,
    /// See `window`.
    pub window_faults: AtomicU64,
    /// Number of `resumes`.
    pub resume_count: AtomicU32,
    /// Not 0 if it can't be moved again: its places are not all there any more.
    pub spoilt: AtomicU32,
    /// The groups.
    pub group: [Group; GROUPS],
    /// The instructions of its copies.
    pub resumes: [Resume; RESUMES],
}

/// A thread's question: where does it go on?
#[repr(C)]
#[derive(Debug)]
pub struct Request {
    /// How far it is, and above that how often it was asked, so that an answer that comes too
    /// late is nobody else's; a futex.
    pub state: AtomicU32,
    /// The thread.
    pub thread: AtomicU32,
    /// The area.
    pub area: AtomicU32,
    /// Zero.
    pub reserved: AtomicU32,
    /// The original instruction.
    pub ip: AtomicU64,
    /// The address that it could not reach.
    pub address: AtomicU64,
    /// The registers by number.
    pub general: [AtomicU64; 16],
    /// Where it goes on; 0 to roll back.
    pub answer: AtomicU64,
}

impl Request {
    /// Takes it to fill it in, if it is free.
    pub fn take(&self) -> bool {
        let state = self.state.load(Relaxed);
        let taken = (state & !STAGE).wrapping_add(STAGE + 1) | TAKEN;
        state & STAGE == UNUSED
            && self
                .state
                .compare_exchange(state, taken, AcqRel, Relaxed)
                .is_ok()
    }

    /// It has been filled in by who took it. The value names this question.
    pub fn ask(&self) -> u32 {
        let asked = self.state.load(Relaxed) & !STAGE | ASKED;
        self.state.store(asked, Release);
        asked
    }

    /// Whether the question waits still.
    pub fn waits(&self, asked: u32) -> bool {
        self.state.load(Acquire) == asked
    }

    /// Who has asked waits no longer; false if it has been answered.
    pub fn give_up(&self, asked: u32) -> bool {
        let free = asked & !STAGE | UNUSED;
        self.state
            .compare_exchange(asked, free, AcqRel, Acquire)
            .is_ok()
    }

    /// The answer to a question that no longer waits, which makes room for others. Called
    /// by who has asked; none if there is no answer, which only a damaged file does.
    pub fn take_answer(&self, asked: u32) -> Option<u64> {
        let answered = self.state.load(Acquire) == asked & !STAGE | ANSWERED;
        let answer = self.answer.load(Relaxed);
        self.state.store(asked & !STAGE | UNUSED, Release);
        answered.then_some(answer)
    }

    /// For the tool: the question that waits, if there is one.
    pub fn question(&self) -> Option<u32> {
        let state = self.state.load(Acquire);
        (state & STAGE == ASKED).then_some(state)
    }

    /// For the tool: whether all that it has read since [`Self::question`] belongs together.
    pub fn was_read(&self, asked: u32) -> bool {
        fence(Acquire);
        self.state.load(Relaxed) == asked
    }

    /// For the tool, of which only one thread answers; false if nobody waits for it any more.
    pub fn answer(&self, asked: u32, answer: u64) -> bool {
        self.answer.store(answer, Relaxed);
        let answered = asked & !STAGE | ANSWERED;
        self.state
            .compare_exchange(asked, answered, AcqRel, Relaxed)
            .is_ok()
    }
}

/// A condition: what `what` says is at least `low` and at most `high`.
#[repr(C)]
#[derive(Debug)]
pub struct Condition {
    /// The number of a register, or [`STACK`] plus an offset from rsp shifted by 8.
    pub what: AtomicU64,
    /// See the type.
    pub low: AtomicU64,
    /// See the type.
    pub high: AtomicU64,
}

/// A way into a copy.
#[repr(C)]
#[derive(Debug)]
pub struct Entry {
    /// The original instruction.
    pub original: AtomicU64,
    /// Its copy.
    pub target: AtomicU64,
    /// The area.
    pub area: AtomicU32,
    /// Whether the copy is of this instruction only.
    pub alone: AtomicU32,
    /// How many conditions there are.
    pub count: AtomicU32,
    /// 1 + the next entry of its bucket; 0 at the end.
    pub next: AtomicU32,
    /// The conditions.
    pub conditions: [Condition; CONDITIONS],
}

/// The file.
#[repr(C)]
#[derive(Debug)]
pub struct Control {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Whether the library is in place.
    pub ready: AtomicU32,
    /// The process that it is in place in.
    pub process: AtomicU32,
    /// The tool's process.
    pub tool: AtomicU32,
    /// Counts requests; a futex that the tool waits on.
    pub bell: AtomicU32,
    /// Number of `entries`.
    pub entry_count: AtomicU32,
    /// 1 + the newest entry of each bucket; 0 for none.
    pub buckets: [AtomicU32; BUCKETS],
    /// Questions.
    pub requests: [Request; REQUESTS],
    /// Answers that hold for longer.
    pub entries: [Entry; ENTRIES],
    /// What is moved.
    pub areas: [Area; AREAS],
}

/// Bytes of the file; its code follows, [`CACHE`] for each area.
pub const BYTES: usize = size_of::<Control>().next_multiple_of(4096);

/// Bytes of the file with the code.
pub const TOTAL: usize = BYTES + AREAS * CACHE as usize;

/// The list that the entries of an instruction are in.
#[must_use]
pub const fn bucket(original: u64) -> usize {
    (original ^ original >> 10 ^ original >> 20) as usize % BUCKETS
}

/// What a rollback's reason is called.
#[must_use]
pub const fn reason(number: u32) -> &'static str {
    match number {
        BY_TOOL => "it did not help",
        BY_INSTRUCTION => "an instruction can't be redirected",
        BY_FAULTS => "too many accesses could not be redirected in advance",
        BY_KERNEL => "the kernel was given a pointer to the bytes",
        BY_MAPPING => "the program changed the mapping",
        BY_FORK => "the program started another process",
        BY_SILENCE => "the tool did not answer in time",
        BY_CONFINEMENT => "the program confined itself",
        BY_SIGNALS => "the program changed how it treats signals",
        BY_DEATH => "the program died",
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
            reserved: AtomicU32::new(0),
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
        assert!(!request.take(), "nobody has seen the answer");
        assert_eq!(request.take_answer(asked), Some(7));
        assert!(request.take());
    }

    /// A thread waits no longer, another has taken its place, and the tool answers the first:
    /// the other would go on in code that was made for the first one's registers.
    #[test]
    fn an_answer_that_comes_too_late_is_nobody_elses() {
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

    #[test]
    fn questions_are_counted_for_ever() {
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
