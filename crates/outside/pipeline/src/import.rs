//! Makes findings from a file that `perf` recorded.

use crate::cpu_time::own_cpu_seconds;
use crate::observer::{Observer, take_rest};
use crate::result::Observed;
use crate::session::{Follow, Session, judge_config};
use std::path::Path;
use sunder_access::{Granule, Time};
use sunder_findings as findings;
use sunder_findings::{Findings, Limit};
use sunder_observe::import::{Imported, import as import_file};
use sunder_observe::{Event, ImportError};

/// The findings of a `perf.data` file, judged with lines of `line_size` bytes (by default 64).
/// Those that cost less than `threshold` percent are marked as not significant.
///
/// # Errors
/// If the file is not a `perf.data` file, or has no events that can be judged.
pub fn import(
    file: &Path,
    line_size: Option<u32>,
    threshold: Option<f64>,
) -> anyhow::Result<Findings> {
    let line = line_size.map_or(Granule::LINE.bytes(), u64::from);
    let config = judge_config(line, None)?;
    let mut session = Session::recorded(config, Follow::All);
    let mut recording = PerfData::new(file);
    take_rest(&mut recording, &mut session)?;
    let (start, end) = recording.span.unwrap_or_default();
    let observed = Observed {
        program: findings::Program {
            command: vec![file.display().to_string()],
            ..findings::Program::default()
        },
        machine: findings::Machine {
            line_size: line as u32,
            ..findings::Machine::default()
        },
        run: findings::Run {
            seconds: end.nanoseconds_since(start) as f64 / 1e9,
            observer: "import".into(),
            lost_samples: recording.imported.lost,
            threshold_percent: threshold.unwrap_or(findings::DEFAULT_THRESHOLD_PERCENT),
            observer_cpu_seconds: own_cpu_seconds(),
            ..findings::Run::default()
        },
        limits: recording.limits(),
    };
    Ok(session.finish(start, end, observed))
}

/// A file that `perf` recorded.
struct PerfData<'a> {
    /// The file, until it was read.
    unread: Option<&'a Path>,
    /// The times of the first and the last event.
    span: Option<(Time, Time)>,
    /// What was in the file.
    imported: Imported,
}

impl<'a> PerfData<'a> {
    fn new(file: &'a Path) -> Self {
        Self {
            unread: Some(file),
            span: None,
            imported: Imported::default(),
        }
    }
}

impl Observer for PerfData<'_> {
    type Error = ImportError;

    fn drain(&mut self, session: &mut Session) -> Result<(), ImportError> {
        let Some(file) = self.unread.take() else {
            return Ok(());
        };
        let span = &mut self.span;
        self.imported = import_file(file, |event| {
            let time = match &event {
                Event::Sample(sample) => Some(sample.time),
                Event::Access { access, .. } => Some(access.time),
                _ => None,
            };
            if let Some(time) = time {
                let (first, last) = span.unwrap_or((time, time));
                *span = Some((first.min(time), last.max(time)));
            }
            session.event(event);
        })?;
        Ok(())
    }

    fn limits(&self) -> Vec<Limit> {
        let mut limits = Vec::new();
        if self.imported.unusable > 0 {
            limits.push(Limit::SamplesWithoutFields(self.imported.unusable));
        }
        limits.push(Limit::RecordedFile);
        limits
    }
}
