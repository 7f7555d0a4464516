//! Compares the table with sizes and arguments that are written down here once more from the
//! manual; tries registers that mean nothing, and invented counts and addresses. The file `stopped`
//! compares with the kernel.

mod stopped;

use super::{CALLS, KernelCall};
use proptest::prelude::*;
use std::cell::Cell;

/// The pages that are to move.
const PAGE: u64 = 0x7000_0000;
const LEN: u64 = 0x1000;
const END: u64 = PAGE + LEN;
/// Other memory of the program.
const ELSEWHERE: u64 = 0x5000_0000;
/// The end of that memory.
const ELSEWHERES_END: u64 = ELSEWHERE + 0x4_0000;
/// No memory is mapped here.
const UNMAPPED: u64 = 0x6000_0000;
/// The address behind the call's instruction.
const AFTER: u64 = 0x40_1000;

/// The memory of a program: zeroes around the pages and in [`ELSEWHERE`], unless other bytes were
/// written.
struct Program {
    parts: Vec<(u64, Vec<u8>)>,
    /// Bytes that were read so far.
    read: Cell<usize>,
}

impl Program {
    /// A program whose code makes the call of this number.
    fn calling(number: i64) -> Self {
        let mut code = vec![0x90; 0x100];
        code.extend([0xb8]);
        code.extend((number as u32).to_le_bytes());
        code.extend([0x0f, 0x05]);
        let at = AFTER - code.len() as u64;
        Self {
            parts: vec![(at, code)],
            read: Cell::new(0),
        }
    }

    /// Writes words at `at`.
    fn with(mut self, at: u64, words: &[u64]) -> Self {
        let bytes = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.parts.insert(0, (at, bytes));
        self
    }

    fn with_bytes(mut self, at: u64, bytes: &[u8]) -> Self {
        self.parts.insert(0, (at, bytes.to_vec()));
        self
    }

    /// Whether the program's call is in the way of the pages.
    fn is_in_the_way(&self, number: i64, arguments: [u64; 6]) -> bool {
        let call = KernelCall {
            number,
            arguments,
            after: AFTER,
        };
        let read = |at: u64, into: &mut [u8]| {
            self.read.set(self.read.get() + into.len());
            self.copy(at, into)
        };
        call.is_in_the_way(&read, (PAGE, LEN))
    }

    fn copy(&self, at: u64, into: &mut [u8]) -> bool {
        let zeroes = [ELSEWHERE..ELSEWHERES_END, PAGE - LEN..END + LEN];
        into.iter_mut().enumerate().all(|(i, byte)| {
            let Some(place) = at.checked_add(i as u64) else {
                return false;
            };
            let written = self.parts.iter().find_map(|(start, bytes)| {
                let offset = usize::try_from(place.checked_sub(*start)?).ok()?;
                bytes.get(offset).copied()
            });
            let zero = || zeroes.iter().any(|z| z.contains(&place)).then_some(0);
            let there = written.or_else(zero);
            *byte = there.unwrap_or(0);
            there.is_some()
        })
    }
}

fn is_in_the_way(number: i64, arguments: [u64; 6]) -> bool {
    Program::calling(number).is_in_the_way(number, arguments)
}

/// Placeholder for a register that is no argument of the call.
const S: u64 = 0x1111_2222_3333_4444;
/// Placeholder for a pointer.
const P: u64 = 0x5555_6666_7777_8888;

