//! A keeper of the test process itself, or of none; no thread is stopped.

use super::*;
use crate::threads::no_longer_exists;
use sunder_wire::isolation::Control;

/// A keeper that looks at no threads, and the control file that it shares with the process.
fn keeper_of(process: i32) -> (Keeper, Rc<Shared>) {
    let shared = Rc::new(Shared::new().expect("memory files exist"));
    let keeper = Keeper::with_tick(Rc::clone(&shared), TICK, process);
    (keeper, shared)
}

/// The number of a thread that has ended.
fn ended() -> i32 {
    // SAFETY: takes no arguments.
    let thread = std::thread::spawn(|| unsafe { libc::gettid() });
    let number = thread.join().expect("the thread does not panic");
    while !no_longer_exists(std::process::id() as i32, number) {
        std::thread::yield_now();
    }
    number
}

/// If the slot of an isolated thread were freed, the thread would go on from where its episode
/// began and do all of its work twice.
#[test]
fn only_threads_that_ended_outside_of_isolation_lose_their_slots() {
    let process = std::process::id() as i32;
    let (mut keeper, shared) = keeper_of(process);
    let control: &Control = &shared;
    // The control file is where it was.
    shared.base.store(&raw const *control as u64, Relaxed);
    let (lives, gone) = (process, ended());
    let slots = [
        (lives, state::HOME),
        (lives, state::ISOLATED),
        (gone, state::HOME),
        (gone, state::ENTERING),
        (gone, state::ISOLATED),
        (gone, state::RETURNING),
    ];
    for (slot, (thread, state)) in shared.slots.iter().zip(slots) {
        slot.thread.store(thread as u32, Relaxed);
        slot.state.store(state, Relaxed);
    }
    let found = || -> Vec<(i32, u32)> {
        let all = shared.slots.iter().take(slots.len());
        all.map(|s| (s.thread.load(Relaxed) as i32, s.state.load(Relaxed)))
            .collect()
    };
    keeper.free_slots();
    let mut left = slots;
    left[2] = (0, state::FREE);
    assert_eq!(found(), left);
    // With another program, no thread of the old one is left.
    shared.base.store(0, Relaxed);
    keeper.free_slots();
    left[3..].fill((0, state::FREE));
    assert_eq!(found(), left);
}

#[test]
fn threads_of_an_unreadable_process_are_not_taken_for_stopped() {
    let (mut keeper, _) = keeper_of(i32::MAX);
    assert!(keeper.stop_all_but(1).is_none());
}

/// What a program does at its start may be dear to follow, and soon be over.
#[test]
fn isolation_that_takes_too_much_pauses_twice_and_then_ends() {
    let (mut keeper, shared) = keeper_of(std::process::id() as i32);
    // The control file is where it was, and the library is ready.
    let control: &Control = &shared;
    shared.base.store(&raw const *control as u64, Relaxed);
    shared.ready.store(ready::READY, Relaxed);
    let (slot, worked) = (&shared.slots[5], 200_000_000);
    for times in 1..=3 {
        slot.state.store(state::ISOLATED, Relaxed);
        slot.recall.store(0, Relaxed);
        slot.upkeep.all.fetch_add(worked, Relaxed);
        keeper.weigh();
        let before = (times > 1).then_some((times - 1, 30));
        assert_eq!(keeper.too_much(), before, "nothing was taken");
        slot.upkeep.all.fetch_add(worked, Relaxed);
        slot.upkeep.taken.fetch_add(worked * 3 / 10, Relaxed);
        keeper.weigh();
        assert_eq!(keeper.too_much(), Some((times, 30)));
        assert!(keeper.is_pausing());
        assert_eq!(slot.recall.load(Relaxed), u32::from(times < 3));
        assert_eq!(keeper.is_open(), times < 3);
    }
    // The parked thread sees this at its next commit.
    assert_eq!(shared.closed.load(Relaxed), closed::COSTS);
    let why = keeper.refusal().unwrap_or_default();
    assert!(why.contains("took 30 % of their time"), "{why}");
}

#[test]
fn isolation_may_take_anything_if_more_of_it_was_asked_for() {
    let (mut keeper, shared) = keeper_of(std::process::id() as i32);
    keeper.whatever_it_costs();
    shared.slots[0].upkeep.all.store(1 << 40, Relaxed);
    shared.slots[0].upkeep.taken.store(1 << 40, Relaxed);
    keeper.weigh();
    assert_eq!(keeper.too_much(), None);
    assert!(!keeper.is_pausing());
}

/// Otherwise all threads of the new program would be stopped at every turn.
#[test]
fn a_fork_that_ended_with_its_program_stops_no_thread() {
    let process = std::process::id() as i32;
    let (mut keeper, shared) = keeper_of(process);
    // The thread is alive, but the control file is not mapped there.
    for thread in [process, ended()] {
        shared.stop.store(thread as u32, Relaxed);
        assert!(!keeper.wants_a_fork(thread));
        keeper.turn();
        assert_eq!(shared.stop.load(Relaxed), 0);
        assert_eq!(shared.stopped.load(Relaxed), 0, "no answer is given");
    }
}

/// What was learned of the last program must not be used on the new one.
#[test]
fn state_of_an_earlier_program_is_forgotten() {
    let (mut keeper, shared) = keeper_of(i32::MAX);
    shared.ready.store(ready::READY, Relaxed);
    let request = PageRequest {
        start: 0x1000,
        size: 8,
        whole_pages: true,
        common: false,
        block: None,
    };
    keeper.pages.request(&shared, request);
    assert!(keeper.pages.settle(&shared) && Pages::any(&shared));
    keeper.pages.request(
        &shared,
        PageRequest {
            start: 0x5000,
            ..request
        },
    );
    shared.code_count.store(1, Relaxed);
    shared.guarded_count.store(1, Relaxed);
    keeper.is_elsewhere = true;
    assert!(!keeper.is_open() && keeper.refusal().is_some());

    shared.ready.store(ready::BEGINNING, Relaxed);
    assert!(
        !keeper.is_open() && keeper.refusal().is_none(),
        "the new program has the library"
    );
    shared.ready.store(ready::ANOTHER, Relaxed);
    keeper.begin_anew();
    assert!(keeper.is_open() && keeper.refusal().is_none());
    assert_eq!(keeper.programs, 1);
    assert!(keeper.pages.settle(&shared) && !Pages::any(&shared));
    let counts = [
        &shared.page_count,
        &shared.code_count,
        &shared.guarded_count,
    ];
    assert!(counts.iter().all(|count| count.load(Relaxed) == 0));
    assert!(
        shared
            .pages
            .iter()
            .all(|page| page.bytes.iter().all(|bits| bits.load(Relaxed) == 0))
    );
}

/// A keeper that has refused does not begin anew with another program.
#[test]
fn a_refusal_holds_for_the_next_program() {
    let (mut keeper, shared) = keeper_of(i32::MAX);
    keeper.refused = Some("it may not".into());
    shared.ready.store(ready::ANOTHER, Relaxed);
    keeper.begin_anew();
    assert!(!keeper.is_open());
    assert_eq!(keeper.refusal(), Some("it may not"));
    assert_eq!(shared.ready.load(Relaxed), ready::ANOTHER);
}
