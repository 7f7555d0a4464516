//! Walks a thread's own stack. Contexts: normal. Lock-free: `_dl_find_object` (glibc 2.35) finds
//! the object of an instruction, and the unwind rule of each return address is looked up once and
//! then remembered.

use crate::cfi::{self, Rule};
use crate::real;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use sunder_guest::allocator::Caller;
use sunder_guest::system;
use sunder_wire::stacks::MAX_FRAMES;

/// A call stack, and the stack slots of its return addresses.
pub struct Frames {
    /// Return addresses, innermost first.
    pub returns: [u64; MAX_FRAMES],
    /// The address of the stack slot of each.
    pub slots: [u64; MAX_FRAMES],
    /// How many there are.
    pub len: usize,
}

/// `struct dl_find_object` of glibc's `<dlfcn.h>`.
#[repr(C)]
pub struct FoundObject {
    flags: u64,
    start: *const u8,
    end: *const u8,
    link_map: *const u8,
    eh_frame_header: *const u8,
    reserved: [u64; 7],
}

const SLOTS: usize = 1 << 14;

/// Remembered rules: in each entry, the second word is the rule, and the first is the return
/// address exclusive-or the rule. Halves of two different entries so never match as one.
#[repr(C)]
struct Memo([[AtomicU64; 2]; SLOTS]);

static MEMO: AtomicPtr<Memo> = AtomicPtr::new(null_mut());

const KNOWN: u64 = 1;
const FROM_BP: u64 = 2;
const BP_SAVED: u64 = 4;
const END: u64 = 8;
/// Offsets are kept in units of 8 bytes, in 24 bits.
const CFA_SHIFT: u32 = 8;
const BP_SHIFT: u32 = 32;
const OFFSET_MASK: u64 = 0xff_ffff;

/// Maps memory for remembered rules. Without it walks are slow but correct.
pub fn prepare() {
    if let Some(memory) = system::map_anonymous(size_of::<Memo>(), system::READ_WRITE, 0) {
        // Wiped on fork, as all memory of ours: by that flag the tool tells it from the program's.
        // A forked child finds it empty, and remembers anew.
        // SAFETY: a new mapping.
        unsafe {
            system::advise(
                memory.as_ptr() as usize,
                size_of::<Memo>(),
                libc::MADV_WIPEONFORK,
            )
        };
        MEMO.store(memory.as_ptr().cast(), Ordering::Release);
    }
    // Looked up here, so that this never happens within an allocation.
    let _ = real::_dl_find_object();
}

/// Forgets all rules: code was unloaded, and other code may be loaded at its addresses.
pub fn forget() {
    let memo = MEMO.load(Ordering::Acquire);
    // SAFETY: null, or mapped by `prepare` and never unmapped.
    if let Some(memo) = unsafe { memo.as_ref() } {
        for [key, _] in &memo.0 {
            key.store(0, Ordering::Relaxed);
        }
    }
}

fn pack(rule: Option<Rule>) -> u64 {
    let offset = |bytes: i32| -> Option<u64> {
        let units = bytes / 8;
        (bytes % 8 == 0 && (-0x80_0000..0x80_0000).contains(&units))
            .then_some(units as u64 & OFFSET_MASK)
    };
    let packed = || {
        let rule = rule?;
        let mut word = KNOWN | offset(rule.cfa)? << CFA_SHIFT;
        if rule.from_bp {
            word |= FROM_BP;
        }
        if let Some(at) = rule.saved_bp {
            word |= BP_SAVED | offset(at)? << BP_SHIFT;
        }
        Some(word)
    };
    packed().unwrap_or(KNOWN | END)
}

const fn offset(word: u64, shift: u32) -> i64 {
    // Sign-extends 24 bits and multiplies by 8.
    ((word >> shift << 40) as i64 >> 40) * 8
}

#[inline]
fn remembered(address: u64) -> u64 {
    let memo = MEMO.load(Ordering::Acquire);
    let index = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
    // SAFETY: null, or mapped by `prepare` and never unmapped.
    let entry = unsafe { memo.as_ref() }.and_then(|m| m.0.get(index as usize));
    if let Some([key, word]) = entry {
        let rule = word.load(Ordering::Relaxed);
        if key.load(Ordering::Relaxed) ^ rule == address && rule & KNOWN != 0 {
            return rule;
        }
    }
    let rule = pack(find_rule(address));
    if let Some([key, word]) = entry {
        key.store(address ^ rule, Ordering::Relaxed);
        word.store(rule, Ordering::Relaxed);
    }
    rule
}

