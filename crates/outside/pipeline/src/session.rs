//! The pipeline from events to findings: one for live and recorded data. It is
//! fed by `live` and `import` and asked at the end for the result; it must not
//! wait, print, or look at the target beyond reading what `/proc` tells.

use crate::assemble::assemble;
use crate::files::Files;
use crate::heap::Heap;
use crate::latent::predict;
use crate::process::Process;
use crate::result::{Building, Observed};
use crate::shared::Shared;
use crate::slots::Held;
use std::collections::HashMap;
use std::rc::Rc;
use sunder_access::{Address, Granule, Mappings, ProcessId, Span, Time};
use sunder_findings::{Finding, Findings, Limit};
use sunder_objects::is_c_library;
use sunder_observe::machine::TYPICAL_TRANSFER_NS;
use sunder_observe::{Decoded, Decoder, Event, ProcessCode, RawSample};
use sunder_sharing::Config;
use sunder_wire::{Claim, Origin, RuntimeStatus};

/// See the module's head.
pub struct Session {
    config: Config,
    /// Processes whose events count; of all, if empty.
    follow: Follow,
    decoder: Decoder,
    decoded: Decoded,
    /// Samples of a target that lives; none are held of a recorded one.
    held: Option<Held>,
    code: ProcessCode,
    processes: HashMap<ProcessId, Process>,
    /// Images that ended by an exec or with their process.
    past: Vec<Process>,
    /// What their names are read from.
    files: Files,
    /// What processes have in common.
    shared: Shared,
    /// The images that loaded the runtime, by process, in the order of time.
    heaps: HashMap<ProcessId, Vec<Rc<Heap>>>,
    /// The same by the number that the registry gave them.
    images: HashMap<u32, Rc<Heap>>,
    lost: u64,
    /// Processes that a followed one started and that are not followed.
    not_followed: u64,
}

/// How to judge: by lines of `line` bytes, at the price of `transfer` ns where it
/// was measured, of a typical one elsewhere.
///
/// # Errors
/// If no coherence granule has that size.
pub fn judge_config(line: u64, transfer: Option<f64>) -> anyhow::Result<Config> {
    let mut config = Config::new(Granule::new(line)?)?;
    config.transfer_ns = transfer.unwrap_or(TYPICAL_TRANSFER_NS);
    Ok(config)
}

/// Whose events count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Those of this process alone.
    Only(ProcessId),
    /// Those of all processes that are seen.
    All,
}

/// Which lines the caller wants findings for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Of all that was seen.
    All,
    /// Of lines in these places, which may be none: what else was seen needs no names.
    Of(Vec<Span>),
}

impl Wanted {
    /// Whether findings for this place are wanted.
    pub fn holds(&self, span: Span) -> bool {
        match self {
            Self::All => true,
            Self::Of(places) => places.iter().any(|place| place.overlaps(span)),
        }
    }

    /// Whether no findings are wanted.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Self::Of(places) if places.is_empty())
    }
}

/// The files of the target that the findings of at least `threshold` percent lie
/// in: their objects, and the code that touches them or had them allocated.
fn files_of(findings: &[Finding], threshold: f64) -> Vec<String> {
    let mut files = Vec::new();
    for finding in findings.iter().filter(|f| f.cost_percent >= threshold) {
        let objects = [Some(&finding.object), finding.neighbour.as_ref()];
        for object in objects.into_iter().flatten() {
            files.extend(object.module.clone());
            let call_site = object.allocation.iter().find(|f| !f.is_library());
            files.extend(call_site.and_then(|f| f.module.clone()));
        }
        let sites = finding.sites.iter().filter_map(|s| s.module.clone());
        files.extend(sites.filter(|m| !is_c_library(m)));
    }
    files.sort();
    files.dedup();
    files
}

impl Session {
    /// A session that has seen nothing.
    pub fn new(config: Config, follow: Follow) -> Self {
        Self {
            config,
            follow,
            decoder: Decoder::new(),
            decoded: Decoded::default(),
            held: None,
            code: ProcessCode::new(),
            processes: HashMap::new(),
            past: Vec::new(),
            files: Files::default(),
            shared: Shared::new(config),
            heaps: HashMap::new(),
            images: HashMap::new(),
            lost: 0,
            not_followed: 0,
        }
    }

