//! Reading the container format: the records of a file or of a pipe.
//!
//! `linux-perf-data` does the reading (both layouts, compression, the order of time across
//! buffers). It trusts the sizes in a file, and allocates by some of them. So [`Container::open`]
//! has the whole file checked first, and hides the parts that are not needed.

use super::attribute::EventAttr;
use super::bounds::Bounds;
use super::checks::Checker;
use super::error::ImportError;
use super::source::Source;
use crate::Event;
use crate::perf_event::Record;
use linux_perf_data::{PerfFileReader, PerfFileRecord};
use std::path::{Path, PathBuf};
use sunder_access::Time;

/// A record of the kernel in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recorded {
    /// Index of its event.
    pub attr: usize,
    /// Its time; 0 if it has none.
    pub time: Time,
    kind: u32,
    misc: u16,
    body: Vec<u8>,
}

impl Recorded {
    /// The record itself.
    pub(super) fn record(&self) -> Record<'_> {
        Record {
            kind: self.kind,
            misc: self.misc,
            body: &self.body,
        }
    }
}

/// An opened recording.
pub(super) struct Container {
    path: PathBuf,
    reader: PerfFileReader<Source>,
    attributes: Vec<EventAttr>,
    bounds: Bounds,
}

impl Container {
    /// Opens and checks a recording.
    pub(super) fn open(path: &Path) -> Result<Self, ImportError> {
        let checker = Checker { path };
        let (source, attributes, bounds) = checker.open()?;
        let reader = match source {
            Source::File { .. } => PerfFileReader::parse_file(source),
            Source::Pipe(_) => PerfFileReader::parse_pipe(source),
        };
        Ok(Self {
            path: path.into(),
            reader: reader.map_err(|error| checker.unreadable_by_reader(error))?,
            attributes,
            bounds,
        })
    }

    /// The events, in the order of [`Recorded::attr`].
    pub(super) fn attributes(&self) -> &[EventAttr] {
        &self.attributes
    }

    /// Counts the memory that an event takes.
    ///
    /// # Errors
    /// If the events so far take more than a file of this size may.
    pub(super) fn count(&mut self, event: &Event) -> Result<(), ImportError> {
        let counted = self.bounds.event(event);
        counted.map_err(|what| Checker { path: &self.path }.damaged(what))
    }

    /// The next record of the kernel, by time; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Recorded>, ImportError> {
        let PerfFileReader {
            perf_file,
            record_iter,
        } = &mut self.reader;
        loop {
            let record = record_iter
                .next_record(perf_file)
                .map_err(|error| Checker { path: &self.path }.unreadable_by_reader(error))?;
            match record {
                None => return Ok(None),
                Some(PerfFileRecord::UserRecord(_)) => {}
                Some(PerfFileRecord::EventRecord { attr_index, record }) => {
                    return Ok(Some(Recorded {
                        kind: record.record_type.0,
                        misc: record.misc,
                        attr: attr_index,
                        time: Time(record.timestamp().unwrap_or(0)),
                        body: record.data.as_slice().into_owned(),
                    }));
                }
            }
        }
    }
}
