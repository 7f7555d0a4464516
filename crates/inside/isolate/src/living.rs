//! The living memory that is to be isolated and may go away: heap blocks that named call sites have
//! allocated, bytes that the program itself asks for, and what the tool has recorded because it saw it
//! shared. Called by [`crate::blocks`], [`crate::interface`] and [`crate::space`].
//!
//! Contexts: normal; also with all signals blocked and inside `malloc`.

use crate::control;
use crate::hold::Hold;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use sunder_access::PAGE_SIZE as PAGE;
use sunder_wire::isolation::{Block, Control, GONE, PAGES};

/// Records a block; `asked`: the program itself asks for it. Returns whether there was room.
pub fn record(block: usize, bytes: usize, asked: bool) -> bool {
    let Some(control) = control::get() else {
        return false;
    };
    for kept in &control.blocks {
        // The entry is claimed first and filled afterwards: the tool reads the address last.
        if kept.address.compare_exchange(0, 1, SeqCst, Relaxed).is_ok() {
            kept.bytes.store(bytes as u64, SeqCst);
            kept.asked.store(asked.into(), SeqCst);
            kept.address.store(block as u64, SeqCst);
            control.block_changes.fetch_add(1, SeqCst);
            return true;
        }
    }
    false
}

/// Forgets a block that is about to be freed: its pages are shared from then on. Returns whether
/// the block was recorded.
pub fn forget(block: usize) -> bool {
    if block == 0 {
        return false;
    }
    let Some(control) = control::get() else {
        return false;
    };
    // The count is raised after a block was recorded and never returns to 0.
    if control.block_changes.load(Acquire) == 0 {
        return false;
    }
    let address = block as u64;
    let mut known = false;
    for kept in control
        .blocks
        .iter()
        .filter(|b| b.address.load(Relaxed) == address)
    {
        // With this, no thread has a private page of the block any more, and none gets one.
        let _hold = Hold::new();
        known |= give_up(control, kept, address);
    }
    known
}

/// Forgets all that is recorded in a range that was unmapped or replaced. No thread is isolated
/// meanwhile: the caller has a [`Hold`].
pub fn forget_in(control: &Control, start: usize, bytes: usize) {
    let end = start.saturating_add(bytes) as u64;
    for kept in &control.blocks {
        let address = kept.address.load(Relaxed);
        let over = address < end && (start as u64) < address + kept.bytes.load(Relaxed);
        if address > 1 && over {
            give_up(control, kept, address);
        }
    }
}

/// Gives up the pages of the block that `kept` records, unless another thread does.
fn give_up(control: &Control, kept: &Block, address: u64) -> bool {
    let end = address + kept.bytes.load(Relaxed);
    // The address is cleared first. The tool reads it after it has recorded pages: it either
    // sees that the block is going away, or the loop below gives its pages up.
    if kept
        .address
        .compare_exchange(address, 1, SeqCst, SeqCst)
        .is_err()
    {
        return false;
    }
    for page in control.pages.iter().take(PAGES) {
        let at = page.address.load(SeqCst);
        if at < end && address < at + PAGE as u64 {
            page.given_up.store(GONE, SeqCst);
        }
    }
    kept.asked.store(0, SeqCst);
    kept.address.store(0, SeqCst);
    control.block_changes.fetch_add(1, SeqCst);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn what_is_unmapped_is_not_isolated_any_more() {
        let control = testing::control();
        for (kept, [at, bytes]) in control
            .blocks
            .iter()
            .zip([[0x10_0000, 64], [0x10_1ff0, 32]])
        {
            kept.address.store(at, Relaxed);
            kept.bytes.store(bytes, Relaxed);
        }
        let pages = [0x10_0000, 0x10_1000, 0x10_2000];
        for (page, at) in control.pages.iter().zip(pages) {
            page.address.store(at, Relaxed);
        }
        let given_up = || {
            let pages = control.pages.iter().take(pages.len());
            pages.map(|p| p.given_up.load(Relaxed)).collect::<Vec<_>>()
        };
        forget_in(&control, 0x10_0040, 0x1fb0);
        assert_eq!(given_up(), [0, 0, 0], "between the two");
        forget_in(&control, 0x10_2000, 0x1000);
        assert_eq!(given_up(), [0, GONE, GONE]);
        let left = control.blocks.iter().map(|b| b.address.load(Relaxed));
        assert_eq!(left.filter(|at| *at != 0).collect::<Vec<_>>(), [0x10_0000]);
        assert_eq!(control.block_changes.load(Relaxed), 1);
    }
}
