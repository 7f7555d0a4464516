//! The code that processes execute: the real [`CodeSource`].
//!
//! Follows mappings by the observers' events (or reads `/proc`) and reads code from the mapped
//! files, and where there is no file, from the process itself. Files are read, never mapped: one
//! that shrinks meanwhile gives an error instead of SIGBUS. It must not trust a file that is not
//! the mapped one.

mod entrances;
mod entries;
mod image;
mod made;
mod module;
mod open;
mod segments;
mod settled;
mod tail_calls;
mod vdso;

use crate::clock::monotonic_now;
use crate::decode::{CodeRange, CodeSource};
use crate::foreign::ForeignFiles;
use crate::{Event, ObserveError, proc};
pub use entrances::Entrances;
use image::Image;
pub use module::{CodeSegment, ModuleCode};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;
use sunder_access::{Address, CodeAddress, Mapping, Mappings, ProcessId, Span, Time};

/// How many address spaces of ended processes are kept for samples that arrive late.
const KEPT_AFTER_END: usize = 64;

/// How many loops of code made at run time are kept for an address space.
const MAX_LOOPS: usize = 1024;

/// The code of all observed processes.
#[derive(Debug)]
pub struct ProcessCode {
    spaces: HashMap<ProcessId, AddressSpace>,
    /// By path and inode number; `None` for files without code for x86-64.
    images: HashMap<(String, u64), Option<Arc<Image>>>,
    ended: VecDeque<ProcessId>,
    /// The processes are those of a recording: others may have their numbers today.
    recorded: bool,
    /// The files of the first process whose code was read.
    first: Option<Arc<ForeignFiles>>,
    created: SystemTime,
    /// The time of the sample that is being decoded.
    taken: Option<Time>,
}

/// One address space.
#[derive(Clone, Debug, Default)]
struct AddressSpace {
    mappings: Mappings,
    /// Ranges of code that were needed, by start.
    ranges: BTreeMap<u64, Arc<CodeRange>>,
    /// Loops of code made at run time, by start. Their bytes are read for every sample, because
    /// they may change; an unchanged loop is kept, so that it is decoded once.
    made: HashMap<u64, Arc<CodeRange>>,
    /// The readings of the pages of such code.
    pages: settled::Pages,
    /// The files of the process, when they are first needed.
    files: Option<Arc<ForeignFiles>>,
    /// How many samples were in no known mapping.
    misses: u64,
}

impl Default for ProcessCode {
    fn default() -> Self {
        Self {
            spaces: HashMap::new(),
            images: HashMap::new(),
            ended: VecDeque::new(),
            first: None,
            recorded: false,
            created: SystemTime::now(),
            taken: None,
        }
    }
}

impl ProcessCode {
    /// A source that knows no process yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A process that has gone before its code was read is taken to have had `files`: those of the
    /// process that is observed first, as it is before it executes anything.
    pub fn begin_with(&mut self, files: Arc<ForeignFiles>) {
        self.first = Some(files);
    }

    /// The code of processes in a recording, in files of ours by the recorded paths. Nothing is read
    /// of the processes that have their numbers today.
    pub fn of_recording() -> Self {
        Self {
            first: Some(Arc::new(ForeignFiles::ours())),
            recorded: true,
            ..Self::default()
        }
    }

    /// Sets the time of the sample whose code is read next: code that the program has made or
    /// changed since then does not count. Without a time, code counts as it is now.
    pub fn executed_at(&mut self, taken: Time) {
        self.taken = Some(taken);
    }

    /// Reads the mappings of a running process from `/proc`.
    ///
    /// # Errors
    /// If the process has ended or we may not read its mappings.
    pub fn attach(&mut self, process: ProcessId) -> Result<(), ObserveError> {
        let space = AddressSpace {
            mappings: proc::mappings(process)?,
            ..AddressSpace::default()
        };
        self.spaces.insert(process, space);
        Ok(())
    }

