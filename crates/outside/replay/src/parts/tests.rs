//! Compares parts that are merged with the replay of the whole trace: the results must be the same
//! bytes, whatever the trace and the machine.

use super::*;
use crate::options::{Order, Simulate};
use crate::recorded::{THREADS, deed, record};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use sunder_coherence::Protocol;
use sunder_tables::{Cut, Disorder, Target, export};
use sunder_trace::Trace;

/// Exports the trace at `path` into a folder beside it.
fn exported(path: &Path, cut: Cut, order: Order) -> PathBuf {
    let folder = path.with_file_name("tables");
    let target = Target::create(&folder, cut).unwrap();
    let order = match order {
        Order::Parallel => sunder_tables::Order::Parallel,
        Order::Canonical => sunder_tables::Order::Canonical,
        Order::Recorded => sunder_tables::Order::Recorded,
    };
    export(&Trace::open(path).unwrap(), target, order, &|_| {}).unwrap();
    folder
}

/// The result of the buckets in `folder`, replayed apart, written, read and merged in any order.
fn merged(options: &Simulate, folder: &Path, cut: Cut, by: usize) -> anyhow::Result<String> {
    let buckets: Vec<PathBuf> = (0..cut.buckets())
        .map(|bucket| folder.join(format!("bucket={bucket:02}")))
        .collect();
    let mut all: Option<Part> = None;
    for buckets in buckets.chunks(by).rev() {
        let part = replay(options, buckets, Some(options.order), Disorder::Refuse)?;
        let file = folder.join("part.json");
        std::fs::write(&file, part.to_json()?)?;
        let part = Part::open(&file)?;
        match &mut all {
            Some(all) => all.join(part)?,
            None => all = Some(part),
        }
    }
    let result = merge(all.expect("a part"), options)?;
    Ok(result.to_json()?)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn parts_merge_to_the_replay_of_the_whole_trace(
        deeds in prop::collection::vec((0..THREADS, deed()), 1..600),
        granule in prop::sample::select(vec![16u64, 32, 64, 128, 256]),
        coarser in 0..3u32,
        buckets in 1..7u32,
        by in 1..4usize,
        nodes in 1..=3u32,
        protocol in prop::sample::select(vec![Protocol::Msi, Protocol::Mesi, Protocol::Mesif]),
        order in prop::sample::select(vec![Order::Parallel, Order::Canonical, Order::Recorded]),
    ) {
        let (_folder, path) = record(&deeds);
        let options = Simulate {
            granule,
            protocol,
            order,
            reproducible: true,
            map: vec![(1, 0)],
            nodes: Some(nodes),
            ..Simulate::new(path.clone())
        };
        let Ok(whole) = crate::simulate::simulate(&options) else {
            return Ok(());
        };
        let cut = Cut::new(granule << coarser, buckets).unwrap();
        let folder = exported(&path, cut, order);
        let merged = merged(&options, &folder, cut, by).unwrap();
        prop_assert_eq!(whole.to_json().unwrap(), merged);
    }
}
