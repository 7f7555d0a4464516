//! Tests of answers.

use super::publish::copied;
use super::*;
use std::time::Duration;
use sunder_access::{Address, Span, ThreadId, Time};
use sunder_observe::RawSample;
use sunder_pipeline::{Follow, Session, judge_config};
use sunder_rewrite::{Code, Frame, Memory, Registers, Request, Rule, specialise};

/// `add [rdi], rax; sub rcx, 1; jne` to the first; `ret`.
const LOOP: [u8; 10] = [0x48, 1, 7, 0x48, 0x83, 0xe9, 1, 0x75, 0xf7, 0xc3];
/// Where it lies, the page that it uses, and the place of copies.
const TEXT: u64 = 0x40_0000;
const PAGE: u64 = 0x50_0000;
const COPIES: u64 = 0x41_0000;

/// All bytes of the page have moved.
fn moved() -> MovedPage {
    MovedPage {
        page: Span::new(Address(PAGE), 4096),
        rules: vec![Rule {
            bytes: Span::new(Address(PAGE), 4096),
            delta: 0x10_0000,
        }],
    }
}

/// The question of a thread that has faulted in the loop.
fn question() -> Question {
    let mut registers = Registers {
        ip: CodeAddress(TEXT),
        ..Registers::default()
    };
    (registers.general[1], registers.general[7]) = (100, PAGE + 64);
    Question {
        area: 0,
        thread: 1,
        registers,
        address: PAGE + 64,
        downwards: false,
        again: false,
    }
}

/// What it asks for.
fn request(moved: &MovedPage) -> Request<'_> {
    let registers = question().registers;
    Request {
        frame: Frame {
            code: Code {
                start: CodeAddress(TEXT),
                bytes: &LOOP,
            },
            ip: registers.ip,
        },
        callers: &[],
        loops: None,
        callees: &[],
        registers,
        downwards: false,
        whole: false,
        compares_all: false,
        moved,
        seen: &[],
        alone: &[],
        met: &[],
        memory: Memory(&|_, _| None),
        near: CodeAddress(COPIES),
    }
}

/// Drafts are made while nothing keeps other bytes from moving in the same area.
#[test]
fn a_copy_for_bytes_that_have_moved_again_gets_no_place() {
    let file = Arc::new(ControlFile::unshared().expect("a file in memory"));
    let server = Server::start(file, ProcessId(std::process::id()), false).expect("a thread");
    let known = |server: &Server| {
        server.moves(0, moved(), Vec::new(), COPIES);
        let mut state = server.shared.lock();
        let area = state.areas.get_mut(&0).expect("it was just announced");
        area.known(question().thread)
    };
    let place = |known: &draft::Known| {
        let draft = Draft::of(&request(&known.moved)).expect("the loop can be copied");
        let learnt = Learnt {
            function: TEXT,
            met: None,
        };
        let place = (&draft, learnt);
        let placed = server.shared.place(&question(), &known.moved, place, false);
        placed.expect("there is room")
    };
    let before = known(&server);
    let now = known(&server);
    assert_eq!(place(&before), TEXT, "the instruction is tried again");
    assert!(server.made().is_empty());
    let at = place(&now);
    assert!((COPIES..COPIES + CACHE).contains(&at), "{at:#x}");
    assert_eq!(server.made().len(), 1);
}

/// A thread waits behind the access that the line holds up. There, the sample tells the access in a
/// copy as it does in the original, at the new place.
#[test]
fn a_sample_in_a_copy_tells_the_access_before_it() {
    let (text, page, at) = (TEXT, PAGE, COPIES);
    let registers = question().registers;
    let block = specialise(&request(&moved())).expect("the loop can be copied");
    let copy = copied(&block, at).expect("it has instructions");
    let is_behind = |one: &&(CodeAddress, CodeAddress)| one.1.0 == text + 3;
    let behind = copy.originals.iter().find(is_behind);
    let behind = behind.expect("the `sub` is copied").0;

    let config = judge_config(64, None).expect("a line of 64 bytes");
    let mut session = Session::new(config, Follow::All);
    // No process has this number.
    let process = ProcessId(u32::MAX >> 1);
    let sample = RawSample {
        time: Time(1_000_000),
        process,
        thread: ThreadId(process.0),
        cpu: 0,
        period_ns: 1_000_000,
        registers: sunder_observe::Registers {
            general: registers.general,
            ip: behind,
        },
    };
    let accesses = |session: &mut Session| session.process(process).figures.accesses;
    session.sample(&sample);
    assert_eq!(accesses(&mut session), 0, "nothing is known of the code");
    session.copied(process, copy);
    // Lines that were touched once do not count.
    for later in [1_000_000, 2_000_000] {
        let time = sample.time.after(Duration::from_nanos(later));
        session.sample(&RawSample { time, ..sample });
    }
    assert_eq!(accesses(&mut session), 2);
    let judge = &session.process(process).judge;
    let used = |at: u64| judge.used(Span::new(Address(at), 8), Time(0)).len();
    assert_eq!((used(page + 64), used(page + 64 + 0x10_0000)), (0, 1));
}