/// Calls with their arguments, and the number of bytes that each of their pointers covers.
const WAITS: &[(i64, [u64; 6], &[u64])] = &[
    (libc::SYS_read, [0, P, 1, S, S, S], &[1]),
    (libc::SYS_read, [0, P, 8192, S, S, S], &[8192]),
    (libc::SYS_write, [1, P, 100, S, S, S], &[100]),
    (libc::SYS_pread64, [3, P, 100, PAGE, S, S], &[100]),
    (libc::SYS_pwrite64, [3, P, 100, PAGE, S, S], &[100]),
    (libc::SYS_readv, [3, P, 3, S, S, S], &[48]),
    (libc::SYS_writev, [3, P, 1, S, S, S], &[16]),
    (libc::SYS_preadv, [3, P, 2, PAGE, 0, S], &[32]),
    (libc::SYS_pwritev, [3, P, 2, PAGE, 0, S], &[32]),
    (libc::SYS_preadv2, [3, P, 2, PAGE, 0, 0], &[32]),
    (libc::SYS_pwritev2, [3, P, 2, PAGE, 0, 0], &[32]),
    (libc::SYS_sendfile, [3, 4, P, PAGE, S, S], &[8]),
    (libc::SYS_splice, [3, P, 4, P, PAGE, 0], &[8, 8]),
    (libc::SYS_copy_file_range, [3, P, 4, P, PAGE, 0], &[8, 8]),
    (libc::SYS_tee, [3, 4, PAGE, 0, S, S], &[]),
    (libc::SYS_getrandom, [P, 32, 0, S, S, S], &[32]),
    (libc::SYS_accept, [3, P, P, S, S, S], &[128, 4]),
    (libc::SYS_accept4, [3, P, P, 0, S, S], &[128, 4]),
    (libc::SYS_connect, [3, P, 16, S, S, S], &[16]),
    (libc::SYS_sendto, [3, P, 10, 0, P, 28], &[10, 28]),
    (libc::SYS_recvfrom, [3, P, 10, 0, P, P], &[10, 128, 4]),
    (libc::SYS_sendmsg, [3, P, 0, S, S, S], &[56]),
    (libc::SYS_recvmsg, [3, P, 0, S, S, S], &[56]),
    (libc::SYS_sendmmsg, [3, P, 3, 0, S, S], &[192]),
    (libc::SYS_recvmmsg, [3, P, 3, 0, P, S], &[192, 16]),
    (libc::SYS_poll, [P, 5, 1000, S, S, S], &[40]),
    (libc::SYS_ppoll, [P, 5, P, 0, 8, S], &[40, 16]),
    // 65 descriptors take two words.
    (libc::SYS_select, [65, P, P, P, P, S], &[16, 16, 16, 16]),
    (libc::SYS_pselect6, [64, P, P, P, P, P], &[8, 8, 8, 16, 16]),
    (libc::SYS_epoll_wait, [3, P, 7, 1000, S, S], &[84]),
    (libc::SYS_epoll_pwait, [3, P, 7, 1000, 0, 8], &[84]),
    (libc::SYS_epoll_pwait2, [3, P, 7, P, 0, 8], &[84, 16]),
    (libc::SYS_futex, [P, WAIT, 1, P, S, S], &[4, 16]),
    (libc::SYS_futex, [P, WAIT_BITSET, 1, P, S, 1], &[4, 16]),
    (libc::SYS_futex, [P, LOCK, 0, P, S, S], &[4, 16]),
    (libc::SYS_futex, [P, WAIT_REQUEUE, 1, P, P, S], &[4, 16, 4]),
    (libc::SYS_futex, [P, WAKE, 1, S, S, S], &[4]),
    (libc::SYS_futex, [P, REQUEUE, 1, PAGE, P, 1], &[4, 4]),
    (libc::SYS_futex_waitv, [P, 2, 0, P, 1, S], &[48, 16]),
    (libc::SYS_wait4, [1, P, 0, P, S, S], &[4, 144]),
    (libc::SYS_waitid, [1, 2, P, 4, P, S], &[128, 144]),
    (libc::SYS_rt_sigtimedwait, [P, P, P, 8, S, S], &[8, 128, 16]),
    (libc::SYS_pause, [S, S, S, S, S, S], &[]),
    (libc::SYS_sched_yield, [S, S, S, S, S, S], &[]),
    (libc::SYS_nanosleep, [P, P, S, S, S, S], &[16, 16]),
    (libc::SYS_clock_nanosleep, [0, 0, P, P, S, S], &[16, 16]),
    (libc::SYS_semop, [3, P, 2, S, S, S], &[12]),
    (libc::SYS_semtimedop, [3, P, 2, P, S, S], &[12, 16]),
    (libc::SYS_msgsnd, [3, P, 100, 0, S, S], &[108]),
    (libc::SYS_msgrcv, [3, P, 100, PAGE, 0, S], &[108]),
    (libc::SYS_mq_timedsend, [3, P, 100, PAGE, P, S], &[100, 16]),
    (
        libc::SYS_mq_timedreceive,
        [3, P, 100, P, P, S],
        &[100, 4, 16],
    ),
    (libc::SYS_flock, [3, 2, S, S, S, S], &[]),
    (
        libc::SYS_fcntl,
        [3, libc::F_SETLKW as u64, P, S, S, S],
        &[32],
    ),
    (
        libc::SYS_fcntl,
        [3, libc::F_OFD_SETLKW as u64, P, S, S, S],
        &[32],
    ),
    (libc::SYS_fsync, [3, S, S, S, S, S], &[]),
    (libc::SYS_fdatasync, [3, S, S, S, S, S], &[]),
    (libc::SYS_sync, [S, S, S, S, S, S], &[]),
    (libc::SYS_syncfs, [3, S, S, S, S, S], &[]),
    (libc::SYS_sync_file_range, [3, PAGE, PAGE, 7, S, S], &[]),
    // Where nothing else is written, a zero byte.
    (libc::SYS_open, [P, 0, 0, S, S, S], &[1]),
    (libc::SYS_openat, [3, P, 0, 0, S, S], &[1]),
    (libc::SYS_close, [3, S, S, S, S, S], &[]),
];

