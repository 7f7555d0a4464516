//! Objects of a saved result, which need not be studied again. An object is recognised by its name
//! and file, or by the call that allocated it, as soon as two threads are seen on one of its lines.
//! Then its bytes are grouped as they were used in the saved run, unless this run contradicts that.
//! Called by `choose`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use sunder_findings::{Finding, Findings, Line, Object, ObjectKind, Sharing, Unrepaired};
use sunder_hooking::call_sites::own_call_site;
use sunder_pipeline::Process;
use sunder_pipeline::{objects_on_line, show_object};
use sunder_plan::remap::{Count, Use};
use sunder_sharing::Verdict;

/// How an object is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity {
    Global { name: String, file: Option<String> },
    Call { file: String, offset: u64 },
}

/// An object of the result. Offsets count from its start.
struct Recognised {
    identity: Identity,
    /// Its name.
    name: String,
    uses: Vec<(i64, Use)>,
    /// It was recognised in this run.
    seen: bool,
}

/// The objects of a saved result; see the head of this file.
#[derive(Default)]
pub struct Known {
    /// The program of the saved run: the path of its file.
    pub program: Option<String>,
    objects: Vec<Recognised>,
    /// Objects that can't be recognised: name and reason.
    left_out: Vec<(String, String)>,
    /// Lines that were looked at: index of the object and its start address.
    lines: HashMap<u64, (usize, u64)>,
}

impl Known {
    /// The objects of a saved result that were falsely shared, wholly or in part.
    pub fn of(findings: &Findings) -> Self {
        let program = findings.program.path.as_deref();
        let mut known = Self {
            program: findings.program.path.clone(),
            ..Self::default()
        };
        let shared = |f: &&Finding| f.sharing != Sharing::True && !f.latent;
        for finding in findings.findings.iter().filter(shared) {
            let name = finding.object.short_name().to_owned();
            match identity(&finding.object, program) {
                Ok(identity) => known.objects.push(Recognised {
                    identity,
                    name,
                    uses: finding.lines.iter().flat_map(uses).collect(),
                    seen: false,
                }),
                Err(why) => known.left_out.push((name, why.to_owned())),
            }
        }
        known
    }

    /// Whether there is no object to recognise.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The object on this line: its index and start address. `None` if the result does not have it.
    pub fn on(&mut self, process: &mut Process, verdict: &Verdict) -> Option<(usize, u64)> {
        if let Some(&found) = self.lines.get(&verdict.line.0) {
            return Some(found);
        }
        // Objects are recognised by names, which need the present mappings.
        let mappings = process.mappings().clone();
        process.names.set_mappings(mappings);
        let objects = objects_on_line(process, verdict);
        let found = objects.ranked().find_map(|part| {
            let object = show_object(process, &part.name, None);
            let identity = identity(&object, None).ok()?;
            let number = self.objects.iter().position(|o| o.identity == identity)?;
            Some((number, part.name.start.0))
        })?;
        if let Some(object) = self.objects.get_mut(found.0) {
            object.seen = true;
        }
        self.lines.insert(verdict.line.0, found);
        Some(found)
    }

    /// Start and end address of the bytes that the result describes, for an object that begins at
    /// the given address.
    pub fn span(&self, (number, start): (usize, u64)) -> Option<(u64, u64)> {
        let object = self.objects.get(number)?;
        let at = |offset: i64| start.checked_add_signed(offset);
        let first = object.uses.iter().map(|u| u.0).min()?;
        let ends = object.uses.iter();
        let ends = ends.map(|u| u.0.saturating_add_unsigned(u.1.size));
        let last = ends.max()?;
        Some((at(first)?, at(last)?))
    }

