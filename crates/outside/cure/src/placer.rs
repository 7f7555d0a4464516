//! Placing: blocks that a program allocates from now on get cache lines of their own, if blocks from the
//! same calls were seen on one line with those of other threads. It helps where objects come and go,
//! which moving has to do again and again; and from the first allocation on, if a plan says so. Driven
//! by `both`. It must not look at the program's memory, or touch blocks that are there.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use sunder_access::{Address, ProcessId, Time};
use sunder_findings::{Object, PlacedObject};
use sunder_hooking::call_sites::{Chain, Chains};
use sunder_live::{Live, Looks};
use sunder_observe::foreign::ForeignFiles;
use sunder_observe::proc::{self, Fields, Folder};
use sunder_pipeline::{Process, objects_on_line, show_object};
use sunder_protect::Protector;
use sunder_sharing::{Confidence, PageRuns, Sharing, Verdict};
use sunder_wire::remap::MOST_MOVED;

/// Lines that together cost a smaller share of their threads' time are not worth more memory.
const WORTH_PLACING: f64 = 0.04;
/// Pause between two turns, in each of which blocks are handed out, and lines looked at if there is time
/// for it.
const TURN_EVERY: Duration = Duration::from_millis(20);
/// Of this much time, looks take one part at most.
const LOOKING_IS_ONE_IN: u32 = 100;
/// So long after the first suspicion nobody else is about to ask for names.
const WITHOUT_NAMES: Duration = Duration::from_millis(500);
/// Pause between two searches for files that were loaded late.
const FILES_EVERY: Duration = Duration::from_millis(500);
/// Most lines that are named in one look, as each takes a moment.
const AT_ONCE: usize = 16;
/// Blocks that each group of threads may place at first between two looks; doubled up to the second.
const GRANT: u32 = 1 << 10;
const LARGEST_GRANT: u32 = 1 << 14;
/// Most bytes that a block takes more: less than a line to its end, less than a line to its
/// beginning, and what the allocator keeps of it.
const EXTRA: u64 = 144;
/// Placing may take so much memory in any program.
const ALWAYS: u64 = 64 << 20;

/// What is placed in one program.
#[derive(Debug)]
pub struct Placer {
    process: ProcessId,
    chains: Chains,
    /// What was given to the library.
    given: BTreeSet<Chain>,
    /// Lines that were looked at, each with its first touch.
    known: HashSet<(Address, Time)>,
    placed: Vec<PlacedObject>,
    memory: Memory,
    grant: u32,
    next_turn: Duration,
    looks: Looks,
    next_files: Duration,
}

/// How much memory placing may have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Memory {
    taken: u64,
    /// The blocks that were placed, and the program's resident memory in bytes, when they were last
    /// looked at.
    placed: u64,
    resident: u64,
}

impl Memory {
    /// Whether more may be taken, now that `placed` blocks were placed and `resident` bytes are in
    /// memory. Blocks that were freed are not known; but what was taken is at most what the program has
    /// grown by since the last look.
    fn may_grow(&mut self, placed: u64, resident: u64) -> bool {
        let blocks = placed.saturating_sub(self.placed).saturating_mul(EXTRA);
        let grown = resident.saturating_sub(self.resident);
        *self = Self {
            taken: self.taken.saturating_add(blocks.min(grown)),
            placed,
            resident,
        };
        self.taken <= ALWAYS.max(resident / 4)
    }
}

impl Default for Placer {
    fn default() -> Self {
        Self {
            process: ProcessId::default(),
            chains: Chains::default(),
            given: BTreeSet::new(),
            known: HashSet::new(),
            placed: Vec::new(),
            memory: Memory::default(),
            grant: 0,
            next_turn: Duration::ZERO,
            looks: Looks::new(Duration::ZERO, LOOKING_IS_ONE_IN),
            next_files: Duration::ZERO,
        }
    }
}

impl Placer {
    /// The program begins as `process`.
    pub fn begins(&mut self, process: ProcessId) {
        self.process = process;
        self.chains = Chains::in_files(Arc::new(ForeignFiles::of(process)));
    }

    /// From the program's start on, what the plan of an earlier run names is placed. To be called before
    /// the program begins.
    pub fn follow(&mut self, plan: &[PlacedObject], program: Option<&str>, by: &mut Protector<'_>) {
        for one in plan {
            let object = one.object.clone();
            if self.give(&object, program, by) {
                let from_seconds = 0.0;
                self.placed.push(PlacedObject {
                    object,
                    from_seconds,
                });
            }
        }
        if !self.placed.is_empty() {
            self.grant = GRANT;
            by.grant(self.grant);
        }
    }