const PRIVATE: u64 = libc::FUTEX_PRIVATE_FLAG as u64;
const WAIT: u64 = libc::FUTEX_WAIT as u64 | PRIVATE;
const WAIT_BITSET: u64 = libc::FUTEX_WAIT_BITSET as u64 | libc::FUTEX_CLOCK_REALTIME as u64;
const LOCK: u64 = libc::FUTEX_LOCK_PI as u64;
const WAIT_REQUEUE: u64 = libc::FUTEX_WAIT_REQUEUE_PI as u64 | PRIVATE;
const WAKE: u64 = libc::FUTEX_WAKE as u64 | PRIVATE;
const REQUEUE: u64 = libc::FUTEX_CMP_REQUEUE as u64 | PRIVATE;

/// The arguments with `pointer` as pointer number `turn`; other pointers lead elsewhere.
fn given(arguments: [u64; 6], turn: usize, pointer: u64, stale: u64) -> [u64; 6] {
    let mut pointers = 0;
    arguments.map(|argument| match argument {
        S => stale,
        P => {
            pointers += 1;
            if pointers - 1 == turn {
                pointer
            } else {
                ELSEWHERE
            }
        }
        other => other,
    })
}

#[test]
fn each_call_is_in_the_table_once_and_tried() {
    for (i, (number, _)) in CALLS.iter().enumerate() {
        assert!(CALLS[..i].iter().all(|c| c.0 != *number), "{number} twice");
        let others = [libc::SYS_rt_sigsuspend, libc::SYS_restart_syscall];
        let is_tried = WAITS.iter().any(|w| w.0 == *number) || others.contains(number);
        assert!(is_tried, "{number} is not tried");
    }
}

#[test]
fn a_pointer_leads_to_as_many_bytes_as_the_call_uses() {
    for &(number, arguments, sizes) in WAITS {
        let pointers = arguments.iter().filter(|a| **a == P).count();
        assert_eq!(pointers, sizes.len(), "{number}");
        for (turn, &bytes) in sizes.iter().enumerate() {
            let meets = |at| is_in_the_way(number, given(arguments, turn, at, ELSEWHERE));
            let what = format!("argument {turn} of {number}");
            assert!(!meets(PAGE - bytes), "{what} ends before the page");
            assert!(meets(PAGE - bytes + 1), "{what} ends in the page");
            assert!(meets(PAGE), "{what} begins with the page");
            assert!(meets(END - 1), "{what} begins in the page");
            assert!(!meets(END), "{what} begins behind the page");
            assert!(!meets(0), "{what} is null");
        }
    }
}

