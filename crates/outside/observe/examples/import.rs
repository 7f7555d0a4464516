//! Prints the contents of a recording:
//! `cargo run -p sunder-observe --example import -- perf.data`

use std::collections::BTreeMap;
use std::path::Path;
use sunder_observe::{Event, import};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: import FILE")?;
    let mut kinds = BTreeMap::<&str, u64>::new();
    let imported = import(Path::new(&path), |event| {
        let kind = match event {
            Event::Sample(_) => "samples with registers",
            Event::Access { hitm: true, .. } => "accesses to modified lines of other cores",
            Event::Access { .. } => "other accesses",
            Event::Map { .. } => "mappings",
            Event::ThreadStart { .. } => "threads begun",
            Event::ThreadName { .. } => "threads named",
            Event::ThreadEnd { .. } => "threads ended",
            Event::Lost(_) => "notes of lost records",
        };
        *kinds.entry(kind).or_default() += 1;
    })?;
    for (kind, count) in kinds {
        println!("{count:>8} {kind}");
    }
    println!("{imported:#?}");
    Ok(())
}
