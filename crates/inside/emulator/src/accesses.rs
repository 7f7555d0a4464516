//! The callbacks of accesses. What is known of an instruction when it is translated is in the
//! callback's data: the key of the slot. Contexts: normal, on the thread of the emulated processor.

use crate::api::functions;
use crate::{RECORDER, thread};
use core::ffi::{c_uint, c_void};
use core::sync::atomic::{AtomicU8, Ordering};
use sunder_recorder::Ticks;
use sunder_trace::slot::{Key, Slot, Sync, tag};

/// The data of a callback.
pub fn data(key: Key) -> *mut c_void {
    core::ptr::without_provenance_mut(key.0 as usize)
}

fn key(data: *mut c_void) -> Key {
    Key(data.addr() as u64)
}

/// An access whose key is completely known.
pub extern "C" fn whole(processor: c_uint, _: u32, address: u64, data: *mut c_void) {
    if let Some(thread) = thread::of(processor) {
        thread.push(Slot::new(address, key(data)));
    }
}

/// An access of an instruction of which only stores are recorded, because its loads read the same
/// bytes.
pub extern "C" fn store(processor: c_uint, info: u32, address: u64, data: *mut c_void) {
    if is_store(info) {
        whole(processor, info, address, data);
    }
}

/// What the emulator says of the kinds of accesses, so that it is asked once for each kind: [`KNOWN`],
/// [`STORE`], and the binary logarithm of the width. Kinds are small numbers; larger ones are asked
/// for each time.
static KINDS: [AtomicU8; 1 << 18] = [const { AtomicU8::new(0) }; 1 << 18];
const KNOWN: u8 = 1 << 7;
const STORE: u8 = 1 << 6;

#[inline]
fn kind(info: u32) -> u8 {
    match KINDS.get(info as usize) {
        Some(kind) => match kind.load(Ordering::Relaxed) {
            0 => {
                let asked = ask(info);
                kind.store(asked, Ordering::Relaxed);
                asked
            }
            known => known,
        },
        None => ask(info),
    }
}

#[cold]
fn ask(info: u32) -> u8 {
    // Without these functions no callback is registered.
    let Some(emulator) = functions() else {
        return KNOWN;
    };
    let store = if (emulator.is_store)(info) { STORE } else { 0 };
    KNOWN | store | (emulator.shift)(info).min(6) as u8
}

#[inline]
fn is_store(info: u32) -> bool {
    kind(info) & STORE != 0
}

/// Bytes of an access.
#[inline]
fn bytes_of(info: u32) -> u64 {
    1 << (kind(info) & 7)
}

/// A piece of an access. Its key is known, but not where its last piece ends.
pub extern "C" fn piece(processor: c_uint, info: u32, address: u64, data: *mut c_void) {
    let Some(thread) = thread::of(processor) else {
        return;
    };
    let bytes = bytes_of(info);
    let whole = key(data);
    if let Some(last) = thread.last(1)
        && extend(last, whole, address, bytes)
    {
        return;
    }
    let key = Key::new(whole.tag(), bytes as u8, whole.payload());
    thread.push(Slot::new(address, key));
}

/// Extends the access `last` by a piece that belongs to it; returns whether it does.
fn extend(last: &mut Slot, whole: Key, address: u64, bytes: u64) -> bool {
    let so_far = u64::from(last.key.code());
    let same = (last.key.tag(), last.key.payload()) == (whole.tag(), whole.payload());
    let fits = so_far + bytes <= u64::from(whole.code());
    if !same || !fits || last.value.wrapping_add(so_far) != address {
        return false;
    }
    last.key = Key::new(whole.tag(), (so_far + bytes) as u8, whole.payload());
    true
}

/// An access of which only the instruction is known beforehand.
pub extern "C" fn unknown(processor: c_uint, info: u32, address: u64, data: *mut c_void) {
    let Some(thread) = thread::of(processor) else {
        return;
    };
    let tag = if is_store(info) {
        tag::WRITE
    } else {
        tag::READ
    };
    let key = Key::new(tag, bytes_of(info) as u8, key(data).payload());
    thread.push(Slot::new(address, key));
}

/// Before a locked instruction: a stamp that orders everything before it.
pub extern "C" fn before_atomic(processor: c_uint, _: *mut c_void) {
    if let Some(thread) = thread::of(processor) {
        thread.push(Slot::stamp(RECORDER.clock().before()));
    }
}

/// After a locked access: a stamp that orders everything after it.
pub extern "C" fn atomic(processor: c_uint, info: u32, address: u64, data: *mut c_void) {
    let Some(thread) = thread::of(processor) else {
        return;
    };
    if !is_store(info) {
        return;
    }
    let whole = key(data);
    let bytes = bytes_of(info);
    // While there is only one thread, the emulator stores the two halves of a `cmpxchg16b` one
    // after the other.
    if bytes < u64::from(whole.code()) {
        if let Some(last) = thread.last(2)
            && extend(last, whole, address, bytes)
        {
            return;
        }
        let first = Key::new(whole.tag(), bytes as u8, whole.payload());
        thread.push(Slot::new(address, first));
    } else {
        thread.push(Slot::new(address, whole));
    }
    thread.push(Slot::stamp(RECORDER.clock().after()));
}

/// A call has stored its return address. The key's code is the length of the instruction.
pub extern "C" fn call(processor: c_uint, _: u32, address: u64, data: *mut c_void) {
    let Some(thread) = thread::of(processor) else {
        return;
    };
    let key = key(data);
    thread.push(Slot::new(address, Key::new(tag::WRITE, 8, key.payload())));
    if let Some(calls) = thread.calls() {
        calls.called(key.payload() + u64::from(key.code()), address);
        if calls.begins() {
            thread.record_stack(address);
        }
    }
}

/// The same, for a call that first loads its target.
pub extern "C" fn call_through(processor: c_uint, info: u32, address: u64, data: *mut c_void) {
    if is_store(info) {
        call(processor, info, address, data);
    } else if let Some(thread) = thread::of(processor) {
        let key = Key::new(tag::READ, 8, key(data).payload());
        thread.push(Slot::new(address, key));
    }
}

/// A return has loaded its return address.
pub extern "C" fn leave(processor: c_uint, _: u32, address: u64, data: *mut c_void) {
    let Some(thread) = thread::of(processor) else {
        return;
    };
    thread.push(Slot::new(address, key(data)));
    if let Some(calls) = thread.calls() {
        calls.leave(address);
    }
}

/// Before a fence.
pub extern "C" fn fence(processor: c_uint, _: *mut c_void) {
    if let Some(thread) = thread::of(processor) {
        thread.push(Slot::stamp(RECORDER.clock().after()));
        thread.push(Slot::sync(Sync::Fence, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_one_access_are_joined() {
        let whole = Key::new(tag::READ, 16, 0x1000);
        let mut last = Slot::new(0x500, Key::new(tag::READ, 8, 0x1000));
        assert!(!extend(&mut last, whole, 0x510, 8), "not adjacent");
        let other = Key::new(tag::READ, 16, 0x1004);
        assert!(!extend(&mut last, other, 0x508, 8), "another instruction");
        assert!(extend(&mut last, whole, 0x508, 8));
        assert_eq!(last, Slot::new(0x500, whole));
        assert!(!extend(&mut last, whole, 0x510, 8), "the next execution");
    }
}
