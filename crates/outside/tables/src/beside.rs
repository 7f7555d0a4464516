//! The small tables beside the accesses: written by the exporter, and those of blocks and call sites
//! read by replays.

use crate::about::{About, StackEvent, TraceModule};
use crate::error::TableError;
use crate::heap::BlockRow;
use crate::schema;
use crate::table::{Reader, Values, Writer};
use parquet::data_type::ByteArray;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use sunder_access::{CodeAddress, Time};
use sunder_trace::Trace;
use sunder_trace::slot::Sync;

/// Rows that are collected before they are written.
const GROUP: usize = 1 << 16;

/// The table of blocks, while it is written.
pub struct BlockWriter {
    writer: Writer,
    /// Rows that wait to be written.
    pub done: Vec<BlockRow>,
}

impl BlockWriter {
    pub fn new(writer: Writer) -> Self {
        Self {
            writer,
            done: Vec::new(),
        }
    }

    /// Writes what has been collected, if it is enough for a row group.
    pub fn flush(&mut self, all: bool) -> Result<(), TableError> {
        if self.done.is_empty() || self.done.len() < GROUP && !all {
            return Ok(());
        }
        let rows = &self.done;
        let long = |of: fn(&BlockRow) -> i64| rows.iter().map(of).collect::<Vec<i64>>();
        let int = |of: fn(&BlockRow) -> i32| rows.iter().map(of).collect::<Vec<i32>>();
        self.writer.rows(&[
            Values::Long(&long(|r| r.block)),
            Values::Long(&long(|r| r.address as i64)),
            Values::Long(&long(|r| r.size as i64)),
            Values::Long(&long(|r| r.align.map_or(-1, |align| align as i64))),
            Values::Int(&int(|r| r.thread as i32)),
            Values::Int(&int(|r| r.site as i32)),
            Values::Long(&long(|r| r.allocated.0)),
            Values::Long(&long(|r| r.allocated.1 as i64)),
            Values::Long(&long(|r| r.freed.map_or(-1, |at| at.0))),
            Values::Long(&long(|r| r.freed.map_or(-1, |at| at.1 as i64))),
            Values::Long(&long(|r| r.replaced.unwrap_or(-1))),
        ])?;
        self.done.clear();
        Ok(())
    }

    pub fn close(mut self) -> Result<u64, TableError> {
        self.flush(true)?;
        self.writer.close()
    }
}

/// The table of synchronisation, while it is written.
pub struct SyncWriter {
    writer: Writer,
    rows: Vec<(i64, u64, u32, Sync, u64)>,
}

impl SyncWriter {
    pub const fn new(writer: Writer) -> Self {
        Self {
            writer,
            rows: Vec::new(),
        }
    }

    /// Adds what `thread` did to `object` at this place and time.
    pub fn add(
        &mut self,
        (ord, time): (i64, u64),
        thread: u32,
        kind: Sync,
        object: u64,
    ) -> Result<(), TableError> {
        self.rows.push((ord, time, thread, kind, object));
        if self.rows.len() < GROUP {
            return Ok(());
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), TableError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = &self.rows;
        self.writer.rows(&[
            Values::Long(&rows.iter().map(|r| r.0).collect::<Vec<_>>()),
            Values::Long(&rows.iter().map(|r| r.1 as i64).collect::<Vec<_>>()),
            Values::Int(&rows.iter().map(|r| r.2 as i32).collect::<Vec<_>>()),
            Values::Text(&rows.iter().map(|r| r.3.name().into()).collect::<Vec<_>>()),
            Values::Long(&rows.iter().map(|r| r.4 as i64).collect::<Vec<_>>()),
        ])?;
        self.rows.clear();
        Ok(())
    }

    pub fn close(mut self) -> Result<u64, TableError> {
        self.flush()?;
        self.writer.close()
    }
}

/// What the exporter has learned of a thread.
#[derive(Clone, Copy, Debug)]
pub struct ThreadRow {
    pub tid: u32,
    pub started: i64,
    pub ended: i64,
    pub accesses: u64,
}

/// Writes the table of threads.
pub fn write_threads(
    mut writer: Writer,
    about: &About,
    rows: &BTreeMap<u32, ThreadRow>,
) -> Result<u64, TableError> {
    let creators: HashMap<u32, u32> = about
        .stacks
        .iter()
        .filter_map(|step| match step.event {
            StackEvent::Start { thread, parent, .. } => Some((thread, parent)),
            _ => None,
        })
        .collect();
    let creator = |index: &u32| creators.get(index).map_or(0, |&parent| parent as i32);
    writer.rows(&[
        Values::Int(&rows.keys().map(|&index| index as i32).collect::<Vec<_>>()),
        Values::Long(
            &rows
                .keys()
                .map(|&i| about.thread(i).0.into())
                .collect::<Vec<_>>(),
        ),
        Values::Int(&rows.values().map(|r| r.tid as i32).collect::<Vec<_>>()),
        Values::Int(&rows.keys().map(creator).collect::<Vec<_>>()),
        Values::Long(&rows.values().map(|r| r.started).collect::<Vec<_>>()),
        Values::Long(&rows.values().map(|r| r.ended).collect::<Vec<_>>()),
        Values::Long(&rows.values().map(|r| r.accesses as i64).collect::<Vec<_>>()),
    ])?;
    writer.close()
}

