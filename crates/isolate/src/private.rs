//! The pages that a worker has for itself: its copy at the page's own address, the twin
//! of that, and the shared page elsewhere. Contexts: the worker, before it computes
//! ([`take`]) and in its signal handler ([`commit`]), where no code of the C library
//! may be executed.

use crate::system;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use sunder_transaction::{Mask, Moved, PAGE, Page, Shared};
use sunder_wire::isolation::{Control, PAGES, Wanted};

/// One of them; in the worker's own memory.
struct Taken {
    /// Which of the wanted ones.
    index: AtomicUsize,
    page: AtomicUsize,
    twin: AtomicUsize,
    shared: AtomicUsize,
}

static TAKEN: [Taken; PAGES] = [const {
    Taken {
        index: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
        twin: AtomicUsize::new(0),
        shared: AtomicUsize::new(0),
    }
}; PAGES];
static COUNT: AtomicUsize = AtomicUsize::new(0);

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
        let shared = system::call(libc::SYS_mremap, [page, 0, PAGE, may_move, 0, 0]);
        let twin = system::map(0, PAGE, READ_WRITE, OWN, -1, 0);
        if shared <= 0 || twin <= 0 {
            return false;
        }
        if system::map(page, PAGE, READ_WRITE, OWN | libc::MAP_FIXED, -1, 0) != page as isize {
            return false;
        }
        taken.index.store(index, Relaxed);
        taken.page.store(page, Relaxed);
        taken.twin.store(twin as usize, Relaxed);
        taken.shared.store(shared as usize, Relaxed);
    }
    COUNT.fetch_add(1, Relaxed);
    with(taken, |page, twin, shared| {
        sunder_transaction::refresh(page, twin, shared, &[u8::MAX; sunder_transaction::WORDS]);
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

/// Commits all pages and, if wanted, takes over what others wrote. False if bytes
/// beside the meant ones have changed: the page is not wanted any more.
pub fn commit(control: &Control, refresh: bool) -> bool {
    let mut sound = true;
    let mut bytes = 0;
    for taken in TAKEN.iter().take(COUNT.load(Relaxed)) {
        let Some(wanted) = control.pages.get(taken.index.load(Relaxed)) else {
            continue;
        };
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
        bytes += u64::from(written.bytes);
        if written.beside + read.beside > 0 {
            wanted.given_up.store(1, Relaxed);
            sound = false;
        }
    }
    if bytes > 0 {
        control.committed_bytes.fetch_add(bytes, Relaxed);
        control.commits.fetch_add(1, Relaxed);
    }
    sound
}
