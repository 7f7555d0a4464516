//! Tests of the framework, with a third tool that only counts. Memory and kernel calls are those of
//! a worker, but in this process.

use super::*;
use crate::memory::ALL;
use crate::testing::{self, Program};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use sunder_transaction::{Mask, PAGE};
use sunder_wire::commits::{Record, kind};
use sunder_wire::isolation::why;

const POSITION: Position = Position([7; 17]);
/// The address of the "instruction" of all writes.
const INSTRUCTION: usize = 0x1234;

/// A tool that counts its calls and makes these pages private.
#[derive(Default)]
struct Counts {
    named: Vec<usize>,
    private: RefCell<BTreeSet<usize>>,
    starts: Cell<u32>,
    faults: RefCell<Vec<Fault>>,
    commits: RefCell<Vec<(Page, Committed)>>,
    ticks: Cell<u32>,
    ends: Cell<u32>,
    /// Of so many accesses to pages that may not be used, it wants the next one, too.
    tells: Cell<u32>,
    used: RefCell<Vec<(usize, bool)>>,
}

fn numbered(address: usize) -> Page {
    Page {
        address,
        number: address / PAGE,
    }
}

impl Tool for &Counts {
    fn watches(&self) -> bool {
        true
    }

    fn named(&self) -> impl Iterator<Item = Page> {
        self.named.iter().copied().map(numbered)
    }

    fn policy(&self, page: Page) -> Policy {
        assert_eq!(
            page,
            numbered(page.address),
            "the tool's own number is passed back"
        );
        if self.private.borrow().contains(&page.address) {
            Policy::Private
        } else {
            Policy::Shared
        }
    }

    fn thread_start(&self, position: &Position, memory: &Memory) -> bool {
        assert_eq!(*position, POSITION);
        self.starts.set(self.starts.get() + 1);
        memory.watch_all()
    }

    fn used(&self, fault: &Fault, writes: bool) -> bool {
        self.used.borrow_mut().push((fault.address, writes));
        let left = self.tells.get();
        self.tells.set(left.saturating_sub(1));
        left > 0
    }

    fn fault(&self, fault: &Fault, _memory: &Memory) -> Option<Page> {
        self.faults.borrow_mut().push(*fault);
        Some(numbered(fault.page()))
    }

    fn meant(&self, _page: Page) -> &Mask {
        &ALL
    }

    fn why_shared(&self, _page: Page) -> u32 {
        0
    }

    fn sees_others(&self) -> bool {
        true
    }

    fn commit(&self, page: Page, outcome: &Committed) {
        self.commits.borrow_mut().push((page, *outcome));
    }

    fn tick(&self, position: &Position, memory: &Memory) -> bool {
        assert_eq!(*position, POSITION);
        self.ticks.set(self.ticks.get() + 1);
        memory.watch_all()
    }

    fn thread_end(&self) {
        self.ends.set(self.ends.get() + 1);
    }
}

/// As in the worker, a write to a page that is not writable is a fault.
fn write(episode: &Episode<'_, &Counts>, program: &Program, at: usize, byte: u8) {
    if !program.write(at, byte) {
        let fault = Fault {
            address: program.page(0) + at,
            instruction: INSTRUCTION,
        };
        assert_eq!(episode.on_access(&fault, true, true), Next::Goes);
        assert!(program.write(at, byte), "and writable from then on");
    }
}

/// As in the worker, every 10 ms.
fn tick(episode: &Episode<'_, &Counts>) -> bool {
    episode.commit(true) && episode.on_tick(&POSITION)
}

