//! The pages that a worker has for itself: its copy at the page's own address, the twin
//! of that, and the shared page elsewhere. Contexts: the worker, before it computes
//! ([`take`]) and in its signal handler ([`commit`]), where no code of the C library
//! may be executed.

use crate::system;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use sunder_transaction::{Mask, Moved, PAGE, Page, Shared, WORDS};
use sunder_wire::isolation::{Control, PAGES, Slot, Wanted};
use sunder_wire::tracking::{CHANGE_WORDS, SHARED, mode, page};

/// As many as can be private at a time.
const MOST: usize = PAGES + SHARED;
/// All bytes of a page.
static ALL: Mask = [u8::MAX; WORDS];

/// One of them; in the worker's own memory.
struct Taken {
    /// Which of the wanted ones; from [`PAGES`] on, of those that several threads write.
    index: AtomicUsize,
    page: AtomicUsize,
    twin: AtomicUsize,
    shared: AtomicUsize,
    /// The last write that faulted, and its instruction.
    hit: AtomicUsize,
    by: AtomicUsize,
}

static TAKEN: [Taken; MOST] = [const {
    Taken {
        index: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
        twin: AtomicUsize::new(0),
        shared: AtomicUsize::new(0),
        hit: AtomicUsize::new(0),
        by: AtomicUsize::new(0),
    }
}; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn all() -> impl Iterator<Item = &'static Taken> {
    TAKEN.iter().take(COUNT.load(Relaxed))
}

/// The addresses of pages that are private.
pub fn addresses() -> impl Iterator<Item = usize> {
    all().map(|taken| taken.page.load(Relaxed))
}

/// Whether the page at this address is private.
pub fn is_taken(page: usize) -> bool {
    addresses().any(|at| at == page)
}

/// A write to a private page faulted.
pub fn hit(page: usize, address: usize, instruction: usize) {
    for taken in all().filter(|t| t.page.load(Relaxed) == page) {
        taken.hit.store(address, Relaxed);
        taken.by.store(instruction, Relaxed);
    }
}

/// Whether the page at this address is wanted.
pub fn wanted(control: &Control) -> impl Iterator<Item = (usize, &Wanted)> {
    let count = (control.page_count.load(Relaxed) as usize).min(PAGES);
    control
        .pages
        .iter()
        .enumerate()
        .take(count)
        .filter(|(_, page)| page.given_up.load(Relaxed) == 0)
}

/// Whether a worker may have a page of this range for itself.
pub fn may_be_private(control: &Control, start: usize, bytes: usize) -> bool {
    let end = start.saturating_add(bytes);
    crate::tracking::is_on(control)
        || wanted(control).any(|(_, page)| {
            let at = page.address.load(Relaxed) as usize;
            at < end && start < at + PAGE
        })
}

/// Makes a page private, which lies in sharable memory; whether that worked.
pub fn take(index: usize, page: usize) -> bool {
    const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
    const OWN: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let Some(taken) = TAKEN.get(COUNT.load(Relaxed)) else {
        return false;
    };
    // SAFETY: a second mapping of shared pages (an old size of 0), a new one, and one in
    // place of the first, which the second keeps.
    unsafe {
        let may_move = libc::MREMAP_MAYMOVE as usize;
        let map = |at: usize, flags: i32| {
            let arguments = [at, PAGE, READ_WRITE as usize, flags as usize, usize::MAX, 0];
            system::worker_call(libc::SYS_mmap, arguments)
        };
        let shared = system::worker_call(libc::SYS_mremap, [page, 0, PAGE, may_move, 0, 0]);
        let twin = map(0, OWN);
        if shared <= 0 || twin <= 0 || map(page, OWN | libc::MAP_FIXED) != page as isize {
            return false;
        }
        taken.index.store(index, Relaxed);
        taken.page.store(page, Relaxed);
        taken.twin.store(twin as usize, Relaxed);
        taken.shared.store(shared as usize, Relaxed);
        taken.hit.store(0, Relaxed);
    }
    COUNT.fetch_add(1, Relaxed);
    with(taken, |page, twin, shared| {
        sunder_transaction::refresh(page, twin, shared, &ALL);
    });
    true
}

