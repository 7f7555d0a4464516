//! Moves pages that nothing is wrong with, at moments that mean nothing, and puts
//! them back: whatever program it is done to must not notice. For tests.

use super::choose::{PAGE, Proposal, can_be_moved};
use crate::process::Process;
use std::collections::BTreeSet;
use sunder_access::{Mappings, ThreadId};
use sunder_plan::remap::Group;
use sunder_wire::remap::POOL_BYTES;

/// So many pages are picked for one that may be moved: most mappings of a program are
/// libraries' and stacks.
const PICKS: u32 = 64;

/// Random numbers that a seed repeats (xorshift64*, Marsaglia and Vigna).
pub struct Chaos {
    state: u64,
}

impl Chaos {
    /// By its seed.
    pub const fn new(seed: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    /// Below `bound`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let mixed = self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16;
        if bound == 0 { 0 } else { mixed % bound }
    }

    /// A page of the program, torn into groups.
    pub fn propose(
        &mut self,
        process: &Process,
        mappings: &Mappings,
        threads: Vec<ThreadId>,
    ) -> Option<Proposal> {
        let likely: Vec<_> = mappings
            .iter()
            .filter(|m| m.write && !m.shared && m.span.len >= PAGE)
            .collect();
        let page = (0..PICKS).find_map(|_| {
            let mapping = likely.get(self.below(likely.len() as u64) as usize)?;
            // The first pages of a mapping are used more than the others.
            let pages = (mapping.span.len / PAGE).min(64);
            let page = mapping.span.start.0 + self.below(pages) * PAGE;
            let can = can_be_moved(process, mappings, page, PAGE);
            can.is_ok().then_some(page)
        })?;
        let mut groups = Vec::new();
        let mut at = self.below(8) * 8;
        while at < PAGE - 512 && groups.len() < 16 {
            let size = 8 * (1 + self.below(16));
            groups.push(Group {
                offset: at,
                size,
                threads: BTreeSet::new(),
            });
            at += size + 8 * self.below(64);
        }
        let total: u64 = groups.iter().map(|g| g.size + 256).sum();
        (total < POOL_BYTES).then_some(Proposal {
            page,
            len: PAGE,
            groups,
            object: "chaos".into(),
            cost_share: 0.0,
            threads,
            code: 0,
        })
    }
}
