//! Random traces for tests: threads that access, allocate and free.

use proptest::prelude::*;
use std::path::PathBuf;
use sunder_recorder::{Cursor, Recorder, Start};
use sunder_trace::meta::{Reason, Via};
use sunder_trace::slot::{Key, Slot, tag};

/// The threads that record.
pub const THREADS: usize = 3;

/// Blocks have one of these sizes, and come from one of the call stacks 1 to 3.
pub const SIZES: [u64; 4] = [8, 40, 300, 5000];

/// Where blocks begin.
pub const HEAP: u64 = 0x10_0000;
/// Where variables begin.
pub const GLOBALS: u64 = 0x5_0000;

/// What a thread does.
#[derive(Clone, Debug)]
pub enum Deed {
    /// An access at an offset into the heap, or into the variables.
    Heap(u64, u8, u8),
    Global(u64, u8, u8),
    Allocate(u64, usize, u64),
    Free(usize),
}

/// Any deed.
pub fn deed() -> impl Strategy<Value = Deed> {
    let width = prop::sample::select(vec![1u8, 4, 8, 8, 16, 64]);
    let kind = 1..=4u8;
    prop_oneof![
        10 => (0..12_000u64, width.clone(), kind.clone()).prop_map(|(a, w, k)| Deed::Heap(a, w, k)),
        10 => (0..1500u64, width, kind).prop_map(|(a, w, k)| Deed::Global(a, w, k)),
        3 => (0..700u64, 0..SIZES.len(), 1..4u64).prop_map(|(a, s, c)| Deed::Allocate(a * 16, s, c)),
        1 => (0..40usize).prop_map(Deed::Free),
    ]
}

/// A trace of these deeds of threads, and the folder that it is in.
pub fn record(deeds: &[(usize, Deed)]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let c = format!("{}\0", path.display());
    let recorder = Recorder::new();
    let start = Start {
        path: c.as_bytes(),
        via: Via::Other,
        line_size: 64,
        program: Some((b"/p", b"p\0")),
    };
    recorder.start(&start).unwrap();
    let places: [Cursor; THREADS] = Default::default();
    let mut blocks: Vec<(u64, u64)> = Vec::new();
    // SAFETY: `places` outlives the record, and one thread uses all buffers.
    unsafe {
        let buffers: Vec<_> = places
            .iter()
            .map(|place| recorder.attach(&raw const *place, 0, 0).unwrap())
            .collect();
        for (thread, deed) in deeds {
            let buffer = buffers[*thread];
            let access = |at, width, kind| Slot::new(at, Key::new(kind, width, 0x1000));
            match *deed {
                Deed::Heap(at, width, kind) => {
                    recorder.push(buffer, access(HEAP + at, width, kind))
                }
                Deed::Global(at, width, kind) => {
                    recorder.push(buffer, access(GLOBALS + at, width, kind));
                }
                Deed::Allocate(at, size, call) => {
                    // A block is freed before its memory is allocated again.
                    let (at, size) = (HEAP + at, SIZES[size]);
                    let (over, rest) = blocks
                        .into_iter()
                        .partition(|&(start, len)| start < at + size && at < start + len);
                    blocks = rest;
                    for (start, _) in over {
                        recorder.push_before(buffer, Slot::new(start, Key::new(tag::FREE, 0, 0)));
                    }
                    blocks.push((at, size));
                    recorder.push(buffer, Slot::new(size, Key::new(tag::SIZE, 1, call)));
                    recorder.push_after(buffer, Slot::new(at, Key::new(tag::ALLOCATE, 0, 0)));
                }
                Deed::Free(which) => {
                    if !blocks.is_empty() {
                        let (start, _) = blocks.swap_remove(which % blocks.len());
                        recorder.push_before(buffer, Slot::new(start, Key::new(tag::FREE, 0, 0)));
                    }
                }
            }
        }
        for buffer in buffers {
            recorder.detach(buffer);
        }
    }
    recorder.finish(Reason::Exit);
    (folder, path)
}
