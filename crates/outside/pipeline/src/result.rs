//! Makes the whole result: program, machine, run, the ranked findings with advice, and the
//! limits of what could be observed.

use crate::assemble::Assembled;
use crate::at_once::AtOnce;
use crate::process::Process;
use crate::unattributed::BlindTime;
use std::collections::HashSet;
use sunder_access::{Mapping, ProcessId, ThreadId, is_own_file};
use sunder_findings as findings;
use sunder_findings::{FEW_SAMPLES, Findings, Limit, SCHEMA, VERSION};
use sunder_observe::machine::Machine;

/// The parts of a result that the caller knows before the findings are made.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The observed program.
    pub program: findings::Program,
    /// The machine on which it ran.
    pub machine: findings::Machine,
    /// How it was observed. The counts are filled in here.
    pub run: findings::Run,
    /// What the observers could not see.
    pub limits: Vec<Limit>,
}

/// A result to which processes are being added.
pub struct Building {
    findings: Findings,
    weak: usize,
    time: BlindTime,
    /// Pairs, because a thread that executes another program is still the same thread.
    threads: HashSet<(ProcessId, ThreadId)>,
}

impl Building {
    /// A result without findings; `lost` records were dropped.
    pub(crate) fn new(observed: Observed, lost: u64, at_once: AtOnce) -> Self {
        let mut run = observed.run;
        run.lost_samples += lost;
        let told = at_once.finish();
        run.at_once_percent = told.at_once_percent;
        run.only_cpu = told.only_cpu;
        run.without_cpu = told.without_cpu;
        Self {
            findings: Findings {
                schema: SCHEMA.into(),
                version: VERSION,
                tool: env!("CARGO_PKG_VERSION").into(),
                program: observed.program,
                machine: observed.machine,
                run,
                verdict: None,
                processes: Vec::new(),
                findings: Vec::new(),
                limits: observed.limits,
                simulation: None,
                what_if: None,
                repair: None,
                cure: None,
            },
            weak: 0,
            time: BlindTime::default(),
            threads: HashSet::new(),
        }
    }

    /// The cost in percent from which a finding is significant.
    pub const fn threshold_percent(&self) -> f64 {
        self.findings.run.threshold_percent
    }

    /// Adds the findings of one process.
    pub fn add(&mut self, process: &Process, assembled: Assembled) {
        let run = &mut self.findings.run;
        run.samples += process.figures.samples;
        run.accesses += process.figures.accesses;
        run.watched_accesses += process.figures.watched;
        let threads = process.threads.all().map(|thread| (process.id, thread));
        self.threads.extend(threads);
        run.threads = u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
        // Where several processes are looked at, what they share is known.
        let is_first = self.findings.processes.is_empty();
        run.shares_memory = is_first && process.mappings().iter().any(is_others_too);
        if process.figures.samples + process.figures.accesses > 0 {
            self.findings.processes.push(process.describe());
        }
        self.weak += assembled.weak;
        self.time.add(process);
        self.findings.findings.extend(assembled.findings);
        for limit in process.names.limits().into_iter().map(Limit::Names) {
            debug_assert_eq!(limit.topic(), Some("names"), "{limit}");
            if !self.findings.limits.contains(&limit) {
                self.findings.limits.push(limit);
            }
        }
    }

    /// Adds the names of the functions of `process` for whose time the addresses of accesses are
    /// not known.
    pub fn add_unattributed(&mut self, process: &mut Process) {
        self.time.add_functions(process);
    }

    /// Adds the findings about memory that processes share with each other.
    pub fn add_common(&mut self, assembled: Assembled) {
        self.weak += assembled.weak;
        self.findings.findings.extend(assembled.findings);
    }

    /// Ranks the findings and adds advice.
    pub fn finish(mut self) -> Findings {
        let line = self.findings.machine.line_size;
        for finding in &mut self.findings.findings {
            finding.advice = sunder_plan::advise(finding, line);
        }
        std::mem::take(&mut self.time).show(&mut self.findings.run);
        self.add_limits();
        sunder_findings::rank(&mut self.findings);
        self.findings
    }

    fn add_limits(&mut self) {
        let run = &self.findings.run;
        let mut limits = Vec::new();
        if run.lost_samples > 0 {
            limits.push(Limit::LostSamples {
                lost: run.lost_samples,
                all: run.samples + run.lost_samples,
            });
        }
        // A trace has all accesses and no samples.
        let few = run.samples < FEW_SAMPLES && run.threads > 1 && run.observer != "trace";
        if few && !self.findings.is_of_other_code() {
            limits.push(Limit::FewSamples(run.samples));
        }
        let unknown = run.unattributed_percent.unwrap_or(0.0);
        if unknown >= MUCH_UNKNOWN_PERCENT {
            let function = |one: &findings::Unattributed| (one.function.clone(), one.percent);
            limits.push(Limit::Unattributed {
                percent: unknown,
                functions: run.unattributed.iter().map(function).collect(),
            });
        }
        if self.weak > 0 {
            limits.push(Limit::Coincidences(self.weak));
        }
        let guessed = |f: &findings::Finding| !f.confirmed && !f.latent;
        if run.observer != "import" && self.findings.findings.iter().any(guessed) {
            limits.push(Limit::Unconfirmed);
        }
        self.findings.limits.extend(limits);
    }
}

/// A lesser share of the time without addresses is not worth a sentence: of what hides there, little
/// would be significant.
const MUCH_UNKNOWN_PERCENT: f64 = 5.0;

/// The machine in the result's schema, with the cost of a transfer if it was measured.
pub fn show_machine(
    machine: &Machine,
    line_size: u32,
    transfer_ns: Option<f64>,
) -> findings::Machine {
    findings::Machine {
        cpu: machine.cpu_model.clone(),
        cpus: u32::try_from(machine.allowed.len()).unwrap_or(u32::MAX),
        cpus_online: u32::try_from(machine.online.len()).unwrap_or(u32::MAX),
        cpu_quota: machine.quota,
        line_size,
        transfer_ns,
        kernel: machine.kernel.clone(),
        virtualized: machine.hypervisor,
    }
}

/// Whether it is memory that other processes than this and Sunder may write, too.
fn is_others_too(mapping: &Mapping) -> bool {
    mapping.shared && mapping.write && !is_own_file(&mapping.path)
}