    /// The accesses to pages from `page` on: those that the result has of the object that begins at
    /// `start`, under the thread numbers of this run, and those that were `seen` to bytes that the
    /// result does not describe. `None` if this run contradicts the result.
    pub fn uses(&self, (number, start): (usize, u64), page: u64, seen: &[Use]) -> Option<Vec<Use>> {
        let object = self.objects.get(number)?;
        let mut all: Vec<Use> = Vec::new();
        for (offset, saved) in &object.uses {
            let at = start.checked_add_signed(*offset)?.checked_sub(page)?;
            at.checked_add(saved.size)?;
            all.push(Use {
                offset: at,
                ..saved.clone()
            });
        }
        // Each set of threads of the saved run is mapped to a set of threads of this run.
        let mut now: HashMap<BTreeSet<u32>, BTreeSet<u32>> = HashMap::new();
        let overlaps = |a: &Use, b: &Use| a.offset < b.end() && b.offset < a.end();
        let mut others = Vec::new();
        for one in seen {
            let saved: Vec<&Use> = all.iter().filter(|u| overlaps(u, one)).collect();
            if saved.is_empty() {
                others.push(one.clone());
            }
            for saved in saved {
                now.entry(saved.users()).or_default().extend(one.users());
            }
        }
        // One thread wrote these bytes in the saved run, and two threads use them now.
        let changed = all.iter().any(|u| {
            let then = u.users();
            u.is_written() && then.len() == 1 && now.get(&then).is_some_and(|n| n.len() > 1)
        });
        if changed {
            return None;
        }
        for one in &mut all {
            one.threads = renamed(one, now.get(&one.users()));
        }
        all.extend(others);
        Some(all)
    }

    /// The objects that were not moved because they could not be recognised, or were not contended
    /// in this run.
    pub fn refused(&self) -> impl Iterator<Item = Unrepaired> {
        let absent = self.objects.iter().filter(|o| !o.seen).map(|o| {
            let why = "of the saved result, but no threads were seen to contend for it in this run";
            (o.name.clone(), why.to_owned())
        });
        let left_out = self.left_out.iter().map(|(name, why)| {
            let why = format!("of the saved result, but it can't be recognised: {why}");
            (name.clone(), why)
        });
        absent.chain(left_out).map(|(object, reason)| Unrepaired {
            object,
            address: None,
            reason,
        })
    }
}

/// The accesses of the saved run to some bytes, under the thread numbers of this run. A thread that
/// has not used them yet counts as one of the group all the same.
fn renamed(saved: &Use, now: Option<&BTreeSet<u32>>) -> BTreeMap<u32, Count> {
    let mut now = now.into_iter().flatten().copied();
    let users = saved.users().into_iter();
    let users = users.filter_map(|then| {
        let name = now.next().unwrap_or(then | ABSENT);
        Some((name, *saved.threads.get(&then)?))
    });
    users.collect()
}

/// Set in numbers that stand for a thread that has not come yet; no real thread has such a number.
const ABSENT: u32 = 1 << 31;

fn identity(object: &Object, program: Option<&str>) -> Result<Identity, &'static str> {
    match object.kind {
        ObjectKind::Global => Ok(Identity::Global {
            name: object.name.clone().ok_or("it has no name")?,
            file: object.module.clone(),
        }),
        ObjectKind::Heap => {
            let call = own_call_site(object, program);
            let (file, offset) = call.ok_or(
                "it was allocated through a wrapper, or a library, not by the program's own call",
            )?;
            let file = file.to_owned();
            Ok(Identity::Call { file, offset })
        }
        _ => Err("it is neither a variable nor a heap object"),
    }
}

