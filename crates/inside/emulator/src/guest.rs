//! Receives the reports of the library within the program (`sunder_trace::announce`). Contexts:
//! normal, on the thread of the emulated processor.

use crate::modules::is_in_announcer;
use crate::{RECORDER, thread};
use core::ffi::{c_uint, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use sunder_recorder::MOST_FRAMES;
use sunder_trace::announce::{BELL, BELL_MARK, Record, kind};
use sunder_trace::slot::{Key, Slot, Sync, tag};

/// The difference between an address in this process and the program's address.
static BASE: AtomicU64 = AtomicU64::new(0);

/// Whether these are the bytes of the bell, the store that sends a report.
pub fn is_bell(bytes: &[u8]) -> bool {
    bytes == BELL
}

/// A bell was translated; `base` is the difference between our addresses and the program's.
pub fn set_base(base: u64) {
    BASE.store(base, Ordering::Relaxed);
}

/// The bell has stored its mark at `address`.
pub extern "C" fn rung(processor: c_uint, _: u32, address: u64, _: *mut c_void) {
    let Some(thread) = thread::of(processor) else {
        return;
    };
    let Some(buffer) = thread.buffer() else {
        return;
    };
    let at = BASE.load(Ordering::Relaxed).wrapping_add(address);
    let record: *const Record = core::ptr::with_exposed_provenance(at as usize);
    if !record.is_aligned() {
        return;
    }
    // SAFETY: the program has just stored there, and the record does not cross the page's end.
    let record = unsafe { record.read_volatile() };
    if record.mark != BELL_MARK as u64 {
        return;
    }
    // SAFETY: each function uses the buffer of the calling thread.
    unsafe {
        let (what, code) = kind::parts(record.kind);
        match what {
            kind::ALLOCATE => {
                let mut frames = [0; MOST_FRAMES];
                let count = thread
                    .calls()
                    .map_or(0, |calls| calls.stack(is_in_announcer, &mut frames));
                let stack = RECORDER.stack(buffer, frames.get(..count).unwrap_or_default());
                let size = Key::new(tag::SIZE, code, u64::from(stack));
                RECORDER.push_after(buffer, Slot::new(record.detail, size));
                let block = Key::new(tag::ALLOCATE, 0, 0);
                RECORDER.push(buffer, Slot::new(record.address, block));
            }
            kind::FREE => {
                let key = Key::new(tag::FREE, 0, 0);
                RECORDER.push_before(buffer, Slot::new(record.address, key));
            }
            kind::BEFORE | kind::AFTER => {
                let Some(sync) = u8::try_from(record.detail).ok().and_then(Sync::from_code) else {
                    return;
                };
                let slot = Slot::sync(sync, record.address);
                if what == kind::BEFORE {
                    RECORDER.push_before(buffer, slot);
                } else {
                    RECORDER.push_after(buffer, slot);
                }
            }
            _ => {}
        }
    }
}
