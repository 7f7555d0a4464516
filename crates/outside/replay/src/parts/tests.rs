//! Compares parts that are merged with the replay of the whole trace: the results must be the same
//! bytes, whatever the trace and the machine.

use super::*;
use crate::options::{Order, Simulate};
use crate::recorded::{Deed, THREADS, deed, record};
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

    /// Accesses are up to 64 bytes long and begin anywhere, so they reach over the ends of pages, of the
    /// pieces of larger ones, and of blocks.
    #[test]
    fn parts_of_pages_and_of_the_heap_merge_to_the_replay_of_the_whole_trace(
        deeds in prop::collection::vec((0..THREADS, deed()), 1..600),
        granule in prop::sample::select(vec![64u64, 512, 512, 1024, 4096]),
        heap_only in any::<bool>(),
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
            heap_only,
            protocol,
            order,
            reproducible: true,
            nodes: Some(nodes),
            ..Simulate::new(path.clone())
        };
        let whole = crate::simulate::simulate(&options);
        let cut = Cut::new(granule << coarser, buckets).unwrap();
        let merged = merged(&options, &exported(&path, cut, order), cut, by);
        match (whole, merged) {
            (Ok(whole), Ok(merged)) => prop_assert_eq!(whole.to_json().unwrap(), merged),
            (whole, merged) => {
                // A thread that did nothing leaves fewer threads than nodes, and a heap may be unused.
                prop_assert_eq!(whole.is_err(), merged.is_err());
            }
        }
    }
}

/// Accesses of two threads to their own bytes of each of `pages` pages, to some more often.
fn on_pages(pages: u64) -> Vec<(usize, Deed)> {
    let rounds = |page: u64| 2 + page * 7 % 11;
    let of_page = |page: u64| {
        let of_thread = move |thread: usize| {
            let at = page * 512 + thread as u64 * 128;
            (thread, Deed::Global(at, 8, 2))
        };
        (0..rounds(page)).flat_map(move |_| [of_thread(0), of_thread(1)])
    };
    (0..pages).flat_map(of_page).collect()
}

/// Which pages are looked at in detail, and which of these a finding shows, is chosen of all pages of the
/// trace. A bucket does not know the pages of others.
#[test]
fn the_costliest_pages_of_the_trace_are_chosen_from_those_of_each_bucket() {
    let (_folder, path) = record(&on_pages(700));
    let options = Simulate {
        granule: 512,
        reproducible: true,
        ..Simulate::new(path.clone())
    };
    let whole = crate::simulate::simulate(&options).unwrap();
    let lines = &whole.findings[0].lines;
    assert_eq!(whole.findings[0].on_pages.as_ref().unwrap().pages, 700);
    assert!(!lines.is_empty() && lines.iter().all(|line| !line.words.is_empty()));
    for buckets in [1, 2, 13] {
        let cut = Cut::new(512, buckets).unwrap();
        let folder = exported(&path, cut, options.order);
        assert_eq!(
            merged(&options, &folder, cut, 3).unwrap(),
            whole.to_json().unwrap(),
            "{buckets} buckets"
        );
        std::fs::remove_dir_all(folder).unwrap();
    }
}

/// Numbers in a file are checked before a merge uses them as places in lists, or adds them up.
#[test]
fn damaged_counts_of_pages_are_refused() {
    let (_folder, path) = record(&on_pages(4));
    let cut = Cut::new(512, 1).unwrap();
    let options = Simulate {
        granule: 512,
        ..Simulate::new(path.clone())
    };
    let folder = exported(&path, cut, options.order);
    let bucket = [folder.join("bucket=00")];
    let part = replay(&options, &bucket, None, Disorder::Refuse).unwrap();
    let whole: serde_json::Value = serde_json::from_str(&part.to_json().unwrap()).unwrap();
    let file = folder.join("part.json");
    let opened = |part: &serde_json::Value| {
        std::fs::write(&file, part.to_string()).unwrap();
        Part::open(&file).map_err(|error| error.to_string())
    };
    assert_eq!(opened(&whole), Ok(part));
    let changes = [
        ("/version", 1u64, "another version of Sunder"),
        ("/judged/pages/shares/0/1", 1 << 20, "part of a page"),
        ("/judged/pages/sites/0/2", 4, "part of a page"),
        ("/judged/pages/pairs/0/2", 1 << 20, "part of a page"),
        ("/judged/pages/missed/0/0", 1 << 20, "part of a page"),
        ("/judged/pages/destroyed/0/1", 1 << 20, "part of a page"),
        ("/judged/pages/uses/0/0", 1 << 20, "part of a page"),
        ("/judged/pages/pairs/0/3", u64::MAX, "no replay reaches"),
        ("/judged/pages/uses/0/3/1", 1 << 60, "no replay reaches"),
    ];
    for (at, number, wanted) in changes {
        let mut damaged = whole.clone();
        *damaged.pointer_mut(at).expect(at) = number.into();
        let said = opened(&damaged).expect_err(at);
        assert!(said.contains(wanted), "{at}: {said}");
    }
}