/// The case that led to the table: `read(0, …, 1)` on a distant stack, and a stale `r9` that
/// pointed to the program's constants below the page.
#[test]
fn a_register_that_read_does_not_have_is_in_nobodys_way() {
    for stale in [PAGE - (26 << 10), PAGE, PAGE + 8] {
        let arguments = [0, ELSEWHERE, 1, stale, stale, stale];
        assert!(!is_in_the_way(libc::SYS_read, arguments), "{stale:#x}");
    }
}

fn anything() -> impl Strategy<Value = u64> {
    prop_oneof![
        PAGE - 0x2_0000..END + 0x1000,
        Just(PAGE),
        Just(0),
        Just(u64::MAX),
        any::<u64>(),
    ]
}

proptest! {
    #[test]
    fn registers_that_a_call_does_not_use_are_ignored(
        (wait, stale) in (0..WAITS.len(), proptest::array::uniform6(anything())),
    ) {
        let (number, arguments, _) = WAITS[wait];
        let mut all = given(arguments, usize::MAX, 0, 0);
        for (i, argument) in all.iter_mut().enumerate() {
            if arguments[i] == S {
                *argument = stale[i];
            }
        }
        prop_assert!(!is_in_the_way(number, all), "{number}: {all:x?}");
    }

    /// The tool neither panics nor reads without a bound, whatever registers and memory hold.
    #[test]
    fn any_call_gets_an_answer(
        (wait, all, words) in (
            0..CALLS.len(),
            proptest::array::uniform6(anything()),
            proptest::collection::vec(anything(), 64),
        ),
        at in prop_oneof![Just(ELSEWHERE), Just(UNMAPPED)],
    ) {
        const MOST: usize = (1 << 20) + (16 << 10);
        let number = CALLS[wait].0;
        let program = Program::calling(number).with(ELSEWHERE, &words);
        let all = all.map(|a| if a == 0 { at } else { a });
        program.is_in_the_way(number, all);
        prop_assert!(program.read.get() < MOST, "{}", program.read.get());
    }
}

#[test]
fn vectors_are_followed() {
    for number in [libc::SYS_readv, libc::SYS_pwritev2] {
        let with = |words: &[u64], count| {
            let program = Program::calling(number).with(ELSEWHERE, words);
            program.is_in_the_way(number, [3, ELSEWHERE, count, 0, 0, 0])
        };
        let far = [ELSEWHERE, 64];
        assert!(!with(&[far, far].concat(), 2));
        assert!(with(&[far, [PAGE - 63, 64]].concat(), 2));
        assert!(!with(&[far, [PAGE - 64, 64]].concat(), 2));
        assert!(!with(&[far, [PAGE, 0]].concat(), 2), "an empty vector");
        assert!(!with(&[far, [PAGE, 64]].concat(), 1), "beyond the count");
        assert!(
            with(&[far, [PAGE - 1, u64::MAX]].concat(), 2),
            "a length beyond the limit"
        );
        assert!(!with(&[far, [u64::MAX, u64::MAX]].concat(), 2));
        // More than are read at once.
        let mut many = far.repeat(1024);
        assert!(!with(&many, 1024));
        many[2 * 1023] = PAGE;
        assert!(with(&many, 1024));
        assert!(!with(&many, 1023));
        // More than the kernel takes: it would have refused the call, so any memory counts.
        for count in [1025, 1 << 32, u64::MAX] {
            assert!(with(&many, count), "{count:#x}");
        }
    }
}