    /// Looks at the lines, and lets more blocks be placed. `names` says that another remedy has found its
    /// names by now. Without that, the lines wait: their debug information is being read beside the loop,
    /// and whoever asks for it must wait for the end of that.
    pub fn step(&mut self, live: &mut Live, names: bool, by: &mut Protector<'_>) {
        let id = self.process;
        let elapsed = live.elapsed();
        if elapsed < self.next_turn {
            return;
        }
        self.next_turn = elapsed + TURN_EVERY;
        let since = live.first_suspect.map(|at| elapsed.saturating_sub(at));
        let may_look = since.is_some_and(|since| names || since >= WITHOUT_NAMES);
        if may_look && self.looks.begin(elapsed, TURN_EVERY) {
            let unwatched = live.watch_refused.is_some();
            let process = live.session.process(id);
            self.look(process, elapsed, unwatched, by);
            self.looks.end();
        }
        if self.placed.is_empty() {
            return;
        }
        if elapsed >= self.next_files {
            self.next_files = elapsed + FILES_EVERY;
            by.note_files(live.session.process(id).mappings());
        }
        let (left, placed) = by.placing();
        let resident = Fields::read(Folder::Process(id)).ok();
        let resident = resident.and_then(|fields| fields.kibibytes("VmRSS"));
        let Some(resident) = resident.and_then(|kib| kib.checked_mul(1 << 10)) else {
            return;
        };
        let may_grow = self.memory.may_grow(placed, resident);
        if may_grow && left < i64::from(self.grant / 2) {
            by.grant(self.grant);
            self.grant = (self.grant * 2).min(LARGEST_GRANT);
        }
    }

    fn look(
        &mut self,
        process: &mut Process,
        elapsed: Duration,
        unwatched: bool,
        by: &mut Protector<'_>,
    ) {
        let verdicts = process.judge.verdicts();
        let runs = PageRuns::of(verdicts.iter(), MOST_MOVED);
        let is_wanted = |v: &&Verdict| {
            v.sharing != Sharing::True
                && (v.confirmed || unwatched && v.confidence() >= Confidence::Sampled)
                && (v.owner.is_some() || runs.cost(v) >= WORTH_PLACING)
                && v.cost_share > 0.0
        };
        let known = &self.known;
        let is_new = |v: &&Verdict| is_wanted(v) && !known.contains(&(v.line, v.first));
        let new: Vec<&Verdict> = verdicts.iter().filter(is_new).take(AT_ONCE).collect();
        for verdict in new {
            self.known.insert((verdict.line, verdict.first));
            for object in blocks_apart(process, verdict) {
                let program = proc::executable(process.id).ok();
                let program = program.as_deref().and_then(Path::to_str);
                if self.give(&object, program, by) {
                    let from_seconds = elapsed.as_secs_f64();
                    self.placed.push(PlacedObject {
                        object,
                        from_seconds,
                    });
                    self.grant = self.grant.max(GRANT);
                }
            }
        }
    }

    /// Hands over the calls that allocate such objects; false if they are known, or not to be found.
    fn give(&mut self, object: &Object, program: Option<&str>, by: &mut Protector<'_>) -> bool {
        let mut chains = self.chains.of(object, program);
        chains.retain(|chain| !self.given.contains(chain));
        if chains.is_empty() || !by.place(&chains) {
            return false;
        }
        self.given.extend(chains);
        true
    }

    /// What was placed, in order of time.
    pub fn placed(&self) -> &[PlacedObject] {
        &self.placed
    }
}

/// The heap blocks on a line that lines of their own would take apart.
fn blocks_apart(process: &mut Process, verdict: &Verdict) -> Vec<Object> {
    let mappings = process.mappings().clone();
    process.names.set_mappings(mappings);
    let objects = objects_on_line(process, verdict);
    let parts: Vec<_> = objects.blocks_apart(verdict).cloned().collect();
    let shown = parts
        .iter()
        .map(|part| show_object(process, &part.name, None));
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that gives its blocks back may place as many as it likes; one that keeps them is
    /// stopped.
    #[test]
    fn memory_that_is_used_again_is_not_taken_twice() {
        const MIB: u64 = 1 << 20;
        let mut memory = Memory::default();
        for look in 1..1000 {
            assert!(memory.may_grow(look * 100_000, 20 * MIB), "{look}");
        }
        assert!(memory.taken <= 20 * MIB);
        let mut memory = Memory::default();
        // 100,000 blocks take 14.4 MB at most, which is less than the program grows by. The fifth such look
        // makes 72 MB, more than 64 MiB and than a quarter of the program's 70 MiB.
        let kept = (1..1000).take_while(|look| memory.may_grow(look * 100_000, look * 14 * MIB));
        assert_eq!(kept.count(), 4);
        // A large program that grows by itself.
        let mut memory = Memory::default();
        assert!((1..1000).all(|look| memory.may_grow(look, 1024 * MIB + look * 14 * MIB)));
    }
}
