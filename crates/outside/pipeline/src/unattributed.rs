//! How much of the threads' time has no address for the accesses that may have held them up, and in
//! which functions. Used when the result is made; it must not open files that nothing in the result
//! will name.

use crate::naming::user_frame;
use crate::process::Process;
use std::collections::BTreeMap;
use sunder_access::is_own_file;
use sunder_findings::{Run, Unattributed};

/// The most functions that are listed.
const MOST_FUNCTIONS: usize = 5;

/// Functions with a lesser share of all time are not listed.
const LEAST_PERCENT: f64 = 1.0;

/// Such time over all processes, in nanoseconds.
#[derive(Debug, Default)]
pub struct BlindTime {
    total: u64,
    unknown: u64,
    /// By function and the file that holds it.
    functions: BTreeMap<(String, Option<String>), u64>,
}

impl BlindTime {
    /// Adds that of a process.
    pub fn add(&mut self, process: &Process) {
        let (total, unknown) = process.blind.time();
        self.total = self.total.saturating_add(total);
        self.unknown = self.unknown.saturating_add(unknown);
    }

    /// Adds the functions of a process with such time. The process's names must know its mappings.
    pub fn add_functions(&mut self, process: &mut Process) {
        let (total, _) = process.blind.time();
        let mut places: Vec<_> = process.blind.unknown().collect();
        places.sort_unstable_by_key(|&(at, time)| (std::cmp::Reverse(time), at.0));
        // Lesser ones do not make a function that is worth naming.
        let is_much = |time: u64| percent(time, total) >= LEAST_PERCENT / 8.0;
        places.retain(|&(_, time)| is_much(time));
        for (at, time) in places {
            let frames = process.names.frames(at);
            let frame = user_frame(&frames);
            // Of a function without debug information, the name is followed by the offset in it.
            let function = match frame.function.split_once("+0x") {
                Some((name, _)) if frame.module.is_some() => name.to_owned(),
                _ => frame.function.clone(),
            };
            let place = match &frame.module {
                Some(module) if is_own_file(module) => ("Sunder's own libraries".into(), None),
                module => (function, module.clone()),
            };
            *self.functions.entry(place).or_default() += time;
        }
    }

    /// Writes it into the result.
    pub fn show(self, run: &mut Run) {
        if self.total == 0 {
            return;
        }
        let total = self.total;
        run.unattributed_percent = Some(percent(self.unknown, total));
        let shown = |((function, module), time)| Unattributed {
            function,
            module,
            percent: percent(time, total),
        };
        let mut all: Vec<Unattributed> = self.functions.into_iter().map(shown).collect();
        all.retain(|one| one.percent >= LEAST_PERCENT);
        all.sort_by(|a, b| b.percent.total_cmp(&a.percent));
        all.truncate(MOST_FUNCTIONS);
        run.unattributed = all;
    }
}

fn percent(part: u64, total: u64) -> f64 {
    if total == 0 {
        return 0.0;
    }
    (100.0 * part as f64 / total as f64).min(100.0)
}
