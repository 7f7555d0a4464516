//! Replays buckets of an exported trace, one after another: first all rows through the simulator, and
//! then the rows of lines that moved to the judge, together with the heap blocks that lie there. The
//! passes are those of [`crate::simulate`], from tables instead of a trace.

use super::pages::PageCounting;
use super::part::{Asked, Block, Judged, Part};
use crate::memory::Bound;
use crate::options::{Order, Simulate};
use crate::progress::Advance;
use crate::simulate::attribute::exact_config;
use crate::simulate::machine::{LARGEST_LINE, Machine};
use crate::simulate::moved::{MovedGranules, MovedSet, moved_granules};
use crate::simulate::show::{self, Tally};
use anyhow::{Context, Result, bail, ensure};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Instant;
use sunder_access::{
    Access, Address, CodeAddress, Granule, ProcessId, Provenance, Span, ThreadId, Time,
};
use sunder_coherence::Simulator;
use sunder_pipeline::{Follow, Moved, Process, RecordedHeap, Session};
use sunder_sharing::Saved;
use sunder_tables::{
    About, Allocation, Cut, Disorder, PIECE, Row, Rows, Sites, bucket_of_folder, read_blocks,
    read_sites,
};

// A row lies in one page, whatever pages are replayed.
const _: () = assert!(LARGEST_LINE < PIECE);

/// The memory is looked at each time that so many rows were read.
const LOOK: u64 = 1 << 20;

/// Replays the buckets in `folders`, which are of one exported trace, in the order in which it was
/// exported; if `order` is given, it must be that one.
///
/// # Errors
/// If one can't be read, or `options` ask for what can't be cut by line.
pub fn replay(
    options: &Simulate,
    folders: &[PathBuf],
    order: Option<Order>,
    disorder: Disorder,
) -> Result<Part> {
    let asked = Asked::of(options)?;
    let first = folders.first().context("no bucket was given")?;
    let (exported, trace) = exported(first)?;
    let cut = trace.cut().context("the trace was not cut")?;
    let exported_order = match trace.order {
        sunder_tables::Order::Parallel => Order::Parallel,
        sunder_tables::Order::Canonical => Order::Canonical,
        sunder_tables::Order::Recorded => Order::Recorded,
    };
    ensure!(
        order.is_none_or(|order| order == exported_order),
        "{} was exported in the {} order; export the trace again with --order for another one",
        exported.display(),
        trace.order.name()
    );
    let machine = asked.machine(&trace, options)?;
    let mut part = Part::new(asked, trace);
    for (number, folder) in (1..).zip(folders) {
        let (other, trace) = self::exported(folder)?;
        ensure!(
            trace == part.trace,
            "{} and {} are different exports; replay each alone",
            exported.display(),
            other.display()
        );
        let bucket = bucket_of_folder(folder).unwrap_or(u32::MAX);
        let rows = trace.rows.get(bucket as usize).copied();
        let rows =
            rows.with_context(|| format!("{} has no bucket {bucket}", exported.display()))?;
        if part.buckets.contains(&bucket) {
            bail!("bucket {bucket:02} was given twice");
        }
        let bound = Bound::new(folder, options.memory);
        let pass = Pass {
            folder,
            exported: &other,
            trace: &trace,
            cut,
            bucket,
            rows,
            disorder,
            machine: &machine,
            bound,
            progress: options.progress.reading(number, rows * 2),
        };
        let (tally, seconds, judged) = pass.replay()?;
        part.add(tally, seconds, judged);
        part.buckets.push(bucket);
    }
    part.buckets.sort_unstable();
    if options.reproducible {
        part.seconds = 0.0;
    }
    Ok(part)
}

/// The folder of the export to which a bucket's folder belongs, and its description.
fn exported(folder: &Path) -> Result<(PathBuf, About)> {
    // A name without a folder before it lies in this one.
    let whole = std::path::absolute(folder)?;
    let parent = whole
        .parent()
        .filter(|_| bucket_of_folder(&whole).is_some());
    let about = parent.map(|parent| parent.join("trace.json"));
    let Some(about) = about.filter(|about| about.is_file()) else {
        return Err(sunder_tables::TableError::NoBucket {
            path: folder.to_owned(),
        }
        .into());
    };
    let trace = About::read(&about)?;
    Ok((about.parent().unwrap_or(folder).to_owned(), trace))
}

/// The two passes over one bucket.
struct Pass<'a> {
    folder: &'a Path,
    exported: &'a Path,
    trace: &'a About,
    cut: Cut,
    bucket: u32,
    /// How many rows were exported.
    rows: u64,
    disorder: Disorder,
    machine: &'a Machine,
    bound: Bound,
    progress: Box<dyn Advance>,
}