#[test]
fn a_tool_gets_faults_commits_starts_and_ends() {
    let (control, memory, program) = (testing::control(), testing::memory(), Program::new(4));
    let slot = &control.slots[0];
    // The first page is shared, the second private after a fault, the third from the start. The
    // fourth is named, but its policy is to share it.
    let counts = Counts {
        named: vec![program.page(2), program.page(3)],
        private: RefCell::new([program.page(1), program.page(2)].into()),
        ..Counts::default()
    };
    let episode = Episode::new(&control, slot, &memory, &counts);
    let (start, end) = program.range();
    program.write_as_others(2 * PAGE + 9, 4);
    assert!(episode.add(start, end, 0) && episode.begin(&POSITION));
    let private: Vec<usize> = memory.private().map(|p| p.page().address).collect();
    assert_eq!((private, counts.starts.get()), (vec![program.page(2)], 1));

    for (at, byte) in [(8, 1), (16, 2), (PAGE + 8, 3), (PAGE + 17, 3)] {
        write(&episode, &program, at, byte);
    }
    write(&episode, &program, 2 * PAGE + 8, 5);
    write(&episode, &program, 3 * PAGE, 6);
    let met: Vec<usize> = counts.faults.borrow().iter().map(|f| f.address).collect();
    // One fault for each page, and none on the page that is private from the start.
    let expected = [8, PAGE + 8, 3 * PAGE].map(|at| start + at);
    assert_eq!(met, expected);
    let seen = |at| program.read_as_others(at);
    assert_eq!((seen(8), seen(16), seen(3 * PAGE)), (1, 2, 6), "shared");
    assert_eq!(
        (seen(PAGE + 8), seen(PAGE + 17), seen(2 * PAGE + 8)),
        (0, 0, 0)
    );
    assert_eq!(
        program.read(PAGE + 8),
        3,
        "but the thread sees what it wrote"
    );
    assert_eq!(
        program.read(2 * PAGE + 9),
        4,
        "as well as the bytes from before"
    );
    assert!(counts.commits.borrow().is_empty());

    program.write_as_others(PAGE + 9, 7);
    program.write_as_others(PAGE + 17, 8);
    assert_eq!(program.read(PAGE + 9), 0, "not before the next refresh");
    assert!(tick(&episode));
    assert_eq!(program.read(PAGE + 9), 7);
    assert_eq!(
        (seen(PAGE + 8), seen(PAGE + 17), seen(2 * PAGE + 8)),
        (3, 3, 5)
    );
    let contended: Vec<_> = counts
        .commits
        .borrow()
        .iter()
        .map(|(page, c)| (page.address, c.written.bytes, c.contended))
        .collect();
    assert_eq!(
        contended,
        [(program.page(2), 1, false), (program.page(1), 2, true)]
    );
    assert_eq!(control.committed_bytes.load(Relaxed), 3);
    assert_eq!((control.commits.load(Relaxed), counts.ticks.get()), (1, 1));

    // The tick has protected all pages again; private pages need no protection.
    write(&episode, &program, 24, 9);
    write(&episode, &program, PAGE + 24, 9);
    assert_eq!(counts.faults.borrow().len(), 4);
    // The policy changes to shared: the page is committed, and the episode ends.
    counts.private.borrow_mut().remove(&program.page(1));
    assert!(!tick(&episode), "the episode ends");
    assert_eq!(seen(PAGE + 24), 9);
    episode.end(why::SYSTEM_CALL);
    assert_eq!(
        (counts.starts.get(), counts.ticks.get(), counts.ends.get()),
        (1, 1, 1)
    );
}

#[test]
fn a_write_to_an_unwatched_page_is_no_fault_of_a_tool() {
    let (control, memory, program) = (testing::control(), testing::memory(), Program::new(1));
    let counts = Counts::default();
    let episode = Episode::new(&control, &control.slots[0], &memory, &counts);
    let fault = Fault {
        address: program.page(0),
        instruction: INSTRUCTION,
    };
    assert_eq!(episode.on_access(&fault, true, true), Next::Ends);
    assert!(counts.faults.borrow().is_empty());
}

