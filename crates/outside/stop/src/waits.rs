//! Waits for events with a limit in time, which the kernel ends whenever their thread is stopped
//! and which begin anew as it goes on: with what is left of the limit, so that one that is
//! stopped again and again ends all the same. What is known of a wait's beginning is that it
//! was not after its first stop; none ends early. Called by `trace`; touches no thread itself.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The auxiliary carry: nothing but decimal arithmetic looks at it, the kernel leaves it to the
/// program, and comparisons set it. It is turned over where a wait goes on after a stop, and who
/// has come out of the wait and into another has it as the code before the call leaves it.
const AUXILIARY: u64 = 1 << 4;
/// More than threads that wait at once: what is over is forgotten.
const MOST: usize = 4096;
/// Below a stack pointer, and below what a function may have there.
const BELOW: u64 = 128 + 32;

/// How a call is told its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// In milliseconds; none if negative.
    Milliseconds,
    /// By a pointer to seconds and nanoseconds; none if null.
    Time,
}

/// A call that waits with a limit.
struct Kind {
    number: i64,
    limit: Limit,
    /// The register that has it, or points to it.
    place: fn(&mut libc::user_regs_struct) -> &mut u64,
    /// What it returns when its time is over.
    over: i32,
}

const fn kind(
    number: i64,
    limit: Limit,
    place: fn(&mut libc::user_regs_struct) -> &mut u64,
    over: i32,
) -> Kind {
    Kind {
        number,
        limit,
        place,
        over,
    }
}

const KINDS: [Kind; 6] = [
    kind(libc::SYS_epoll_wait, Limit::Milliseconds, |r| &mut r.r10, 0),
    kind(
        libc::SYS_epoll_pwait,
        Limit::Milliseconds,
        |r| &mut r.r10,
        0,
    ),
    kind(libc::SYS_epoll_pwait2, Limit::Time, |r| &mut r.r10, 0),
    kind(
        libc::SYS_semtimedop,
        Limit::Time,
        |r| &mut r.r10,
        -libc::EAGAIN,
    ),
    kind(
        libc::SYS_rt_sigtimedwait,
        Limit::Time,
        |r| &mut r.rdx,
        -libc::EAGAIN,
    ),
    kind(libc::SYS_io_getevents, Limit::Time, |r| &mut r.r8, 0),
];

/// What becomes of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    /// It is over, without events, and returns this.
    Over(i32),
    /// It goes on.
    On,
}

/// The waiting program's memory, as far as it is needed here.
pub trait Words {
    /// Two words.
    fn read(&self, at: u64) -> Option<[i64; 2]>;
    /// Changes them; whether that worked.
    fn write(&mut self, at: u64, words: [i64; 2]) -> bool;
}

/// One wait, as its thread goes on with it.
#[derive(Clone, Copy, Debug)]
struct Wait {
    registers: [u64; 8],
    carry: u64,
    until: Instant,
}

/// See the module's head.
#[derive(Debug, Default)]
pub struct Waits(HashMap<i32, Wait>);

impl Waits {
    /// A thread is stopped in such a call at `now`. Its registers are made those with which it
    /// goes on if the call is made again. A limit that lies in memory is the program's, and
    /// perhaps constant or another's too: what is left of it is written below the thread's stack.
    pub fn stopped(
        &mut self,
        thread: i32,
        registers: &mut libc::user_regs_struct,
        memory: &mut impl Words,
        now: Instant,
    ) -> Goes {
        let number = registers.orig_rax as i64;
        let Some(kind) = KINDS.iter().find(|k| k.number == number) else {
            return Goes::On;
        };
        let told = *(kind.place)(registers);
        let Some(limit) = limit(kind.limit, told, memory) else {
            return Goes::On;
        };
        let carry = registers.eflags & AUXILIARY;
        let known = self.0.get(&thread).copied();
        let same = known.filter(|w| w.registers == call(registers) && w.carry != carry);
        let wait = same.or_else(|| {
            Some(Wait {
                registers: call(registers),
                carry,
                until: now.checked_add(limit)?,
            })
        });
        // It lasts for longer than clocks go.
        let Some(wait) = wait else { return Goes::On };
        let left = wait.until.saturating_duration_since(now).min(limit);
        if left.is_zero() {
            self.0.remove(&thread);
            return Goes::Over(kind.over);
        }
        let told = match kind.limit {
            // Never less than is left.
            Limit::Milliseconds => (left.as_nanos().div_ceil(1_000_000) as u64).min(told),
            Limit::Time => {
                let at = (registers.rsp & !15).wrapping_sub(BELOW);
                let words = [left.as_secs() as i64, left.subsec_nanos().into()];
                if !memory.write(at, words) {
                    return Goes::On;
                }
                at
            }
        };
        *(kind.place)(registers) = told;
        registers.eflags = registers.eflags & !AUXILIARY | (wait.carry ^ AUXILIARY);
        if self.0.len() >= MOST {
            self.0.retain(|_, w| w.until > now);
        }
        let registers = call(registers);
        self.0.insert(thread, Wait { registers, ..wait });
        Goes::On
    }
}