fn with<R>(taken: &Taken, act: impl FnOnce(&mut Page, &mut Page, &Shared) -> R) -> R {
    // SAFETY: the three are mapped, whole pages, and different; the first two are this
    // process's own, and whatever the thread did to them, it is not running now.
    unsafe {
        act(
            &mut *(taken.page.load(Relaxed) as *mut Page),
            &mut *(taken.twin.load(Relaxed) as *mut Page),
            &*(taken.shared.load(Relaxed) as *const Shared),
        )
    }
}

/// Commits all pages and, if wanted, takes over what others wrote. False if a page is
/// not to be private any more: bytes beside the meant ones have changed, or others
/// changed the same bytes.
pub fn commit(control: &Control, slot: &Slot, refresh: bool) -> bool {
    let mut sound = true;
    let mut bytes = 0;
    let now = if control.tracking.mode.load(Relaxed) == mode::DETECT {
        system::worker_clock(libc::CLOCK_MONOTONIC)
    } else {
        0
    };
    for taken in all() {
        let index = taken.index.load(Relaxed);
        let (written, is_sound) = match control.pages.get(index) {
            Some(wanted) => commit_named(taken, wanted, refresh),
            None => commit_tracked(control, slot, taken, index - PAGES, refresh, now),
        };
        bytes += u64::from(written);
        sound &= is_sound;
    }
    if bytes > 0 {
        slot.written.fetch_add(bytes, Relaxed);
        control.committed_bytes.fetch_add(bytes, Relaxed);
        control.commits.fetch_add(1, Relaxed);
    }
    sound
}

/// A page of which certain bytes are meant: what was written, and whether all is well.
fn commit_named(taken: &Taken, wanted: &Wanted, refresh: bool) -> (u32, bool) {
    // SAFETY: both are 512 bytes, and nobody writes the mask once it is there.
    let mask = unsafe { &*(&raw const wanted.bytes).cast::<Mask>() };
    let (written, read) = with(taken, |page, twin, shared| {
        let written = sunder_transaction::commit(page, twin, shared, mask);
        let read = if refresh {
            sunder_transaction::refresh(page, twin, shared, mask)
        } else {
            Moved::default()
        };
        (written, read)
    });
    let is_sound = written.beside + read.beside == 0;
    if !is_sound {
        wanted.given_up.store(1, Relaxed);
    }
    (written.bytes, is_sound)
}

/// A page that several threads write: all bytes are meant, and each word is told.
fn commit_tracked(
    control: &Control,
    slot: &Slot,
    taken: &Taken,
    place: usize,
    refresh: bool,
    now: u64,
) -> (u32, bool) {
    let tracking = &control.tracking;
    let start = taken.page.load(Relaxed);
    let (hit, by) = (taken.hit.load(Relaxed), taken.by.load(Relaxed));
    let thread = u64::from(slot.thread.load(Relaxed));
    let (mut bytes, mut contended) = (0, false);
    with(taken, |page, twin, shared| {
        sunder_transaction::commit_each(page, twin, shared, |change| {
            bytes += change.bytes.count_ones();
            contended |= change.both != 0;
            if now == 0 {
                return;
            }
            let at = start + change.word * 8;
            let by = if hit & !7 == at { by as u64 } else { 0 };
            let record: [u64; CHANGE_WORDS] = [now, thread, at as u64, u64::from(change.bytes), by];
            if !tracking.changes().push(&record) {
                tracking.lost.fetch_add(1, Relaxed);
            }
        });
        if refresh {
            sunder_transaction::refresh(page, twin, shared, &ALL);
        }
    });
    if contended {
        tracking.decide(place, page::CONTENDED);
    }
    let state = tracking.shared.get(place).map(|p| p.state.load(Relaxed));
    (bytes, state == Some(page::PRIVATE))
}
