//! What is chosen and what is given up again.

use super::*;
use crate::shared::Shared;
use std::rc::Rc;
use sunder_access::ThreadId;
use sunder_plan::progress::Gain;

fn isolated(name: &str, start: u64) -> Isolated {
    Isolated {
        name: name.into(),
        spans: vec![Span::new(Address(start), 64)],
        at_seconds: 0.1,
        cost_percent: 50.0,
        interleaved_writes: None,
        progress: None,
        in_vain: None,
    }
}

fn gained(objects: std::ops::Range<usize>, ratios: &[f64]) -> Gained {
    let gain = |&ratio: &f64| Gain {
        ratio,
        before: 1.0,
        after: ratio,
        clocks: 1,
    };
    let threads = (1..).map(ThreadId);
    Gained {
        objects,
        threads: threads.zip(ratios.iter().map(gain)).collect(),
        fair: true,
        isolated_for: None,
    }
}

/// Chooses a global of 64 bytes.
fn chosen(chooser: &mut Chooser, keeper: &mut Keeper, name: &str, start: u64) {
    chooser.isolated.push(isolated(name, start));
    let request = PageRequest {
        start,
        size: 64,
        whole_pages: false,
        common: false,
        block: None,
    };
    keeper.request_pages(request);
    chooser.subjects.push(Subject {
        request,
        lasting: Lasting::Global,
        settled: true,
    });
}

#[test]
fn what_no_thread_computes_on_is_given_up_and_not_told_as_isolated() {
    let shared = Rc::new(Shared::new().expect("memory"));
    let mut keeper = Keeper::with_tick(Rc::clone(&shared), 10_000, 0);
    let mut chooser = Chooser::default();
    chosen(&mut chooser, &mut keeper, "rows", 0x10_0000);
    assert!(keeper.pages.settle(&shared));
    assert!(chooser.has_chosen() && Pages::any(&shared));
    chooser.give_up(&keeper);
    assert!(!chooser.has_chosen() && !Pages::any(&shared));
    assert!(chooser.isolated.is_empty());
    let why = "`rows`: no thread computed there for long";
    assert_eq!(chooser.left_out, [why]);
    assert!(chooser.is_decided(Address(0x10_0000), Time(0), Time(1)));
}

#[test]
fn what_threads_lose_time_by_is_shared_again_and_stays_so() {
    let shared = Rc::new(Shared::new().expect("memory"));
    let mut keeper = Keeper::with_tick(Rc::clone(&shared), 10_000, 0);
    let mut chooser = Chooser::default();
    for (name, start) in [("good", 0x10_0000), ("bad", 0x20_0000)] {
        chosen(&mut chooser, &mut keeper, name, start);
    }
    assert!(keeper.pages.settle(&shared));
    let given_up = || {
        let pages = shared.pages.iter().take(2);
        pages
            .map(|page| page.given_up.load(Relaxed))
            .collect::<Vec<_>>()
    };
    chooser.take_in(gained(0..1, &[2.0, 1.5]), &keeper);
    chooser.take_in(gained(1..2, &[]), &keeper);
    assert_eq!(given_up(), [0, 0], "nothing is known of the second");
    chooser.take_in(gained(1..2, &[0.97, 0.98]), &keeper);
    assert_eq!(given_up(), [0, 0], "that is not told from chance");
    let mut took_turns = gained(1..2, &[0.5, 1.0]);
    took_turns.fair = false;
    chooser.take_in(took_turns, &keeper);
    assert_eq!(given_up(), [0, 0], "threads did not contend before");
    chooser.take_in(gained(1..2, &[0.5, 1.0]), &keeper);
    assert_eq!(given_up(), [0, COSTLY]);
    assert_eq!(chooser.subjects.len(), 1);
    let told = "`bad` any more: isolating it did not help: 2 threads got on 0.71 times as fast as before (by thread 0.50 to 1.00)";
    assert_eq!(chooser.left_out, [told]);
    // The third is hardly ever isolated.
    chosen(&mut chooser, &mut keeper, "short", 0x40_0000);
    let mut seldom = gained(2..3, &[]);
    seldom.isolated_for = Some(0.2);
    chooser.take_in(seldom, &keeper);
    assert_eq!(chooser.subjects.len(), 2);
    let mut seldom = gained(2..3, &[]);
    seldom.isolated_for = Some(0.014);
    chooser.take_in(seldom, &keeper);
    assert_eq!(chooser.subjects.len(), 1);
    let told = "`short` any more: isolating it did not help: its threads were isolated for 1 % of the time only";
    assert_eq!(chooser.left_out[1], told);
    let in_vain = chooser.isolated.iter().map(|one| one.in_vain.is_some());
    assert_eq!(in_vain.collect::<Vec<_>>(), [false, true, true]);
    let gains = chooser
        .isolated
        .iter()
        .map(|one| one.progress.as_ref().map(|p| p.gain));
    let gains: Vec<f64> = gains.flatten().collect();
    assert!((gains[0] - 3f64.sqrt()).abs() < 1e-9, "{gains:?}");
    let is_decided = |start| chooser.is_decided(Address(start), Time(0), Time(1));
    assert!(is_decided(0x10_0000), "isolated");
    assert!(is_decided(0x20_0000), "in vain");
    assert!(!is_decided(0x30_0000));
}
