//! Keeps the time limits of waits. The kernel ends some waits (`epoll_wait` and others) whenever
//! their thread is stopped, and we have them made again; each time with what is left of the limit,
//! so that a wait that is stopped again and again ends all the same. A wait began at its first stop
//! or earlier; it is taken to have begun there, so none ends early. Called by `thread`; must not
//! touch a thread itself.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The auxiliary carry flag marks a wait that goes on after a stop. Only decimal arithmetic reads
/// this flag, the kernel leaves it alone, and comparisons set it. We turn it over when a wait goes
/// on; a thread that has left the wait and entered another one has it as the code before that call
/// sets it.
const AUXILIARY: u64 = 1 << 4;
/// Most waits that are remembered, which is more than threads that wait at once. Beyond it, waits
/// whose time is over are forgotten.
const MOST: usize = 4096;
/// Distance of our words below the stack pointer: the red zone and the words themselves, aligned.
const BELOW: u64 = 128 + 32;

/// How a call gets its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    /// As a number of milliseconds; a negative one means no limit.
    Milliseconds,
    /// By a pointer to seconds and nanoseconds; null means no limit.
    Time,
    /// By this option of the socket whose descriptor it was given.
    Socket(i32),
}

/// A kernel call that waits with a time limit.
struct Kind {
    number: i64,
    limit: Limit,
    /// The register that holds the limit, a pointer to it, or the socket's descriptor.
    place: fn(&mut libc::user_regs_struct) -> &mut u64,
    /// The result when the time is over, an error number if negative.
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

/// A call that transfers something and has the socket's own limit. It can't be given what is left of that, and
/// waits for all of it once more.
const fn socket(number: i64, option: i32) -> Kind {
    kind(number, Limit::Socket(option), |r| &mut r.rdi, -libc::EAGAIN)
}

const KINDS: [Kind; 18] = [
    socket(libc::SYS_read, libc::SO_RCVTIMEO),
    socket(libc::SYS_readv, libc::SO_RCVTIMEO),
    socket(libc::SYS_recvfrom, libc::SO_RCVTIMEO),
    socket(libc::SYS_recvmsg, libc::SO_RCVTIMEO),
    socket(libc::SYS_recvmmsg, libc::SO_RCVTIMEO),
    socket(libc::SYS_accept, libc::SO_RCVTIMEO),
    socket(libc::SYS_accept4, libc::SO_RCVTIMEO),
    socket(libc::SYS_write, libc::SO_SNDTIMEO),
    socket(libc::SYS_writev, libc::SO_SNDTIMEO),
    socket(libc::SYS_sendto, libc::SO_SNDTIMEO),
    socket(libc::SYS_sendmsg, libc::SO_SNDTIMEO),
    socket(libc::SYS_sendmmsg, libc::SO_SNDTIMEO),
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

/// How a stopped wait goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// Its time is over: the call returns this.
    Over(i32),
    /// It goes on waiting.
    On,
}

/// Memory of the waiting program, two words at a time, and its sockets.
pub trait Words {
    /// Reads two words.
    fn read(&self, at: u64) -> Option<[i64; 2]>;
    /// Writes two words; whether that worked.
    fn write(&mut self, at: u64, words: [i64; 2]) -> bool;
    /// The limit that this option of a socket of the program's sets; zero if there is none.
    fn socket_limit(&self, descriptor: i32, option: i32) -> Option<Duration>;
}

/// One wait, as its thread goes on with it after a stop.
#[derive(Clone, Copy, Debug)]
struct Wait {
    registers: [u64; 8],
    carry: u64,
    until: Instant,
}

/// The waits of all threads; see the head of this file.
#[derive(Debug, Default)]
pub struct Waits(HashMap<i32, Wait>);

impl Waits {
    /// A thread was stopped in a kernel call at `now`. Changes `registers` to those with which the
    /// call must be made again. A limit in memory belongs to the program and may be constant or
    /// shared, so what is left of it is written below the thread's stack pointer instead.
    pub fn stopped(
        &mut self,
        thread: i32,
        registers: &mut libc::user_regs_struct,
        memory: &mut impl Words,
        now: Instant,
    ) -> WaitEnd {
        let number = registers.orig_rax as i64;
        let Some(kind) = KINDS.iter().find(|k| k.number == number) else {
            return WaitEnd::On;
        };
        let told = *(kind.place)(registers);
        let Some(limit) = limit(kind.limit, told, memory) else {
            return WaitEnd::On;
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
        // `None` if the limit lies beyond what the clock can represent.
        let Some(wait) = wait else { return WaitEnd::On };
        let left = wait.until.saturating_duration_since(now).min(limit);
        if left.is_zero() {
            self.0.remove(&thread);
            return WaitEnd::Over(kind.over);
        }
        let told = match kind.limit {
            // Rounded up: the call must not wait for less than is left.
            Limit::Milliseconds => (left.as_nanos().div_ceil(1_000_000) as u64).min(told),
            Limit::Time => {
                let at = (registers.rsp & !15).wrapping_sub(BELOW);
                let words = [left.as_secs() as i64, left.subsec_nanos().into()];
                if !memory.write(at, words) {
                    return WaitEnd::On;
                }
                at
            }
            Limit::Socket(_) => told,
        };
        *(kind.place)(registers) = told;
        registers.eflags = registers.eflags & !AUXILIARY | (wait.carry ^ AUXILIARY);
        if self.0.len() >= MOST {
            self.0.retain(|_, w| w.until > now);
        }
        let registers = call(registers);
        self.0.insert(thread, Wait { registers, ..wait });
        WaitEnd::On
    }
}

impl Waits {
    /// A stopped thread goes on elsewhere, with the registers `after` in place of `before`. If it makes a
    /// call there that it waited in, it is the same wait.
    pub fn moved(
        &mut self,
        thread: i32,
        before: &libc::user_regs_struct,
        after: &libc::user_regs_struct,
    ) {
        let wait = self.0.get_mut(&thread);
        if let Some(wait) = wait.filter(|wait| wait.registers == call(before)) {
            wait.registers = call(after);
        }
    }
}

/// The time limit that a call was given as `told`; `None` if it waits for ever or not at all.
fn limit(kind: Limit, told: u64, memory: &impl Words) -> Option<Duration> {
    let limit = match kind {
        Limit::Milliseconds => Duration::from_millis(u64::try_from(told as i32).ok()?),
        Limit::Socket(option) => memory.socket_limit(told as i32, option)?,
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

/// The registers by which a call is recognised as the same one.
const fn call(r: &libc::user_regs_struct) -> [u64; 8] {
    [r.orig_rax, r.rip, r.rsp, r.rdi, r.rsi, r.rdx, r.r10, r.r8]
}

#[cfg(test)]
mod tests {
    use super::{AUXILIARY, KINDS, Limit, WaitEnd, Waits, Words};
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

        fn socket_limit(&self, descriptor: i32, _option: i32) -> Option<Duration> {
            (descriptor == 7).then(|| Duration::from_millis(300))
        }
    }

    fn stopped(
        waits: &mut Waits,
        thread: i32,
        registers: &mut libc::user_regs_struct,
        now: Instant,
    ) -> WaitEnd {
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
    fn a_socket_s_limit_ends_a_call_that_is_stopped_after_it() {
        let (mut waits, start) = (Waits::default(), Instant::now());
        let mut registers = waiting(0);
        registers.orig_rax = libc::SYS_recvfrom as u64;
        registers.rdi = 7;
        for at in [0, 100, 299] {
            let goes = stopped(&mut waits, 1, &mut registers, after(start, at));
            assert_eq!((goes, registers.rdi), (WaitEnd::On, 7), "at {at}");
        }
        let mut other = registers;
        other.rdi = 8;
        let goes = stopped(&mut waits, 1, &mut registers, after(start, 300));
        assert_eq!(goes, WaitEnd::Over(-libc::EAGAIN));
        let goes = stopped(&mut waits, 1, &mut other, after(start, 900));
        assert_eq!(goes, WaitEnd::On, "it has no limit, or is no socket");
    }

    #[test]
    fn a_wait_that_is_stopped_again_and_again_ends_in_its_time() {
        let (mut waits, start) = (Waits::default(), Instant::now());
        let mut registers = waiting(300);
        for (at, wanted) in [(0, 300), (100, 200), (101, 199), (299, 1)] {
            let goes = stopped(&mut waits, 1, &mut registers, after(start, at));
            assert_eq!((goes, registers.r10), (WaitEnd::On, wanted), "at {at}");
        }
        // The wait of another thread has its own time limit.
        let mut other = waiting(300);
        let goes = stopped(&mut waits, 2, &mut other, after(start, 299));
        assert_eq!((goes, other.r10), (WaitEnd::On, 300));
        let goes = stopped(&mut waits, 1, &mut registers, after(start, 300));
        assert_eq!(goes, WaitEnd::Over(0));
        let goes = stopped(&mut waits, 2, &mut other, after(start, 598));
        assert_eq!((goes, other.r10), (WaitEnd::On, 1));
    }

    /// As a thread that is kept off its stack, whose wait would begin anew.
    #[test]
    fn a_wait_that_goes_on_elsewhere_ends_in_its_time() {
        let (mut waits, start) = (Waits::default(), Instant::now());
        let mut registers = waiting(300);
        stopped(&mut waits, 1, &mut registers, start);
        let before = registers;
        (registers.rip, registers.rsp) = (0x9000, 0x8000);
        waits.moved(1, &before, &registers);
        let goes = stopped(&mut waits, 1, &mut registers, after(start, 200));
        assert_eq!((goes, registers.r10), (WaitEnd::On, 100));
        let goes = stopped(&mut waits, 1, &mut registers, after(start, 300));
        assert_eq!(goes, WaitEnd::Over(0));
        // Another thread's registers say nothing.
        waits.moved(2, &before, &registers);
        let mut other = waiting(300);
        let goes = stopped(&mut waits, 2, &mut other, after(start, 400));
        assert_eq!((goes, other.r10), (WaitEnd::On, 300));
    }

    #[test]
    fn a_part_of_a_millisecond_is_waited_for() {
        let (mut waits, start) = (Waits::default(), Instant::now());
        let mut registers = waiting(3);
        stopped(&mut waits, 1, &mut registers, start);
        let at = start + Duration::from_micros(2_900);
        assert_eq!(stopped(&mut waits, 1, &mut registers, at), WaitEnd::On);
        assert_eq!(registers.r10, 1);
    }

    /// The thread has left its wait and waits again: the flag is as the code before the call leaves
    /// it, the limit is the full one, or another argument differs.
    #[test]
    fn another_wait_has_all_its_time() {
        let (mut waits, start) = (Waits::default(), Instant::now());
        let mut first = waiting(300);
        stopped(&mut waits, 1, &mut first, start);
        assert_ne!(first.eflags & AUXILIARY, waiting(300).eflags & AUXILIARY);
        let mut again = waiting(300);
        let goes = stopped(&mut waits, 1, &mut again, after(start, 400));
        assert_eq!((goes, again.r10), (WaitEnd::On, 300), "as it came");
        for change in [
            |r: &mut libc::user_regs_struct| r.rsp = 8,
            |r: &mut libc::user_regs_struct| r.rdi = 8,
            |r: &mut libc::user_regs_struct| r.r10 = 5,
        ] {
            let mut other = again;
            change(&mut other);
            let limit = other.r10;
            let goes = stopped(&mut waits, 1, &mut other, after(start, 10_000));
            assert_eq!((goes, other.r10), (WaitEnd::On, limit));
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
                assert_eq!(goes, WaitEnd::On);
                assert_eq!((registers.r10, registers.eflags), before);
            }
        }
    }

    /// The limit in the program's memory is not changed.
    #[test]
    fn time_limit_in_memory_is_replaced_by_the_remaining_time() {
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
                assert_eq!(goes, WaitEnd::On);
                let place = *(kind.place)(&mut registers);
                assert!(place + 16 <= 0x9008 - 128, "in the red zone: {place:#x}");
                assert_eq!(memory.0[&place], wanted, "at {at}");
            }
            assert_eq!(memory.0[&GIVEN], [1, 500_000_000]);
            let goes = waits.stopped(1, &mut registers, &mut memory, after(start, 1500));
            assert_eq!(goes, WaitEnd::Over(kind.over));
        }
    }

    #[test]
    fn invalid_time_limit_in_memory_is_left_alone() {
        const GIVEN: u64 = 0x5000;
        let now = Instant::now();
        for kind in KINDS.iter().filter(|k| k.limit == Limit::Time) {
            // A null pointer, an unreadable one, a limit of zero, two invalid limits, and one that
            // never ends.
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
                assert_eq!((goes, *(kind.place)(&mut registers)), (WaitEnd::On, place));
            }
        }
    }
}
