//! Forgets what the tool has recorded of the program's code (which ranges isolated threads may
//! execute, and which pages they may execute in part) when other code may take its place. Called
//! when the address space has changed, while no thread is isolated and none can enter isolation.
//!
//! Contexts: all.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use sunder_wire::isolation::{Control, GUARDED};

use sunder_access::PAGE;

/// Forgets all recorded code in `[start, start + bytes)`; a range that overlaps is forgotten as a
/// whole. A page that the tool is about to record needs nothing here: the tool checks its mapping
/// once more before it counts the page.
pub fn forget(control: &Control, start: usize, bytes: usize) {
    let start = start as u64;
    let end = start.saturating_add(bytes as u64);
    let count = control.code_count.load(Relaxed) as usize;
    for [from, to] in control.codes.iter().take(count) {
        if from.load(Relaxed) < end && start < to.load(Relaxed) {
            // The end is cleared first, so that the range reads as empty meanwhile.
            to.store(0, SeqCst);
            from.store(0, SeqCst);
        }
    }
    // All entries, also those that are not counted yet.
    for page in control.guarded.iter().take(GUARDED) {
        let at = page.address.load(SeqCst);
        if at != 0 && at < end && start < at.saturating_add(PAGE) {
            page.address.store(0, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    /// A module that is loaded at an unloaded one's address has its atomic operations at other
    /// places.
    #[test]
    fn unmapped_code_is_forgotten() {
        let control = testing::control();
        let codes = [[0x10000, 0x13000], [0x20000, 0x21000], [0x30000, 0x31000]];
        for (kept, code) in control.codes.iter().zip(codes) {
            kept[0].store(code[0], Relaxed);
            kept[1].store(code[1], Relaxed);
        }
        control.code_count.store(3, Relaxed);
        let guarded = [0x13000, 0x22000, 0x14000];
        for (kept, page) in control.guarded.iter().zip(guarded) {
            kept.address.store(page, Relaxed);
        }
        // The last page is recorded but not yet counted by the tool.
        control.guarded_count.store(2, Relaxed);
        let left = || {
            let codes = control.codes.iter().take(3);
            let guarded = control.guarded.iter().take(3);
            (
                codes
                    .map(|c| [c[0].load(Relaxed), c[1].load(Relaxed)])
                    .collect::<Vec<_>>(),
                guarded.map(|g| g.address.load(Relaxed)).collect::<Vec<_>>(),
            )
        };
        forget(&control, 0x21000, 0x1000);
        forget(&control, 0x31000, 0xf000);
        forget(&control, 0, 0x10000);
        assert_eq!(
            left(),
            (codes.to_vec(), guarded.to_vec()),
            "a range beside all code"
        );
        forget(&control, 0x12000, 0x3000);
        assert_eq!(
            left(),
            (vec![[0, 0], codes[1], codes[2]], vec![0, 0x22000, 0])
        );
        forget(&control, 0x20000, usize::MAX);
        assert_eq!(left(), (vec![[0, 0]; 3], vec![0; 3]));
        assert_eq!(
            control.code_count.load(Relaxed),
            3,
            "nothing is learned anew"
        );
    }
}
