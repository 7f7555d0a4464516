//! What a worker's memory has beside the program's: ranges whose first writes can be watched, and
//! the worker's private pages (each a copy at the page's own address, the copy's twin, and a second
//! mapping of the shared page). Knows of no tool.
//!
//! Contexts: a worker before it computes, and its signal handler, where no code of the C library
//! may be executed.

use crate::from_worker;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU64, AtomicUsize};
use sunder_transaction::{self as transaction, Mask, PAGE, Shared, WORDS};
use sunder_wire::isolation::PAGES;
use sunder_wire::tracking::SHARED;

/// The most pages that can be private at a time.
const MOST: usize = PAGES + SHARED;
/// The most ranges that can be watched; further ones stay shared.
const RANGES: usize = 256;
/// In the mapping of the stack pointer, so many bytes below it are treated as the thread's stack.
const BELOW: usize = 1 << 20;
/// In the mapping of the stack pointer, so many bytes above it are treated as the thread's stack:
/// the C library's threads have 8 MiB, with their thread-local data above.
const ABOVE: usize = 8 << 20;
const READ: i32 = libc::PROT_READ;
const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// A mask of all bytes of a page.
pub static ALL: Mask = [u8::MAX; WORDS];

/// A page that a tool knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its address, a multiple of [`PAGE`].
    pub address: usize,
    /// The tool's own number for it, which the framework passes back.
    pub number: usize,
}

impl Page {
    /// Whether some of its bytes lie in a range.
    pub const fn is_in(&self, start: usize, bytes: usize) -> bool {
        self.address < start.saturating_add(bytes) && start < self.address + PAGE
    }
}

/// A write that met a watched page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The address of the write.
    pub address: usize,
    /// The address of the writing instruction.
    pub instruction: usize,
}

impl Fault {
    /// The address of the page.
    pub const fn page(&self) -> usize {
        self.address & !(PAGE - 1)
    }
}

/// A private page: where its copy, its twin and the shared page are.
pub struct Twinned {
    address: AtomicUsize,
    number: AtomicUsize,
    twin: AtomicUsize,
    shared: AtomicUsize,
    /// The address of the write that made it private, and its instruction; 0 for none.
    written: AtomicUsize,
    by: AtomicUsize,
}

impl Twinned {
    const fn none() -> Self {
        Self {
            address: AtomicUsize::new(0),
            number: AtomicUsize::new(0),
            twin: AtomicUsize::new(0),
            shared: AtomicUsize::new(0),
            written: AtomicUsize::new(0),
            by: AtomicUsize::new(0),
        }
    }

    /// The page.
    pub fn page(&self) -> Page {
        Page {
            address: self.address.load(Relaxed),
            number: self.number.load(Relaxed),
        }
    }

    /// The write that made it private, if one did.
    pub fn first(&self) -> Option<Fault> {
        let fault = Fault {
            address: self.written.load(Relaxed),
            instruction: self.by.load(Relaxed),
        };
        (fault.address != 0).then_some(fault)
    }

    /// Calls a function with the private copy, the twin and the shared page.
    pub fn with<R>(
        &self,
        act: impl FnOnce(&mut transaction::Page, &mut transaction::Page, &Shared) -> R,
    ) -> R {
        // SAFETY: the three are mapped, whole pages, and distinct. The first two belong to this
        // process alone, and the thread that could write them is in its signal handler now.
        unsafe {
            act(
                &mut *(self.address.load(Relaxed) as *mut transaction::Page),
                &mut *(self.twin.load(Relaxed) as *mut transaction::Page),
                &*(self.shared.load(Relaxed) as *const Shared),
            )
        }
    }
}

/// The memory of a worker. Each process that computes has one.
pub struct Memory {
    starts: [AtomicUsize; RANGES],
    ends: [AtomicUsize; RANGES],
    ranges: AtomicUsize,
    own: [Twinned; MOST],
    count: AtomicUsize,
    /// The address for twins and second mappings of shared pages.
    room: AtomicUsize,
    /// The page that may be used until the thread has executed one instruction; 0 for none.
    stepped: AtomicUsize,
    /// When all private pages were last committed, or the episode's beginning (monotonic clock,
    /// ns).
    since: AtomicU64,
}

impl Memory {
    /// Memory in which nothing is watched or private.
    pub const fn new() -> Self {
        Self {
            starts: [const { AtomicUsize::new(0) }; RANGES],
            ends: [const { AtomicUsize::new(0) }; RANGES],
            ranges: AtomicUsize::new(0),
            own: [const { Twinned::none() }; MOST],
            count: AtomicUsize::new(0),
            room: AtomicUsize::new(0),
            stepped: AtomicUsize::new(0),
            since: AtomicU64::new(0),
        }
    }

    /// All private pages are committed at this time (monotonic clock, ns). Returns when they were
    /// before.
    pub fn committed_at(&self, time: u64) -> u64 {
        self.since.swap(time, Relaxed)
    }

    /// Twins and second mappings go to `at`, an unused range of two pages for each page that can be
    /// private. If the kernel chose their place, it could choose addresses at which the program has
    /// memory that this process lacks, or gets some later.
    pub fn set_room(&self, at: usize) {
        self.room.store(at, Relaxed);
    }