#[test]
fn a_closed_page_is_open_for_one_instruction_as_often_as_the_tool_wants() {
    let (control, memory, program) = (testing::control(), testing::memory(), Program::new(1));
    let counts = Counts {
        tells: Cell::new(2),
        ..Counts::default()
    };
    let episode = Episode::new(&control, &control.slots[0], &memory, &counts);
    let (start, end) = program.range();
    assert!(episode.add(start, end, 0));
    let fault = Fault {
        address: start + 8,
        instruction: INSTRUCTION,
    };
    let access = |writes| episode.on_access(&fault, writes, true);
    for writes in [false, true] {
        assert!(memory.close(start));
        assert!(!program.write(8, 1), "closed");
        assert_eq!(access(writes), Next::Steps);
        assert!(program.write(8, 2), "open");
        assert!(episode.on_step());
        assert!(!program.write(8, 3), "closed again");
        assert!(!episode.on_step(), "nothing was open");
    }
    assert_eq!(access(false), Next::Goes);
    assert!(program.write(8, 4));
    assert!(counts.faults.borrow().is_empty(), "reads are no faults");
    assert!(memory.close(start));
    assert_eq!(access(true), Next::Goes);
    assert_eq!(counts.faults.borrow().len(), 1);
    let used: Vec<bool> = counts.used.borrow().iter().map(|one| one.1).collect();
    assert_eq!(used, [false, true, false, true]);
    // An instruction that can't be told from others is not stepped over.
    counts.tells.set(1);
    assert!(memory.close(start));
    assert_eq!(episode.on_access(&fault, true, false), Next::Goes);
    assert_eq!(memory.stepped(), None);
}

#[test]
fn the_threads_own_stack_is_never_watched() {
    let memory = testing::memory();
    let (start, end) = (0x7000_0000, 0x7000_0000 + (64 << 20));
    let stack = 0x7000_0000 + (16 << 20);
    memory.add(start, end, stack);
    for (address, watched) in [
        (start, true),
        (stack - (1 << 20) - PAGE, true),
        (stack - (1 << 20), false),
        (stack, false),
        (stack + (8 << 20) - PAGE, false),
        (stack + (8 << 20), true),
        (end - PAGE, true),
        (end, false),
    ] {
        assert_eq!(memory.can_be_watched(address), watched, "{address:x}");
    }
}

/// The log, without times.
fn logged(control: &Control) -> Vec<Record> {
    std::iter::from_fn(|| control.log.take())
        .map(|record| Record {
            time: 0,
            since: 0,
            ..record
        })
        .collect()
}

#[test]
fn the_log_tells_of_an_episode_in_order() {
    let (control, memory, program) = (testing::control(), testing::memory(), Program::new(3));
    let slot = &control.slots[0];
    slot.thread.store(11, Relaxed);
    control.log.all.store(1, Relaxed);
    let counts = Counts {
        named: vec![program.page(2)],
        private: RefCell::new([program.page(1), program.page(2)].into()),
        ..Counts::default()
    };
    let episode = Episode::new(&control, slot, &memory, &counts);
    let (start, end) = program.range();
    assert!(episode.add(start, end, 0) && episode.begin(&POSITION));
    let before = from_worker::clock(libc::CLOCK_MONOTONIC);
    write(&episode, &program, PAGE + 8, 3);
    write(&episode, &program, PAGE + 17, 3);
    write(&episode, &program, PAGE + 100, 3);
    write(&episode, &program, 2 * PAGE, 5);
    program.write_as_others(PAGE + 17, 8);
    assert!(tick(&episode));
    write(&episode, &program, 2 * PAGE + 63, 6);
    counts.private.borrow_mut().remove(&program.page(2));
    assert!(!episode.commit(false));
    episode.end(why::SYSTEM_CALL);

    let record = |kind, at| Record {
        kind,
        thread: 11,
        address: at as u64,
        ..Record::default()
    };
    let change = |at, bytes, both| Record {
        bytes,
        both,
        ..record(kind::CHANGE, at)
    };
    let first = program.page(1) + 8;
    let by = |record: Record, detail| Record {
        detail,
        instruction: INSTRUCTION as u64,
        ..record
    };
    let times: Vec<Record> = std::iter::from_fn(|| control.log.take()).collect();
    for one in &times {
        control.log.add(one);
    }
    let expected = [
        record(kind::BEGIN, 0),
        record(kind::PRIVATE, program.page(2)),
        by(record(kind::WRITE, first), 0),
        record(kind::PRIVATE, program.page(1)),
        change(program.page(2), 1, 0),
        by(change(program.page(1), 1 << 8 | 1 << 17, 1 << 17), 8),
        change(program.page(1) + 64, 1 << 36, 0),
        change(program.page(2), 1 << 63, 0),
        record(kind::SHARED, program.page(2)),
        Record {
            detail: why::SYSTEM_CALL,
            ..record(kind::END, 0)
        },
    ];
    assert_eq!(logged(&control), expected);
    // A change lies between the commit before and its own.
    let changes: Vec<&Record> = times.iter().filter(|r| r.kind == kind::CHANGE).collect();
    assert!(changes[0].since <= before && before <= changes[0].time);
    assert_eq!(changes[3].since, changes[0].time, "the commit before");
    assert_eq!(changes[0].since, times[0].time, "the episode's beginning");
}

