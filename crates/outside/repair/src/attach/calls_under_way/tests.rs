//! Calls that go on after a stop, and calls that are made in other ways. Which memory a call uses
//! is tried in `sunder_kernel`; the file `stopped` compares with the kernel.

mod stopped;

use super::CallUnderWay;
use sunder_kernel::KernelCall;

/// The pages that are to move.
const PAGE: u64 = 0x7000_0000;
const LEN: u64 = 0x1000;
/// Other memory of the program.
const ELSEWHERE: u64 = 0x5000_0000;
/// The address behind the call's instruction.
const AFTER: u64 = 0x40_1000;

/// The code of a program up to [`AFTER`]. Nothing else of it can be read.
struct Program {
    code: Vec<u8>,
}

impl Program {
    /// A program whose code makes the call of this number.
    fn calling(number: i64) -> Self {
        let mut code = vec![0x90; 0x100];
        code.extend([0xb8]);
        code.extend((number as u32).to_le_bytes());
        code.extend([0x0f, 0x05]);
        Self { code }
    }

    /// The same with these bytes at the end of its code.
    fn ending(mut self, bytes: &[u8]) -> Self {
        let start = self.code.len() - bytes.len();
        self.code[start..].copy_from_slice(bytes);
        self
    }

    /// Whether the program's call is in the way of the pages.
    fn is_in_the_way(&self, number: i64, arguments: [u64; 6]) -> bool {
        let call = CallUnderWay {
            call: KernelCall { number, arguments },
            after: AFTER,
        };
        let start = AFTER - self.code.len() as u64;
        let read = |at: u64, into: &mut [u8]| {
            let offset = at.checked_sub(start).map_or(usize::MAX, |o| o as usize);
            let end = offset.saturating_add(into.len());
            let bytes = self.code.get(offset..end);
            bytes.is_some_and(|bytes| {
                into.copy_from_slice(bytes);
                true
            })
        };
        call.is_in_the_way(&read, (PAGE, LEN))
    }
}

/// The registers still hold the original call's arguments, and the code its number.
#[test]
fn calls_that_go_on_after_a_stop_are_those_that_the_code_makes() {
    let restart = libc::SYS_restart_syscall;
    let goes_on = |loaded, all| Program::calling(loaded).is_in_the_way(restart, all);
    let stale = PAGE + 8;
    let poll = |at| goes_on(libc::SYS_poll, [at, 2, 500, stale, stale, stale]);
    assert!(!poll(PAGE - 16) && poll(PAGE - 15));
    let futex = |at| {
        goes_on(
            libc::SYS_futex,
            [at, libc::FUTEX_WAIT as u64, 1, ELSEWHERE, stale, stale],
        )
    };
    assert!(!futex(PAGE - 4) && futex(PAGE - 3));
    let sleep = |at| {
        goes_on(
            libc::SYS_nanosleep,
            [ELSEWHERE, at, stale, stale, stale, stale],
        )
    };
    assert!(!sleep(0) && !sleep(PAGE - 16) && sleep(PAGE - 15));
    let number = libc::SYS_clock_nanosleep;
    let sleep = |at| goes_on(number, [1, 0, ELSEWHERE, at, stale, stale]);
    assert!(!sleep(0) && !sleep(PAGE - 16) && sleep(PAGE - 15));

    // The number is loaded elsewhere, or the instruction loads `r8d`: it may be any of the four
    // calls.
    let read = libc::SYS_read as u32;
    let [a, b, c, d] = (libc::SYS_futex as u32).to_le_bytes();
    let code = [0x41, 0xb8, a, b, c, d, 0x0f, 0x05];
    let other = Program::calling(read.into());
    let prefixed = Program::calling(0).ending(&code);
    for program in [other, prefixed] {
        let goes_on = |all| program.is_in_the_way(restart, all);
        assert!(goes_on([PAGE - 3, 0, 0, 0, 0, 0]), "a futex");
        assert!(goes_on([PAGE - 8, 2, 0, 0, 0, 0]), "a poll");
        assert!(goes_on([ELSEWHERE, PAGE, 0, 0, 0, 0]), "nanosleep");
        assert!(goes_on([0, 0, ELSEWHERE, PAGE, 0, 0]), "clock_nanosleep");
        assert!(!goes_on([ELSEWHERE, 2, PAGE, 0, PAGE, PAGE]));
    }
}

/// The thread's own mask can't be seen while the call has replaced it.
#[test]
fn a_mask_for_the_time_of_the_call_is_in_the_way() {
    let call = |mask| {
        let program = Program::calling(libc::SYS_ppoll);
        program.is_in_the_way(libc::SYS_ppoll, [ELSEWHERE, 1, 0, mask, 8, 0])
    };
    assert!(!call(0));
    assert!(call(ELSEWHERE));
}

/// By `int 0x80` these numbers mean other calls.
#[test]
fn calls_that_are_made_in_other_ways_are_always_in_the_way() {
    let number = libc::SYS_close;
    for (code, wanted) in [
        ([0x0f, 0x05], false),
        ([0xcd, 0x80], true),
        ([0x0f, 0x34], true),
    ] {
        let program = Program::calling(number).ending(&code);
        assert_eq!(program.is_in_the_way(number, [0; 6]), wanted, "{code:x?}");
    }
    let call = CallUnderWay {
        call: KernelCall {
            number,
            arguments: [0; 6],
        },
        after: 1,
    };
    assert!(call.is_in_the_way(&|_, _| false, (PAGE, LEN)));
}
