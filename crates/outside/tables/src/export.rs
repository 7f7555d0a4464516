//! Writes a trace as tables. The events are read once, in one of the two orders; each access goes to
//! the bucket of its line, and threads pack and write the buckets' row groups meanwhile. Memory is
//! that of the row groups in the making, of the blocks whose bytes nobody has taken over, and of the
//! list of call stacks.

use crate::about::{About, StackEvent, StackStep};
use crate::beside::{
    BlockWriter, SyncWriter, ThreadRow, write_modules, write_sites, write_threads,
};
use crate::bucket::{Cut, folder};
use crate::bucket_writer::{BucketWriter, Columns, FIRST_FILE};
use crate::error::TableError;
use crate::heap::{BlockRow, Heap};
use crate::order::Order;
use crate::row::{Row, RowKind};
use crate::schema::{self, describe};
use crate::table::{Column, Writer};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use sunder_access::Time;
use sunder_trace::read::{Event, Kinds, Piece, Touch, Turns};
use sunder_trace::slot::{Key, access_kind};
use sunder_trace::{Trace, What};

/// The most rows of a row group: an engine reads a group as a whole.
const MOST_ROWS: usize = 1 << 17;

/// The fewest, below which lists of different values and page headers take too much.
const FEWEST_ROWS: usize = 1 << 12;

/// Bytes of memory for the rows of all buckets that wait for their group to be full.
const ROOM: usize = 256 << 20;

/// The most row groups of all files that are open: each has some 9 KiB of description, which stands at the end
/// of its file and is kept until then.
const MOST_OPEN_GROUPS: usize = 1 << 14;

/// Row groups that wait for each packing thread.
const WAITING: usize = 2;

/// The most packing threads: with more, reading the trace takes longer than packing.
const MOST_PACKERS: usize = 8;

/// The files of an export, made before anything is read.
pub struct Target {
    folder: PathBuf,
    cut: Cut,
    buckets: Vec<(PathBuf, File)>,
    beside: BTreeMap<&'static str, (PathBuf, File)>,
    may_make_files: bool,
}

const BESIDE: [&str; 7] = [
    "blocks.parquet",
    "sites.parquet",
    "threads.parquet",
    "modules.parquet",
    "synchronisation.parquet",
    "schema.md",
    "trace.json",
];

impl Target {
    /// Makes the files in `folder`, which is made if it does not exist.
    ///
    /// # Errors
    /// If the folder has files already, or one can't be made.
    pub fn create(folder: &Path, cut: Cut) -> Result<Self, TableError> {
        let failed = |error| TableError::write(folder, error);
        std::fs::create_dir_all(folder).map_err(failed)?;
        if std::fs::read_dir(folder).map_err(failed)?.next().is_some() {
            return Err(TableError::NotEmpty {
                path: folder.to_owned(),
            });
        }
        let create = |path: PathBuf| match File::create_new(&path) {
            Ok(file) => Ok((path, file)),
            Err(error) => Err(TableError::write(&path, error)),
        };
        let bucket = |number| {
            let of_bucket = folder.join(self::folder(number));
            std::fs::create_dir(&of_bucket).map_err(|e| TableError::write(&of_bucket, e))?;
            create(of_bucket.join(FIRST_FILE))
        };
        let buckets = (0..cut.buckets()).map(bucket).collect::<Result<_, _>>()?;
        let beside = BESIDE
            .iter()
            .map(|&name| Ok((name, create(folder.join(name))?)));
        Ok(Self {
            folder: folder.to_owned(),
            cut,
            buckets,
            beside: beside.collect::<Result<_, TableError>>()?,
            may_make_files: false,
        })
    }

    /// Whether a bucket may get further files while the trace is read: without, memory grows with the trace.
    #[must_use]
    pub fn may_make_files(self, may: bool) -> Self {
        Self {
            may_make_files: may,
            ..self
        }
    }

    fn table(
        &mut self,
        name: &'static str,
        columns: &[Column],
        order: Order,
    ) -> Result<Writer, TableError> {
        let (path, file) = self.take(name)?;
        Writer::new(file, &path, columns, &notes(self.cut, order))
    }

