//! Recording in this process, and reading the trace back.

use super::*;
use core::sync::atomic::Ordering;
use std::path::Path;
use sunder_access::{Address, Kind as AccessKind};
use sunder_trace::meta::{Reason, State, Via};
use sunder_trace::read::{Filter, Trace, What};
use sunder_trace::slot::{Key, Slot, Sync, access_kind, tag};

fn start<'a>(path: &'a [u8]) -> Start<'a> {
    Start {
        path,
        via: Via::Other,
        line_size: 64,
        program: Some((b"/bin/made-up", b"made-up\0-v\0")),
    }
}

fn c_path(path: &Path) -> Vec<u8> {
    let mut bytes = path.to_str().unwrap().as_bytes().to_vec();
    bytes.push(0);
    bytes
}

fn access(tag: u8, address: u64, instruction: u64) -> Slot {
    Slot::new(address, Key::new(tag, 8, instruction))
}

#[test]
fn each_threads_records_are_read_back_in_order() {
    const EACH: u64 = 100_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let recorder = Recorder::new();
    let c = c_path(&path);
    recorder.start(&start(&c)).unwrap();
    assert_eq!(recorder.start(&start(&c)), Err(Refusal::Twice));
    assert_eq!(Recorder::new().start(&start(&c)), Err(Refusal::Taken));
    std::thread::scope(|scope| {
        for t in 0..3u64 {
            let recorder = &recorder;
            scope.spawn(move || {
                let cursor = Cursor::default();
                // SAFETY: the cursor outlives the recording of the thread.
                unsafe {
                    let buffer = recorder.attach(&raw const cursor, 0, 0).unwrap();
                    for i in 0..EACH {
                        recorder.push(
                            buffer,
                            access(tag::WRITE, (t << 32) | (i * 8), 0x1000 + i % 3),
                        );
                    }
                    recorder.detach(buffer);
                }
                assert!(cursor.load(Ordering::Relaxed).is_null());
            });
        }
    });
    recorder.finish(Reason::Exit);
    recorder.finish(Reason::Exit);

    let trace = Trace::open(&path).unwrap();
    assert!(trace.summary().is_complete(), "{:?}", trace.summary());
    assert_eq!(trace.header().arguments, ["made-up", "-v"]);
    let end = *trace.end().unwrap();
    assert_eq!((end.accesses, end.others, end.lost), (3 * EACH, 6, 0));
    assert_eq!(trace.progress().unwrap().state, State::Complete);
    let mut events = trace.events(Filter::default());
    let mut next = [0u64; 3];
    let mut last = 0;
    for event in &mut events {
        assert!(event.ticks >= last);
        last = event.ticks;
        if let What::Access { access, .. } = event.what {
            let t = (access.address.0 >> 32) as usize;
            let i = &mut next[t];
            assert_eq!(access.address.0 & 0xffff_ffff, *i * 8);
            assert_eq!(access.instruction.0, 0x1000 + *i % 3);
            assert_eq!((access.width, access.kind), (8, AccessKind::Write));
            *i += 1;
        }
    }
    assert_eq!(events.damaged_blocks(), 0);
    assert_eq!(next, [EACH; 3]);
}

/// Two threads pass a token back and forth; each writes before it passes the token on.
#[test]
fn synchronisation_orders_accesses() {
    use std::sync::atomic::AtomicU64;
    const TURNS: u64 = 20_000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let recorder = Recorder::new();
    recorder.start(&start(&c_path(&path))).unwrap();
    let turn = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for t in 0..2u64 {
            let (recorder, turn) = (&recorder, &turn);
            scope.spawn(move || {
                let cursor = Cursor::default();
                // SAFETY: the cursor outlives the recording of the thread.
                unsafe {
                    let buffer = recorder.attach(&raw const cursor, 0, 0).unwrap();
                    for i in (t..TURNS).step_by(2) {
                        while turn.load(Ordering::Acquire) != i {
                            std::thread::yield_now();
                        }
                        recorder.push_after(buffer, Slot::sync(Sync::HappensAfter, i));
                        for _ in 0..i % 5 {
                            recorder.push(buffer, access(tag::WRITE, i, 0x1000 + t));
                        }
                        recorder.push_before(buffer, Slot::sync(Sync::HappensBefore, i + 1));
                        turn.store(i + 1, Ordering::Release);
                    }
                    recorder.detach(buffer);
                }
            });
        }
    });
    recorder.finish(Reason::Exit);
    let trace = Trace::open(&path).unwrap();
    let mut expected = (0..TURNS).flat_map(|i| {
        let after = std::iter::once((Sync::HappensAfter as u64, i));
        let accesses = (0..i % 5).map(move |_| (0, i));
        let before = std::iter::once((Sync::HappensBefore as u64, i + 1));
        after.chain(accesses).chain(before)
    });
    for event in trace.events(Filter::default()) {
        let got = match event.what {
            What::Access { access, .. } => (0, access.address.0),
            What::Sync { kind, object } => (kind as u64, object.0),
            _ => continue,
        };
        assert_eq!(Some(got), expected.next());
    }
    assert_eq!(expected.next(), None);
}