#[test]
fn what_cant_be_read_counts_as_any_memory() {
    for number in [libc::SYS_readv, libc::SYS_sendmsg, libc::SYS_recvmmsg] {
        assert!(is_in_the_way(number, [3, UNMAPPED, 1, 0, 0, 0]));
        assert!(is_in_the_way(number, [3, u64::MAX - 8, 1, 0, 0, 0]));
    }
    let waiters = [UNMAPPED, 1, 0, 0, 0, 0];
    assert!(is_in_the_way(libc::SYS_futex_waitv, waiters));
    let path = [0, UNMAPPED, 0, 0, 0, 0];
    assert!(is_in_the_way(libc::SYS_openat, path));
    let mask = [0, 0, 0, 0, 0, UNMAPPED];
    assert!(is_in_the_way(libc::SYS_pselect6, mask));
    // Only a part can be read.
    let number = libc::SYS_writev;
    let end = ELSEWHERES_END - 16;
    let program = Program::calling(number);
    assert!(!program.is_in_the_way(number, [3, end, 1, 0, 0, 0]));
    assert!(program.is_in_the_way(number, [3, end, 2, 0, 0, 0]));
}

#[test]
fn messages_are_followed() {
    const VECTORS: u64 = ELSEWHERE + 0x1000;
    let vectors = [ELSEWHERE, 8, ELSEWHERE, 8];
    let quiet = [ELSEWHERE, 16, VECTORS, 2, ELSEWHERE, 64, 0, 0];
    // A field of a message, and whether its value is in the way.
    let cases = [
        ([0, 0, 0, 0, 0, 0, 0, 0], false),
        (quiet, false),
        ([PAGE - 15, 16, VECTORS, 2, 0, 0, 0, 0], true),
        ([PAGE - 16, 16, VECTORS, 2, 0, 0, 0, 0], false),
        // The four bytes beside the length mean nothing.
        ([PAGE, 7 << 32, VECTORS, 2, 0, 0, 0, 0], false),
        // The kernel takes no longer address.
        ([PAGE - 127, 0xffff_ffff, 0, 0, 0, 0, 0, 0], true),
        ([PAGE - 128, 0xffff_ffff, 0, 0, 0, 0, 0, 0], false),
        ([0, 0, VECTORS, 2, PAGE - 63, 64, 0, 0], true),
        ([0, 0, VECTORS, 2, PAGE - 64, 64, 0, 0], false),
        ([0, 0, VECTORS, 2, PAGE, 0, 0, 0], false),
        ([0, 0, VECTORS, 3, 0, 0, 0, 0], true),
        ([0, 0, PAGE - 15, 1, 0, 0, 0, 0], true),
        ([0, 0, UNMAPPED, 1, 0, 0, 0, 0], true),
        ([0, 0, VECTORS, 1025, 0, 0, 0, 0], true),
    ];
    for (message, wanted) in cases {
        let program = |number| {
            Program::calling(number)
                .with(VECTORS, &[&vectors[..], &[PAGE, 1]].concat())
                .with(ELSEWHERE, &[&quiet[..], &message].concat())
        };
        for number in [libc::SYS_recvmsg, libc::SYS_sendmsg] {
            let arguments = [3, ELSEWHERE + 64, 0, PAGE, PAGE, PAGE];
            let got = program(number).is_in_the_way(number, arguments);
            assert_eq!(got, wanted, "{number}: {message:x?}");
        }
        for number in [libc::SYS_recvmmsg, libc::SYS_sendmmsg] {
            let mut arguments = [3, ELSEWHERE, 2, 0, 0, PAGE];
            let got = program(number).is_in_the_way(number, arguments);
            assert_eq!(got, wanted, "{number}: {message:x?}");
            arguments[2] = 1;
            assert!(!program(number).is_in_the_way(number, arguments));
        }
    }
}

