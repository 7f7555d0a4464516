//! Kernel calls of the program that are under way. Nothing that they may use is moved meanwhile.
//!
//! Contexts: all.

use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicI64, AtomicU64};
use sunder_guest::system;
use sunder_kernel::{KernelCall, Use};

/// The number of an entry that is being written: the call may use anything.
const CLAIMED: i64 = -1;
/// The number of an entry that stands for no call.
const FREE: i64 = -2;
/// The number of an entry for bytes; its first arguments are their address and their number.
const BYTES: i64 = -3;

/// A call that is under way.
struct Entry {
    number: AtomicI64,
    arguments: [AtomicU64; 6],
}

const ENTRIES: usize = 64;

static UNDER_WAY: [Entry; ENTRIES] = [const {
    Entry {
        number: AtomicI64::new(FREE),
        arguments: [const { AtomicU64::new(0) }; 6],
    }
}; ENTRIES];

/// The number of calls for which no entry was free.
static OTHERS: AtomicU64 = AtomicU64::new(0);

/// Writes down that the call is under way; the result is for [`end`]. It is no guard value that must
/// be dropped, because the thread may be cancelled in the call.
pub fn begin(call: &KernelCall) -> usize {
    // A number below zero is no call.
    enter(call.number.max(CLAIMED), call.arguments)
}

/// As [`begin`] for these bytes alone, whatever the call does with them.
pub fn begin_bytes(at: u64, len: u64) -> usize {
    enter(BYTES, [at, len, 0, 0, 0, 0])
}

fn enter(number: i64, arguments: [u64; 6]) -> usize {
    let is_claimed = |entry: &Entry| {
        let claimed = entry.number.compare_exchange(FREE, CLAIMED, SeqCst, SeqCst);
        claimed.is_ok()
    };
    let Some(place) = UNDER_WAY.iter().position(is_claimed) else {
        OTHERS.fetch_add(1, SeqCst);
        return ENTRIES;
    };
    if let Some(entry) = UNDER_WAY.get(place) {
        for (to, argument) in entry.arguments.iter().zip(arguments) {
            to.store(argument, SeqCst);
        }
        entry.number.store(number, SeqCst);
    }
    place
}

/// A call that was written down is over.
pub fn end(place: usize) {
    match UNDER_WAY.get(place) {
        Some(entry) => entry.number.store(FREE, SeqCst),
        None => {
            OTHERS.fetch_sub(1, SeqCst);
        }
    }
}

/// Whether a call that is under way may use one of these bytes. Asked after the state of their area
/// says that they are about to move; a call is written down before its thread reads that state. So
/// one of the two sees the other, also if an entry is ended and used again meanwhile.
///
/// The caller may block SIGSEGV.
pub fn any_in(start: u64, len: u64) -> bool {
    let met =
        |at: u64, bytes: u64| at < start.saturating_add(len) && start < at.saturating_add(bytes);
    let meets = |used| match used {
        Use::Memory { at, len } => met(at, len),
        // What it says was looked at before the call.
        Use::Mask(at) => met(at, 8),
        Use::Anything => true,
    };
    OTHERS.load(SeqCst) > 0
        || UNDER_WAY.iter().any(|entry| {
            let number = entry.number.load(SeqCst);
            let mut arguments = [0; 6];
            for (to, argument) in arguments.iter_mut().zip(&entry.arguments) {
                *to = argument.load(SeqCst);
            }
            let [at, bytes, ..] = arguments;
            match number {
                FREE => false,
                BYTES => met(at, bytes),
                _ => {
                    let call = KernelCall { number, arguments };
                    call.any_use(&read_by_kernel, &mut { meets })
                }
            }
        })
}

/// Has the kernel copy bytes of the program's, since SIGSEGV may be blocked; returns whether that
/// worked.
fn read_by_kernel(at: u64, into: &mut [u8]) -> bool {
    let (own, its) = (
        [into.as_mut_ptr() as usize, into.len()],
        [at as usize, into.len()],
    );
    let process = system::process_id() as usize;
    let sides = (&raw const own as usize, &raw const its as usize);
    let arguments = [process, sides.0, 1, sides.1, 1, 0];
    // SAFETY: `into` is valid for its length; for the other address the kernel returns an error.
    let copied = unsafe { system::call(libc::SYS_process_vm_readv, arguments) };
    copied == into.len() as isize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared;

    /// Memory that lies between two buffers is not in use.
    #[test]
    fn a_call_with_distant_buffers_uses_these_alone() {
        const LOW: u64 = 0x1000_0000;
        const MIDDLE: u64 = 0x2000_0000;
        const HIGH: u64 = 0x7000_0000;
        const PAGE: u64 = 0x1000;
        let _alone = shared::COUNTING.lock().expect("no test has failed with it");
        let vectors = [[LOW, 16], [HIGH, 16]];
        let call = KernelCall {
            number: libc::SYS_readv,
            arguments: [0, vectors.as_ptr() as u64, 2, MIDDLE, MIDDLE, MIDDLE],
        };
        let place = begin(&call);
        let seen = [LOW, MIDDLE, HIGH].map(|page| any_in(page, PAGE));
        let itself = any_in(vectors.as_ptr() as u64, 1);
        end(place);
        assert_eq!((seen, itself), ([true, false, true], true));
        assert!(!any_in(LOW, PAGE));
        let place = begin_bytes(MIDDLE, 8);
        let seen = [MIDDLE - PAGE, MIDDLE, MIDDLE + PAGE].map(|page| any_in(page, PAGE));
        end(place);
        assert_eq!(seen, [false, true, false]);
    }

    /// More calls than there are entries may use any memory.
    #[test]
    fn a_call_without_an_entry_is_not_forgotten() {
        let _alone = shared::COUNTING.lock().expect("no test has failed with it");
        let call = KernelCall {
            number: libc::SYS_pause,
            arguments: [0; 6],
        };
        let all: [usize; ENTRIES + 1] = core::array::from_fn(|_| begin(&call));
        assert!(any_in(0x5000_0000, 1));
        all.into_iter().for_each(end);
    }
}