#[test]
fn stacks_are_written_once_and_modules_as_lists() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let recorder = Recorder::new();
    recorder.start(&start(&c_path(&path))).unwrap();
    let cursor = Cursor::default();
    // SAFETY: the cursor outlives the recording of the thread.
    unsafe {
        let buffer = recorder.attach(&raw const cursor, 0, 0).unwrap();
        let mut ids = Vec::new();
        for i in 0..5000u64 {
            let id = recorder.stack(buffer, &[i + 1, 7, 8]);
            assert_ne!(id, 0);
            recorder.push_after(
                buffer,
                Slot::new(16 + i, Key::new(tag::SIZE, 0, u64::from(id))),
            );
            recorder.push(buffer, Slot::new(i << 8, Key::new(tag::ALLOCATE, 0, 0)));
            ids.push(id);
        }
        assert_eq!(recorder.stack(buffer, &[1, 7, 8]), ids[0]);
        assert_eq!(recorder.stack(buffer, &[]), 0);
    }
    recorder.modules(|writer| {
        let parts = sunder_trace::meta::ModuleParts {
            base: 0x1000,
            path: b"/bin/made-up",
            build_id: &[1],
        };
        assert!(writer.add(&parts, std::iter::empty()));
    });
    recorder.finish(Reason::Exec);
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.stacks().count(), 5000);
    assert_eq!(trace.modules()[0].1[0].path, "/bin/made-up");
    assert_eq!(trace.end().unwrap().reason, Reason::Exec);
    let mut seen = 0;
    for event in trace.events(Filter::default()) {
        if let What::Allocate {
            address,
            size,
            stack,
            ..
        } = event.what
        {
            assert_eq!((address, size), (Address(seen << 8), 16 + seen));
            assert_eq!(trace.stack(stack).unwrap()[0].0, seen + 1);
            seen += 1;
        }
    }
    assert_eq!(seen, 5000);
}

#[test]
fn records_after_the_end_are_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let recorder = Recorder::new();
    recorder.start(&start(&c_path(&path))).unwrap();
    let cursor = Cursor::default();
    // SAFETY: the cursor outlives the recording of the thread.
    unsafe {
        let buffer = recorder.attach(&raw const cursor, 0, 0).unwrap();
        for i in 0..10 {
            recorder.push(buffer, access(tag::READ, i, 1));
        }
        recorder.finish(Reason::Exit);
        for i in 0..100_000 {
            recorder.push(buffer, access(tag::READ, i, 1));
        }
        assert!(cursor.load(Ordering::Relaxed).is_null());
        assert!(recorder.attach(&raw const cursor, 0, 0).is_none());
    }
    let trace = Trace::open(&path).unwrap();
    let accesses = trace.events(Filter::default());
    let accesses = accesses.filter(|e| matches!(e.what, What::Access { .. }));
    assert_eq!(accesses.count(), 10);
    assert!(access_kind(tag::READ).is_some());
}

#[test]
fn a_file_that_cannot_be_written_is_refused_with_the_reason() {
    let recorder = Recorder::new();
    let refused = recorder.start(&start(b"/nowhere/at/all\0"));
    assert_eq!(refused, Err(Refusal::File(libc::ENOENT as u32)));
    assert_eq!(
        recorder.start(&start(b"no zero byte")),
        Err(Refusal::File(libc::EINVAL as u32))
    );
    assert_eq!(
        recorder.start(&start(b"/dev/null\0")),
        Err(Refusal::File(libc::EINVAL as u32))
    );
    assert!(!recorder.is_recording());
}
