//! Traces made by hand: what each thread does is written down, so what a replay counts is
//! known beforehand. In the parallel order, threads that do not wait for each other take
//! turns access by access.

use std::path::{Path, PathBuf};
use sunder_recorder::{Cursor, Recorder, Start};
use sunder_trace::meta::{Reason, Via};
use sunder_trace::slot::{Key, Slot, alignment_code, tag};

/// One step of a thread.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// Allocates so many bytes at an address. The last value is the return address of the call,
    /// which names the call site.
    Allocate(u64, u64, u64),
    /// The same, with an alignment as the last value.
    Align(u64, u64, u64, usize),
    /// The same, as a recorder writes it that does not know the requested alignment.
    Silent(u64, u64, u64),
    /// Frees the block at the address.
    Free(u64),
    /// Writes 8 bytes at the address so many times.
    Write(u64, u64),
    /// Reads 8 bytes at the address so many times.
    Read(u64, u64),
}

/// A trace of threads that take these steps; thread 1 creates the others.
pub fn trace(folder: &Path, threads: &[Vec<Act>]) -> PathBuf {
    let path = folder.join("by-hand.trace");
    let c = format!("{}\0", path.display());
    let recorder = Recorder::new();
    let start = Start {
        path: c.as_bytes(),
        via: Via::Other,
        line_size: 64,
        program: Some((b"/by-hand", b"by-hand\0")),
    };
    recorder.start(&start).expect("a new file");
    for (number, acts) in threads.iter().enumerate() {
        let place = Cursor::default();
        // SAFETY: the memory outlives the record, and this thread alone uses it.
        unsafe {
            let parent = u32::from(number > 0);
            let buffer = recorder
                .attach(&raw const place, parent, 0)
                .expect("memory");
            for act in acts {
                if let Some((bytes, site, code)) = asked(*act) {
                    let stack = recorder.stack(buffer, &[site, 0x77]);
                    let size = Key::new(tag::SIZE, code, stack.into());
                    recorder.push_after(buffer, Slot::new(bytes, size));
                }
                let (address, count, kind) = match *act {
                    Act::Allocate(address, ..)
                    | Act::Align(address, ..)
                    | Act::Silent(address, ..) => (address, 1, Key::new(tag::ALLOCATE, 0, 0)),
                    Act::Free(address) => (address, 1, Key::new(tag::FREE, 0, 0)),
                    Act::Write(address, count) => (address, count, Key::new(tag::WRITE, 8, 0x10)),
                    Act::Read(address, count) => (address, count, Key::new(tag::READ, 8, 0x20)),
                };
                for _ in 0..count {
                    recorder.push(buffer, Slot::new(address, kind));
                }
            }
            recorder.detach(buffer);
        }
    }
    recorder.finish(Reason::Exit);
    path
}

/// Bytes, return address and alignment of an allocation.
fn asked(act: Act) -> Option<(u64, u64, u8)> {
    match act {
        Act::Allocate(_, bytes, site) => Some((bytes, site, alignment_code(1))),
        Act::Align(_, bytes, site, to) => Some((bytes, site, alignment_code(to))),
        Act::Silent(_, bytes, site) => Some((bytes, site, 0)),
        Act::Free(_) | Act::Write(..) | Act::Read(..) => None,
    }
}
