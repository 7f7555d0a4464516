//! The queries of `docs/queries.md`, run by DuckDB on an exported trace. Their answers are held against
//! `sunder simulate`, and against what the recorded program is known to do.

use super::parts::{ROUNDS, exported, program, recorded};
use crate::support::engines::python_with;
use crate::support::replays::replay;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The file's own address of a variable of the recorded program.
fn symbol(name: &str) -> u64 {
    let out = Command::new("nm").arg(program()).output().expect("nm");
    let text = String::from_utf8(out.stdout).expect("text");
    let mut lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines
        .find(|words| words.last() == Some(&name))
        .expect("a variable");
    u64::from_str_radix(line[0], 16).expect("an address")
}

/// Where the recorded program was loaded.
fn base(tables: &Path) -> u64 {
    let text = std::fs::read_to_string(tables.join("trace.json")).expect("a description");
    let trace: Value = serde_json::from_str(&text).expect("JSON");
    let path = program().to_string_lossy().into_owned();
    let mut modules = trace["modules"].as_array().expect("modules").iter();
    let module = modules
        .find(|m| m["path"] == path.as_str())
        .expect("the program");
    module["base"].as_u64().expect("a number")
}

fn number(row: &Value, column: &str) -> u64 {
    row[column]
        .as_u64()
        .unwrap_or_else(|| panic!("no {column} in {row}"))
}

#[test]
fn ten_questions_have_the_answers_that_a_replay_gives() {
    let Some(python) = python_with(&["duckdb"]) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let options = ["--order", "recorded"];
    let tables = exported(folder.path(), &[&options[..], &["--buckets", "5"]].concat());
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let x = base(&tables) + symbol("block");
    let out = Command::new(python)
        .arg(manifest.join("tests/engines/queries.py"))
        .args([&manifest.join("../../docs/queries.md"), &tables])
        .arg(x.to_string())
        .output()
        .expect("it runs");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let answers: BTreeMap<u32, Vec<Value>> = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(answers.len(), 10);
    let rows = |query: u32| answers[&query].iter();
    let sum = |query, column| rows(query).map(|row| number(row, column)).sum::<u64>();

    let result = replay("simulate", recorded(), &options);
    let simulation = result.simulation.expect("simulated");
    let totals = simulation.totals;
    let moves = totals.true_sharing + totals.false_sharing;
    assert!(moves > 1000, "{totals:?}");
    for query in [3, 4, 10] {
        assert_eq!(sum(query, "misses"), moves, "query {query}");
    }
    // Each line of a finding has the misses that the replay counted for it.
    let pair = result
        .findings
        .iter()
        .find(|f| f.object.name.as_deref() == Some("pair"));
    let pair = pair.expect("two globals beside each other");
    let line = pair.lines[0].address.0;
    let of_line = |query| rows(query).find(|row| number(row, "address") == line);
    let counts = pair.simulated.expect("counts");
    assert_eq!(
        of_line(3).map(|row| number(row, "misses")),
        Some(counts.true_sharing + counts.false_sharing)
    );
    // 1: two threads write the pair, each its own word.
    assert_eq!(of_line(1).map(|row| number(row, "writers")), Some(2));
    // 2: one thread sets the pointer once a round, and the other reads it in each.
    let writes: Vec<_> = rows(2).map(|row| number(row, "writes")).collect();
    assert_eq!(writes, [ROUNDS - 1], "{:?}", answers[&2]);
    // 5: the words of the blocks move, which two call sites allocate in turn.
    let mut by_site: BTreeMap<u64, u64> = BTreeMap::new();
    for row in rows(5) {
        *by_site.entry(number(row, "site")).or_default() += number(row, "misses");
    }
    let largest = by_site
        .values()
        .filter(|&&misses| misses > ROUNDS / 2 * 10)
        .count();
    assert_eq!(largest, 2, "{by_site:?}");
    // 6: all of it, in the hour or two of the recording.
    assert_eq!(sum(6, "misses"), moves);
    assert!((1..=2).contains(&answers[&6].len()), "{:?}", answers[&6]);
    // 7: a node for each thread.
    let lines: Vec<_> = rows(7).map(|row| number(row, "lines")).collect();
    let cold: Vec<_> = simulation.by_node.iter().map(|node| node.cold).collect();
    assert_eq!(lines, cold);
    assert_eq!(sum(7, "accesses"), simulation.accesses);
    // 8: one read in each round, of the block that was just freed.
    assert_eq!(sum(8, "accesses"), ROUNDS, "{:?}", answers[&8]);
    // 9: whatever is beside a lock, it is on the lock's line, and several threads write it.
    assert!(rows(9).all(|row| number(row, "writers") > 1));
}