/// The accesses to each word of a saved line, with its offset in the object. A word without bytes, or whose
/// offset is no number, is left out: no Sunder wrote it.
fn uses(line: &Line) -> Vec<(i64, Use)> {
    let Some(from) = line.object_offset else {
        return Vec::new();
    };
    let words = line.words.iter().filter(|word| word.size > 0);
    words
        .filter_map(|word| {
            let offset = from.checked_add(word.offset.into())?;
            let mut used = Use {
                size: word.size.into(),
                ..Use::default()
            };
            for one in &word.threads {
                used.add(
                    one.id,
                    Count {
                        reads: one.reads,
                        writes: one.writes.saturating_add(one.updates),
                        atomics: one.atomics,
                    },
                );
            }
            Some((offset, used))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(offset: u64, threads: &[u32]) -> Use {
        let written = Count {
            writes: 9,
            ..Count::default()
        };
        Use {
            offset,
            size: 8,
            threads: threads.iter().map(|&thread| (thread, written)).collect(),
        }
    }

    /// Three counters at 16, 24 and 32 of an object, one for each thread of the saved run.
    fn known() -> Known {
        let counters = (0..3).map(|n| (16 + 8 * i64::from(n), used(0, &[100 + n])));
        Known {
            objects: vec![Recognised {
                identity: Identity::Global {
                    name: "counters".into(),
                    file: None,
                },
                name: "counters".into(),
                uses: counters.collect(),
                seen: false,
            }],
            ..Known::default()
        }
    }

    const START: u64 = 0x5000_0100;
    const PAGE: u64 = 0x5000_0000;

    #[test]
    fn threads_of_this_run_take_the_places_of_the_saved_ones() {
        let seen = [used(0x110, &[7]), used(0x118, &[8])];
        let all = known()
            .uses((0, START), PAGE, &seen)
            .expect("the run does not contradict the result");
        let found = sunder_plan::remap::groups(&all, 8).expect("three groups");
        let groups = found.groups;
        let shown: Vec<_> = groups.iter().map(|g| (g.offset, g.size)).collect();
        assert_eq!(shown, [(0x110, 8), (0x118, 8), (0x120, 8)]);
        assert_eq!(groups[0].threads, [7].into());
        assert_eq!(groups[1].threads, [8].into());
    }

    #[test]
    fn accesses_missing_in_the_result_are_taken_as_seen() {
        let seen = [used(0x110, &[7]), used(0x128, &[9])];
        let all = known()
            .uses((0, START), PAGE, &seen)
            .expect("the run does not contradict the result");
        assert!(all.contains(&used(0x128, &[9])));
    }

    /// A saved result may be crafted: its numbers are as large as they may be.
    #[test]
    fn numbers_that_cannot_be_added_up_are_taken_as_far_as_they_go() {
        let thread = |id| sunder_findings::ThreadUse {
            id,
            reads: u64::MAX,
            writes: u64::MAX,
            updates: u64::MAX,
            atomics: u64::MAX,
            ..sunder_findings::ThreadUse::default()
        };
        let word = |offset| sunder_findings::Word {
            offset,
            size: u32::MAX,
            threads: vec![thread(1), thread(2)],
            ..sunder_findings::Word::default()
        };
        let line = |from| Line {
            object_offset: Some(from),
            words: vec![word(0), word(u32::MAX)],
            ..Line::default()
        };
        assert_eq!(uses(&line(i64::MAX)).len(), 1);
        for (start, page) in [(START, PAGE), (1 << 63, 0)] {
            for from in [i64::MIN, -1, 0, i64::MAX - 8, i64::MAX] {
                let mut known = known();
                known.objects[0].uses = uses(&line(from));
                known.span((0, start));
                for seen in [&[][..], &[used(0x110, &[7, 8])]] {
                    let Some(all) = known.uses((0, start), page, seen) else {
                        continue;
                    };
                    assert!(all.iter().all(|one| one.accesses() > 0));
                    let _ = sunder_plan::remap::groups(&all, 8);
                }
            }
        }
    }

    /// Such a word would make a group without bytes, and threads of it would count as users of what is around.
    #[test]
    fn words_without_bytes_are_left_out() {
        let word = |offset, size, id| sunder_findings::Word {
            offset,
            size,
            threads: vec![sunder_findings::ThreadUse {
                id,
                writes: 9,
                ..sunder_findings::ThreadUse::default()
            }],
            ..sunder_findings::Word::default()
        };
        let line = Line {
            object_offset: Some(16),
            words: vec![word(0, 8, 100), word(4, 0, 102), word(8, 8, 101)],
            ..Line::default()
        };
        let found = uses(&line);
        assert_eq!(found, [(16, used(0, &[100])), (24, used(0, &[101]))]);
    }

    #[test]
    fn the_run_outweighs_a_result_that_it_contradicts() {
        let seen = [used(0x110, &[7]), used(0x110, &[8])];
        assert_eq!(known().uses((0, START), PAGE, &seen), None);
        // The object begins before these pages.
        assert_eq!(known().uses((0, PAGE - 64), PAGE, &[]), None);
    }
}
