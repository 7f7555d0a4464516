//! Makes the result of a session: the findings of all processes, and of the memory that they have
//! in common.

use super::Session;
use crate::assemble::assemble;
use crate::latent::predict;
use crate::process::Process;
use crate::result::{Building, Observed};
use crate::wanted::Wanted;
use sunder_access::Time;
use sunder_findings::{self as findings, Finding, Findings};
use sunder_objects::is_c_library;

impl Session {
    /// Makes the result of the run from `start` to `end`.
    pub fn finish(self, start: Time, end: Time, observed: Observed) -> Findings {
        self.finish_of(&Wanted::All, start, end, observed)
    }

    /// As [`Self::finish`], with findings for the `wanted` lines only. If not all are wanted,
    /// sharing between processes and predictions for other line sizes are left out: reading the
    /// debug information of a large program takes longer than many a program runs.
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
        let mut result = Building::new(observed, self.lost, std::mem::take(&mut self.at_once));
        if wanted.is_nothing() {
            return result.finish();
        }
        for mut process in self.take_images() {
            let assembled = assemble(&mut process, wanted, start, end);
            result.add(&process, assembled);
        }
        result.finish()
    }

    /// The findings so far, the dearest first, with their timelines from `from` to `to`, while the
    /// observation goes on. What processes share with each other, and latent findings, are left out.
    pub fn so_far(&mut self, from: Time, to: Time) -> Vec<Finding> {
        self.pass_on();
        let line = self.config.granule().bytes() as u32;
        let mut all = Vec::new();
        for process in self.processes.values_mut() {
            all.extend(assemble(process, &Wanted::All, from, to).findings);
        }
        all.sort_by(|a, b| b.cost_percent.total_cmp(&a.cost_percent));
        for (finding, rank) in all.iter_mut().zip(1..) {
            finding.rank = rank;
            finding.advice = sunder_plan::advise(finding, line);
        }
        all
    }

    /// The CPU time that samples show of each thread so far, in ns.
    pub fn thread_times(&self) -> Vec<(findings::Thread, u64)> {
        let of = |process: &Process| {
            let times = process.judge.thread_time().into_iter();
            let told = times.map(|time| (process.threads.label(time.thread), time.cpu_ns));
            told.collect::<Vec<_>>()
        };
        self.processes.values().flat_map(of).collect()
    }

    /// As [`Self::finish`], for recorded accesses of which more is known than the judge sees:
    /// `price` completes the findings of each process before they are ranked. Sharing between
    /// processes and predictions for other line sizes are left out.
    pub fn finish_priced(
        mut self,
        start: Time,
        end: Time,
        observed: Observed,
        mut price: impl FnMut(&mut Vec<Finding>),
    ) -> Findings {
        let mut result = Building::new(observed, self.lost, std::mem::take(&mut self.at_once));
        for mut process in self.take_images() {
            let mut assembled = assemble(&mut process, &Wanted::All, start, end);
            price(&mut assembled.findings);
            result.add(&process, assembled);
        }
        result.finish()
    }

    /// All images: first those that have ended.
    fn take_images(&mut self) -> Vec<Process> {
        self.pass_on();
        let mut all = std::mem::take(&mut self.past);
        all.extend(self.processes.drain().map(|(_, process)| process));
        all
    }

    fn finish_all(mut self, start: Time, end: Time, observed: Observed) -> Findings {
        self.pass_on();
        self.keep_end(start, end, &observed);
        self.give_kept_files();
        let mut all = self.take_images();
        all.sort_by_key(|p| p.id);
        let cpus = observed.machine.cpus;
        let mut result = Building::new(observed, self.lost, std::mem::take(&mut self.at_once));
        let (common, reported) = self.shared.finish(&all, start, end);
        result.add_common(common);
        for process in &mut all {
            let mut assembled = assemble(process, &Wanted::All, start, end);
            let mappings = process.mappings();
            let shared = &mut self.shared;
            let findings = &mut assembled.findings;
            findings.retain(|f| !shared.is_reported(mappings, f, &reported));
            let threshold = result.threshold_percent();
            let granule = self.config.granule();
            let known = &assembled.findings;
            let turns = (cpus, &mut self.beside);
            let latent = predict(process, granule, threshold, known, turns);
            assembled.findings.extend(latent);
            let files = files_of(&assembled.findings, threshold);
            process.names.add_remedies(&files);
            result.add_unattributed(process);
            result.add(process, assembled);
        }
        result.finish()
    }
}

/// The files of the target that the significant findings (at least `threshold` percent) refer
/// to: those of their objects, and of the code that accesses or allocated them.
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