    /// Adds code that was put into a process and stays as it is there, where other code may have been.
    /// Its `entries` must be complete: nothing is known of it but what `range` tells.
    pub fn add(&mut self, process: ProcessId, range: CodeRange) {
        let span = Span::new(Address(range.start.0), range.bytes.len() as u64);
        let space = self.spaces.entry(process).or_default();
        space.forget(span);
        space.ranges.insert(range.start.0, Arc::new(range));
    }

    /// Applies an event to the address spaces. Call it with every event, in order, before the
    /// samples after it are decoded.
    pub fn observe(&mut self, event: &Event) {
        match event {
            Event::Map {
                process, mapping, ..
            } => self.spaces.entry(*process).or_default().map(mapping),
            Event::ThreadStart {
                process,
                parent,
                thread,
                ..
            } if process != parent && thread.0 == process.0 => {
                if let Some(space) = self.spaces.get(parent).cloned() {
                    self.spaces.insert(*process, space);
                }
            }
            Event::ThreadName {
                process,
                exec: true,
                ..
            } => drop(self.spaces.insert(*process, AddressSpace::default())),
            Event::ThreadEnd {
                process, thread, ..
            } if process.0 == thread.0 => self.end(*process),
            _ => {}
        }
    }

    fn end(&mut self, process: ProcessId) {
        if let Some(files) = self.spaces.get(&process).and_then(|s| s.files.as_ref()) {
            files.release_if_ended();
        }
        self.ended.push_back(process);
        if self.ended.len() > KEPT_AFTER_END
            && let Some(oldest) = self.ended.pop_front()
        {
            self.spaces.remove(&oldest);
        }
    }

    /// The known mappings of a process. If all of them come from perf, they are executable ones
    /// only.
    pub fn mappings(&self, process: ProcessId) -> Option<&Mappings> {
        self.spaces.get(&process).map(|space| &space.mappings)
    }

    fn load(&mut self, process: ProcessId, at: CodeAddress) -> Option<Arc<CodeRange>> {
        let mapping = self.executable_at(process, at)?;
        if let Some(image) = self.image(process, &mapping)
            && let Some(range) = from_image(&image, &mapping, at)
        {
            let range = Arc::new(range);
            let space = self.spaces.get_mut(&process)?;
            space.ranges.insert(range.start.0, Arc::clone(&range));
            return Some(range);
        }
        if self.recorded {
            return None;
        }
        let around = around(&mapping, at)?;
        let space = self.spaces.get_mut(&process)?;
        if let Some(taken) = self.taken
            && !space
                .pages
                .are_settled(process, around, taken, monotonic_now())
        {
            return None;
        }
        let range = remote(process, around, at)?;
        Some(space.made(range))
    }

    /// The executable mapping at `at`. If none is known, its record may have been lost, so `/proc`
    /// is read; ever more rarely, because the process may have ended or be unreadable.
    fn executable_at(&mut self, process: ProcessId, at: CodeAddress) -> Option<Mapping> {
        let space = self.spaces.entry(process).or_default();
        let executable = |space: &AddressSpace| {
            let mapping = space.mappings.at(Address(at.0))?;
            mapping.execute.then(|| mapping.clone())
        };
        if let Some(mapping) = executable(space) {
            return Some(mapping);
        }
        space.misses += 1;
        if self.recorded || !space.misses.is_power_of_two() {
            return None;
        }
        let known = proc::mappings(process).ok()?;
        let new = known.iter().filter(|mapping| mapping.execute);
        new.for_each(|mapping| {
            if space.mappings.at(mapping.span.start) != Some(mapping) {
                space.map(mapping);
            }
        });
        executable(space)
    }

    /// The files of a process. One that has gone without being looked at counts as the first that
    /// was.
    fn files(&mut self, process: ProcessId) -> Arc<ForeignFiles> {
        let space = self.spaces.entry(process).or_default();
        if let Some(ours) = self.first.as_ref().filter(|_| self.recorded) {
            return Arc::clone(ours);
        }
        let first = self.first.as_deref();
        let new = || Arc::new(ForeignFiles::of(process).or_those_of(first));
        let files = Arc::clone(space.files.get_or_insert_with(new));
        self.first.get_or_insert_with(|| Arc::clone(&files));
        files
    }

