//! The tool's side of the registry: it keeps segments ready for new process images, and finds
//! the images that have claimed one.

use crate::environment::{Change, changes, descriptor_path};
use crate::error::{Error, Result};
use crate::layout::VERSION;
use crate::registry::{BYTES, ENTRIES, MAGIC, OPTION_FOLLOW, RegistryEntry, RegistryView};
use crate::segment::{Segment, SegmentOptions};
use crate::segment::{forbid_file_limit, memory_file};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use sunder_access::{ProcessId, Time};

/// How a process image came into being.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It executed a program.
    Program,
    /// It was forked from another image, and has that image's heap blocks.
    Fork {
        /// The number of that image.
        image: u32,
        /// The epoch of that image's segment that began with the fork. Blocks that were live
        /// before it are in the new image too.
        epoch: u32,
    },
}

/// A process image that has claimed a segment.
#[derive(Clone)]
pub struct Claim {
    /// Its number, which is never reused.
    pub image: u32,
    /// The process that it runs in.
    pub process: ProcessId,
    /// The parent process.
    pub parent: ProcessId,
    /// When it claimed the segment: after its `exec` or fork.
    pub time: Time,
    /// How it came into being.
    pub origin: Origin,
    /// Its segment.
    pub segment: Rc<Segment>,
    /// Whether it failed to map the segment, and is passive.
    pub refused: bool,
}

/// A registry entry that was published and is not claimed yet.
struct Published {
    serial: u32,
    segment: Rc<Segment>,
}

/// The tool's side of a registry.
pub struct Registry {
    file: File,
    view: RegistryView,
    options: SegmentOptions,
    /// How many entries are kept ready.
    spare: u32,
    waiting: Vec<Published>,
    /// By index of the entry: segments that may still be in use.
    held: Vec<Option<Rc<Segment>>>,
    /// The indices at which `held` has a segment.
    given: Vec<usize>,
    published: u32,
}

