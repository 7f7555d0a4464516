//! The segment shared with the target, into which a broken or hostile program may
//! write anything at any time.

use crate::input::Input;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use sunder_access::Address;
use sunder_wire::layout;
use sunder_wire::{Segment, SegmentOptions};

/// Offsets to which the runtime writes. An input can reach all of the beginning of each region.
const REGIONS: [usize; 12] = [
    layout::CONTROL,
    layout::STATUS,
    layout::WATCH,
    layout::EPOCHS,
    layout::THREADS,
    layout::SAMPLES,
    layout::EVENTS,
    layout::LARGE,
    layout::STACK_INDEX,
    layout::STACKS,
    layout::CREATIONS,
    layout::TOP,
];

/// The shadow of the first chunk that may be used.
const SHADOW: usize = layout::SHADOW + layout::CHUNK_BYTES;

/// Writes arbitrary bytes into all parts of a segment and reads everything from it: when they are
/// written, and while they are written again and again.
///
/// # Panics
/// If no segment can be made: nothing would be tested.
pub fn segment(bytes: &[u8]) {
    let segment = Segment::create(&SegmentOptions::default()).expect("a segment");
    let file = File::options().write(true).open(segment.fd_path());
    let file = file.expect("our own segment");
    let mut input = Input(bytes);
    let mut last = 0;
    let mut writes = Vec::new();
    while !input.is_empty() {
        let region = REGIONS.get(input.byte() as usize % (REGIONS.len() + 1));
        let base = *region.unwrap_or(&SHADOW);
        let offset = input.number(2) as usize;
        let length = input.byte() as usize;
        writes.push((input.take(length), (base + offset * 8) as u64));
        last = offset as u64 * 32;
    }
    let write = || {
        for (piece, at) in &writes {
            file.write_all_at(piece, *at).expect("space in the segment");
        }
    };
    write();
    // The first reading empties the rings.
    read(&segment, last);
    read(&segment, 0);
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                write();
            }
        });
        // A reading that panics must not leave the other thread at work.
        let _end = Ends(&ended);
        for _ in 0..READINGS {
            read(&segment, last);
        }
    });
}

/// How often a segment is read while it is written.
const READINGS: usize = 4;

/// Ends the thread that writes.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn read(segment: &Segment, address: u64) {
    segment.drain_samples(&mut |_| {});
    segment.drain_heap_events(&mut |_| {});
    assert!(segment.threads().len() <= layout::MAX_THREADS as usize);
    segment.status();
    segment.creations();
    segment.view().large_blocks();
    segment.view().large_at(address);
    for address in [address, address + 40, 1 << 46] {
        if let Some(block) = segment.block_at(Address(address)) {
            assert!(block.span.contains(Address(address)), "{block:?}");
        }
    }
    for id in [0, 1, 2, address as u32, u32::MAX] {
        segment.view().stack(id);
    }
}