/// Writes the table of loaded files.
pub fn write_modules(mut writer: Writer, modules: &[TraceModule]) -> Result<u64, TableError> {
    let rows: Vec<_> = modules
        .iter()
        .flat_map(|module| module.segments.iter().map(move |segment| (module, segment)))
        .collect();
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let long = |of: &dyn Fn(&(&TraceModule, &crate::about::TraceSegment)) -> u64| {
        rows.iter().map(|row| of(row) as i64).collect::<Vec<i64>>()
    };
    let text = |of: &dyn Fn(&TraceModule) -> String| {
        let texts = rows
            .iter()
            .map(|(module, _)| of(module).into_bytes().into());
        texts.collect::<Vec<ByteArray>>()
    };
    writer.rows(&[
        Values::Long(&long(&|(module, _)| module.since)),
        Values::Text(&text(&|module| module.path.clone())),
        Values::Text(&text(&|module| hex(&module.build_id))),
        Values::Long(&long(&|(module, _)| module.base)),
        Values::Long(&long(&|(_, segment)| segment.start)),
        Values::Long(&long(&|(_, segment)| segment.bytes)),
        Values::Long(&long(&|(_, segment)| segment.file_offset)),
        Values::Int(&rows.iter().map(|(_, s)| s.flags as i32).collect::<Vec<_>>()),
    ])?;
    writer.close()
}

/// Writes the table of call sites.
pub fn write_sites(mut writer: Writer, trace: &Trace) -> Result<u64, TableError> {
    let mut stacks: Vec<(u32, &[CodeAddress])> = trace.stacks().collect();
    stacks.sort_unstable_by_key(|(site, _)| *site);
    let frames: Vec<(u32, usize, u64)> = stacks
        .iter()
        .flat_map(|(site, frames)| {
            let frames = frames.iter().enumerate();
            frames.map(|(depth, frame)| (*site, depth, frame.0))
        })
        .collect();
    for rows in frames.chunks(GROUP) {
        let module = |address: u64| trace.module_at(Time(0), address);
        let path = |address: u64| module(address).map_or("", |m| m.path.as_str());
        let offset = |at: u64| module(at).map_or(at, |m| at.wrapping_sub(m.base));
        writer.rows(&[
            Values::Int(&rows.iter().map(|r| r.0 as i32).collect::<Vec<_>>()),
            Values::Int(&rows.iter().map(|r| r.1 as i32).collect::<Vec<_>>()),
            Values::Long(&rows.iter().map(|r| r.2 as i64).collect::<Vec<_>>()),
            Values::Text(&rows.iter().map(|r| path(r.2).into()).collect::<Vec<_>>()),
            Values::Long(&rows.iter().map(|r| offset(r.2) as i64).collect::<Vec<_>>()),
        ])?;
    }
    writer.close()
}

/// A heap block, as a replay reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Its number.
    pub block: i64,
    /// Its first byte.
    pub address: u64,
    /// Requested bytes.
    pub size: u64,
    /// The index of the thread that allocated it.
    pub thread: u32,
    /// The number of the call stack that allocated it; 0: unknown.
    pub site: u32,
    /// Place and time of the allocation.
    pub allocated: (i64, u64),
    /// Place and time of the free.
    pub freed: Option<(i64, u64)>,
    /// Place of the first later block that took some of its bytes.
    pub replaced: Option<i64>,
}

/// The blocks in the file at `path` that `wanted` wants.
///
/// # Errors
/// If the file can't be read.
pub fn read_blocks(
    path: &Path,
    mut wanted: impl FnMut(&Allocation) -> bool,
) -> Result<Vec<Allocation>, TableError> {
    let mut reader = Reader::open(path)?;
    let mut found = Vec::new();
    let mut columns: [Vec<i64>; schema::BLOCKS.len()] = Default::default();
    while let Some(group) = reader.group()? {
        for (column, to) in schema::BLOCKS.iter().zip(&mut columns) {
            group.numbers(column.name, to)?;
        }
        let block = |row: usize| {
            let at = |column: usize| columns[column][row];
            let place = |ord: i64| (ord >= 0).then_some(ord);
            Allocation {
                block: at(0),
                address: at(1) as u64,
                size: at(2) as u64,
                thread: at(4) as u32,
                site: at(5) as u32,
                allocated: (at(6), at(7) as u64),
                freed: place(at(8)).map(|ord| (ord, at(9) as u64)),
                replaced: place(at(10)),
            }
        };
        found.extend((0..columns[0].len()).map(block).filter(&mut wanted));
    }
    Ok(found)
}

/// Call stacks by number: return addresses, the innermost first.
pub type Sites = BTreeMap<u32, Vec<u64>>;

/// The call stacks in the file at `path` whose numbers are `wanted`.
///
/// # Errors
/// If the file can't be read.
pub fn read_sites(path: &Path, wanted: impl Fn(u32) -> bool) -> Result<Sites, TableError> {
    let mut reader = Reader::open(path)?;
    let mut found: BTreeMap<u32, Vec<(i64, u64)>> = BTreeMap::new();
    let (mut sites, mut depths, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(group) = reader.group()? {
        group.numbers("site", &mut sites)?;
        group.numbers("depth", &mut depths)?;
        group.numbers("address", &mut addresses)?;
        for ((&site, &depth), &address) in sites.iter().zip(&depths).zip(&addresses) {
            let site = site as u32;
            if wanted(site) {
                found.entry(site).or_default().push((depth, address as u64));
            }
        }
    }
    let in_order = |(site, mut frames): (u32, Vec<(i64, u64)>)| {
        frames.sort_unstable();
        (
            site,
            frames.into_iter().map(|(_, address)| address).collect(),
        )
    };
    Ok(found.into_iter().map(in_order).collect())
}
