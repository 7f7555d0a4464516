//! A proposal to move the bytes of some pages. Made by `choose` and `chaos`, carried out by
//! `repairer`.

use sunder_access::{Address, ThreadId};
use sunder_plan::remap::Group;

/// Pages whose bytes may be moved.
pub struct Proposal {
    /// Address of the first page.
    pub page: u64,
    /// Length of the pages in bytes.
    pub len: u64,
    /// The groups of bytes that go to lines of their own.
    pub groups: Vec<Group>,
    /// Name of the object on the pages.
    pub object: String,
    /// The most that the sharing costs, as a share of its threads' time.
    pub cost_share: f64,
    /// The threads that use the pages, busiest first.
    pub threads: Vec<ThreadId>,
    /// Address of the busiest instruction; 0 if none is known.
    pub code: u64,
    /// The code near which copies of code are to lie; 0 if none is known.
    pub near: u64,
}

impl Proposal {
    /// The addresses of its groups.
    pub fn layout(&self) -> Layout {
        let groups = self.groups.iter();
        groups
            .map(|g| (self.page + g.offset, self.page + g.end()))
            .collect()
    }

    /// The code about which threads will ask first: what uses the bytes, and the program's loop around
    /// it.
    pub fn all_code(&self) -> impl Iterator<Item = u64> {
        [self.code, self.near].into_iter().filter(|&at| at != 0)
    }

    /// Whether an address lies on its pages.
    pub fn holds(&self, address: Address) -> bool {
        address.0.wrapping_sub(self.page) < self.len
    }
}

/// Start and end address of each group.
pub type Layout = Vec<(u64, u64)>;