impl Registry {
    /// Creates a registry. With `follow`, children of the first process get segments as well.
    /// `spare` segments are kept ready, each of which takes a descriptor and 11 GB of address
    /// space.
    ///
    /// # Errors
    /// If the kernel refuses a memory file or a mapping.
    pub fn create(options: SegmentOptions, follow: bool, spare: u32) -> Result<Self> {
        forbid_file_limit()?;
        let file = memory_file(c"sunder-registry", BYTES)?;
        let base = crate::segment::map(&file, BYTES)?;
        let mut registry = Self {
            file,
            // SAFETY: just mapped; unmapped only when the registry is dropped.
            view: unsafe { RegistryView::new(base) },
            options,
            spare: spare.clamp(1, ENTRIES / 2),
            waiting: Vec::new(),
            held: (0..ENTRIES).map(|_| None).collect(),
            given: Vec::new(),
            published: 0,
        };
        let header = registry.view.header();
        let options = if follow { OPTION_FOLLOW } else { 0 };
        header.options.store(options, Ordering::Relaxed);
        header.tool.store(std::process::id(), Ordering::Relaxed);
        header.total.store(BYTES as u64, Ordering::Relaxed);
        header.version.store(VERSION, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        // One is needed now; the others can follow later.
        registry.publish()?;
        registry.refill();
        Ok(registry)
    }

    /// The process that the tool started.
    pub fn set_root(&self, root: ProcessId) {
        self.view.header().root.store(root.0, Ordering::Release);
    }

    /// The mapped registry, for tests and the runtime's own tools.
    pub const fn view(&self) -> &RegistryView {
        &self.view
    }

    /// The path at which another process of the same user finds the registry.
    pub fn fd_path(&self) -> PathBuf {
        descriptor_path(std::process::id(), self.file.as_raw_fd() as u32)
    }

    /// The changes to the target's environment; see [`Segment::environment`].
    pub fn environment(&self, runtime: &Path, user_preload: Option<&OsStr>) -> Vec<Change> {
        changes(runtime, user_preload, self.fd_path())
    }

    /// Images that found no segment ready.
    pub fn missed(&self) -> u32 {
        self.view.header().missed.load(Ordering::Relaxed)
    }

    /// Images whose process number in this namespace is not known.
    pub fn foreign(&self) -> u32 {
        self.view.header().foreign.load(Ordering::Relaxed)
    }

    /// Returns the images that came since the last call, and publishes segments for the next
    /// ones. A segment that nothing refers to any more is dropped.
    pub fn poll(&mut self) -> Vec<Claim> {
        let view = self.view;
        let mut claims = Vec::new();
        self.waiting.retain(|published| {
            let entry = view.entry(published.serial);
            let process = entry.process.load(Ordering::Acquire);
            if process == 0 {
                return true;
            }
            // The image has mapped the segment, so the descriptor is not needed any more.
            published.segment.close_file();
            claims.push(claim_of(entry, published, process));
            false
        });
        claims.sort_by_key(|c| c.time);
        // This runs hundreds of times a second, so only the entries in use are looked at.
        let held = &mut self.held;
        self.given.retain(|&index| {
            let Some(entry) = held.get_mut(index) else {
                return false;
            };
            if entry.as_ref().is_some_and(|s| Rc::strong_count(s) == 1) {
                *entry = None;
            }
            entry.is_some()
        });
        self.refill();
        claims
    }

    fn refill(&mut self) {
        loop {
            let next = self.view.header().next.load(Ordering::Acquire);
            let spare = self.published.wrapping_sub(next);
            // A target that writes nonsense into the counter gets no more segments.
            if spare >= self.spare || self.publish().is_err() {
                return;
            }
        }
    }

    fn publish(&mut self) -> Result<()> {
        let serial = self.published;
        let index = (serial % ENTRIES) as usize;
        let Some(held @ None) = self.held.get_mut(index) else {
            return Err(Error::NoEntry);
        };
        let segment = Rc::new(Segment::create(&self.options)?);
        let entry = self.view.entry(serial);
        entry.process.store(0, Ordering::Relaxed);
        entry.refused.store(0, Ordering::Relaxed);
        entry.origin.store(0, Ordering::Relaxed);
        let descriptor = segment.descriptor().unwrap_or(0);
        entry.descriptor.store(descriptor, Ordering::Relaxed);
        *held = Some(Rc::clone(&segment));
        self.given.push(index);
        self.waiting.push(Published { serial, segment });
        self.published = serial.wrapping_add(1);
        let ready = &self.view.header().ready;
        ready.store(self.published, Ordering::Release);
        Ok(())
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made in `create`; views of it are only
        // lent out by reference.
        unsafe { libc::munmap(self.view.base().as_ptr().cast(), BYTES) };
    }
}

fn claim_of(entry: &RegistryEntry, published: &Published, process: u32) -> Claim {
    let origin = entry.origin.load(Ordering::Relaxed);
    Claim {
        image: published.serial,
        process: ProcessId(process),
        parent: ProcessId(entry.parent.load(Ordering::Relaxed)),
        time: Time(entry.time.load(Ordering::Relaxed)),
        origin: match origin.checked_sub(1) {
            Some(image) => Origin::Fork {
                image,
                epoch: entry.epoch.load(Ordering::Relaxed),
            },
            None => Origin::Program,
        },
        segment: Rc::clone(&published.segment),
        refused: entry.refused.load(Ordering::Relaxed) != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry(spare: u32) -> Registry {
        Registry::create(SegmentOptions::default(), true, spare).expect("memory files")
    }

    fn take(registry: &Registry, process: u32) -> u32 {
        let serial = registry.view().claim().expect("ready");
        let entry = registry.view().entry(serial);
        entry.process.store(process, Ordering::Release);
        serial
    }

    #[test]
    fn each_claim_gets_its_own_segment_and_is_reported_once() {
        let mut registry = registry(2);
        let (first, second) = (take(&registry, 11), take(&registry, 12));
        assert_ne!(first, second);
        assert_eq!(registry.view().claim(), None, "two were ready");
        assert_eq!(registry.missed(), 1);
        let claims = registry.poll();
        let seen: Vec<_> = claims.iter().map(|c| (c.image, c.process.0)).collect();
        assert_eq!(seen, [(first, 11), (second, 12)]);
        assert!(!Rc::ptr_eq(&claims[0].segment, &claims[1].segment));
        assert!(registry.poll().is_empty());
        take(&registry, 13);
        assert_eq!(registry.poll().len(), 1, "more were made ready");
    }

    #[test]
    fn a_claim_that_was_cut_short_is_not_believed() {
        let mut registry = registry(2);
        let _killed = registry.view().claim().expect("ready");
        take(&registry, 12);
        let claims = registry.poll();
        assert_eq!(claims.len(), 1);
        assert_eq!(claims[0].process.0, 12);
    }

    #[test]
    fn registry_entries_are_reused_only_after_their_segment_is_dropped() {
        let mut registry = registry(1);
        let mut kept = None;
        for i in 0..2 * ENTRIES {
            if registry.view().claim().is_none() {
                // Its entry still holds the kept segment, so nothing more is published.
                assert_eq!(i, ENTRIES + 1);
                break;
            }
            let entry = registry.view().entry(i);
            entry.process.store(1, Ordering::Release);
            let mut claims = registry.poll();
            assert_eq!(claims.len(), 1);
            if i == 1 {
                kept = claims.pop();
            }
        }
        assert_eq!(kept.expect("kept").image, 1);
    }

    #[test]
    fn an_invalid_counter_does_not_create_segments_without_end() {
        let mut registry = registry(1);
        let next = &registry.view().header().next;
        next.store(u32::MAX - 5, Ordering::Relaxed);
        registry.poll();
        assert!(registry.published <= ENTRIES);
    }
}
