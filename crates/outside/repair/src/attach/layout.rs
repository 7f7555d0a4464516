//! Where everything of ours is to lie in the program: the library with what it needs in one
//! piece near the C library, and trampolines so near to each module that jumps reach them.
//! Called by `inject`; computes, and maps nothing itself.

use super::plan::Plan;
use crate::place;
use anyhow::{Context, Result};
use sunder_access::{Mappings, PAGE};
use sunder_stop::STUB;
use sunder_x86::trampoline::SIZE;

/// Bytes for what functions of the library get: a page and a place for each thread's
/// stack for signals.
pub const DESK: u64 = 16 * PAGE;
/// Bytes of a stack for the library's functions.
const STACK: u64 = 16 * PAGE;
/// Bytes for what brings a thread back that does something for us.
pub const FRAME: u64 = 8 * PAGE;
/// Jumps reach 2 GiB; the rest is for the parts' own sizes.
const REACH: u64 = (1 << 31) - (1 << 26);

/// See the module's head. Addresses.
#[derive(Debug)]
pub struct Layout {
    pub start: u64,
    /// Of modules that are near.
    pub trampolines: u64,
    /// Where functions of the library return to.
    pub stub: u64,
    /// A page that forked children find empty.
    pub alive: u64,
    pub desk: u64,
    /// Its upper end.
    pub stack: u64,
    /// The upper end of all.
    pub frames: u64,
    /// The trampoline of each patch, by its number.
    pub places: Vec<u64>,
    /// Memory for those of modules that are far from the C library: starts and ends.
    pub far: Vec<(u64, u64)>,
}

impl Layout {
    /// For a library of so many bytes in a program that has mapped this.
    ///
    /// # Errors
    /// If there is no room in the address space.
    pub fn new(plan: &Plan, image: u64, mappings: &Mappings) -> Result<Self> {
        let near = plan.modules.iter().filter(|m| !plan.is_far(m));
        let near: usize = near.map(|m| m.patches.len()).sum();
        let bytes = Self::at(0, image, near).frames;
        let start = reachable(mappings, &[], plan.extent(), bytes)
            .context("there is no room near its C library in the address space")?;
        let mut layout = Self::at(start, image, near);
        let mut next = layout.trampolines;
        let mut taken = vec![(layout.start, layout.frames)];
        for module in &plan.modules {
            let bytes = (module.patches.len() * SIZE) as u64;
            let mut at = next;
            // Some make only calls that nobody needs to see.
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

    fn at(start: u64, image: u64, trampolines: usize) -> Self {
        let first = start + image;
        let stub = first + (trampolines * SIZE) as u64;
        let alive = (stub + STUB.len() as u64).next_multiple_of(PAGE);
        let desk = alive + PAGE;
        let stack = desk + DESK + STACK;
        Self {
            start,
            trampolines: first,
            stub,
            alive,
            desk,
            stack,
            frames: stack + FRAME,
            places: Vec::new(),
            far: Vec::new(),
        }
    }

    /// All of it: starts and ends.
    pub fn parts(&self) -> impl Iterator<Item = (u64, u64)> {
        let main = (self.start, self.frames);
        [main].into_iter().chain(self.far.iter().copied())
    }

    /// Whether an instruction there is ours.
    pub fn has(&self, ip: u64) -> bool {
        self.parts().any(|(start, end)| (start..end).contains(&ip))
    }
}

/// Room for so many bytes which all jumps from that code reach.
fn reachable(
    mappings: &Mappings,
    taken: &[(u64, u64)],
    (start, end): (u64, u64),
    bytes: u64,
) -> Option<u64> {
    let reached = |at: &u64| at.abs_diff(start) < REACH && (at + bytes).abs_diff(end) < REACH;
    place::near(mappings, taken, start, bytes).filter(reached)
}
