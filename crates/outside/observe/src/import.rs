//! Reading `perf.data` files into the same stream that live observers deliver.
//!
//! Two kinds of recordings can be used: time samples with all user registers
//! (`perf record --user-regs=…`, which become [`Event::Sample`]), and memory events with addresses
//! (`perf mem record`, `perf c2c record`, which become [`Event::Access`]). Files come from
//! anywhere, so nothing in them is trusted: each error in one is an [`ImportError`], never a panic,
//! and never half a result that looks whole.

mod container;
pub(crate) mod records;

use crate::machine::perf_event::{SW_CPU_CLOCK, TYPE_SOFTWARE, flag, sample};
use crate::pmu::access_of;
use crate::pmu::record::{Sample, SampleLayout};
use crate::{Event, RawSample};
pub(crate) use container::Record;
use container::{Container, EventAttr};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use sunder_access::{ProcessId, ThreadId, Time};

/// A command that records time samples that can be imported.
pub const RECORD_SAMPLES: &str = "perf record -e cpu-clock:u -F 4000 --user-regs=\
     ax,bx,cx,dx,si,di,bp,sp,ip,r8,r9,r10,r11,r12,r13,r14,r15 -- PROGRAM";
/// A command that records memory events that can be imported, where there is a PMU.
pub const RECORD_MEMORY: &str = "perf mem record -- PROGRAM";

/// Why a file could not be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file could not be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of opening or reading it.
        source: io::Error,
    },
    /// A folder, as `perf record --threads` writes.
    #[error(
        "{} is a folder; recordings made with `perf record --threads` are not supported, \
         record without it", .0.display()
    )]
    Folder(PathBuf),
    /// The file is no recording of perf.
    #[error("{} is not a perf.data file", .0.display())]
    Foreign(PathBuf),
    /// Written by a perf from before 2010 or after this program.
    #[error("{} has the format `{magic}` of another version of perf; only PERFILE2 is supported", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The first bytes of the file, as text.
        magic: String,
    },
    /// Recorded on another architecture.
    #[error("{} was recorded on {machine}; only recordings from x86_64 can be read", path.display())]
    Machine {
        /// The file.
        path: PathBuf,
        /// The architecture that it names.
        machine: String,
    },
    /// `perf record` was killed before it wrote the file's header.
    #[error("{} is unfinished: perf record was ended before it could complete the file; record again and end the program instead", .0.display())]
    Unfinished(PathBuf),
    /// The end is missing.
    #[error("{} is truncated: {needed} bytes are announced, {there} are there", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The least size in bytes that its header promises.
        needed: u64,
        /// Its size in bytes.
        there: u64,
    },
    /// A part of the file contradicts another.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The contradiction, in words.
        what: String,
    },
    /// Recorded without fields that are needed.
    #[error("the samples in {} have no {missing}; record with `{RECORD_SAMPLES}`, or with `{RECORD_MEMORY}` on a machine with memory events", path.display())]
    MissingFields {
        /// The file.
        path: PathBuf,
        /// The missing fields, in words.
        missing: &'static str,
    },
    /// A recording in which nothing happened.
    #[error("{} holds no samples of user code; was the program running?", .0.display())]
    NoSamples(PathBuf),
}

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
    let mut files = records::Inodes::default();
    while let Some(record) = container.next()? {
        match record.kind {
            records::SAMPLE => importer.sample(record.attr, record.misc, &record.body),
            _ => {
                if let Some(event) = records::event_of(&record, &mut files) {
                    importer.other(event);
                }
            }
        }
    }
    importer.finish(path)
}

/// What the samples of one event are good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Registers,
    Memory,
    /// Nothing, because the field that this text names is missing.
    Nothing(&'static str),
}

