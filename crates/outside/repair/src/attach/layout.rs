//! Where everything of ours lies in the program: the library and its data in one piece near the C
//! library, and trampolines so close to each module that jumps reach them. Called by `inject`. Pure
//! computation; maps nothing.

use super::ledger;
use super::plan::Plan;
use super::presence::FRAME;
use crate::place;
use anyhow::{Context, Result};
use sunder_access::{Mappings, PAGE};
use sunder_stop::STUB;
use sunder_wire::parked::PARKED;
use sunder_x86::trampoline::SIZE;

/// Bytes for arguments of the library's functions: one page, and an entry for the signal stack of
/// each thread.
pub const DESK: u64 = 16 * PAGE;
/// Bytes of the stack on which the library's functions run.
const STACK: u64 = 16 * PAGE;
/// Bytes of the stack on which a thread waits that is kept off its own. Nothing runs there but our
/// handlers, on the kernel's frame, whose size depends on the processor's registers, and handlers of
/// the program's that run only once.
const PARKING: u64 = 16 * PAGE;
/// Bytes of a stack above the stack pointer of a thread that waits there, a multiple of 16.
const ABOVE: u64 = 128;
/// Jumps reach 2 GiB; what is left out allows for the sizes of both parts.
const REACH: u64 = (1 << 31) - (1 << 26);

/// Addresses of all parts; see the head of this file.
#[derive(Debug)]
pub struct Layout {
    pub start: u64,
    /// Trampolines of modules that are near.
    pub trampolines: u64,
    /// The code that functions of the library return to ([`STUB`]).
    pub stub: u64,
    /// A page that forked children find empty.
    pub alive: u64,
    pub desk: u64,
    /// Upper end of the stack.
    pub stack: u64,
    /// Upper end of the frames; the ledger begins there.
    pub frames: u64,
    /// The stacks for threads that are kept off their own.
    pub slots: Slots,
    /// Upper end of the whole piece.
    end: u64,
    /// Address of each patch's trampoline, by the patch's number.
    pub places: Vec<u64>,
    /// Memory for trampolines of modules that are far from the C library: start and end addresses.
    pub far: Vec<(u64, u64)>,
}

/// Stacks for threads that are kept off their own, each above a page without access rights.
#[derive(Clone, Copy, Debug)]
pub struct Slots(u64);

impl Slots {
    /// The page without access rights of a stack, and the upper end of the stack.
    pub const fn slot(self, number: usize) -> (u64, u64) {
        let guard = self.0 + number as u64 * (PAGE + PARKING);
        (guard, guard + PAGE + PARKING)
    }

    /// The stack pointer of a thread that waits there: an address of the stack, as of any thread.
    pub const fn stack_pointer(self, number: usize) -> u64 {
        self.slot(number).1 - ABOVE
    }
}

impl Layout {
    /// The layout for a library of `image` bytes in a program with these mappings.
    ///
    /// # Errors
    /// If there is no room in the address space.
    pub fn new(plan: &Plan, image: u64, mappings: &Mappings) -> Result<Self> {
        let near = plan.modules.iter().filter(|m| !plan.is_far(m));
        let near: usize = near.map(|m| m.patches.len()).sum();
        let restorers: usize = plan.modules.iter().map(|m| m.restorers.len()).sum();
        let ledger = ledger::room(plan.count(), restorers);
        let bytes = Self::at(0, image, near, ledger).end;
        let start = reachable(mappings, &[], plan.extent(), bytes)
            .context("there is no room near its C library in the address space")?;
        let mut layout = Self::at(start, image, near, ledger);
        let mut next = layout.trampolines;
        let mut taken = vec![(layout.start, layout.end)];
        for module in &plan.modules {
            let bytes = (module.patches.len() * SIZE) as u64;
            let mut at = next;
            // A module without patches makes only calls that need no hook.
            if plan.is_far(module) && bytes > 0 {
                let bytes = bytes.next_multiple_of(PAGE);
                at = reachable(mappings, &taken, module.code, bytes).with_context(|| {
                    format!("there is no room near {} in the address space", module.path)
                })?;
                taken.push((at, at + bytes));
            } else {
                next += bytes;
            }
            let count = module.patches.len();
            layout
                .places
                .extend((0..count).map(|i| at + (i * SIZE) as u64));
        }
        layout.far = taken.split_off(1);
        Ok(layout)
    }

    fn at(start: u64, image: u64, trampolines: usize, ledger: u64) -> Self {
        let first = start + image;
        let stub = first + (trampolines * SIZE) as u64;
        let alive = (stub + STUB.len() as u64).next_multiple_of(PAGE);
        let desk = alive + PAGE;
        let stack = desk + DESK + STACK;
        let slots = Slots(stack + FRAME + ledger);
        Self {
            start,
            trampolines: first,
            stub,
            alive,
            desk,
            stack,
            frames: stack + FRAME,
            slots,
            end: slots.slot(PARKED).0,
            places: Vec::new(),
            far: Vec::new(),
        }
    }

    /// All parts: start and end addresses.
    pub fn parts(&self) -> impl Iterator<Item = (u64, u64)> {
        let main = (self.start, self.end);
        [main].into_iter().chain(self.far.iter().copied())
    }
}

/// A free range of `bytes` that all jumps from the given code reach.
fn reachable(
    mappings: &Mappings,
    taken: &[(u64, u64)],
    (start, end): (u64, u64),
    bytes: u64,
) -> Option<u64> {
    let reached = |at: &u64| at.abs_diff(start) < REACH && (at + bytes).abs_diff(end) < REACH;
    place::near(mappings, taken, start, bytes).filter(reached)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else a thread would seem to have no stack, or another's.
    #[test]
    fn each_parked_thread_stands_on_a_stack_of_its_own() {
        let slots = Slots(0x7f00_0000_0000);
        let mut end = slots.0;
        for number in 0..PARKED {
            let (guard, top) = slots.slot(number);
            assert_eq!(guard, end, "no gap, no overlap");
            let at = slots.stack_pointer(number);
            assert!(guard + PAGE < at && at < top, "{at:#x}");
            assert!(at.is_multiple_of(16), "{at:#x}");
            end = top;
        }
    }
}