/// A step of a random test.
#[derive(Clone, Copy, Debug)]
enum Act {
    Write(usize, u8),
    Others(usize, u8),
    Tick,
    Commit,
}

const PAGES: usize = 3;

/// The thread writes even bytes and the others odd ones, so they share at most falsely.
fn acts() -> impl Strategy<Value = Vec<Act>> {
    let place = || (0..PAGES, 0..40usize).prop_map(|(page, at)| page * PAGE + at * 2);
    let act = prop_oneof![
        24 => (place(), any::<u8>()).prop_map(|(at, byte)| Act::Write(at, byte)),
        16 => (place(), any::<u8>()).prop_map(|(at, byte)| Act::Others(at + 1, byte)),
        4 => Just(Act::Tick),
        1 => Just(Act::Commit),
    ];
    proptest::collection::vec(act, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn without_private_pages_nothing_is_committed(acts in acts()) {
        let (control, memory, program) = (testing::control(), testing::memory(), Program::new(PAGES));
        let counts = Counts { named: vec![program.page(1)], ..Counts::default() };
        let episode = Episode::new(&control, &control.slots[0], &memory, &counts);
        let (start, end) = program.range();
        prop_assert!(episode.add(start, end, 0) && episode.begin(&POSITION));
        for act in acts {
            match act {
                Act::Write(at, byte) => {
                    write(&episode, &program, at, byte);
                    prop_assert_eq!(program.read_as_others(at), byte, "seen at once");
                }
                Act::Others(at, byte) => {
                    program.write_as_others(at, byte);
                    prop_assert_eq!(program.read(at), byte);
                }
                Act::Tick => prop_assert!(tick(&episode)),
                Act::Commit => prop_assert!(episode.commit(false)),
            }
        }
        episode.end(why::SYSTEM_CALL);
        prop_assert_eq!(memory.private().count(), 0);
        prop_assert!(counts.commits.borrow().is_empty());
        prop_assert_eq!(control.log.take(), None);
        prop_assert_eq!(control.committed_bytes.load(Relaxed), 0);
        prop_assert_eq!(control.commits.load(Relaxed), 0);
    }

    #[test]
    fn no_write_is_lost_under_any_policy(
        acts in acts(),
        named in any::<[bool; PAGES]>(),
        private in any::<[bool; PAGES]>(),
    ) {
        let (control, memory, program) = (testing::control(), testing::memory(), Program::new(PAGES));
        let these = |which: [bool; PAGES]| {
            (0..PAGES).filter(move |page| which[*page]).map(|page| program.page(page))
        };
        let counts = Counts {
            named: these(named).collect(),
            private: RefCell::new(these(private).collect()),
            ..Counts::default()
        };
        let episode = Episode::new(&control, &control.slots[0], &memory, &counts);
        let (start, end) = program.range();
        prop_assert!(episode.add(start, end, 0) && episode.begin(&POSITION));
        let mut expected = vec![0; PAGES * PAGE];
        for act in acts {
            match act {
                Act::Write(at, byte) => {
                    write(&episode, &program, at, byte);
                    prop_assert_eq!(program.read(at), byte, "the thread sees its own");
                    expected[at] = byte;
                }
                Act::Others(at, byte) => {
                    program.write_as_others(at, byte);
                    expected[at] = byte;
                }
                Act::Tick => prop_assert!(tick(&episode)),
                Act::Commit => {
                    // The last commit: the episode ends.
                    prop_assert!(episode.commit(false));
                    break;
                }
            }
        }
        prop_assert!(episode.commit(true));
        for (at, byte) in expected.iter().enumerate() {
            prop_assert_eq!(program.read_as_others(at), *byte, "{}", at);
            prop_assert_eq!(program.read(at), *byte, "{}", at);
        }
    }
}