/// How long a call is to wait that was told this; none if for ever, or not at all.
fn limit(kind: Limit, told: u64, memory: &impl Words) -> Option<Duration> {
    let limit = match kind {
        Limit::Milliseconds => Duration::from_millis(u64::try_from(told as i32).ok()?),
        Limit::Time if told == 0 => return None,
        Limit::Time => {
            let [seconds, nanoseconds] = memory.read(told)?;
            let nanoseconds = u32::try_from(nanoseconds)
                .ok()
                .filter(|&n| n < 1_000_000_000);
            Duration::new(u64::try_from(seconds).ok()?, nanoseconds?)
        }
    };
    (!limit.is_zero()).then_some(limit)
}

/// By what a call is known.
const fn call(r: &libc::user_regs_struct) -> [u64; 8] {
    [r.orig_rax, r.rip, r.rsp, r.rdi, r.rsi, r.rdx, r.r10, r.r8]
}

#[cfg(test)]
mod tests {
    use super::{AUXILIARY, Goes, KINDS, Limit, Waits, Words};
    use std::collections::HashMap;
    use std::time::{Duration, Instant};

    #[derive(Default)]
    struct Memory(HashMap<u64, [i64; 2]>);

    impl Words for Memory {
        fn read(&self, at: u64) -> Option<[i64; 2]> {
            self.0.get(&at).copied()
        }

        fn write(&mut self, at: u64, words: [i64; 2]) -> bool {
            self.0.insert(at, words);
            true
        }
    }

    fn stopped(
        waits: &mut Waits,
        thread: i32,
        registers: &mut libc::user_regs_struct,
        now: Instant,
    ) -> Goes {
        waits.stopped(thread, registers, &mut Memory::default(), now)
    }

    fn waiting(limit: i32) -> libc::user_regs_struct {
        // SAFETY: plain data, for which zeroes are valid.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        registers.orig_rax = libc::SYS_epoll_wait as u64;
        registers.rip = 0x7000;
        registers.r10 = u64::from(limit as u32);
        registers.eflags = 0x246;
        registers
    }

