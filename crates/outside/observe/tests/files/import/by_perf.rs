//! Recordings made by `perf` itself.

use super::recording::{read, read_file};
use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_access::Address;
use sunder_observe::{Event, ImportError};

/// A recording made by `perf` itself, if it is installed and allowed.
fn record_live(folder: &Path, options: &[&str], to_pipe: bool) -> Option<PathBuf> {
    let (source, program) = (folder.join("spin.c"), folder.join("spin"));
    let code = "int main(void) { volatile long x[4]; \
                for (long i = 0; i < 50000000; i++) x[i & 3] += i; return 0; }";
    std::fs::write(&source, code).unwrap();
    let built = Command::new("gcc")
        .args(["-O1", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.expect("gcc is part of the set-up").success());
    let path = folder.join(if to_pipe { "piped.data" } else { "perf.data" });
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", "cpu-clock:u", "-F", "1000"])
        .args(options)
        .arg("-o");
    if to_pipe {
        perf.arg("-").stdout(std::fs::File::create(&path).unwrap());
    } else {
        perf.arg(&path);
    }
    match perf.arg("--").arg(&program).output() {
        Ok(output) if output.status.success() => Some(path),
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            println!("SKIP: perf record refused: {}", why.trim());
            None
        }
        Err(error) => {
            println!("SKIP: perf cannot be run: {error}");
            None
        }
    }
}

const ALL_REGISTERS: &str = "--user-regs=ax,bx,cx,dx,si,di,bp,sp,ip,r8,r9,r10,r11,r12,r13,r14,r15";

#[test]
fn a_recording_by_perf_is_read_in_every_layout() {
    let folder = tempfile::tempdir().unwrap();
    for (options, to_pipe) in [
        (&[ALL_REGISTERS][..], false),
        (&[ALL_REGISTERS], true),
        // Compressed, with two events, with stacks.
        (&[ALL_REGISTERS, "-z"], false),
        (&[ALL_REGISTERS, "-e", "page-faults:u"], false),
        (&[ALL_REGISTERS, "--call-graph", "dwarf,512"], false),
    ] {
        let Some(path) = record_live(folder.path(), options, to_pipe) else {
            return;
        };
        let (imported, events) =
            read_file(&path).unwrap_or_else(|error| panic!("{options:?} {to_pipe}: {error}"));
        assert!(
            imported.samples > 0 && imported.unusable == 0,
            "{imported:?}"
        );
        let program = folder.path().join("spin");
        let code = events.iter().find_map(|event| match event {
            // With addresses requested, mappings of data are recorded, too.
            Event::Map { mapping, .. } if mapping.execute => {
                (Path::new(&mapping.path) == program).then_some(mapping)
            }
            _ => None,
        });
        let code = code.expect("the program's code is mapped");
        assert!(code.is_file());
        // The program does nothing but its loop.
        let inside = events
            .iter()
            .filter(|event| match event {
                Event::Sample(s) => code.span.contains(Address(s.registers.ip.0)),
                _ => false,
            })
            .count();
        assert!(
            inside as u64 * 2 > imported.samples,
            "{inside} of {imported:?}"
        );
    }
}

#[test]
fn a_recording_by_perf_without_registers_names_the_command() {
    let folder = tempfile::tempdir().unwrap();
    if let Some(path) = record_live(folder.path(), &[], false) {
        let error = read_file(&path).unwrap_err();
        assert!(
            matches!(error, ImportError::MissingFields { .. }),
            "{error}"
        );
    }
}

#[test]
fn damage_to_a_recording_by_perf_never_panics() {
    let folder = tempfile::tempdir().unwrap();
    for options in [&[ALL_REGISTERS][..], &[ALL_REGISTERS, "-z"]] {
        let Some(path) = record_live(folder.path(), options, false) else {
            return;
        };
        let good = std::fs::read(path).unwrap();
        // Every byte of the header and of the attributes, and some hundred of
        // the rest, each with all bits turned.
        let step = (good.len() / 300).max(1);
        for at in (0..400.min(good.len())).chain((400..good.len()).step_by(step)) {
            let mut bytes = good.clone();
            bytes[at] ^= 0xff;
            let _ = read(&bytes);
        }
        for length in (0..good.len()).step_by(step) {
            assert!(read(&good[..length]).is_err(), "cut to {length} bytes");
        }
    }
}