    fn image(&mut self, process: ProcessId, mapping: &Mapping) -> Option<Arc<Image>> {
        // A file with a writable or shared mapping may change while the program runs.
        let may_change = mapping.write || mapping.shared;
        if !(mapping.path == "[vdso]" || mapping.is_file() && !may_change) {
            return None;
        }
        let key = (mapping.path.clone(), mapping.inode);
        if let Some(known) = self.images.get(&key) {
            return known.clone();
        }
        let image = if mapping.path == "[vdso]" {
            vdso::image()
        } else {
            let files = self.files(process);
            let living = (!self.recorded).then_some(process);
            open::find(&files, living, mapping, self.created).and_then(Image::from_file)
        };
        let image = image.map(Arc::new);
        self.images.insert(key, image.clone());
        image
    }
}

impl AddressSpace {
    fn map(&mut self, mapping: &Mapping) {
        self.forget(mapping.span);
        self.mappings.insert(mapping.clone());
    }

    /// Drops what was needed of the code in `span`.
    fn forget(&mut self, span: Span) {
        self.ranges.retain(|&start, range| {
            let end = start.saturating_add(range.bytes.len() as u64);
            end <= span.start.0 || start >= span.end().0
        });
    }

    /// The range as it was decoded before, if its bytes are the same.
    fn made(&mut self, range: CodeRange) -> Arc<CodeRange> {
        let same = |old: &&Arc<CodeRange>| old.bytes == range.bytes && old.entries == range.entries;
        if !range.exact_start {
            return Arc::new(range);
        }
        if let Some(old) = self.made.get(&range.start.0).filter(same) {
            return Arc::clone(old);
        }
        if self.made.len() >= MAX_LOOPS {
            self.made.clear();
        }
        let range = Arc::new(range);
        self.made.insert(range.start.0, Arc::clone(&range));
        range
    }

    fn known(&self, at: CodeAddress) -> Option<&Arc<CodeRange>> {
        let (_, range) = self.ranges.range(..=at.0).next_back()?;
        range.offset_of(at).map(|_| range)
    }
}

impl CodeSource for ProcessCode {
    fn function(&mut self, process: ProcessId, at: CodeAddress) -> Option<Arc<CodeRange>> {
        if let Some(known) = self.spaces.get(&process).and_then(|space| space.known(at)) {
            return Some(Arc::clone(known));
        }
        self.load(process, at)
    }
}

/// The function at `at`, with the addresses that it has in the process.
fn from_image(image: &Image, mapping: &Mapping, at: CodeAddress) -> Option<CodeRange> {
    let file_offset = mapping.file_offset_of(Address(at.0));
    let mut range = image.function_at(file_offset)?;
    let mapping_end = mapping.span.end().0;
    // From the offset in the file to the address in the process.
    let start = (range.file_offset)
        .checked_sub(mapping.file_offset)?
        .checked_add(mapping.span.start.0)?;
    let room = mapping_end.checked_sub(start)?;
    range.bytes.truncate(usize::try_from(room).ok()?);
    let mut code = CodeRange::new(CodeAddress(start), range.bytes, range.exact_start);
    code.tables_known = range.tables_known;
    code.entries = range
        .entries
        .iter()
        .map(|entry| CodeAddress(start + u64::from(*entry)))
        .collect();
    Some(code)
}

/// Code as the process has it right now.
fn remote(process: ProcessId, around: Span, at: CodeAddress) -> Option<CodeRange> {
    let bytes = crate::remote::read(process, around.start, around.len as usize)?;
    made::range(&bytes, CodeAddress(around.start.0), at)
}

/// The part of a mapping that is read to decode an instruction at `at`.
fn around(mapping: &Mapping, at: CodeAddress) -> Option<Span> {
    let start = at.0.saturating_sub(made::AROUND).max(mapping.span.start.0);
    let end = at.0.saturating_add(made::AROUND).min(mapping.span.end().0);
    Some(Span::new(Address(start), end.checked_sub(start)?))
}