/// A thousand messages of a thousand vectors each would take long to read.
#[test]
fn messages_of_many_vectors_are_not_all_read() {
    const VECTORS: u64 = ELSEWHERE + 0x1_0000;
    let messages = [0, 0, VECTORS, 1024, 0, 0, 0, 0].repeat(1024);
    let number = libc::SYS_sendmmsg;
    let program = Program::calling(number)
        .with(VECTORS, &[0; 2048])
        .with(ELSEWHERE, &messages);
    assert!(!program.is_in_the_way(number, [3, ELSEWHERE, 16, 0, 0, 0]));
    program.read.set(0);
    assert!(program.is_in_the_way(number, [3, ELSEWHERE, 1024, 0, 0, 0]));
    assert!(program.read.get() < 1 << 20, "{}", program.read.get());
    for count in [1025, 0xffff_ffff] {
        assert!(program.is_in_the_way(number, [3, ELSEWHERE, count, 0, 0, 0]));
    }
}

#[test]
fn futexes_that_are_waited_for_are_followed() {
    let number = libc::SYS_futex_waitv;
    for (word, wanted) in [(ELSEWHERE, false), (PAGE + 4, true), (END, false)] {
        let program = Program::calling(number).with(ELSEWHERE, &[0, 0, 2, 0, word, 2]);
        let got = program.is_in_the_way(number, [ELSEWHERE, 2, 0, 0, 0, PAGE]);
        assert_eq!(got, wanted, "{word:#x}");
    }
    assert!(!is_in_the_way(number, [ELSEWHERE, 128, 0, 0, 0, 0]));
    assert!(is_in_the_way(number, [ELSEWHERE, 129, 0, 0, 0, 0]));
}

#[test]
fn paths_end_with_their_zero_byte() {
    let number = libc::SYS_openat;
    let meets = |path: &[u8], at: u64| {
        let program = Program::calling(number).with_bytes(at, path);
        program.is_in_the_way(number, [0, at, 0, 0, PAGE, PAGE])
    };
    for len in [1, 63, 64, 65, 300, 4000] {
        let path = [&vec![b'a'; len - 1][..], &[0]].concat();
        let len = len as u64;
        assert!(!meets(&path, PAGE - len), "{len}");
        assert!(meets(&path, PAGE - len + 1), "{len}");
    }
    // A path without an end.
    let path = vec![b'a'; 0x1000];
    assert!(!meets(&path, PAGE - 0x1000));
    assert!(meets(&path, PAGE - 0xfff));
}

#[test]
fn counts_are_taken_as_the_kernel_takes_them() {
    // For an `int`, half of the register counts.
    let garbage = 0xdead_beef_0000_0001;
    let poll = |count| is_in_the_way(libc::SYS_poll, [PAGE - 8, count, 0, 0, 0, 0]);
    assert!(!poll(garbage));
    assert!(poll(garbage + 1));
    assert!(poll(0xffff_ffff));
    let epoll = |count| is_in_the_way(libc::SYS_epoll_wait, [3, PAGE - 12, count, 0, 0, 0]);
    assert!(!epoll(garbage));
    assert!(epoll(garbage + 1));
    // For a `size_t`, all of it; but no call transfers more than 2 GiB.
    let read = |at, count| is_in_the_way(libc::SYS_read, [0, at, count, 0, 0, 0]);
    assert!(read(PAGE - 8, garbage));
    assert!(read(PAGE - (1 << 30), u64::MAX));
    assert!(!read(0x1000, 1 << 30));
    assert!(!read(u64::MAX, u64::MAX), "its end would overflow");
    let message = |at, count| is_in_the_way(libc::SYS_msgrcv, [0, at, count, 0, 0, 0]);
    assert!(message(PAGE - 8, u64::MAX));
    // The kernel takes no longer address.
    let connect = |at| is_in_the_way(libc::SYS_connect, [0, at, 0xffff_ffff, 0, 0, 0]);
    assert!(connect(PAGE - 127));
    assert!(!connect(PAGE - 128));
}

