//! Reading `perf.data` files into the same stream that live observers deliver.
//!
//! Two kinds of recordings can be used: time samples with all user registers
//! (`perf record --user-regs=…`, which become [`Event::Sample`]), and memory events with addresses
//! (`perf mem record`, `perf c2c record`, which become [`Event::Access`]). Files come from
//! anywhere, so nothing in them is trusted: each error in one is an [`ImportError`], never a panic,
//! and never half a result that looks whole.

mod attribute;
mod bounds;
mod checks;
mod container;
mod error;
mod source;
mod unpack;

pub use error::{ImportError, RECORD_MEMORY, RECORD_SAMPLES};

use crate::perf_event::{Inodes, Record, Sample, SampleLayout, event_of, kernel};
use crate::pmu::access_of;
use crate::{Event, RawSample};
use attribute::EventAttr;
use container::Container;
use std::collections::BTreeMap;
use std::path::Path;
use sunder_access::{ProcessId, ThreadId, Time};

/// Counts of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Samples with registers that were delivered.
    pub samples: u64,
    /// Accesses of memory events that were delivered.
    pub accesses: u64,
    /// Samples of the kernel and of 32-bit code, and memory events that were no data access of the
    /// program.
    pub skipped: u64,
    /// Samples of events that were recorded without the fields that are needed.
    pub unusable: u64,
    /// Records that the kernel dropped while recording.
    pub lost: u64,
    /// Delivered samples and accesses by process, for a caller that must find the program among
    /// all processes of the recording.
    pub processes: BTreeMap<ProcessId, u64>,
    /// From the first to the last sample, in nanoseconds of the recording's
    /// clock.
    pub duration_ns: u64,
}

/// Reads the recording at `path` and passes its events to `sink`, in the order of time.
///
/// Times are those of the recording's clock. A mapping without an inode number in the recording
/// gets that of the file that has its path today.
///
/// # Errors
/// See [`ImportError`]. Events may have been delivered before the error was
/// found; they must not be reported.
pub fn import(path: &Path, mut sink: impl FnMut(Event)) -> Result<Imported, ImportError> {
    let mut container = Container::open(path)?;
    let attrs = container.attributes().to_vec();
    let mut importer = Importer {
        attrs: &attrs,
        sink: &mut sink,
        imported: Imported::default(),
        missing: None,
        span: None,
    };
    let mut inodes = Inodes::default();
    while let Some(record) = container.next()? {
        let (attr, time) = (record.attr, record.time);
        let record = record.record();
        if record.kind == kernel::PERF_RECORD_SAMPLE {
            if let Some(event) = importer.sample(attr, &record) {
                container.count(&event)?;
                (importer.sink)(event);
            }
        } else if let Ok(Some(event)) = event_of(&record, time, &mut inodes) {
            container.count(&event)?;
            importer.other(event);
        }
    }
    importer.finish(path)
}

/// What the samples of one event are good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SampleUse {
    Registers,
    Memory,
    /// Nothing, because the field that this text names is missing.
    Nothing(&'static str),
}

fn use_of(layout: &SampleLayout) -> SampleUse {
    if !layout.has(kernel::PERF_SAMPLE_TID) {
        return SampleUse::Nothing("thread numbers");
    }
    if !layout.has(kernel::PERF_SAMPLE_TIME) {
        return SampleUse::Nothing("times");
    }
    if layout.has(kernel::PERF_SAMPLE_IP)
        && layout.has(kernel::PERF_SAMPLE_ADDR)
        && layout.has(kernel::PERF_SAMPLE_DATA_SRC)
    {
        return SampleUse::Memory;
    }
    if layout.has_registers() {
        return SampleUse::Registers;
    }
    SampleUse::Nothing(if layout.has(kernel::PERF_SAMPLE_REGS_USER) {
        "complete set of user registers"
    } else if layout.has(kernel::PERF_SAMPLE_ADDR) {
        "data source beside their addresses"
    } else {
        "user registers and no data addresses"
    })
}

struct Importer<'a, S> {
    attrs: &'a [EventAttr],
    sink: &'a mut S,
    imported: Imported,
    missing: Option<&'static str>,
    /// The first and the last time of a sample, in nanoseconds.
    span: Option<(u64, u64)>,
}

