//! The canonical order of replays: who got a lock first, and which thread began first, varies from one
//! recording to the next; the counts must not.

use crate::support::sunder;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use sunder_findings::{Findings, Simulated};
use sunder_trace::read::Kinds;
use sunder_trace::{Filter, Trace, What};

const RECORDINGS: usize = 4;
const ROUNDS: &str = "200";

/// Recordings of `one_lock`, compiled for it, or under the emulator.
fn recordings(folder: &Path, compiled: bool) -> Vec<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/one_lock.c");
    let program = folder.join("one_lock");
    let mut compile = match compiled {
        true => sunder(),
        false => assert_cmd::Command::new("gcc"),
    };
    if compiled {
        compile.arg("cc");
    }
    let compile = compile.args(["-O1", "-g", "-pthread", "-o"]).arg(&program);
    compile.arg(source).assert().success();
    let via = if compiled { "instrumented" } else { "emulated" };
    let record = |number| {
        let file = folder.join(format!("{number}.trace"));
        let mut sunder = sunder();
        sunder.args(["trace", "--via", via, "-o"]).arg(&file);
        // 200 rounds of the threads 0 to 3.
        sunder
            .arg("--")
            .arg(&program)
            .arg(ROUNDS)
            .assert()
            .success()
            .stdout("1200\n");
        file
    };
    (0..RECORDINGS).map(record).collect()
}

#[test]
fn recordings_with_other_winners_of_a_lock_give_the_same_counts() {
    let folder = tempfile::tempdir().expect("a folder");
    let traces = recordings(folder.path(), true);
    for nodes in [&[][..], &["--nodes", "2"]] {
        let counts = traces.iter().map(|trace| {
            let file = folder.path().join("result.json");
            let mut simulate = sunder();
            simulate.args(["simulate", "--quiet", "-o"]).arg(&file);
            simulate.args(nodes).arg(trace).assert().success();
            let result = Findings::open(&file).expect("a result");
            let simulation = result.simulation.expect("a simulation");
            // Cold misses depend on where the stacks lie, which the kernel chooses.
            let counts = |of: &Simulated| {
                (
                    of.references,
                    of.true_sharing,
                    of.false_sharing,
                    of.invalidations,
                )
            };
            // Four threads that pass a lock around in every round share what it guards.
            assert!(
                simulation.totals.true_sharing > 200,
                "{:?}",
                simulation.totals
            );
            simulation.by_node.iter().map(counts).collect::<Vec<_>>()
        });
        let counts: Vec<_> = counts.collect();
        assert!(
            counts.iter().all(|c| *c == counts[0]),
            "{nodes:?}: {counts:#?}"
        );
    }
}

/// The numbers of the threads in the order in which their own data lie. Each has data that no other
/// touches; the program numbers its threads, and so these data, in the order of their creation.
fn by_own_data(trace: &Path) -> Vec<u32> {
    let trace = Trace::open(trace).expect("a trace");
    let mut users: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
    let filter = Filter {
        kinds: Kinds::ACCESSES,
        ..Filter::default()
    };
    let mut touches: BTreeMap<u64, u64> = BTreeMap::new();
    for event in trace.events(filter) {
        if let What::Access { access, .. } = event.what {
            users
                .entry(access.address.0)
                .or_default()
                .insert(event.thread);
            *touches.entry(access.address.0).or_default() += 1;
        }
    }
    // The first 20 words of the own data are read and written in every round.
    users.retain(|at, users| users.len() == 1 && touches[at] == 2 * 200);
    let mut order: Vec<u32> = users.into_values().flatten().collect();
    order.dedup();
    order
}

#[test]
fn threads_are_numbered_in_the_order_of_their_creation() {
    for compiled in [true, false] {
        let folder = tempfile::tempdir().expect("a folder");
        for trace in recordings(folder.path(), compiled) {
            // The first thread has number 1. Stacks come after the program's variables.
            let mut order = by_own_data(&trace);
            order.retain(|thread| *thread != 1);
            assert!(
                order.starts_with(&[2, 3, 4, 5]),
                "compiled: {compiled}: {order:?}"
            );
        }
    }
}