    fn after(start: Instant, milliseconds: u64) -> Instant {
        start + Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_wait_that_is_stopped_again_and_again_ends_in_its_time() {
        let (mut waits, start) = (Waits::default(), Instant::now());
        let mut registers = waiting(300);
        for (at, wanted) in [(0, 300), (100, 200), (101, 199), (299, 1)] {
            let goes = stopped(&mut waits, 1, &mut registers, after(start, at));
            assert_eq!((goes, registers.r10), (Goes::On, wanted), "at {at}");
        }
        // Another thread's has its own time.
        let mut other = waiting(300);
        let goes = stopped(&mut waits, 2, &mut other, after(start, 299));
        assert_eq!((goes, other.r10), (Goes::On, 300));
        let goes = stopped(&mut waits, 1, &mut registers, after(start, 300));
        assert_eq!(goes, Goes::Over(0));
        let goes = stopped(&mut waits, 2, &mut other, after(start, 598));
        assert_eq!((goes, other.r10), (Goes::On, 1));
    }

    #[test]
    fn a_part_of_a_millisecond_is_waited_for() {
        let (mut waits, start) = (Waits::default(), Instant::now());
        let mut registers = waiting(3);
        stopped(&mut waits, 1, &mut registers, start);
        let at = start + Duration::from_micros(2_900);
        assert_eq!(stopped(&mut waits, 1, &mut registers, at), Goes::On);
        assert_eq!(registers.r10, 1);
    }

    /// The thread has come out of its wait and waits again: flags are as the code before the
    /// call leaves them, the limit is its own, or another argument differs.
    #[test]
    fn another_wait_has_all_its_time() {
        let (mut waits, start) = (Waits::default(), Instant::now());
        let mut first = waiting(300);
        stopped(&mut waits, 1, &mut first, start);
        assert_ne!(first.eflags & AUXILIARY, waiting(300).eflags & AUXILIARY);
        let mut again = waiting(300);
        let goes = stopped(&mut waits, 1, &mut again, after(start, 400));
        assert_eq!((goes, again.r10), (Goes::On, 300), "as it came");
        for change in [
            |r: &mut libc::user_regs_struct| r.rsp = 8,
            |r: &mut libc::user_regs_struct| r.rdi = 8,
            |r: &mut libc::user_regs_struct| r.r10 = 5,
        ] {
            let mut other = again;
            change(&mut other);
            let limit = other.r10;
            let goes = stopped(&mut waits, 1, &mut other, after(start, 10_000));
            assert_eq!((goes, other.r10), (Goes::On, limit));
            waits = Waits::default();
            let mut back = waiting(300);
            stopped(&mut waits, 1, &mut back, start);
        }
    }

    #[test]
    fn waits_without_a_limit_and_other_calls_are_left_alone() {
        let (mut waits, start) = (Waits::default(), Instant::now());
        let mut poll = waiting(300);
        poll.orig_rax = libc::SYS_msgrcv as u64;
        for mut registers in [waiting(-1), waiting(0), poll] {
            let before = (registers.r10, registers.eflags);
            for at in [0, 10_000] {
                let goes = stopped(&mut waits, 1, &mut registers, after(start, at));
                assert_eq!(goes, Goes::On);
                assert_eq!((registers.r10, registers.eflags), before);
            }
        }
    }

    /// A limit that lies in the program's memory stays as it is there.
    #[test]
    fn a_limit_in_memory_is_replaced_by_what_is_left() {
        const GIVEN: u64 = 0x5000;
        for kind in KINDS.iter().filter(|k| k.limit == Limit::Time) {
            let (mut waits, start) = (Waits::default(), Instant::now());
            let mut memory = Memory::default();
            memory.0.insert(GIVEN, [1, 500_000_000]);
            let mut registers = waiting(0);
            registers.orig_rax = kind.number as u64;
            registers.rsp = 0x9008;
            *(kind.place)(&mut registers) = GIVEN;
            for (at, wanted) in [(0, [1, 500_000_000]), (600, [0, 900_000_000])] {
                let goes = waits.stopped(1, &mut registers, &mut memory, after(start, at));
                assert_eq!(goes, Goes::On);
                let place = *(kind.place)(&mut registers);
                assert!(place + 16 <= 0x9008 - 128, "in the red zone: {place:#x}");
                assert_eq!(memory.0[&place], wanted, "at {at}");
            }
            assert_eq!(memory.0[&GIVEN], [1, 500_000_000]);
            let goes = waits.stopped(1, &mut registers, &mut memory, after(start, 1500));
            assert_eq!(goes, Goes::Over(kind.over));
        }
    }

    #[test]
    fn a_limit_in_memory_that_is_none_is_left_alone() {
        const GIVEN: u64 = 0x5000;
        let now = Instant::now();
        for kind in KINDS.iter().filter(|k| k.limit == Limit::Time) {
            // None, one that can't be read, none to wait for, wrong ones, and for ever.
            for (place, time) in [
                (0, [1, 0]),
                (8, [1, 0]),
                (GIVEN, [0, 0]),
                (GIVEN, [-1, 0]),
                (GIVEN, [0, 1_000_000_000]),
                (GIVEN, [i64::MAX, 0]),
            ] {
                let mut memory = Memory::default();
                memory.0.insert(GIVEN, time);
                let mut registers = waiting(0);
                registers.orig_rax = kind.number as u64;
                *(kind.place)(&mut registers) = place;
                let goes = Waits::default().stopped(1, &mut registers, &mut memory, now);
                assert_eq!((goes, *(kind.place)(&mut registers)), (Goes::On, place));
            }
        }
    }
}