#[test]
fn a_mask_for_the_time_of_the_call_hides_another() {
    for (number, place) in [
        (libc::SYS_ppoll, 3),
        (libc::SYS_epoll_pwait, 4),
        (libc::SYS_epoll_pwait2, 4),
        (libc::SYS_rt_sigsuspend, 0),
    ] {
        let mut arguments = [0; 6];
        assert!(!is_in_the_way(number, arguments), "{number}");
        arguments[place] = ELSEWHERE;
        assert!(is_in_the_way(number, arguments), "{number}");
    }
    let number = libc::SYS_pselect6;
    for (words, wanted) in [([0, 8], false), ([ELSEWHERE, 8], true)] {
        let program = Program::calling(number).with(ELSEWHERE, &words);
        let got = program.is_in_the_way(number, [0, 0, 0, 0, 0, ELSEWHERE]);
        assert_eq!(got, wanted);
    }
}

#[test]
fn operations_decide_what_is_a_pointer() {
    let futex = |operation: i32, fourth, fifth| {
        let arguments = [ELSEWHERE, operation as u64, 1, fourth, fifth, PAGE];
        is_in_the_way(libc::SYS_futex, arguments)
    };
    // A wait has no second futex. Operations that wake or requeue have a count of threads in place
    // of the time limit.
    assert!(!futex(libc::FUTEX_WAIT, 0, PAGE));
    assert!(!futex(libc::FUTEX_WAKE, PAGE, PAGE));
    assert!(!futex(libc::FUTEX_CMP_REQUEUE, PAGE, ELSEWHERE));
    assert!(futex(libc::FUTEX_CMP_REQUEUE, 0, PAGE));
    // Operations that do not exist.
    for operation in [14, 64, 1 << 20, -1] {
        assert!(futex(operation, 0, 0), "{operation}");
    }
    // The upper half of the register means nothing.
    let arguments = [ELSEWHERE, WAIT | 7 << 32, 1, 0, PAGE, PAGE];
    assert!(!is_in_the_way(libc::SYS_futex, arguments));
    for command in [libc::F_GETLK, libc::F_DUPFD, 1024, -1] {
        let arguments = [3, command as u64, 0, 0, 0, 0];
        assert!(is_in_the_way(libc::SYS_fcntl, arguments), "{command}");
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
    let futex = |at| goes_on(libc::SYS_futex, [at, WAIT, 1, ELSEWHERE, stale, stale]);
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
    let prefixed = Program::calling(0).with_bytes(AFTER - 8, &code);
    for program in [other, prefixed] {
        let goes_on = |all| program.is_in_the_way(restart, all);
        assert!(goes_on([PAGE - 3, 0, 0, 0, 0, 0]), "a futex");
        assert!(goes_on([PAGE - 8, 2, 0, 0, 0, 0]), "a poll");
        assert!(goes_on([ELSEWHERE, PAGE, 0, 0, 0, 0]), "nanosleep");
        assert!(goes_on([0, 0, ELSEWHERE, PAGE, 0, 0]), "clock_nanosleep");
        assert!(!goes_on([ELSEWHERE, 2, PAGE, 0, PAGE, PAGE]));
    }
}

/// They are in the way even of pages that no register points to.
#[test]
fn calls_that_are_not_in_the_table_are_always_in_the_way() {
    for number in [
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_mprotect,
        libc::SYS_madvise,
        libc::SYS_brk,
        libc::SYS_shmat,
        libc::SYS_remap_file_pages,
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_fork,
        libc::SYS_vfork,
        libc::SYS_execve,
        libc::SYS_exit,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_ioctl,
        libc::SYS_io_uring_enter,
        libc::SYS_io_getevents,
        libc::SYS_vmsplice,
        libc::SYS_process_vm_readv,
        // The same number in the x32 ABI, and no call at all.
        0x4000_0000 | libc::SYS_read,
        -1,
        i64::MAX,
    ] {
        assert!(is_in_the_way(number, [0; 6]), "{number}");
    }
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
        let program = Program::calling(number).with_bytes(AFTER - 2, &code);
        assert_eq!(program.is_in_the_way(number, [0; 6]), wanted, "{code:x?}");
    }
    let call = KernelCall {
        number,
        arguments: [0; 6],
        after: 1,
    };
    assert!(call.is_in_the_way(&|_, _| false, (PAGE, LEN)));
}