impl Pass<'_> {
    fn replay(&self) -> Result<(Tally, f64, Judged)> {
        let begin = Instant::now();
        let mut simulator = Simulator::with_observer(self.machine.config, ())?;
        let mut accesses = 0;
        self.each_row(|row| {
            let Some(kind) = row.row_kind() else {
                return Ok(());
            };
            let node = self.machine.node(row.thread as u32);
            let kind = kind.kind();
            accesses += u64::from(row.rest == 0);
            simulator.access(node, Address(row.address as u64), row.size as u32, kind, ())?;
            Ok(())
        })?;
        let outcome = simulator.finish();
        let tally = Tally {
            accesses,
            ..Tally::of(&outcome)
        };
        let seconds = begin.elapsed().as_secs_f64();
        let moved = moved_granules(&outcome);
        drop(outcome);
        let judged = match self.machine.config.granule > LARGEST_LINE {
            true => self.pages(&moved)?,
            false => self.judge(&moved)?,
        };
        Ok((tally, seconds, judged))
    }

    /// Calls `each` with the accesses in their order, each cut where a granule of the machine ends; with
    /// `--heap-only` with those alone that began in a heap block.
    fn each_row(&self, mut each: impl FnMut(&Row) -> Result<()>) -> Result<()> {
        let heap_only = self.machine.heap_only;
        let mut take = |row: Row| match heap_only && !row.is_of_heap() {
            true => Ok(()),
            false => each(&row),
        };
        let mut rows = Rows::open(self.folder, self.cut, self.bucket, self.disorder)?;
        let mut before: Option<Row> = None;
        while let Some(row) = rows.next_row()? {
            match &mut before {
                Some(before) if self.is_one(before, &row) => before.size += row.size,
                _ => {
                    if let Some(before) = before.replace(row) {
                        take(before)?;
                    }
                }
            }
            if rows.count().is_multiple_of(LOOK) {
                self.progress.add(LOOK);
                if let Some(why) = self.bound.exceeded() {
                    bail!("{why}");
                }
            }
        }
        if let Some(before) = before {
            take(before)?;
        }
        ensure!(
            rows.count() == self.rows,
            "{} has {} rows, and {} were exported; a replay of some of them would count wrong",
            self.folder.display(),
            rows.count(),
            self.rows
        );
        Ok(())
    }

    /// Whether `row` is the rest of the access of `before`, and on the same granule: where lines of the
    /// cut are larger than [`PIECE`], rows also end in the midst of them.
    const fn is_one(&self, before: &Row, row: &Row) -> bool {
        let address = row.address as u64;
        row.rest != 0
            && row.ord == before.ord + 1
            && address == (before.address as u64).wrapping_add(before.size as u64)
            && !address.is_multiple_of(self.machine.config.granule)
    }

    /// Counts the misses on the pages that moved.
    fn pages(&self, moved: &MovedGranules) -> Result<Judged> {
        let mut judged = Judged::default();
        if !moved.is_empty() {
            let mut counting = PageCounting::new(self.trace, self.machine, moved)?;
            self.each_row(|row| counting.take(row))?;
            (judged.accesses, judged.pages) = counting.finish();
        }
        // Which blocks are one object is known by name only, so the merge needs all of them. One part
        // tells of them; the merge has all parts.
        if self.bucket == 0 {
            let blocks = self.exported.join("blocks.parquet");
            read_blocks(&blocks, |row| {
                judged.pages.add_block(row, self.trace);
                false
            })?;
        }
        let wanted: BTreeSet<u32> = judged.pages.stacks().collect();
        judged.sites = self.sites(&wanted)?;
        Ok(judged)
    }

    /// The call stacks with these numbers.
    fn sites(&self, wanted: &BTreeSet<u32>) -> Result<Sites> {
        if wanted.is_empty() {
            return Ok(Sites::new());
        }
        let file = self.exported.join("sites.parquet");
        Ok(read_sites(&file, |site| wanted.contains(&site))?)
    }

    /// Judges the lines that moved.
    fn judge(&self, moved: &MovedGranules) -> Result<Judged> {
        if moved.is_empty() {
            return Ok(Judged::default());
        }
        let granule = Granule::new(self.machine.config.granule)?;
        let watched = MovedSet::new(moved, granule);
        let process = ProcessId(self.trace.process);
        let config = exact_config(granule, Time(self.trace.monotonic))?;
        let mut session = Session::recorded(config, Follow::Only(process));
        let mut heap = BucketHeap::read(self, &watched)?;
        let process = session.process(process);
        process.set_blocks(Rc::clone(&heap.blocks));
        self.each_row(|row| {
            let address = Address(row.address as u64);
            let Some(kind) = row.row_kind() else {
                return Ok(());
            };
            watched.parts(Span::new(address, row.size as u64), |part| {
                heap.advance(row.ord, process);
                process.access(&Access {
                    time: Time(row.time as u64),
                    thread: self.trace.thread(row.thread as u32),
                    instruction: CodeAddress(row.instruction as u64),
                    address: part.start,
                    width: part.len as u8,
                    kind: kind.kind(),
                    provenance: Provenance::Traced,
                    weight: 1.0,
                });
            });
            Ok(())
        })?;
        heap.advance(i64::MAX, process);
        self.judged(process, &heap, moved)
    }

    /// What is told of the judged lines.
    fn judged(
        &self,
        process: &mut Process,
        heap: &BucketHeap,
        moved: &MovedGranules,
    ) -> Result<Judged> {
        process.judge.catch_up();
        let mut found = Saved::of(&process.judge);
        let mut freed: Vec<Block> = Vec::new();
        let mut places: HashMap<u64, u64> = HashMap::new();
        for verdict in &mut found.verdicts {
            // 0 stands for an owner that is not known.
            let Some(owner) = verdict.owner.filter(|&owner| owner > 0) else {
                continue;
            };
            let place = *places.entry(owner).or_insert_with(|| {
                let row = heap.owners.get(owner as usize - 1);
                freed.extend(row.map(|&row| self.block(&heap.rows[row])));
                freed.len() as u64
            });
            verdict.owner = Some(place);
        }
        let bases: BTreeSet<u64> = found.verdicts.iter().map(|v| v.line).collect();
        let lines: BTreeMap<_, _> = bases
            .iter()
            .filter_map(|&line| Some((line, show::counts(moved.get(&Address(line))?))))
            .collect();
        let bytes = self.machine.config.granule;
        let on_lines = |row: &&Allocation| {
            let last = row.address.saturating_add(row.size.max(1) - 1);
            let first = row.address & !(bytes - 1);
            row.replaced.is_none() && bases.range(first..=last).next().is_some()
        };
        let blocks = heap.rows.iter().filter(on_lines);
        let blocks: Vec<Block> = blocks.map(|row| self.block(row)).collect();
        let wanted: BTreeSet<u32> = blocks.iter().chain(&freed).map(|b| b.site).collect();
        let sites = self.sites(&wanted)?;
        Ok(Judged {
            accesses: process.figures.accesses,
            found,
            lines,
            blocks,
            freed,
            sites,
            ..Judged::default()
        })
    }

    fn block(&self, row: &Allocation) -> Block {
        Block::of(row, self.trace.thread(row.thread).0)
    }
}

