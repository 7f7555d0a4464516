//! From a program to its exact accesses: launch, sampler, code and decoder
//! together.
//!
//! How probable a miss is: each thread spends 300 ms of CPU time, nearly all of it in a loop of 3
//! to 6 instructions. Some of them access the known address, exactly from any instruction of the
//! loop and at every optimisation (see the program: all samples can fall on one instruction). At
//! 1000 Hz that gives some 300 samples; that none is in the loop has no practical probability. CPU
//! time, not wall time, is sampled, so load changes nothing.

use crate::support::{compile, perf_allowed};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use sunder_access::{Access, Kind, ThreadId};
use sunder_observe::foreign::ForeignFiles;
use sunder_observe::{Decoded, Decoder, Event, FrequencyPlan, Launch, PerfSampler, ProcessCode};

struct Seen {
    status: i32,
    accesses: Vec<Access>,
    samples: usize,
    without_code: usize,
    lost: u64,
}

/// Runs `program` with its output in `output`, calls `before_decoding`, and then decodes all
/// samples.
fn sample(program: &Path, output: &Path, before_decoding: impl FnOnce()) -> Seen {
    let script = format!("exec '{}' > '{}'", program.display(), output.display());
    let prepared = Launch::new("sh")
        .arguments(["-c", &script])
        .prepare()
        .unwrap();
    let plan = FrequencyPlan::fixed(1000);
    let mut sampler = PerfSampler::for_child(prepared.pid(), plan, false).unwrap();
    let mut child = prepared.go().unwrap();
    let mut events = Vec::new();
    let status = loop {
        sampler.wait(Duration::from_millis(10)).unwrap();
        sampler.drain(&mut |event| events.push(event));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
    };
    sampler.finish(&mut |event| events.push(event));
    before_decoding();

    let (mut code, mut decoder) = (ProcessCode::new(), Decoder::new());
    // The program may have ended; it had our rights.
    code.begin_with(Arc::new(ForeignFiles::ours()));
    let mut decoded = Decoded::default();
    let mut seen = Seen {
        status: status.code().unwrap(),
        accesses: Vec::new(),
        samples: 0,
        without_code: 0,
        lost: 0,
    };
    for event in events {
        code.observe(&event);
        match event {
            Event::Sample(sample) => {
                decoder.decode(&sample, &mut code, &mut decoded);
                seen.samples += 1;
                seen.without_code += usize::from(!decoded.code_found);
                seen.accesses.append(&mut decoded.accesses);
            }
            Event::Lost(count) => seen.lost += count,
            _ => {}
        }
    }
    seen
}

/// For an address, how often each thread accesses it, by width and kind.
fn at(seen: &Seen, address: u64) -> BTreeMap<(ThreadId, u8, Kind), usize> {
    let mut all = BTreeMap::new();
    for access in seen
        .accesses
        .iter()
        .filter(|access| access.address.0 == address)
    {
        *all.entry((access.thread, access.width, access.kind))
            .or_default() += 1;
    }
    all
}

fn addresses(output: &Path) -> Vec<u64> {
    std::fs::read_to_string(output)
        .unwrap()
        .split_whitespace()
        .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap())
        .collect()
}

#[test]
fn samples_of_a_program_are_its_accesses() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("output");
    // Unoptimised, optimised, and optimised without symbols.
    for options in [&["-O0"][..], &["-O2"], &["-O2", "-s"]] {
        let Some(program) = compile(directory.path(), "known", options) else {
            return;
        };
        if !perf_allowed() {
            return;
        }
        let seen = sample(&program, &output, || {});
        assert_eq!(seen.status, 7);
        assert_eq!(seen.lost, 0);
        assert!(seen.samples > 0);
        let [narrow, wide] = addresses(&output)[..] else {
            panic!()
        };

        let narrow = at(&seen, narrow);
        assert!(!narrow.is_empty(), "{options:?}");
        let first = narrow.keys().next().unwrap().0;
        for &(thread, width, kind) in narrow.keys() {
            assert_eq!((thread, width), (first, 4), "{options:?}");
            // A load, an addition and a store, or one instruction.
            assert!(
                matches!(kind, Kind::Read | Kind::Write | Kind::Update),
                "{kind:?}"
            );
        }
        assert!(narrow.keys().any(|key| key.2.writes()));

        let wide = at(&seen, wide);
        assert!(!wide.is_empty(), "{options:?}");
        for &(thread, width, kind) in wide.keys() {
            assert_ne!(thread, first);
            assert_eq!((width, kind), (8, Kind::Atomic), "{options:?}");
        }
    }
}

/// The file of an ended program is replaced by another before its samples are decoded: the decoder
/// must not use the wrong code.
#[test]
fn a_replaced_program_is_not_taken_for_the_one_that_ran() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("output");
    let Some(program) = compile(directory.path(), "known", &["-O0"]) else {
        return;
    };
    if !perf_allowed() {
        return;
    }
    let other = directory.path().join("other");
    std::fs::copy("/bin/true", &other).unwrap();
    let seen = sample(&program, &output, || {
        std::fs::rename(&other, &program).unwrap();
    });
    let [narrow, wide] = addresses(&output)[..] else {
        panic!()
    };
    assert!(at(&seen, narrow).is_empty() && at(&seen, wide).is_empty());
    assert!(seen.without_code > 0);
}

/// The file shrinks under its image: an error, not a SIGBUS.
#[test]
fn a_truncated_program_does_no_harm() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("output");
    let Some(program) = compile(directory.path(), "known", &["-O0"]) else {
        return;
    };
    if !perf_allowed() {
        return;
    }
    let seen = sample(&program, &output, || {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&program)
            .unwrap();
        // The headers stay, the code is cut off.
        file.set_len(1024).unwrap();
    });
    assert!(seen.without_code > 0);
}
