//! The pipeline from events to findings: one for live and recorded data. It is
//! fed by `live` and `import` and asked at the end for the result; it must not
//! wait, print, or look at the target beyond reading what `/proc` tells.

use crate::assemble::assemble;
use crate::latent::predict;
use crate::process::Process;
use crate::result::{Building, Observed};
use crate::slots::Held;
use std::collections::HashMap;
use std::rc::Rc;
use sunder_access::{Address, Granule, Mappings, ProcessId, Time};
use sunder_findings::Findings;
use sunder_observe::machine::TYPICAL_TRANSFER_NS;
use sunder_observe::{Decoded, Decoder, Event, ProcessCode, RawSample};
use sunder_sharing::Config;
use sunder_wire::Segment;

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
    heap: Option<(ProcessId, Rc<Segment>)>,
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
            heap: None,
            lost: 0,
            not_followed: 0,
        }
    }

    /// The heap of `process` is recorded in `segment`.
    pub fn set_heap(&mut self, process: ProcessId, segment: Rc<Segment>) {
        self.process(process).set_heap(Rc::clone(&segment));
        self.heap = Some((process, segment));
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
                ..
            } => {
                if process != parent && self.follows(parent) && !self.follows(process) {
                    self.not_followed += 1;
                }
                if self.follows(process) {
                    if process != parent && self.processes.contains_key(&parent) {
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
                ..
            } => {
                if self.follows(process) {
                    if exec {
                        self.pass_on();
                        self.exec(process);
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
        self.process(sample.process).sample(sample, &decoded);
        self.decoded = decoded;
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
            self.process(sample.process).sample(sample, decoded);
        }
        if let Some(held) = &mut self.held {
            held.reuse(samples);
        }
    }

    /// What could not be read of the target's memory.
    pub fn memory_limit(&self) -> Option<String> {
        self.held.as_ref()?.limit()
    }

    /// Replaces what is known of a living process's address space.
    pub fn set_mappings(&mut self, process: ProcessId, mappings: Mappings) {
        self.process(process).set_mappings(mappings);
    }

    /// Reads a living process's code mappings anew, for observers whose events do
    /// not tell them. A process that is gone keeps what was known.
    pub fn refresh_code(&mut self, process: ProcessId) {
        let _ = self.code.attach(process);
    }

    /// Takes in what the runtime tells of the heap.
    pub fn heap_events(&mut self) {
        if let Some((process, _)) = self.heap {
            self.process(process).heap_events();
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
    pub fn finish(mut self, start: Time, end: Time, observed: Observed) -> Findings {
        self.pass_on();
        let mut all: Vec<Process> = self.past.drain(..).collect();
        all.extend(self.processes.drain().map(|(_, process)| process));
        all.sort_by_key(|p| p.id);
        let mut result = Building::new(observed, self.lost);
        for process in &mut all {
            let mut assembled = assemble(process, start, end);
            let threshold = result.threshold_percent();
            let granule = self.config.granule();
            let latent = predict(process, granule, threshold, &assembled.findings);
            assembled.findings.extend(latent);
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

    /// A new program in an old process: nothing of the old image is valid.
    fn exec(&mut self, id: ProcessId) {
        if let Some(held) = &mut self.held {
            held.forget(id);
        }
        let Some(old) = self.processes.remove(&id) else {
            return;
        };
        let keep_heap = old.figures.samples == 0;
        if !keep_heap {
            self.past.push(old);
        }
        if let Some((process, segment)) = self.heap.clone()
            && process == id
            && keep_heap
        {
            self.process(id).set_heap(segment);
        }
    }

    /// A child begins with its parent's address space.
    fn fork(&mut self, parent: ProcessId, child: ProcessId) {
        let mappings = self.process(parent).mappings().clone();
        self.set_mappings(child, mappings);
    }
}