    /// Adds sharable memory that the program may write, without the thread's own stack; `stack` is
    /// its stack pointer.
    pub fn add(&self, start: usize, end: usize, stack: usize) {
        if (start..end).contains(&stack) {
            let low = (stack.saturating_sub(BELOW) & !(PAGE - 1)).max(start);
            let high = (stack.saturating_add(ABOVE) & !(PAGE - 1)).min(end);
            self.put(start, low);
            self.put(high, end);
        } else {
            self.put(start, end);
        }
    }

    fn put(&self, start: usize, end: usize) {
        let count = self.ranges.load(Relaxed);
        if start < end
            && let (Some(from), Some(to)) = (self.starts.get(count), self.ends.get(count))
        {
            from.store(start, Relaxed);
            to.store(end, Relaxed);
            self.ranges.store(count + 1, Relaxed);
        }
    }

    fn ranges(&self) -> impl Iterator<Item = (usize, usize)> {
        self.starts
            .iter()
            .zip(&self.ends)
            .take(self.ranges.load(Relaxed))
            .map(|(start, end)| (start.load(Relaxed), end.load(Relaxed)))
    }

    /// Whether the first write to the page at this address can be watched.
    pub fn can_be_watched(&self, page: usize) -> bool {
        self.ranges()
            .any(|(start, end)| (start..end).contains(&page))
    }

    /// Protects all pages but the private ones, so that the next write to each is a fault. False if
    /// the kernel refused.
    pub fn watch_all(&self) -> bool {
        self.ranges().all(|(start, end)| protect(start, end, READ))
            // Private pages stay writable, because commits write them.
            && self
                .private()
                .map(|own| own.address.load(Relaxed))
                .filter(|at| self.can_be_watched(*at))
                .all(|at| self.open(at))
    }

    /// Makes all pages writable: no write is a fault any more. False if the kernel refused.
    pub fn open_all(&self) -> bool {
        self.ranges()
            .all(|(start, end)| protect(start, end, READ_WRITE))
    }

    /// The next write to this page is a fault, unless it is private or can't be watched.
    /// False if the kernel refused.
    pub fn watch(&self, page: usize) -> bool {
        !self.can_be_watched(page) || self.is_private(page) || protect(page, page + PAGE, READ)
    }

    /// The next access to this page is a fault, unless it is private or can't be watched. False if the
    /// kernel refused.
    pub fn close(&self, page: usize) -> bool {
        let none = libc::PROT_NONE;
        !self.can_be_watched(page) || self.is_private(page) || protect(page, page + PAGE, none)
    }

    /// Opens this page for one instruction, after which [`Self::stepped`] returns it. False if the kernel
    /// refused.
    pub fn step(&self, page: usize) -> bool {
        self.stepped.store(page, Relaxed);
        self.open(page)
    }

    /// The page that was opened for one instruction, if one was.
    pub fn stepped(&self) -> Option<usize> {
        let page = self.stepped.swap(0, Relaxed);
        (page != 0).then_some(page)
    }

    /// Writes to this page are not watched any more. False if the kernel refused.
    pub fn open(&self, page: usize) -> bool {
        protect(page, page + PAGE, READ_WRITE)
    }

    /// The private pages.
    pub fn private(&self) -> impl Iterator<Item = &Twinned> {
        self.own.iter().take(self.count.load(Relaxed))
    }

    /// Whether the page at this address is private.
    pub fn is_private(&self, page: usize) -> bool {
        self.private().any(|own| own.address.load(Relaxed) == page)
    }

    /// Makes a page private; it lies in sharable memory and can be written. Returns whether that
    /// worked. `first` is the write that is the reason.
    pub fn take(&self, page: Page, first: Option<Fault>) -> bool {
        const NEW: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let count = self.count.load(Relaxed);
        let (Some(own), room) = (self.own.get(count), self.room.load(Relaxed)) else {
            return false;
        };
        if room == 0 {
            return false;
        }
        let at = page.address;
        let twin = room + 2 * count * PAGE;
        let shared = twin + PAGE;
        // SAFETY: a second mapping of the shared page (an old size of 0) and a new one for the
        // twin, both in the room, and a new one in place of the shared page, which the second
        // mapping keeps.
        unsafe {
            let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
            let map = |at: usize| {
                let flags = (NEW | libc::MAP_FIXED) as usize;
                let arguments = [at, PAGE, READ_WRITE as usize, flags, usize::MAX, 0];
                from_worker::call(libc::SYS_mmap, arguments) == at as isize
            };
            let again = [at, 0, PAGE, flags, shared, 0];
            let moved = from_worker::call(libc::SYS_mremap, again) == shared as isize;
            if !moved || !map(twin) || !map(at) {
                return false;
            }
            own.address.store(at, Relaxed);
            own.number.store(page.number, Relaxed);
            own.twin.store(twin, Relaxed);
            own.shared.store(shared, Relaxed);
            own.written.store(first.map_or(0, |f| f.address), Relaxed);
            own.by.store(first.map_or(0, |f| f.instruction), Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
        own.with(|page, twin, shared| {
            transaction::refresh(page, twin, shared, &ALL);
        });
        true
    }
}

fn protect(start: usize, end: usize, protection: i32) -> bool {
    let arguments = [start, end - start, protection as usize, 0, 0, 0];
    // SAFETY: the program's memory keeps its contents; a fault there arrives in our handler.
    unsafe { from_worker::call(libc::SYS_mprotect, arguments) == 0 }
}
