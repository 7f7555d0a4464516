//! The random choices of chaos mode, for tests: which page is moved, and into which groups it is
//! divided.

use super::movable::can_be_moved;
use super::proposal::Proposal;
use std::collections::BTreeSet;
use sunder_access::{Mappings, PAGE, ThreadId};
use sunder_pipeline::Process;
use sunder_plan::remap::Group;
use sunder_wire::remap::POOL_BYTES;

/// How many random pages are tried to find one that may be moved: most mappings are libraries' and
/// stacks.
const PICKS: u32 = 64;

/// A reproducible sequence of random numbers (xorshift64*, Marsaglia and Vigna).
pub struct Chaos {
    state: u64,
}

impl Chaos {
    /// A sequence for this seed.
    pub const fn new(seed: u64) -> Self {
        Self {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    /// A number below `bound`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let mixed = self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16;
        if bound == 0 { 0 } else { mixed % bound }
    }

    /// A random page of the program, divided into random groups.
    pub fn propose(
        &mut self,
        process: &mut Process,
        mappings: &Mappings,
        threads: Vec<ThreadId>,
    ) -> Option<Proposal> {
        let likely: Vec<_> = mappings
            .iter()
            .filter(|m| m.write && m.span.len >= PAGE)
            .collect();
        let page = (0..PICKS).find_map(|_| {
            let mapping = likely.get(self.below(likely.len() as u64) as usize)?;
            // Programs use the first pages of a mapping more than others, and the last ones of a stack.
            let pages = mapping.span.len / PAGE;
            let page = if mapping.path == "[stack]" {
                mapping.span.end().0 - PAGE * (1 + self.below(pages.min(4)))
            } else {
                mapping.span.start.0 + self.below(pages.min(64)) * PAGE
            };
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
            near: 0,
        })
    }
}