/// A change of the heap: at its place in the order, to the block with this number in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    /// Another block took some of its bytes; of several changes at one place this is the first.
    Replaced,
    Allocated,
    Freed,
}

/// The blocks that lie on lines that moved, at one moment of the replay.
struct BucketHeap {
    rows: Vec<Allocation>,
    threads: Vec<ThreadId>,
    changes: Vec<(i64, Change, usize)>,
    next: usize,
    blocks: Rc<RefCell<RecordedHeap>>,
    /// The blocks that were freed, in this order: the process numbers them so, from 1.
    owners: Vec<usize>,
}

impl BucketHeap {
    fn read(pass: &Pass<'_>, watched: &MovedSet<'_>) -> Result<Self> {
        let rows = read_blocks(&pass.exported.join("blocks.parquet"), |row| {
            row.address.checked_add(row.size.max(1)).is_some()
                && watched.touched_by(Span::new(Address(row.address), row.size.max(1)))
        })?;
        let mut changes = Vec::new();
        for (number, row) in rows.iter().enumerate() {
            changes.push((row.allocated.0, Change::Allocated, number));
            changes.extend(row.freed.map(|at| (at.0, Change::Freed, number)));
            changes.extend(row.replaced.map(|at| (at, Change::Replaced, number)));
        }
        changes.sort_unstable();
        Ok(Self {
            threads: rows
                .iter()
                .map(|row| pass.trace.thread(row.thread))
                .collect(),
            rows,
            changes,
            next: 0,
            blocks: Rc::new(RefCell::new(RecordedHeap::new(HashMap::new()))),
            owners: Vec::new(),
        })
    }

    /// Makes the changes that come before `ord`.
    fn advance(&mut self, ord: i64, process: &mut Process) {
        while let Some(&(at, change, number)) = self.changes.get(self.next)
            && at < ord
        {
            self.next += 1;
            let row = &self.rows[number];
            let start = Address(row.address);
            let mut blocks = self.blocks.borrow_mut();
            match change {
                Change::Replaced => blocks.replaced(start),
                Change::Allocated => {
                    let from = Span::new(start, row.size);
                    let still = Moved {
                        from,
                        to: from,
                        shape: None,
                    };
                    let time = Time(row.allocated.1);
                    blocks.allocated(still, row.site, self.threads[number], Some(time));
                }
                Change::Freed => {
                    let time = Time(row.freed.map_or(0, |at| at.1));
                    // Each row lies on a watched line, so each free is told.
                    let told = blocks.freed(start, time, |_| true);
                    self.owners.extend(told.map(|_| number));
                }
            }
            drop(blocks);
            process.heap_events();
        }
    }
}