#[cold]
fn find_rule(address: u64) -> Option<Rule> {
    let find = real::_dl_find_object()?;
    let inside = address.checked_sub(1)?;
    let mut found = FoundObject {
        flags: 0,
        start: null_mut(),
        end: null_mut(),
        link_map: null_mut(),
        eh_frame_header: null_mut(),
        reserved: [0; 7],
    };
    // SAFETY: the function accepts any address; the result has glibc's layout.
    let result = unsafe { find(inside as *mut _, (&raw mut found).cast()) };
    if result != 0 || found.eh_frame_header.is_null() {
        return None;
    }
    // SAFETY: the header is that of the object that holds `inside`. It stays
    // mapped: a function of that object is on our stack.
    unsafe { cfi::rule(found.eh_frame_header, inside) }
}

/// The call stack of `caller`, at most `limit` frames, read within `low..high`. A caller on another
/// stack (a coroutine's or a signal stack) gets one frame, because no memory beyond it is known to
/// be mapped.
pub fn walk(caller: Caller, low: u64, high: u64, limit: usize) -> Frames {
    let mut frames = Frames {
        returns: [0; MAX_FRAMES],
        slots: [0; MAX_FRAMES],
        len: 0,
    };
    let places = frames.returns.iter_mut().zip(frames.slots.iter_mut());
    let mut places = places.take(limit);
    walk_each(caller, low, high, |address, slot, _| {
        let Some((place, at)) = places.next() else {
            return false;
        };
        (*place, *at) = (address, slot);
        frames.len += 1;
        true
    });
    frames
}

/// As [`walk`], but calls `each` with each frame's return address, its stack slot, and the frame
/// pointer of the function that it returns to, until `each` returns false.
#[inline]
pub fn walk_each(caller: Caller, low: u64, high: u64, mut each: impl FnMut(u64, u64, u64) -> bool) {
    let mut slot = caller.sp as u64;
    let mut bp = caller.bp;
    // SAFETY: the return address of our own call, on the live stack.
    let mut address = unsafe { *caller.sp };
    let high = high & !7;
    let on_stack = |at: u64| at >= low && at.saturating_add(8) <= high && at & 7 == 0;
    let known = on_stack(slot);
    while each(address, slot, bp) && known {
        let rule = remembered(address);
        if rule & END != 0 {
            break;
        }
        let base = if rule & FROM_BP != 0 {
            bp
        } else {
            slot.wrapping_add(8)
        };
        let cfa = base.wrapping_add_signed(offset(rule, CFA_SHIFT));
        let next = cfa.wrapping_sub(8);
        if next <= slot || !on_stack(next) {
            break;
        }
        if rule & BP_SAVED != 0 {
            let saved = cfa.wrapping_add_signed(offset(rule, BP_SHIFT));
            if !on_stack(saved) || saved < slot {
                break;
            }
            // SAFETY: within the thread's own live stack.
            bp = unsafe { *(saved as *const u64) };
        }
        slot = next;
        // SAFETY: within the thread's own live stack.
        address = unsafe { *(slot as *const u64) };
        if address == 0 {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_keep_their_offsets_when_packed() {
        for (cfa, saved) in [(16, -16), (8, -8), (0x10_0000, -0x8000), (8 * 0x7f_ffff, 0)] {
            let word = pack(Some(Rule {
                from_bp: true,
                cfa,
                saved_bp: Some(saved),
            }));
            assert_eq!(offset(word, CFA_SHIFT), i64::from(cfa));
            assert_eq!(offset(word, BP_SHIFT), i64::from(saved));
            assert_eq!(word & (KNOWN | FROM_BP | BP_SAVED | END), 7);
        }
        let odd = Rule {
            from_bp: false,
            cfa: 12,
            saved_bp: None,
        };
        assert_eq!(pack(Some(odd)) & END, END);
        assert_eq!(pack(None) & END, END);
    }
}
