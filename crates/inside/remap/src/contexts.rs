//! Stacks that the program makes itself and enters with the C library's `setcontext` and
//! `swapcontext` (`makecontext`). A thread on such a stack in moved pages could not even get a
//! signal, because the kernel could not write the signal frame there. Both functions set the
//! stack's signal mask before they switch to it, and the hook of that call sees it: such a stack is
//! moved back and never moved again.
//!
//! Contexts: normal, signal; all in which SIGSEGV is unblocked and the handler is ours.

use crate::context_stacks::{BLOCK, mixed, remember};
use crate::{area, shared};
use core::mem::offset_of;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU64, fence};
use sunder_wire::remap::BY_SIGNALS;

/// A longer range is not taken for a stack.
const LONGEST: u64 = 64 << 20;
/// If a stack's bounds are not known, so many bytes below and above the point at which a thread
/// enters it count as the stack.
const BELOW: u64 = 256 << 10;
const ABOVE: u64 = 64 << 10;

/// Some stacks that are remembered as a whole: start and length of each.
static STACKS: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// The thread sets its signal mask to the one at `mask`, which may belong to a context; if so, its
/// stack is moved back and remembered. Reads memory by `word`.
pub fn on_mask_change(mask: u64, word: impl Fn(u64) -> Option<u64>) {
    let Some((start, len)) = stack_of(mask, word) else {
        return;
    };
    let sum = mixed(start ^ len << 40);
    let known = STACKS.get((sum >> 54) as usize);
    if known.is_some_and(|k| k.load(Relaxed) == sum) {
        return;
    }
    if !remember(start, len) {
        shared::withdraw();
    }
    // A thread that moves pages sets the area's state before it looks for blocks.
    fence(SeqCst);
    area::roll_back_in(start, len, BY_SIGNALS);
    if let Some(known) = known {
        known.store(sum, Relaxed);
    }
}

/// A thread has entered a stack there without a mask change. (Its fault could be handled only
/// because the thread has a signal stack.)
pub fn on_entry(stack_pointer: u64) {
    let from = stack_pointer.saturating_sub(BELOW);
    if !remember(from, BELOW + ABOVE) {
        shared::withdraw();
    }
}

/// The stack of the context whose signal mask is there; `None` if it belongs to no context.
fn stack_of(mask: u64, word: impl Fn(u64) -> Option<u64>) -> Option<(u64, u64)> {
    let context = mask.checked_sub(offset_of!(libc::ucontext_t, uc_sigmask) as u64)?;
    /// Offset of `mxcsr` from the start of the floating-point state that is stored in a context.
    const MXCSR: u64 = 24;
    /// The mask bits of exceptions in `mxcsr`, which are nearly always all set.
    const EXCEPTIONS: u32 = 0x1f80;
    let general = offset_of!(libc::ucontext_t, uc_mcontext) as u64;
    let registers = |c: u64| c + general + 23 * 8;
    let own = (offset_of!(libc::ucontext_t, uc_sigmask) + size_of::<libc::sigset_t>()) as u64;
    // Masks also lie in other data, and not every number there may be followed as a pointer.
    let control = word(context + own + MXCSR)? as u32;
    if control >> 16 != 0 || control & EXCEPTIONS == 0 {
        return None;
    }
    // A context points into itself or, if copied, into the original.
    let points = word(registers(context))?;
    let origin = points.checked_sub(own).filter(|o| o.is_multiple_of(8))?;
    if origin != context && word(registers(origin))? != points {
        return None;
    }
    let rsp = word(context + general + 8 * libc::REG_RSP as u64)?;
    let stack = context + offset_of!(libc::ucontext_t, uc_stack) as u64;
    let (start, len) = (
        word(stack + offset_of!(libc::stack_t, ss_sp) as u64)?,
        word(stack + offset_of!(libc::stack_t, ss_size) as u64)?,
    );
    let is_there = len <= LONGEST && rsp.wrapping_sub(start) <= len;
    Some(if is_there {
        (start, len)
    } else {
        let from = rsp.saturating_sub(BELOW) & !(BLOCK - 1);
        (from, BELOW + ABOVE)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of the program by address, for tests.
    fn memory(words: &[(u64, u64)]) -> impl Fn(u64) -> Option<u64> {
        move |at| Some(words.iter().find(|w| w.0 == at).map_or(0, |w| w.1))
    }

    const MASK: u64 = offset_of!(libc::ucontext_t, uc_sigmask) as u64;

    /// The offsets at which the C library's `swapcontext` stores these.
    const RSP: u64 = 0xa0;
    const POINTS: u64 = 0xe0;
    const OWN: u64 = 0x1a8;
    const START: u64 = 16;
    const LEN: u64 = 32;
    const CONTROL: u64 = 0x1c0;

    #[test]
    fn the_stack_of_a_context_is_found() {
        assert_eq!(MASK, 0x128);
        let (at, copy) = (0x10000, 0x20000);
        let words = [
            (at + POINTS, at + OWN),
            (at + CONTROL, 0x1f80),
            (at + RSP, 0x7_3000),
            (at + START, 0x7_0000),
            (at + LEN, 0x4000),
            (copy + POINTS, at + OWN),
            (copy + CONTROL, 0xffff_ffff_0000_1fa0),
            (copy + RSP, 0x7_3000),
            (copy + START, 0x7_0000),
            (copy + LEN, 0x4000),
        ];
        for context in [at, copy] {
            let stack = stack_of(context + MASK, memory(&words));
            assert_eq!(stack, Some((0x7_0000, 0x4000)), "{context:#x}");
        }
    }

    #[test]
    fn a_mask_outside_a_context_has_no_stack() {
        let at = 0x10000;
        assert_eq!(stack_of(at + MASK, memory(&[])), None);
        assert_eq!(stack_of(8, memory(&[])), None, "too low");
        // The pointer leads to something else.
        let mut words = [
            (at + POINTS, 0x5_0000),
            (at + RSP, 0x7_3000),
            (at + CONTROL, 0x1f80),
        ];
        assert_eq!(stack_of(at + MASK, memory(&words)), None);
        // The pointer is not followed if the rest does not look like a context.
        words[2].1 = 0x7f12_3456_7890;
        let read = memory(&words);
        let stack = stack_of(at + MASK, |place| {
            assert!(place.abs_diff(at) < 0x1000, "followed to {place:#x}");
            read(place)
        });
        assert_eq!(stack, None);
        assert_eq!(stack_of(at + MASK, |_| None), None, "it can't be read");
    }

    #[test]
    fn a_stack_of_unknown_size_surrounds_its_pointer() {
        let (at, rsp) = (0x10000, 0x7f00_0012_3458);
        let words = [
            (at + POINTS, at + OWN),
            (at + CONTROL, 0x1f80),
            (at + RSP, rsp),
            (at + START, 0x7_0000),
            (at + LEN, 0x4000),
        ];
        let (start, len) = stack_of(at + MASK, memory(&words)).expect("a context");
        assert!(start + 200_000 < rsp && rsp + 30_000 < start + len);
    }
}
