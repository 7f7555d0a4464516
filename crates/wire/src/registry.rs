//! The registry: a small memory file by which every process image that loads
//! the runtime gets a segment of its own. The tool keeps some segments ready
//! and publishes them; a runtime claims the next one, without a word to the
//! tool and without a descriptor that stays open. The tool finds the claims.
//!
//! The layout types here are used by both sides; [`Registry`] is the tool's.
//! Processes may be killed at any point of a claim: the tool believes a claim
//! only once its process is written, which comes last.

use crate::layout::{PAGE, VERSION};
use crate::segment::{forbid_file_limit, memory_file};
use crate::{Error, PRELOAD_VARIABLE, Result, SEGMENT_VARIABLE, Segment, SegmentOptions};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use sunder_access::{ProcessId, Time};

/// The first eight bytes of every registry. As in a segment, version and size
/// follow.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SUNDRREG");
/// Places for images; used again once the tool has dropped what was there.
pub const PLACES: u32 = 1 << 12;
/// Bytes of a registry.
pub const BYTES: usize = PAGE + PLACES as usize * size_of::<Place>();

/// Option bit: children of the first process are followed.
pub const OPTION_FOLLOW: u32 = 1;

/// What identifies a registry, and its two counters.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`] of the segments.
    pub version: AtomicU32,
    /// [`OPTION_FOLLOW`].
    pub options: AtomicU32,
    /// [`BYTES`] of the writer.
    pub total: AtomicU64,
    /// The tool's process, whose descriptors the places name.
    pub tool: AtomicU32,
    /// The process that the tool started: without [`OPTION_FOLLOW`] the only
    /// one that may claim.
    pub root: AtomicU32,
    /// Serial number after the last place that is ready to be claimed.
    pub ready: AtomicU32,
    /// Serial number of the next place to claim, at most `ready`.
    pub next: AtomicU32,
    /// Images that found no place ready.
    pub missed: AtomicU32,
    /// Images that stayed passive because their process number is not the one
    /// that the tool knows (another namespace).
    pub foreign: AtomicU32,
}

/// One segment that an image can have.
#[repr(C, align(64))]
pub struct Place {
    /// The image's process; written last, 0 before that.
    pub process: AtomicU32,
    /// The tool's descriptor of the segment.
    pub descriptor: AtomicU32,
    /// 1 + the serial number of the image that it was forked from; 0 for a
    /// program.
    pub origin: AtomicU32,
    /// The epoch of the origin's segment in which it was forked.
    pub epoch: AtomicU32,
    /// 1 if the segment could not be opened or mapped.
    pub refused: AtomicU32,
    /// The process that it has as its parent.
    pub parent: AtomicU32,
    /// When it was claimed, monotonic nanoseconds.
    pub time: AtomicU64,
}

/// A mapped registry, seen through its layout.
#[derive(Clone, Copy)]
pub struct RegistryView(NonNull<u8>);

impl RegistryView {
    /// # Safety
    /// [`BYTES`] bytes from `base` must be mapped, readable and writable, for as
    /// long as the view or a copy of it is used.
    pub const unsafe fn new(base: NonNull<u8>) -> Self {
        Self(base)
    }

    /// Where it is mapped.
    pub const fn base(&self) -> NonNull<u8> {
        self.0
    }

    /// The header.
    pub const fn header(&self) -> &Header {
        // SAFETY: it lies at the start, and consists of atomics.
        unsafe { self.0.cast::<Header>().as_ref() }
    }

    /// The place with serial number `serial`.
    pub const fn place(&self, serial: u32) -> &Place {
        let offset = PAGE + (serial % PLACES) as usize * size_of::<Place>();
        // SAFETY: the remainder keeps it within the mapping; it consists of
        // atomics and the offset is a multiple of its size.
        unsafe { self.0.byte_add(offset).cast::<Place>().as_ref() }
    }

    /// Takes the next place that is ready; its serial number.
    pub fn claim(&self) -> Option<u32> {
        let header = self.header();
        let taken = header
            .next
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |next| {
                // Serial numbers may wrap, their difference does not.
                let ready = header.ready.load(Ordering::Acquire);
                (ready.wrapping_sub(next) as i32 > 0).then(|| next.wrapping_add(1))
            });
        if taken.is_err() {
            header.missed.fetch_add(1, Ordering::Relaxed);
        }
        taken.ok()
    }
}

/// How an image came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It executed a program.
    Program,
    /// It was forked from another image, whose blocks it has.
    Fork {
        /// The other image.
        image: u32,
        /// The epoch of that image's segment that began with the fork: blocks
        /// that were live before it are in the new image too.
        epoch: u32,
    },
}

/// An image that has claimed a segment.
#[derive(Clone)]
pub struct Claim {
    /// Its number; ever new.
    pub image: u32,
    /// Its process.
    pub process: ProcessId,
    /// The process that it has as its parent.
    pub parent: ProcessId,
    /// When it claimed: after its `exec` or fork.
    pub time: Time,
    /// Where it comes from.
    pub origin: Origin,
    /// Its records.
    pub segment: Rc<Segment>,
    /// Whether it could not have the segment after all, and is passive.
    pub refused: bool,
}

/// A place that was published.
struct Published {
    serial: u32,
    segment: Rc<Segment>,
}

/// The tool's side.
pub struct Registry {
    file: File,
    view: RegistryView,
    options: SegmentOptions,
    /// How many places are kept ready.
    spare: u32,
    waiting: Vec<Published>,
    /// By place: segments that somebody may still use.
    held: Vec<Option<Rc<Segment>>>,
    published: u32,
}

