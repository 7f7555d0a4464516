//! The fuzz targets' entries with the files of `fuzz/corpus`, with damaged copies of these, and
//! with random bytes: the part of fuzzing that a stable toolchain can do. A file that crashed a
//! fuzz target is added to the corpus when the error is fixed.

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};
use std::fs;
use std::path::Path;
use sunder_entries::{ALL, Entry};

/// How many random inputs of each sort are tried.
const CASES: u32 = 64;

/// The most bytes of a random input.
const LONGEST: usize = 512;

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../corpus")
        .join(name);
    let mut paths: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn runner() -> TestRunner {
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(CASES)
    };
    TestRunner::new(config)
}

fn on_random_bytes(entry: Entry) {
    let bytes = prop::collection::vec(any::<u8>(), 0..LONGEST);
    let tried = runner().run(&bytes, |bytes| {
        entry(&bytes);
        Ok(())
    });
    tried.unwrap();
}

/// Valid files with a few bytes replaced, then cut off.
fn on_damaged(entry: Entry, sound: &[Vec<u8>]) {
    let change = (any::<Index>(), any::<u8>());
    let changes = prop::collection::vec(change, 0..8);
    let strategy = (any::<Index>(), changes, any::<Index>(), any::<bool>());
    let tried = runner().run(&strategy, |(which, changes, end, cut)| {
        let mut bytes = which.get(sound).clone();
        if bytes.is_empty() {
            return Ok(());
        }
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if cut {
            bytes.truncate(end.index(bytes.len()));
        }
        entry(&bytes);
        Ok(())
    });
    tried.unwrap();
}

fn check(name: &str) {
    let (_, entry) = ALL.iter().find(|(known, _)| *known == name).unwrap();
    let files = corpus(name);
    for bytes in &files {
        entry(bytes);
    }
    on_random_bytes(*entry);
    on_damaged(*entry, &files);
}

macro_rules! entries {
    ($($name:ident),*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        #[test]
        fn every_entry_is_tested() {
            let tested = [$(stringify!($name)),*];
            assert_eq!(ALL.iter().map(|(name, _)| *name).collect::<Vec<_>>(), tested);
        }
    };
}

entries!(
    assembled,
    blocks,
    code,
    program,
    recording,
    result,
    rewrite,
    run,
    segment,
    trace,
    transaction
);
