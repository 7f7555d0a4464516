//! The recorded stack frames in which threads were created, compared with what the program prints.

use crate::harness::{Waiting, functions, heap_segment, preload, program};
use std::collections::BTreeMap;
use std::process::Command;
use sunder_access::CodeAddress;
use sunder_wire::Creation;

/// Checks that `creation` has the functions `wanted`, innermost first, with the values of `told`:
/// canonical frame address and frame pointer by function name.
fn check(
    creation: &Creation,
    wanted: &[&str],
    functions: &[(u64, u64, String)],
    told: &BTreeMap<&str, [u64; 2]>,
) {
    let name = |address: CodeAddress| {
        let inside = |f: &&(u64, u64, String)| (f.0..f.0 + f.1).contains(&(address.0 - 1));
        let found = functions.iter().find(inside);
        found.map_or("?", |(_, _, name)| name.as_str())
    };
    for (i, wanted) in wanted.iter().enumerate() {
        let frame = creation.frames[i];
        assert_eq!(name(frame.return_address), *wanted, "{creation:x?}");
        let [cfa, frame_pointer] = told[wanted];
        let next = creation.frames[i + 1];
        assert_eq!(next.stack_pointer.0, cfa, "CFA of {wanted}: {creation:x?}");
        if frame_pointer != 0 {
            assert_eq!(frame.frame_pointer.0, frame_pointer, "rbp of {wanted}");
        }
        assert!(frame.stack_pointer < next.stack_pointer);
    }
}

#[test]
fn the_frames_that_a_thread_was_created_in_are_recorded() {
    let path = program("creators");
    let functions = functions(&path);
    let segment = heap_segment();
    let run = Waiting::start(preload(&mut Command::new(&path), &segment));
    let hex = |word: &str| match word {
        "(nil)" => 0,
        word => u64::from_str_radix(&word[2..], 16).expect("hexadecimal"),
    };
    let told: BTreeMap<&str, [u64; 2]> = run
        .lines
        .iter()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            (words[0], [hex(words[1]), hex(words[2])])
        })
        .collect();
    assert_eq!(told.len(), 5, "{told:?}");
    let creations = segment.creations();
    let [first, second] = &creations[..] else {
        panic!("not two: {creations:x?}");
    };
    let threads = segment.threads();
    let main = [
        "without_frame_pointer",
        "with_frame_pointer",
        "realigned",
        "main",
    ];
    assert_eq!(first.creator.0, run.id());
    assert_eq!(first.thread, threads[1].thread);
    check(first, &main, &functions, &told);
    assert_eq!(second.creator, first.thread);
    assert_eq!(second.thread, threads[2].thread);
    let own = ["creates_second"];
    check(second, &own, &functions, &told);
    run.finish();
}
