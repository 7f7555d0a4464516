//! The runtimes of images: which image a claim is of, its heap, and what is to be said where none was seen.

use super::Session;
use crate::heap::Heap;
use crate::process::Process;
use std::rc::Rc;
use sunder_access::{ProcessId, Time};
use sunder_recording::{self as recording, Step};
use sunder_wire::{Claim, Origin, RuntimeStatus};

impl Session {
    /// An image has loaded the runtime. `is_only_report` means that no event reports new processes
    /// and programs.
    pub fn claim(&mut self, claim: &Claim, is_only_report: bool) {
        if claim.refused || !self.follows(claim.process) {
            return;
        }
        let (id, since) = (claim.process, claim.time);
        self.note(|| {
            Step::Claim(recording::Claim {
                image: claim.image,
                process: id.0,
                // This process is the tool, which has another number when the run is judged again.
                parent: (claim.parent.0 != std::process::id()).then_some(claim.parent.0),
                time: since.0,
                forked: match claim.origin {
                    Origin::Fork { image, epoch } => Some((image, epoch)),
                    Origin::Program => None,
                },
                is_only_report,
            })
        });
        let origin = match claim.origin {
            Origin::Fork { image, epoch } => {
                self.images.get(&image).map(|heap| (Rc::clone(heap), epoch))
            }
            Origin::Program => None,
        };
        if is_only_report {
            self.begin(claim, origin.as_ref().map(|(heap, _)| heap.process));
        }
        let segment = Rc::clone(&claim.segment);
        let heap = Rc::new(Heap::new(segment, id, since, origin));
        self.images.insert(claim.image, Rc::clone(&heap));
        self.heaps.entry(id).or_default().push(heap);
        self.give_heap(id);
    }

    /// Begins a process or program that only its claim reports.
    fn begin(&mut self, claim: &Claim, origin: Option<ProcessId>) {
        let id = claim.process;
        if self.processes.get(&id).is_some_and(|p| p.heap().is_some()) {
            self.exec(id, claim.time);
        }
        let origin = origin.filter(|origin| self.processes.contains_key(origin));
        if let Some(origin) = origin {
            self.fork(origin, id);
        }
        let process = self.process(id);
        process.began = claim.time;
        // The parent of the first process is this tool, which the report does not show.
        if claim.parent.0 != std::process::id() {
            process.parent.get_or_insert(claim.parent);
        }
    }

    /// Gives the image the first heap that was claimed after the image began. A later heap
    /// belongs to a later image, whose beginning has not been reported yet.
    pub(super) fn give_heap(&mut self, id: ProcessId) {
        let began = self.process(id).began;
        let heaps = self.heaps.get(&id);
        let heap = heaps.and_then(|h| h.iter().find(|h| h.since >= began).cloned());
        self.process(id).set_heap(heap);
    }

    /// Ends the known image of `id`, because the programs that it has executed so far were not
    /// reported. A heap that was claimed last belongs to the new image.
    pub fn begin_anew(&mut self, id: ProcessId) {
        self.note(|| Step::Anew(id.0));
        let last = self.heaps.get(&id).and_then(|heaps| heaps.last());
        let since = last.map_or(Time(0), |heap| heap.since);
        self.exec(id, since);
    }

    /// The heaps of images that have not ended.
    pub fn heaps(&self) -> Vec<Rc<Heap>> {
        let all = self.processes.values();
        all.filter_map(|p| p.heap().cloned()).collect()
    }

    /// What the runtime reports about itself in the last image of `process`.
    pub fn runtime_status(&self, process: ProcessId) -> RuntimeStatus {
        let last = self.heaps.get(&process).and_then(|heaps| heaps.last());
        last.map_or_else(RuntimeStatus::default, |heap| heap.segment.status())
    }

    /// Whether any image recorded a heap block.
    pub fn saw_allocations(&self) -> bool {
        let mut all = self.heaps.values().flatten();
        all.any(|heap| heap.segment.status().allocations_seen)
    }

    /// The processes other than `root` that were sampled and whose heap is not recorded, by
    /// number and name.
    pub fn without_heap(&self, root: ProcessId) -> Vec<String> {
        let all = self.past.iter().chain(self.processes.values());
        let mut names: Vec<_> = all
            .filter(|p| p.id != root && p.heap().is_none())
            .filter(|p| p.figures.samples + p.figures.accesses > 0)
            .map(shown)
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// The processes other than `root` that have not ended, by number and name.
    pub fn going_on(&self, root: ProcessId) -> Vec<String> {
        let lives = |p: &&Process| p.id != root && sunder_observe::proc::is_alive(p.id);
        let mut names: Vec<_> = self.processes.values().filter(lives).map(shown).collect();
        names.sort();
        names
    }
}

/// A process by number and name.
fn shown(process: &Process) -> String {
    match process.threads.process_name() {
        Some(name) => format!("{} ({name})", process.id),
        None => process.id.to_string(),
    }
}
