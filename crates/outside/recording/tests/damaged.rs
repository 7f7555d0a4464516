//! Recordings come back as they were written, and damaged ones give an error. Cut or changed files
//! never give all of their steps.

use proptest::prelude::*;
use std::io::Cursor;
use std::sync::LazyLock;
use sunder_recording::{Begin, End, Error, Reader, Recorder, Sample, Step, craft};

fn steps(samples: u64) -> Vec<Step> {
    let mut all = vec![Step::Begin(Begin {
        only: Some(7),
        line: 64,
        transfer_ns: 90.0,
    })];
    all.extend((0..samples).map(|time| {
        Step::Sample(Sample {
            time,
            process: 7,
            thread: 7 + (time % 3) as u32,
            cpu: 0,
            period_ns: 1000,
            registers: std::array::from_fn(|i| time.wrapping_mul(0x9e37_79b9_7f4a_7c15) << i),
            ip: 0x40_1000,
            code: 0,
        })
    }));
    all.push(Step::End(End {
        start: 0,
        end: samples,
        observed: "{}".into(),
        measured: None,
    }));
    all
}

/// Writes these steps to a file, and returns its bytes.
fn written(steps: &[Step]) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run");
    let file = std::fs::File::create(&path).expect("a file");
    let recorder = Recorder::begin(file).expect("it can be written");
    for step in steps {
        match step {
            Step::End(end) => recorder.end(end.clone()),
            other => recorder.add(other),
        }
    }
    let outcome = recorder.outcome();
    assert_eq!(outcome.failed, None);
    let bytes = std::fs::read(path).expect("it was written");
    assert_eq!(outcome.bytes, bytes.len() as u64);
    bytes
}

/// A recording of several blocks, and one of a single block.
static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| written(&steps(2000)));
static SMALL: LazyLock<Vec<u8>> = LazyLock::new(|| written(&steps(100)));

fn read(bytes: &[u8]) -> Result<Vec<Step>, Error> {
    let mut reader = Reader::new(Cursor::new(bytes), bytes.len() as u64)?;
    let mut all = Vec::new();
    while let Some(step) = reader.next_step()? {
        all.push(step);
    }
    Ok(all)
}

#[test]
fn what_was_written_is_read() {
    // More than a block holds.
    let steps = steps(5000);
    assert_eq!(read(&written(&steps)).expect("whole"), steps);
}

#[test]
fn a_run_without_an_end_is_refused() {
    let mut steps = steps(10);
    steps.pop();
    let bytes = craft::recording(&craft::unpacked(&steps));
    assert!(matches!(read(&bytes), Err(Error::CutShort)));
}

#[test]
fn steps_after_the_end_or_before_the_beginning_are_refused() {
    let whole = steps(3);
    let mut after = whole.clone();
    after.push(Step::PassOn);
    let mut before = whole.clone();
    before.insert(0, Step::PassOn);
    for wrong in [after, before] {
        let bytes = craft::recording(&craft::unpacked(&wrong));
        assert!(matches!(read(&bytes), Err(Error::Damaged(_))));
    }
}

#[test]
fn other_files_and_other_versions_are_told_apart() {
    assert!(matches!(read(b"{}"), Err(Error::NotARecording)));
    let mut bytes = craft::recording(&craft::unpacked(&steps(1)));
    bytes[8] += 1;
    assert!(matches!(read(&bytes), Err(Error::Version { .. })));
}

#[test]
fn a_small_file_that_unpacks_to_very_much_is_refused() {
    let zeroes = vec![0; 64 << 20];
    let block = craft::recording(&zeroes);
    let mut bytes = block.clone();
    for _ in 0..8 {
        bytes.extend(&block[12..]);
    }
    assert!(matches!(read(&bytes), Err(Error::Damaged(_))));
}

proptest! {
    #[test]
    fn a_cut_file_is_refused(cut in 0.0..1.0_f64) {
        let bytes = &*WHOLE;
        let length = (bytes.len() as f64 * cut) as usize;
        prop_assert!(read(&bytes[..length]).is_err());
    }

    #[test]
    fn a_changed_byte_is_noticed(at in any::<prop::sample::Index>(), by in 1..=255_u8) {
        let mut bytes = SMALL.clone();
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        prop_assert!(read(&bytes).is_err());
    }

    #[test]
    fn anything_behind_the_checksum_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut steps = craft::unpacked(&steps(1)[..1]);
        steps.extend(bytes);
        let _ = read(&craft::recording(&steps));
    }
}
