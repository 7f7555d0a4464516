//! The callbacks of accesses. What could be known of an instruction beforehand
//! is in the callback's data: the key of the slot. Contexts: normal, on the thread of the
//! emulated processor.

use crate::api::functions;
use crate::{RECORDER, thread};
use core::ffi::{c_uint, c_void};
use sunder_recorder::Ticks;
use sunder_trace::slot::{Key, Slot, Sync, tag};

/// The data of a callback.
pub fn data(key: Key) -> *mut c_void {
    core::ptr::without_provenance_mut(key.0 as usize)
}

fn key(data: *mut c_void) -> Key {
    Key(data.addr() as u64)
}

/// An access whose key is known.
pub extern "C" fn whole(processor: c_uint, _: u32, address: u64, data: *mut c_void) {
    if let Some(thread) = thread::of(processor) {
        thread.push(Slot::new(address, key(data)));
    }
}

/// An access of an instruction whose loads don't count, because it stores to the
/// same bytes.
pub extern "C" fn store(processor: c_uint, info: u32, address: u64, data: *mut c_void) {
    if is_store(info) {
        whole(processor, info, address, data);
    }
}

fn is_store(info: u32) -> bool {
    functions().is_some_and(|emulator| (emulator.is_store)(info))
}

/// A piece of an access whose key is known but for where its pieces end.
pub extern "C" fn piece(processor: c_uint, info: u32, address: u64, data: *mut c_void) {
    let (Some(thread), Some(emulator)) = (thread::of(processor), functions()) else {
        return;
    };
    let bytes = 1u64 << (emulator.shift)(info).min(6);
    let whole = key(data);
    if let Some(last) = thread.last(1)
        && extend(last, whole, address, bytes)
    {
        return;
    }
    let key = Key::new(whole.tag(), bytes as u8, whole.payload());
    thread.push(Slot::new(address, key));
}

/// Makes `last` longer by the piece, if it is the beginning of the same access.
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

/// An access of which nothing is known beforehand but the instruction.
pub extern "C" fn unknown(processor: c_uint, info: u32, address: u64, data: *mut c_void) {
    let (Some(thread), Some(emulator)) = (thread::of(processor), functions()) else {
        return;
    };
    let tag = if (emulator.is_store)(info) {
        tag::WRITE
    } else {
        tag::READ
    };
    let bytes = 1u8 << (emulator.shift)(info).min(6);
    let key = Key::new(tag, bytes, key(data).payload());
    thread.push(Slot::new(address, key));
}

/// Before a locked instruction: what was done before it is before this.
pub extern "C" fn before_atomic(processor: c_uint, _: *mut c_void) {
    if let Some(thread) = thread::of(processor) {
        thread.push(Slot::stamp(RECORDER.clock().before()));
    }
}

/// After a locked access: what is done after it is after this.
pub extern "C" fn atomic(processor: c_uint, info: u32, address: u64, data: *mut c_void) {
    let (Some(thread), Some(emulator)) = (thread::of(processor), functions()) else {
        return;
    };
    if !is_store(info) {
        return;
    }
    let whole = key(data);
    let bytes = 1u64 << (emulator.shift)(info).min(6);
    // While there is one thread, the emulator stores the two halves of a
    // `cmpxchg16b` one after the other.
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

/// A call has stored the address to which it returns. The key's code is the
/// length of the instruction.
pub extern "C" fn call(processor: c_uint, _: u32, address: u64, data: *mut c_void) {
    let Some(thread) = thread::of(processor) else {
        return;
    };
    let key = key(data);
    thread.push(Slot::new(address, Key::new(tag::WRITE, 8, key.payload())));
    if let Some(calls) = thread.calls() {
        calls.called(key.payload() + u64::from(key.code()), address);
        if calls.begins() {
            thread.tell_stack(address);
        }
    }
}

/// The same for a call that loads its target first.
pub extern "C" fn call_through(processor: c_uint, info: u32, address: u64, data: *mut c_void) {
    if is_store(info) {
        call(processor, info, address, data);
    } else if let Some(thread) = thread::of(processor) {
        let key = Key::new(tag::READ, 8, key(data).payload());
        thread.push(Slot::new(address, key));
    }
}

/// A return has loaded its address.
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
    fn pieces_join_up_to_the_whole_and_not_beyond() {
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
