//! Hands the library in the program the calls whose blocks are to get cache lines of their own, and
//! says how many blocks may get them. Called by `sunder cure` through [`crate::Protector`]. Must not
//! choose calls. What the program may have written into the control file is used for figures alone.

use crate::shared::Shared;
use std::sync::atomic::Ordering::{Relaxed, Release};
use sunder_access::Mappings;
use sunder_hooking::call_sites::{Call, Chain};
use sunder_wire::placing::{self, CALLS, FILES, PATH, rule};

/// What the library was given.
#[derive(Debug, Default)]
pub struct Placed {
    /// The calls, each with the number of the call that is made inside the called function.
    calls: Vec<(u32, Call)>,
    files: Vec<String>,
    /// Blocks that each share of the threads was granted.
    granted: i64,
}

impl Placed {
    /// From now on blocks that are allocated through these chains get lines of their own. Chains for
    /// which there is no room are left out; whether any was taken.
    pub fn add<'a>(
        &mut self,
        shared: &Shared,
        chains: impl IntoIterator<Item = &'a Chain>,
    ) -> bool {
        let mut any = false;
        for chain in chains {
            any |= self.add_one(shared, chain).is_some();
        }
        shared.placing.count.store(self.calls.len() as u32, Release);
        any
    }

    fn add_one(&mut self, shared: &Shared, chain: &Chain) -> Option<()> {
        if self.calls.len() + chain.len() > CALLS {
            return None;
        }
        for call in chain {
            self.file(shared, &call.file)?;
        }
        let mut parent = 0;
        for call in chain {
            let same = |(inside, known): &(u32, Call)| {
                *inside == parent && known.offset == call.offset && known.file == call.file
            };
            let at = self.calls.iter().position(same).unwrap_or_else(|| {
                self.calls.push((parent, call.clone()));
                self.calls.len() - 1
            });
            let file = self.file(shared, &call.file)?;
            let entry = &shared.placing.calls[at];
            entry.offset.store(call.offset, Relaxed);
            entry.file.store(file as u32, Relaxed);
            entry.parent.store(parent, Relaxed);
            write_rule(entry, call);
            parent = at as u32 + 1;
        }
        let last = (parent as usize).checked_sub(1)?;
        shared.placing.calls[last].listed.store(1, Relaxed);
        Some(())
    }

    /// The index of a file; it is entered if it is new.
    fn file(&mut self, shared: &Shared, path: &str) -> Option<usize> {
        if let Some(known) = self.files.iter().position(|file| file == path) {
            return Some(known);
        }
        if self.files.len() >= FILES || path.len() >= PATH {
            return None;
        }
        let entry = &shared.placing.files[self.files.len()];
        for (to, from) in entry.path.iter().zip(path.bytes()) {
            to.store(from, Relaxed);
        }
        self.files.push(path.to_owned());
        Some(self.files.len() - 1)
    }

    /// So many more blocks may be placed by each share of the threads.
    pub fn grant(&mut self, shared: &Shared, blocks: u32) {
        self.granted = self.granted.saturating_add(blocks.into());
        for share in &shared.placing.shares {
            share.left.fetch_add(blocks.into(), Relaxed);
        }
    }

    /// The most blocks that a share has left, and how many were placed in all.
    pub fn state(&self, shared: &Shared) -> (i64, u64) {
        let left = || {
            shared
                .placing
                .shares
                .iter()
                .map(|share| share.left.load(Relaxed))
        };
        let used = left().map(|left| self.granted.saturating_sub(left).clamp(0, self.granted));
        let placed = used.fold(0i64, i64::saturating_add);
        (left().min().unwrap_or(0), placed.unsigned_abs())
    }

    /// The library looks for files that were loaded since it looked last.
    pub fn look_again(&self, shared: &Shared, mappings: &Mappings) {
        let is_new = |(at, path): (usize, &String)| {
            let file: &placing::File = &shared.placing.files[at];
            file.bias.load(Relaxed) == 0 && mappings.iter().any(|m| m.path == *path)
        };
        if self.files.iter().enumerate().any(is_new) {
            shared.placing.looked.store(0, Release);
            // What was remembered of these files is that they have no calls.
            for word in &shared.placing.remembered {
                word.store(0, Relaxed);
            }
        }
    }
}

fn write_rule(entry: &placing::Call, call: &Call) {
    let Some(found) = call.rule else {
        return;
    };
    let (Ok(cfa), Ok(saved)) = (u32::try_from(found.cfa), u32::try_from(found.saved)) else {
        return;
    };
    entry.cfa.store(cfa, Relaxed);
    entry.saved.store(saved, Relaxed);
    let kind = match found.from_frame_pointer {
        true => rule::FRAME,
        false => rule::STACK,
    };
    entry.rule.store(kind, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_hooking::call_sites::Rule;

    fn call(file: &str, offset: u64, is_wrapper: bool) -> Call {
        Call {
            file: file.into(),
            offset,
            rule: is_wrapper.then_some(Rule {
                from_frame_pointer: false,
                cfa: 24,
                saved: 16,
            }),
        }
    }

    #[test]
    fn chains_with_the_same_beginning_share_their_calls() {
        let shared = Shared::new().expect("memory");
        let mut placed = Placed::default();
        let wrapper = call("/lib/c++.so", 0x10, true);
        let one = vec![wrapper.clone(), call("/bin/a", 0x20, false)];
        let other = vec![wrapper, call("/bin/a", 0x30, false)];
        let direct = vec![call("/bin/a", 0x40, false)];
        assert!(placed.add(&shared, [&one, &other]));
        assert!(placed.add(&shared, [&direct]));
        let placing = &shared.placing;
        assert_eq!(placing.count.load(Relaxed), 4);
        let told: Vec<_> = placing.calls[..4]
            .iter()
            .map(|c| {
                let of = |word: &std::sync::atomic::AtomicU32| word.load(Relaxed);
                (
                    c.offset.load(Relaxed),
                    of(&c.file),
                    of(&c.parent),
                    of(&c.listed),
                )
            })
            .collect();
        let expected = [
            (0x10, 0, 0, 0),
            (0x20, 1, 1, 1),
            (0x30, 1, 1, 1),
            (0x40, 1, 0, 1),
        ];
        assert_eq!(told, expected);
        assert_eq!(placing.calls[0].rule.load(Relaxed), rule::STACK);
        assert_eq!(placing.calls[0].cfa.load(Relaxed), 24);
        let long = vec![call(&"x".repeat(PATH), 0x50, false)];
        assert!(!placed.add(&shared, [&long]), "the path is too long");
        assert_eq!(placing.count.load(Relaxed), 4);
    }

    #[test]
    fn blocks_are_counted_and_a_program_that_writes_nonsense_changes_figures_only() {
        let shared = Shared::new().expect("memory");
        let mut placed = Placed::default();
        placed.grant(&shared, 100);
        shared.placing.shares[3].left.fetch_sub(40, Relaxed);
        assert_eq!(placed.state(&shared), (60, 40));
        shared.placing.shares[3].left.store(i64::MIN, Relaxed);
        shared.placing.shares[4].left.store(i64::MAX, Relaxed);
        assert_eq!(placed.state(&shared), (i64::MIN, 100));
    }
}