    /// An image has loaded the runtime. With `tells` nobody else tells of new
    /// processes and programs.
    pub fn claim(&mut self, claim: &Claim, tells: bool) {
        if claim.refused || !self.follows(claim.process) {
            return;
        }
        let (id, since) = (claim.process, claim.time);
        let origin = match claim.origin {
            Origin::Fork { image, epoch } => {
                self.images.get(&image).map(|heap| (Rc::clone(heap), epoch))
            }
            Origin::Program => None,
        };
        if tells {
            self.begin(claim, origin.as_ref().map(|(heap, _)| heap.process));
        }
        let segment = Rc::clone(&claim.segment);
        let heap = Rc::new(Heap::new(segment, id, since, origin));
        self.images.insert(claim.image, Rc::clone(&heap));
        self.heaps.entry(id).or_default().push(heap);
        self.give_heap(id);
    }

    /// A new process or program, told by its claim alone.
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
        // The first process is our own child, which nobody wants to know.
        if claim.parent.0 != std::process::id() {
            process.parent.get_or_insert(claim.parent);
        }
    }

    /// An image has the first heap that was claimed after its beginning. A later
    /// one is that of a later image, whose beginning is still to be told.
    fn give_heap(&mut self, id: ProcessId) {
        let began = self.process(id).began;
        let heaps = self.heaps.get(&id);
        let heap = heaps.and_then(|h| h.iter().find(|h| h.since >= began).cloned());
        self.process(id).set_heap(heap);
    }

    /// Nobody has told of the programs that `id` executed so far. What is known of it is
    /// that of the last one that claimed a heap, or of one that did not.
    pub fn begin_anew(&mut self, id: ProcessId) {
        let last = self.heaps.get(&id).and_then(|heaps| heaps.last());
        let since = last.map_or(Time(0), |heap| heap.since);
        self.exec(id, since);
    }

    /// What one transfer of a line costs has been measured, late: samples in time cost
    /// what they took.
    pub fn set_transfer(&mut self, nanoseconds: f64) {
        self.config.transfer_ns = nanoseconds;
        self.shared.set_transfer(nanoseconds);
        for process in self.past.iter_mut().chain(self.processes.values_mut()) {
            process.judge.set_transfer(nanoseconds);
        }
    }

    /// Whether anything has a price: threads were seen to contend for a line.
    pub fn is_any_line_contended(&self) -> bool {
        let mut all = self.past.iter().chain(self.processes.values());
        all.any(|process| process.judge.is_any_line_contended()) || self.shared.has_any()
    }

    /// The heaps of the images that have not ended.
    pub fn heaps(&self) -> Vec<Rc<Heap>> {
        let all = self.processes.values();
        all.filter_map(|p| p.heap().cloned()).collect()
    }

    /// What the runtime says of itself in the last image of `process`.
    pub fn runtime_status(&self, process: ProcessId) -> RuntimeStatus {
        let last = self.heaps.get(&process).and_then(|heaps| heaps.last());
        last.map_or_else(RuntimeStatus::default, |heap| heap.segment.status())
    }

    /// Whether any image recorded a heap block.
    pub fn saw_allocations(&self) -> bool {
        let mut all = self.heaps.values().flatten();
        all.any(|heap| heap.segment.status().allocations_seen)
    }

    /// The processes other than `root` that were seen running and whose heap is
    /// not recorded, by number and name.
    pub fn without_heap(&self, root: ProcessId) -> Vec<String> {
        let all = self.past.iter().chain(self.processes.values());
        let mut names: Vec<_> = all
            .filter(|p| p.id != root && p.heap().is_none())
            .filter(|p| p.figures.samples + p.figures.accesses > 0)
            .map(|p| match p.threads.process_name() {
                Some(name) => format!("{} ({name})", p.id),
                None => p.id.to_string(),
            })
            .collect();
        names.sort();
        names.dedup();
        names
    }

    /// Timer samples that were lost because they were not drained in time.
    pub fn samples_dropped(&self) -> u64 {
        let all = self.heaps.values().flatten();
        all.map(|heap| heap.segment.status().samples_dropped).sum()
    }

    /// A process has ended: if nothing was seen of it, its heap is not needed.
    pub fn ended(&mut self, id: ProcessId) {
        let Some(process) = self.processes.get_mut(&id) else {
            return;
        };
        if process.figures.samples + process.figures.accesses == 0
            && let Some(heap) = process.heap().cloned()
        {
            process.set_heap(None);
            self.images.retain(|_, h| !Rc::ptr_eq(h, &heap));
            self.heaps.remove(&id);
        }
    }

    /// Takes in one event.
    pub fn event(&mut self, event: Event) {
        self.code.observe(&event);
        match event {
            Event::Sample(sample) => self.sample(&sample),
            Event::Access {
                process, access, ..
            } => {
                if self.follows(process) {
                    self.process(process).access(&access);
                }
            }
            Event::Map {
                process, mapping, ..
            } => {
                if self.follows(process) {
                    self.process(process).map(mapping);
                }
            }
            Event::ThreadStart {
                process,
                parent,
                thread,
                time,
            } => {
                if process != parent && self.follows(parent) && !self.follows(process) {
                    self.not_followed += 1;
                }
                if self.follows(process) {
                    if process != parent && self.processes.contains_key(&parent) {
                        // The number may have been another process's before.
                        self.exec(process, time);
                        self.fork(parent, process);
                    }
                    self.process(process).threads.started(thread);
                }
            }
            Event::ThreadName {
                process,
                thread,
                name,
                exec,
                time,
            } => {
                if self.follows(process) {
                    if exec {
                        self.pass_on();
                        self.exec(process, time);
                    }
                    let process = self.process(process);
                    process.threads.started(thread);
                    process.threads.name(thread, name);
                }
            }
            // What was learned of a thread or process stays.
            Event::ThreadEnd { .. } => {}
            Event::Lost(count) => self.lost += count,
        }
    }

    /// Takes in one sample of registers.
    pub fn sample(&mut self, sample: &RawSample) {
        if !self.follows(sample.process) {
            return;
        }
        self.code.executed_at(sample.time);
        self.decoder
            .decode(sample, &mut self.code, &mut self.decoded);
        if self.held.as_ref().is_some_and(Held::is_full) {
            self.pass_on();
        }
        if let Some(held) = &mut self.held {
            held.put(sample, &mut self.decoded);
            return;
        }
        let decoded = std::mem::take(&mut self.decoded);
        self.judge(sample, &decoded);
        self.decoded = decoded;
    }

    fn judge(&mut self, sample: &RawSample, decoded: &Decoded) {
        let several = self.follow == Follow::All;
        let config = self.config;
        let process = self
            .processes
            .entry(sample.process)
            .or_insert_with(|| Process::new(sample.process, config));
        process.sample(sample, decoded);
        if several && process.has_common_memory() {
            self.shared.sample(process.mappings(), sample, decoded);
        }
    }

    /// The target lives: its samples are held until [`Session::flush`], because
    /// its memory tells more about them.
    pub fn hold(&mut self) {
        self.held = Some(Held::default());
    }

    /// All samples up to `now` have been taken in: reads the target's memory for
    /// them and passes them on.
    pub fn flush(&mut self, now: Time) {
        if let Some(held) = &mut self.held {
            held.read(now);
        }
        self.pass_on();
    }

    /// Passes on what is held, as it is.
    pub fn pass_on(&mut self) {
        let Some(samples) = self.held.as_mut().map(Held::take) else {
            return;
        };
        for (sample, decoded) in &samples {
            self.judge(sample, decoded);
        }
        if let Some(held) = &mut self.held {
            held.reuse(samples);
        }
    }

    /// What could not be read of the target's memory.
    pub fn memory_limit(&self) -> Option<Limit> {
        self.held.as_ref()?.limit()
    }

    /// Replaces what is known of a living process's address space.
    pub fn set_mappings(&mut self, process: ProcessId, mappings: Mappings) {
        let config = self.config;
        let known = self
            .processes
            .entry(process)
            .or_insert_with(|| Process::new(process, config));
        self.files.hold(process, &mappings, &mut known.names);
        known.set_mappings(mappings);
    }

    /// Reads a living process's code mappings anew, for observers whose events do
    /// not tell them. A process that is gone keeps what was known.
    pub fn refresh_code(&mut self, process: ProcessId) {
        let _ = self.code.attach(process);
    }

    /// Takes in what the runtime tells of the heap.
    pub fn heap_events(&mut self) {
        for process in self.processes.values_mut() {
            process.heap_events();
        }
    }

    /// From now on the heap around `line` is followed closely.
    pub fn watch_line(&mut self, process: ProcessId, line: Address, since: Time) {
        let granule = self.granule();
        self.process(process).watch_line(line, since, granule);
    }

    /// The process `id`, which begins to be known if it was not.
    pub fn process(&mut self, id: ProcessId) -> &mut Process {
        let config = self.config;
        self.processes
            .entry(id)
            .or_insert_with(|| Process::new(id, config))
    }

    /// For reading code of a process while others are changed.
    pub fn code(&mut self) -> &mut ProcessCode {
        &mut self.code
    }

    /// Processes that are known and have not ended.
    pub fn living(&self) -> Vec<ProcessId> {
        self.processes.keys().copied().collect()
    }

    /// Whether a process that is followed started others that are not, as far as
    /// events tell.
    pub const fn left_children_out(&self) -> bool {
        self.not_followed > 0
    }

    /// The coherence granule that is judged by.
    pub const fn granule(&self) -> Granule {
        self.config.granule()
    }

    /// The result over the run from `start` to `end`.
    pub fn finish(self, start: Time, end: Time, observed: Observed) -> Findings {
        self.finish_of(&Wanted::All, start, end, observed)
    }

    /// The same with the findings for the `wanted` lines alone, and of those without what is
    /// shared between processes or would be with other lines: reading the debug
    /// information of a large program takes longer than many a program runs.
    pub fn finish_of(
        mut self,
        wanted: &Wanted,
        start: Time,
        end: Time,
        observed: Observed,
    ) -> Findings {
        if *wanted == Wanted::All {
            return self.finish_all(start, end, observed);
        }
        let mut result = Building::new(observed, self.lost);
        if wanted.is_nothing() {
            return result.finish();
        }
        self.pass_on();
        let now = self.processes.drain().map(|(_, process)| process);
        for mut process in self.past.drain(..).chain(now) {
            let assembled = assemble(&mut process, wanted, start, end);
            result.add(&process, assembled);
        }
        result.finish()
    }

    fn finish_all(mut self, start: Time, end: Time, observed: Observed) -> Findings {
        self.pass_on();
        let mut all: Vec<Process> = self.past.drain(..).collect();
        all.extend(self.processes.drain().map(|(_, process)| process));
        all.sort_by_key(|p| p.id);
        let mut result = Building::new(observed, self.lost);
        let (common, told) = self.shared.finish(&all, start, end);
        result.add_common(common);
        for process in &mut all {
            let mut assembled = assemble(process, &Wanted::All, start, end);
            let mappings = process.mappings();
            let shared = &mut self.shared;
            let findings = &mut assembled.findings;
            findings.retain(|f| !shared.is_told(mappings, f, &told));
            let threshold = result.threshold_percent();
            let granule = self.config.granule();
            let latent = predict(process, granule, threshold, &assembled.findings);
            assembled.findings.extend(latent);
            let files = files_of(&assembled.findings, threshold);
            process.names.tell_remedies(&files);
            result.add(process, assembled);
        }
        result.finish()
    }

    fn follows(&self, process: ProcessId) -> bool {
        match self.follow {
            Follow::Only(only) => only == process,
            Follow::All => true,
        }
    }

    /// A new program in an old process, or a new process with an old number:
    /// nothing of the old image is valid.
    fn exec(&mut self, id: ProcessId, time: Time) {
        if let Some(held) = &mut self.held {
            held.forget(id);
        }
        let mut parent = None;
        if let Some(mut old) = self.processes.remove(&id) {
            parent = old.parent;
            if old.heap().is_some_and(|heap| heap.since > time) {
                old.set_heap(None);
            }
            if old.figures.samples + old.figures.accesses > 0 {
                self.past.push(old);
            }
        }
        let new = self.process(id);
        (new.began, new.parent) = (time, parent);
        self.give_heap(id);
    }

    /// A child begins with its parent's address space.
    fn fork(&mut self, parent: ProcessId, child: ProcessId) {
        let parent = self.process(parent);
        let (id, mappings) = (parent.id, parent.mappings().clone());
        let name = parent.threads.process_name();
        let child = self.process(child);
        child.set_mappings(mappings);
        child.parent = Some(id);
        if let Some(name) = name {
            child.threads.inherit_name(name);
        }
    }
}