impl Registry {
    /// Makes a registry. With `follow`, children get segments as well; `spare`
    /// are kept ready, each for a descriptor and 11 GB of address space.
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
            spare: spare.clamp(1, PLACES / 2),
            waiting: Vec::new(),
            held: (0..PLACES).map(|_| None).collect(),
            published: 0,
        };
        let header = registry.view.header();
        let options = if follow { OPTION_FOLLOW } else { 0 };
        header.options.store(options, Ordering::Relaxed);
        header.tool.store(std::process::id(), Ordering::Relaxed);
        header.total.store(BYTES as u64, Ordering::Relaxed);
        header.version.store(VERSION, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        // One is needed; the others can be had later.
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

    /// Where another process of the same user finds it.
    pub fn fd_path(&self) -> PathBuf {
        let fd = self.file.as_raw_fd();
        format!("/proc/{}/fd/{fd}", std::process::id()).into()
    }

    /// What to change in the target's environment; see
    /// [`Segment::environment`].
    pub fn environment(
        &self,
        runtime: &Path,
        user_preload: Option<&OsStr>,
    ) -> Vec<(OsString, Option<OsString>)> {
        let mut preload = runtime.as_os_str().to_owned();
        if let Some(user) = user_preload {
            preload.push(":");
            preload.push(user);
        }
        vec![
            (PRELOAD_VARIABLE.into(), Some(preload)),
            (SEGMENT_VARIABLE.into(), Some(self.fd_path().into())),
        ]
    }

    /// Images that found no segment ready.
    pub fn missed(&self) -> u32 {
        self.view.header().missed.load(Ordering::Relaxed)
    }

    /// Images whose process number here is not known.
    pub fn foreign(&self) -> u32 {
        self.view.header().foreign.load(Ordering::Relaxed)
    }

    /// The images that came since the last call, and new segments for the next
    /// ones. A segment that nobody holds any more is given up.
    pub fn poll(&mut self) -> Vec<Claim> {
        let view = self.view;
        let mut claims = Vec::new();
        self.waiting.retain(|published| {
            let place = view.place(published.serial);
            let process = place.process.load(Ordering::Acquire);
            if process == 0 {
                return true;
            }
            // Who has it mapped needs the descriptor no more.
            published.segment.close_file();
            claims.push(claim_of(place, published, process));
            false
        });
        claims.sort_by_key(|c| c.time);
        for held in &mut self.held {
            if held.as_ref().is_some_and(|s| Rc::strong_count(s) == 1) {
                *held = None;
            }
        }
        self.refill();
        claims
    }

    fn refill(&mut self) {
        loop {
            let next = self.view.header().next.load(Ordering::Acquire);
            let spare = self.published.wrapping_sub(next);
            // A target that writes nonsense into the counter gets no more.
            if spare >= self.spare || self.publish().is_err() {
                return;
            }
        }
    }

    fn publish(&mut self) -> Result<()> {
        let serial = self.published;
        let index = (serial % PLACES) as usize;
        let Some(held @ None) = self.held.get_mut(index) else {
            return Err(Error::NoPlace);
        };
        let segment = Rc::new(Segment::create(&self.options)?);
        let place = self.view.place(serial);
        place.process.store(0, Ordering::Relaxed);
        place.refused.store(0, Ordering::Relaxed);
        place.origin.store(0, Ordering::Relaxed);
        let descriptor = segment.descriptor().unwrap_or(0);
        place.descriptor.store(descriptor, Ordering::Relaxed);
        *held = Some(Rc::clone(&segment));
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

fn claim_of(place: &Place, published: &Published, process: u32) -> Claim {
    let origin = place.origin.load(Ordering::Relaxed);
    Claim {
        image: published.serial,
        process: ProcessId(process),
        parent: ProcessId(place.parent.load(Ordering::Relaxed)),
        time: Time(place.time.load(Ordering::Relaxed)),
        origin: match origin.checked_sub(1) {
            Some(image) => Origin::Fork {
                image,
                epoch: place.epoch.load(Ordering::Relaxed),
            },
            None => Origin::Program,
        },
        segment: Rc::clone(&published.segment),
        refused: place.refused.load(Ordering::Relaxed) != 0,
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
        let place = registry.view().place(serial);
        place.process.store(process, Ordering::Release);
        serial
    }

    #[test]
    fn each_claim_gets_a_segment_of_its_own_and_is_told_once() {
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
    fn places_are_used_again_but_never_while_somebody_holds_the_segment() {
        let mut registry = registry(1);
        let mut kept = None;
        for i in 0..2 * PLACES {
            if registry.view().claim().is_none() {
                // The place of the kept segment: nothing more is published.
                assert_eq!(i, PLACES + 1);
                break;
            }
            let place = registry.view().place(i);
            place.process.store(1, Ordering::Release);
            let mut claims = registry.poll();
            assert_eq!(claims.len(), 1);
            if i == 1 {
                kept = claims.pop();
            }
        }
        assert_eq!(kept.expect("kept").image, 1);
    }

    #[test]
    fn nonsense_in_the_counter_makes_no_endless_segments() {
        let mut registry = registry(1);
        let next = &registry.view().header().next;
        next.store(u32::MAX - 5, Ordering::Relaxed);
        registry.poll();
        assert!(registry.published <= PLACES);
    }
}