    fn take(&mut self, name: &'static str) -> Result<(PathBuf, File), TableError> {
        self.beside
            .remove(name)
            .ok_or_else(|| TableError::NotEmpty {
                path: self.folder.join(name),
            })
    }

    fn write_text(&mut self, name: &'static str, text: &[u8]) -> Result<u64, TableError> {
        let (path, mut file) = self.take(name)?;
        file.write_all(text)
            .map_err(|e| TableError::write(&path, e))?;
        Ok(text.len() as u64)
    }
}

fn notes(cut: Cut, order: Order) -> [(&'static str, String); 3] {
    [
        ("sunder.granule", cut.granule().to_string()),
        ("sunder.buckets", cut.buckets().to_string()),
        ("sunder.order", order.name().to_owned()),
    ]
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Accesses of the trace.
    pub accesses: u64,
    /// Rows of the table of accesses: more where accesses cross the ends of lines, or of pieces of large ones.
    pub rows: u64,
    /// Bytes of the table of accesses.
    pub bytes: u64,
    /// Bytes of the files beside it.
    pub beside: u64,
    /// Why the trace is not whole; none if it is.
    pub partial: Option<String>,
}

/// Writes all of `trace` to `target` in `order`. `progress` is told how many events more were read.
///
/// # Errors
/// If a file can't be written, or the trace can't be read to its end.
pub fn export(
    trace: &Trace,
    mut target: Target,
    order: Order,
    progress: &dyn Fn(usize),
) -> Result<Exported, TableError> {
    let cut = target.cut;
    let about = About::of(trace, cut, order);
    let blocks = BlockWriter::new(target.table("blocks.parquet", &schema::BLOCKS, order)?);
    let sync = target.table("synchronisation.parquet", &schema::SYNCHRONISATION, order)?;
    let sync = SyncWriter::new(sync);
    let buckets = std::mem::take(&mut target.buckets).into_iter();
    let may = target.may_make_files;
    let most = may.then(|| MOST_OPEN_GROUPS / cut.buckets() as usize);
    let notes = notes(cut, order);
    let writers = buckets.map(|(path, file)| BucketWriter::new(file, path, &notes, most));
    let writers = writers.collect::<Result<Vec<_>, _>>()?;
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let count = cpus.min(MOST_PACKERS).min(writers.len());
    let mut of_packer: Vec<Vec<(usize, BucketWriter<'_>)>> = Vec::new();
    of_packer.resize_with(count, Vec::new);
    for (number, writer) in writers.into_iter().enumerate() {
        of_packer[number % count].push((number, writer));
    }
    let (mut reading, bytes) = thread::scope(|scope| {
        let mut to = Vec::new();
        let mut packers = Vec::new();
        for own in of_packer {
            let (full, coming) = sync_channel(WAITING);
            to.push(full);
            packers.push(scope.spawn(move || pack(own, &coming)));
        }
        let mut reading = Reading::new(trace, about, blocks, sync, to);
        let read = reading.read(trace, progress);
        reading.packers.clear();
        let mut bytes = 0;
        // What stopped a packer is why nobody took the rows.
        for packer in packers {
            bytes += packer.join().unwrap_or(Err(TableError::Stopped(
                "a packing thread ended early".into(),
            )))?;
        }
        read?;
        Ok::<_, TableError>((reading, bytes))
    })?;
    let mut beside = reading.blocks.close()? + reading.sync.close()?;
    let about = &mut reading.about;
    beside += target.write_text(
        "schema.md",
        describe(cut.granule(), cut.buckets(), order.name()).as_bytes(),
    )?;
    beside += write_sites(target.table("sites.parquet", &schema::SITES, order)?, trace)?;
    let threads = target.table("threads.parquet", &schema::THREADS, order)?;
    beside += write_threads(threads, about, &reading.threads)?;
    let modules = target.table("modules.parquet", &schema::MODULES, order)?;
    beside += write_modules(modules, &about.modules)?;
    // Last, so that a folder with it is whole.
    let text = serde_json::to_vec(about).map_err(|error| TableError::About {
        path: target.folder.join("trace.json"),
        what: error.to_string(),
    })?;
    beside += target.write_text("trace.json", &text)?;
    Ok(Exported {
        accesses: about.accesses,
        rows: about.rows.iter().sum(),
        bytes,
        beside,
        partial: about.partial.clone(),
    })
}

/// Packs and writes the row groups of some buckets as they come. How many bytes were written.
fn pack(
    mut own: Vec<(usize, BucketWriter<'_>)>,
    coming: &Receiver<(usize, Columns)>,
) -> Result<u64, TableError> {
    for (bucket, columns) in coming.iter() {
        if let Some((_, writer)) = own.iter_mut().find(|(number, _)| *number == bucket) {
            writer.rows(&columns)?;
        }
    }
    let closed = own.into_iter().map(|(_, writer)| writer.close());
    closed.sum()
}

/// A trace that is read and cut.
struct Reading {
    about: About,
    cut: Cut,
    heap: Heap,
    blocks: BlockWriter,
    sync: SyncWriter,
    threads: BTreeMap<u32, ThreadRow>,
    buckets: Vec<Columns>,
    /// Rows of a row group.
    group: usize,
    packers: Vec<SyncSender<(usize, Columns)>>,
    span: Option<(Time, Time)>,
    ord: i64,
}

impl Reading {
    fn new(
        trace: &Trace,
        about: About,
        blocks: BlockWriter,
        sync: SyncWriter,
        packers: Vec<SyncSender<(usize, Columns)>>,
    ) -> Self {
        let thread = |thread: &sunder_trace::read::Thread| {
            let row = ThreadRow {
                tid: thread.tid,
                started: -1,
                ended: -1,
                accesses: 0,
            };
            (thread.index, row)
        };
        let count = about.rows.len();
        let group = ROOM / (count * size_of::<Row>());
        Self {
            cut: about.cut().unwrap_or_else(|| unreachable!()),
            about,
            heap: Heap::default(),
            blocks,
            sync,
            threads: trace.threads().iter().map(thread).collect(),
            buckets: std::iter::repeat_with(Columns::default)
                .take(count)
                .collect(),
            group: group.clamp(FEWEST_ROWS, MOST_ROWS),
            packers,
            span: None,
            ord: 0,
        }
    }

    fn read(&mut self, trace: &Trace, progress: &dyn Fn(usize)) -> Result<(), TableError> {
        let kinds = Kinds::HEAP.with(Kinds::THREADS).with(Kinds::SYNC);
        let mut pieces = match self.about.order {
            Order::Parallel => trace.pieces_in_parallel(kinds),
            Order::Canonical => trace.pieces_in_canonical_order(kinds),
            Order::Recorded => trace.pieces(kinds),
        };
        while let Some(piece) = pieces.next() {
            match piece {
                Piece::Accesses(turns) => {
                    self.accesses(&turns)?;
                    progress(turns.lanes() * turns.rounds());
                }
                Piece::Event(event) => {
                    self.event(&event)?;
                    progress(1);
                }
            }
        }
        if let Some(why) = trace.stopped() {
            return Err(TableError::Stopped(why.to_owned()));
        }
        for bucket in 0..self.buckets.len() {
            self.send(bucket)?;
        }
        let (first, last) = self.span.unwrap_or_default();
        self.about.span = (first.0, last.0);
        self.about.partial = sunder_trace::why_partial(trace, pieces.damaged_blocks());
        self.blocks
            .done
            .extend(std::mem::take(&mut self.heap).rest());
        Ok(())
    }

    fn accesses(&mut self, turns: &Turns<'_>) -> Result<(), TableError> {
        let lanes: Vec<_> = (0..turns.lanes()).map(|place| turns.lane(place)).collect();
        for lane in &lanes {
            if let Some(thread) = self.threads.get_mut(&lane.thread) {
                thread.accesses += turns.rounds() as u64;
            }
        }
        self.about.accesses += (lanes.len() * turns.rounds()) as u64;
        self.saw(turns.time(0, 0));
        self.saw(turns.time(lanes.len() - 1, turns.rounds() - 1));
        for round in 0..turns.rounds() {
            for (place, lane) in lanes.iter().enumerate() {
                let key = Key(lane.keys[round]);
                let kind = match access_kind(key.tag()) {
                    Some((kind, atomic)) => RowKind::of(kind, atomic),
                    None => RowKind::Read,
                };
                let row = Row {
                    time: turns.time(place, round).0 as i64,
                    thread: lane.thread as i32,
                    address: lane.addresses[round] as i64,
                    size: Touch::width_of(key.0).into(),
                    kind: kind as i32,
                    instruction: key.payload() as i64,
                    ..Row::default()
                };
                self.access(row, lane.ticks[round])?;
            }
        }
        Ok(())
    }

    /// Adds the parts of an access to their buckets.
    fn access(&mut self, mut row: Row, ticks: u64) -> Result<(), TableError> {
        let mut left = row.size as u32;
        if (row.address as u64).checked_add(u64::from(left)).is_none() {
            return Err(TableError::Stopped(format!(
                "an access of {left} bytes at {:#x} is no span of memory",
                row.address
            )));
        }
        let mut rest = 0;
        loop {
            let address = row.address as u64;
            let here = self.cut.in_row(address, left);
            let bucket = self.cut.bucket(address) as usize;
            (row.block, row.site) = self.heap.at(address, ticks);
            (row.ord, row.size, row.rest) = (self.ord, here as i32, rest);
            self.ord += 1;
            if rest == 0 {
                rest = if row.block == 0 { 1 } else { 2 };
            }
            let columns = &mut self.buckets[bucket];
            columns.push(&row);
            if columns.ord.len() >= self.group {
                self.send(bucket)?;
            }
            left -= here;
            if left == 0 {
                return Ok(());
            }
            row.address = address.wrapping_add(here.into()) as i64;
        }
    }

    /// Hands the rows of a bucket over to its packer.
    fn send(&mut self, bucket: usize) -> Result<(), TableError> {
        let columns = std::mem::take(&mut self.buckets[bucket]);
        if columns.ord.is_empty() {
            return Ok(());
        }
        self.about.rows[bucket] += columns.ord.len() as u64;
        let packer = &self.packers[bucket % self.packers.len()];
        // It takes no more only if it failed, and then its own error is returned.
        packer
            .send((bucket, columns))
            .map_err(|_| TableError::Stopped("a packing thread ended early".into()))
    }

    fn saw(&mut self, time: Time) {
        self.span = Some((self.span.map_or(time, |span| span.0), time));
    }

    fn event(&mut self, event: &Event) -> Result<(), TableError> {
        let at = (self.ord, event.time.0);
        self.ord += 1;
        if let What::Sync { kind, object } = event.what {
            return self.sync.add(at, event.thread, kind, object.0);
        }
        self.saw(event.time);
        let stack = StackEvent::of(event).map(|event| StackStep { ord: at.0, event });
        self.about.stacks.extend(stack);
        match event.what {
            What::Allocate {
                address,
                size,
                stack,
                align,
            } => {
                let row = BlockRow {
                    block: 0,
                    address: address.0,
                    size,
                    align,
                    thread: event.thread,
                    site: stack,
                    allocated: at,
                    freed: None,
                    replaced: None,
                };
                self.heap.allocated(row, event.ticks, &mut self.blocks.done);
                self.blocks.flush(false)?;
            }
            What::Free { address } => self.heap.freed(address, event.ticks, at),
            What::ThreadStart { .. } => {
                if let Some(thread) = self.threads.get_mut(&event.thread) {
                    thread.started = at.0;
                }
            }
            What::ThreadEnd => {
                if let Some(thread) = self.threads.get_mut(&event.thread) {
                    thread.ended = at.0;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