fn use_of(layout: &SampleLayout) -> Use {
    if !layout.has(sample::TID) {
        return Use::Nothing("thread numbers");
    }
    if !layout.has(sample::TIME) {
        return Use::Nothing("times");
    }
    if layout.has(sample::IP) && layout.has(sample::ADDR) && layout.has(sample::DATA_SRC) {
        return Use::Memory;
    }
    if layout.has_registers() {
        return Use::Registers;
    }
    Use::Nothing(if layout.has(sample::REGS_USER) {
        "complete set of user registers"
    } else if layout.has(sample::ADDR) {
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
    fn sample(&mut self, attr: usize, misc: u16, body: &[u8]) {
        let Some(attr) = self.attrs.get(attr) else {
            self.imported.skipped += 1;
            return;
        };
        let wanted = use_of(&attr.layout);
        if let Use::Nothing(missing) = wanted {
            self.imported.unusable += 1;
            self.missing.get_or_insert(missing);
            return;
        }
        let event = attr
            .layout
            .parse(body)
            .filter(|_| records::is_user(misc))
            .and_then(|sample| match wanted {
                Use::Memory => {
                    access_event(&sample, attr).or_else(|| self.without_address(&sample, attr))
                }
                _ => sample_event(&sample, attr),
            });
        let Some((process, time, event)) = event else {
            self.imported.skipped += 1;
            return;
        };
        match event {
            Event::Sample(_) => self.imported.samples += 1,
            _ => self.imported.accesses += 1,
        }
        *self.imported.processes.entry(process).or_default() += 1;
        let (first, last) = self.span.unwrap_or((time.0, time.0));
        self.span = Some((first.min(time.0), last.max(time.0)));
        (self.sink)(event);
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
        cpu: sample.cpu.unwrap_or(0),
        period_ns: attr.nanoseconds(sample.period),
        registers: sample.registers?,
    });
    Some((process, time, event))
}

impl EventAttr {
    fn is_clock(&self) -> bool {
        /// `PERF_COUNT_SW_TASK_CLOCK`.
        const SW_TASK_CLOCK: u64 = 1;
        self.kind == TYPE_SOFTWARE && matches!(self.config, SW_CPU_CLOCK | SW_TASK_CLOCK)
    }

    /// Whether the event is Intel's retired load that another core's modified line answered (event
    /// 0xd2, mask 0x04), whose data source does not show this.
    const fn is_snoop_load(&self) -> bool {
        /// `PERF_TYPE_RAW`, also the type number of Intel's core PMU.
        const TYPE_RAW: u32 = 4;
        self.kind == TYPE_RAW && self.config & 0xffff == 0x04d2
    }

    const fn is_frequency(&self) -> bool {
        self.flags & flag::FREQ != 0
    }

    /// The number of events between two samples, for samples that do not have it.
    const fn period(&self) -> u64 {
        if self.is_frequency() { 1 } else { self.period }
    }

    /// The time that a sample stands for.
    fn nanoseconds(&self, period: Option<u64>) -> u64 {
        match period {
            Some(period) if self.is_clock() => period,
            // Another event at a given frequency: the kernel chooses periods so that samples come
            // this often.
            _ if self.is_frequency() => 1_000_000_000 / self.period.max(1),
            // The period of a clock is in nanoseconds. For another event the file does not tell its
            // duration: for cycles, one nanosecond per event is right within a factor of three.
            _ => period.unwrap_or(self.period),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::perf_event::USER_REGISTERS;

    fn layout(sample_type: u64, user_registers: u64) -> SampleLayout {
        SampleLayout {
            sample_type,
            user_registers,
            ..SampleLayout::default()
        }
    }

    #[test]
    fn what_an_event_is_good_for_follows_from_its_fields() {
        let base = sample::IP | sample::TID | sample::TIME;
        let memory = base | sample::ADDR | sample::DATA_SRC | sample::WEIGHT;
        assert_eq!(use_of(&layout(memory, 0)), Use::Memory);
        let registers = base | sample::REGS_USER;
        assert_eq!(use_of(&layout(registers, USER_REGISTERS)), Use::Registers);
        assert_eq!(
            use_of(&layout(registers, 1)),
            Use::Nothing("complete set of user registers")
        );
        assert!(matches!(use_of(&layout(base, 0)), Use::Nothing(_)));
        assert_eq!(
            use_of(&layout(registers & !sample::TIME, USER_REGISTERS)),
            Use::Nothing("times")
        );
    }

    #[test]
    fn the_time_of_a_sample_comes_from_its_period_or_its_frequency() {
        let mut attr = EventAttr {
            kind: TYPE_SOFTWARE,
            config: SW_CPU_CLOCK,
            period: 4000,
            flags: flag::FREQ,
            layout: SampleLayout::default(),
        };
        assert_eq!(attr.nanoseconds(Some(250_000)), 250_000);
        assert_eq!(attr.nanoseconds(None), 250_000);
        attr.kind = 0;
        assert_eq!(attr.nanoseconds(Some(77)), 250_000);
        attr.flags = 0;
        assert_eq!((attr.nanoseconds(Some(77)), attr.period()), (77, 4000));
        // Must not divide by a frequency of zero.
        attr.flags = flag::FREQ;
        attr.period = 0;
        assert_eq!(attr.nanoseconds(None), 1_000_000_000);
    }
}
