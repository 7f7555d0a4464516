//! The code that processes execute: the real [`CodeSource`].
//!
//! Follows what is mapped where from the observers' events (or from `/proc`)
//! and reads code from the mapped files; where there is none, from the process
//! itself. Files are read, never mapped: one that shrinks meanwhile gives an
//! error instead of SIGBUS. It must not trust a file that is not the one
//! mapped.

mod entrances;
mod entries;
mod image;
mod made;
mod module;
mod open;
mod remote;
mod settled;
mod vdso;

use crate::clock::monotonic_now;
use crate::decode::{CodeRange, CodeSource};
use crate::{Event, ObserveError, proc};
pub use entrances::Entrances;
use image::Image;
pub use module::{CodeSegment, ModuleCode};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;
use sunder_access::{Address, CodeAddress, Mapping, Mappings, ProcessId, Span, Time};

/// Address spaces of ended processes that are kept for late samples.
const KEPT_AFTER_END: usize = 64;

/// Loops of code made at run time that are remembered for an address space.
const MADE: usize = 1024;

/// The code of all observed processes.
#[derive(Debug)]
pub struct ProcessCode {
    spaces: HashMap<ProcessId, Space>,
    /// By path and inode number; `None` for files that are no code for us.
    images: HashMap<(String, u64), Option<Arc<Image>>>,
    ended: VecDeque<ProcessId>,
    created: SystemTime,
    /// When the sample that is being decoded was taken.
    taken: Option<Time>,
}

/// One address space.
#[derive(Clone, Debug, Default)]
struct Space {
    mappings: Mappings,
    /// Pieces of code that were asked for, by start.
    ranges: BTreeMap<u64, Arc<CodeRange>>,
    /// Loops of code made at run time, by start. Read anew for every sample, as
    /// they may change; kept so that one that has not is decoded once.
    made: HashMap<u64, Arc<CodeRange>>,
    /// What is known of the pages of such code.
    pages: settled::Pages,
    /// How often code was executed where nothing was known to be mapped.
    misses: u64,
}

impl Default for ProcessCode {
    fn default() -> Self {
        Self {
            spaces: HashMap::new(),
            images: HashMap::new(),
            ended: VecDeque::new(),
            created: SystemTime::now(),
            taken: None,
        }
    }
}

impl ProcessCode {
    /// Knows no process yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The code that is asked for next was executed at `taken`: what a program
    /// has made or changed since is not it. Without a time, code counts as it
    /// stands.
    pub fn executed_at(&mut self, taken: Time) {
        self.taken = Some(taken);
    }

    /// Takes what is mapped in a running process from `/proc`.
    ///
    /// # Errors
    /// If the process is gone or is not ours to look into.
    pub fn attach(&mut self, process: ProcessId) -> Result<(), ObserveError> {
        let space = Space {
            mappings: proc::mappings(process)?,
            ..Space::default()
        };
        self.spaces.insert(process, space);
        Ok(())
    }

    /// Follows what an event says about address spaces. To be called with every
    /// event, in order, before the samples after it are decoded.
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
            } => drop(self.spaces.insert(*process, Space::default())),
            Event::ThreadEnd {
                process, thread, ..
            } if process.0 == thread.0 => self.end(*process),
            _ => {}
        }
    }

    fn end(&mut self, process: ProcessId) {
        self.ended.push_back(process);
        if self.ended.len() > KEPT_AFTER_END
            && let Some(oldest) = self.ended.pop_front()
        {
            self.spaces.remove(&oldest);
        }
    }

    /// What is mapped in a process, as far as it was told; executable mappings
    /// only, if all that is known comes from perf.
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

    /// The executable mapping at `at`. If none is known, its record may have
    /// been lost, so `/proc` is asked; ever more rarely, because a process may
    /// be gone or not ours to look into.
    fn executable_at(&mut self, process: ProcessId, at: CodeAddress) -> Option<Mapping> {
        let space = self.spaces.entry(process).or_default();
        let executable = |space: &Space| {
            let mapping = space.mappings.at(Address(at.0))?;
            mapping.execute.then(|| mapping.clone())
        };
        if let Some(mapping) = executable(space) {
            return Some(mapping);
        }
        space.misses += 1;
        if !space.misses.is_power_of_two() {
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

    fn image(&mut self, process: ProcessId, mapping: &Mapping) -> Option<Arc<Image>> {
        // A file that is mapped writable or shared may change under us.
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
            open::find(process, mapping, self.created).and_then(Image::from_file)
        };
        let image = image.map(Arc::new);
        self.images.insert(key, image.clone());
        image
    }
}

impl Space {
    fn map(&mut self, mapping: &Mapping) {
        let span = mapping.span;
        self.ranges.retain(|&start, range| {
            let end = start.saturating_add(range.bytes.len() as u64);
            end <= span.start.0 || start >= span.end().0
        });
        self.mappings.insert(mapping.clone());
    }

    /// The range as it was known, if nothing in it has changed.
    fn made(&mut self, range: CodeRange) -> Arc<CodeRange> {
        let same = |old: &&Arc<CodeRange>| old.bytes == range.bytes && old.entries == range.entries;
        if !range.exact_start {
            return Arc::new(range);
        }
        if let Some(old) = self.made.get(&range.start.0).filter(same) {
            return Arc::clone(old);
        }
        if self.made.len() >= MADE {
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

/// The function at `at`, moved to where the process has it.
fn from_image(image: &Image, mapping: &Mapping, at: CodeAddress) -> Option<CodeRange> {
    let file_offset = mapping.file_offset_of(Address(at.0));
    let mut range = image.function_at(file_offset)?;
    let mapping_end = mapping.span.end().0;
    // Offset in the file to address in the process.
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

/// Code as it stands in the process right now.
fn remote(process: ProcessId, around: Span, at: CodeAddress) -> Option<CodeRange> {
    let bytes = remote::read(process, around.start, around.len as usize)?;
    made::range(&bytes, CodeAddress(around.start.0), at)
}

/// What is looked at of a mapping to decode an instruction at `at`.
fn around(mapping: &Mapping, at: CodeAddress) -> Option<Span> {
    let start = at.0.saturating_sub(made::AROUND).max(mapping.span.start.0);
    let end = at.0.saturating_add(made::AROUND).min(mapping.span.end().0);
    Some(Span::new(Address(start), end.checked_sub(start)?))
}
