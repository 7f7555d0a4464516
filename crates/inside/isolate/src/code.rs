//! What the tool has written down of the program's code, forgotten when other code may come in its
//! place: which ranges isolated threads may execute, and which pages they may execute a part
//! of. Called when the address space has changed, while nobody is isolated and nobody can begin to
//! be. Contexts: all.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use sunder_wire::isolation::{Control, GUARDED};

use sunder_access::PAGE;

/// Nothing of `[start, start + bytes)` is known code any more; ranges go as a whole. What the tool is
/// just about to write down is its own business: it looks at the mapping once more before it
/// counts a page.
pub fn forget(control: &Control, start: usize, bytes: usize) {
    let start = start as u64;
    let end = start.saturating_add(bytes as u64);
    let count = control.code_count.load(Relaxed) as usize;
    for [from, to] in control.codes.iter().take(count) {
        if from.load(Relaxed) < end && start < to.load(Relaxed) {
            // Its end first: what is seen meanwhile is empty.
            to.store(0, SeqCst);
            from.store(0, SeqCst);
        }
    }
    // Also those that are not counted yet.
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

    /// What comes where a module was has its atomic operations elsewhere.
    #[test]
    fn code_that_goes_is_not_known_any_more() {
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
        // The tool is just about to count the last.
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
        assert_eq!(left(), (codes.to_vec(), guarded.to_vec()), "beside all");
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