impl<S: FnMut(Event)> Importer<'_, S> {
    /// The event of a sample, which is counted here and not delivered; `None` if it is of no use.
    fn sample(&mut self, attr: usize, record: &Record<'_>) -> Option<Event> {
        let Some(attr) = self.attrs.get(attr) else {
            self.imported.skipped += 1;
            return None;
        };
        let wanted = use_of(&attr.layout);
        if let SampleUse::Nothing(missing) = wanted {
            self.imported.unusable += 1;
            self.missing.get_or_insert(missing);
            return None;
        }
        let event = attr
            .layout
            .parse(record.body)
            .filter(|_| record.is_user())
            .and_then(|sample| match wanted {
                SampleUse::Memory => {
                    access_event(&sample, attr).or_else(|| self.without_address(&sample, attr))
                }
                _ => sample_event(&sample, attr),
            });
        let Some((process, time, event)) = event else {
            self.imported.skipped += 1;
            return None;
        };
        match event {
            Event::Sample(_) => self.imported.samples += 1,
            _ => self.imported.accesses += 1,
        }
        *self.imported.processes.entry(process).or_default() += 1;
        let (first, last) = self.span.unwrap_or((time.0, time.0));
        self.span = Some((first.min(time.0), last.max(time.0)));
        Some(event)
    }

    /// A sample that has the fields of a memory event but no data address, as `perf record -d`
    /// writes it for any event. If it has registers, it can be used as a time sample.
    fn without_address(
        &mut self,
        sample: &Sample,
        attr: &EventAttr,
    ) -> Option<(ProcessId, Time, Event)> {
        let event = sample_event(sample, attr);
        if event.is_none() {
            self.missing
                .get_or_insert("addresses of data, because their event is no memory event");
        }
        event
    }

    fn other(&mut self, event: Event) {
        if let Event::Lost(count) = event {
            self.imported.lost = self.imported.lost.saturating_add(count);
        }
        (self.sink)(event);
    }

    fn finish(mut self, path: &Path) -> Result<Imported, ImportError> {
        if let Some((first, last)) = self.span {
            self.imported.duration_ns = last - first;
            return Ok(self.imported);
        }
        Err(match self.missing {
            Some(missing) => ImportError::MissingFields {
                path: path.into(),
                missing,
            },
            None => ImportError::NoSamples(path.into()),
        })
    }
}

fn access_event(sample: &Sample, attr: &EventAttr) -> Option<(ProcessId, Time, Event)> {
    let (process, access, hitm) = access_of(sample, attr.period())?;
    let event = Event::Access {
        process,
        access,
        hitm: hitm || attr.is_snoop_load(),
    };
    Some((process, access.time, event))
}

fn sample_event(sample: &Sample, attr: &EventAttr) -> Option<(ProcessId, Time, Event)> {
    let process = ProcessId(sample.process?);
    let time = Time(sample.time?);
    let event = Event::Sample(RawSample {
        time,
        process,
        thread: ThreadId(sample.thread?),
        cpu: sample.cpu.unwrap_or(RawSample::NO_CPU),
        period_ns: attr.nanoseconds(sample.period),
        registers: sample.registers?,
    });
    Some((process, time, event))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf_event::USER_REGISTERS;

    fn layout(sample_type: u32, user_registers: u64) -> SampleLayout {
        SampleLayout {
            sample_type: sample_type.into(),
            user_registers,
            ..SampleLayout::default()
        }
    }

    #[test]
    fn use_of_an_event_follows_from_its_fields() {
        let base = kernel::PERF_SAMPLE_IP | kernel::PERF_SAMPLE_TID | kernel::PERF_SAMPLE_TIME;
        let memory = base
            | kernel::PERF_SAMPLE_ADDR
            | kernel::PERF_SAMPLE_DATA_SRC
            | kernel::PERF_SAMPLE_WEIGHT;
        assert_eq!(use_of(&layout(memory, 0)), SampleUse::Memory);
        let registers = base | kernel::PERF_SAMPLE_REGS_USER;
        assert_eq!(
            use_of(&layout(registers, USER_REGISTERS)),
            SampleUse::Registers
        );
        assert_eq!(
            use_of(&layout(registers, 1)),
            SampleUse::Nothing("complete set of user registers")
        );
        assert!(matches!(use_of(&layout(base, 0)), SampleUse::Nothing(_)));
        assert_eq!(
            use_of(&layout(
                registers & !kernel::PERF_SAMPLE_TIME,
                USER_REGISTERS
            )),
            SampleUse::Nothing("times")
        );
    }
}
