//! Private, writable mappings of files, as programs often map what they only read. As long as nobody
//! has written to such a mapping, its pages are the file's own, and are the same in each worker.
//! The kernel says which pages are not (`/proc/PID/pagemap`). A page becomes the process's own by the
//! first write to it, which is a page fault. So the parked threads count the process's faults at each
//! tick, and look at the pages only if there were some. If one was written, every worker that has the
//! mapping is recalled, and no worker gets it again.
//!
//! A worker may not write to such a mapping: that ends its episode, and the thread writes natively.
//! Called by [`crate::worker`], [`crate::enter`] and [`crate::space`]. Must not be used for data of
//! programs and libraries, which are written.
//!
//! Contexts: [`keep`] in a worker before it computes; the others in threads of the program.

use crate::files;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use sunder_access::PAGE_SIZE as PAGE;
use sunder_guest::system;
use sunder_wire::isolation::{Control, INPUTS, Input, Slot, input};

/// So many pages that were read, and none written, show that a mapping is only read. What a program
/// changes in its place, it changes as it goes along.
const MANY: usize = 256;
/// A mapping of which fewer were read must have been unwritten for so long, in ns.
const SETTLED: u64 = 100_000_000;

/// The page faults of this process so far, of all threads.
pub fn faults() -> u64 {
    /// Words of a `rusage`, and those with the numbers of minor and of major faults.
    const WORDS: usize = 18;
    const MINOR: usize = 8;
    const MAJOR: usize = 9;
    let mut usage = [0u64; WORDS];
    let arguments = [
        libc::RUSAGE_SELF as usize,
        usage.as_mut_ptr() as usize,
        0,
        0,
        0,
        0,
    ];
    // SAFETY: the kernel writes a `rusage`, for which the local has room.
    unsafe { system::call(libc::SYS_getrusage, arguments) };
    usage[MINOR] + usage[MAJOR]
}

/// A conversion has met this mapping, which may be input: if the program has read much of it, the next
/// worker may keep it. (A worker can't tell: it gets the mapping without the pages that were read.)
pub fn meet(control: &Control, start: usize, end: usize) {
    if of(control, start, end).is_none() {
        let read = pages(start, end).is_some_and(|read| read >= MANY);
        write_down(control, start, end, if read { 0 } else { system::now() });
    }
}

/// The entry of this mapping, with its number.
fn of(control: &Control, start: usize, end: usize) -> Option<(usize, &Input)> {
    control.inputs.iter().enumerate().find(|(_, one)| {
        matches!(one.state.load(Acquire), input::READ | input::WRITTEN)
            && one.start.load(Relaxed) == start as u64
            && one.end.load(Relaxed) == end as u64
    })
}

/// Whether this worker may keep the mapping `[start, end)`, which is then read-only for it. If it is
/// not known yet, it is only written down.
pub fn keep(control: &Control, slot: &Slot, start: usize, end: usize) -> bool {
    let now = system::now();
    let Some((number, one)) = of(control, start, end) else {
        write_down(control, start, end, now);
        return false;
    };
    if one.state.load(Acquire) != input::READ {
        return false;
    }
    if pages(start, end).is_none() {
        one.state.store(input::WRITTEN, SeqCst);
        return false;
    }
    if now.saturating_sub(one.since.load(Relaxed)) < SETTLED
        // SAFETY: a write to it faults and ends the episode.
        || unsafe { system::protect(start, end - start, libc::PROT_READ) } != 0
    {
        return false;
    }
    slot.inputs.fetch_or(1 << number, SeqCst);
    true
}

fn write_down(control: &Control, start: usize, end: usize, now: u64) {
    let free = |one: &&Input| {
        let state = &one.state;
        state
            .compare_exchange(input::FREE, input::TAKEN, SeqCst, Relaxed)
            .is_ok()
    };
    if let Some(one) = control.inputs.iter().find(free) {
        one.start.store(start as u64, Relaxed);
        one.end.store(end as u64, Relaxed);
        one.since.store(now, Relaxed);
        one.state.store(input::READ, Release);
    }
}

/// Whether nobody has written to the mappings that the slot's worker has kept. `faults` is how many
/// faults there were when that was last known.
pub fn are_unwritten(control: &Control, slot: &Slot, faults: &mut u64) -> bool {
    let kept = slot.inputs.load(Acquire);
    if kept == 0 {
        return true;
    }
    let now = self::faults();
    let changed = now != *faults;
    *faults = now;
    for (number, one) in control.inputs.iter().enumerate().take(INPUTS) {
        if kept >> number & 1 == 0 {
            continue;
        }
        let (start, end) = (one.start.load(Relaxed), one.end.load(Relaxed));
        if changed && pages(start as usize, end as usize).is_none() {
            one.state.store(input::WRITTEN, SeqCst);
        }
        // Another thread may have seen it.
        if one.state.load(Acquire) != input::READ {
            return false;
        }
    }
    true
}

/// Forgets the mappings in a range that is about to be unmapped, replaced or protected. No worker has
/// them any more.
pub fn forget(control: &Control, start: usize, bytes: usize) {
    let end = start.saturating_add(bytes) as u64;
    for one in &control.inputs {
        let state = one.state.load(Acquire);
        let over = one.start.load(Relaxed) < end && (start as u64) < one.end.load(Relaxed);
        if over && matches!(state, input::READ | input::WRITTEN) {
            one.state.store(input::FREE, Release);
        }
    }
}

/// How many pages in the range were read, if none of them is this process's own and no longer the
/// file's. `None` also if that can't be read.
fn pages(start: usize, end: usize) -> Option<usize> {
    // SAFETY: a C string.
    let fd = unsafe { files::open(c"/proc/thread-self/pagemap".as_ptr().cast(), false) }?;
    let read = pages_by(fd, start, end);
    system::close(fd);
    read
}

fn pages_by(pagemap: i32, start: usize, end: usize) -> Option<usize> {
    const AT_ONCE: usize = 512;
    const PRESENT_OR_SWAPPED: u64 = 3 << 62;
    const OF_FILE: u64 = 1 << 61;
    let mut words = [0u8; 8 * AT_ONCE];
    let (mut at, mut read) = (start, 0);
    while at < end {
        let count = ((end - at) / PAGE).clamp(1, AT_ONCE);
        let wanted = words.get_mut(..8 * count)?;
        if system::read_at(pagemap, wanted, (at / PAGE * 8) as u64) != wanted.len() as isize {
            return None;
        }
        for word in wanted.as_chunks::<8>().0 {
            let word = u64::from_le_bytes(*word);
            if word & PRESENT_OR_SWAPPED != 0 {
                if word & OF_FILE == 0 {
                    return None;
                }
                read += 1;
            }
        }
        at += count * PAGE;
    }
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    const PAGES: usize = 700;

    /// A private, writable mapping of a file of so many pages.
    struct Mapped {
        start: usize,
    }

    impl Mapped {
        fn new() -> Self {
            let (rights, bytes) = (libc::PROT_READ | libc::PROT_WRITE, PAGES * PAGE);
            let nowhere = core::ptr::null_mut();
            // SAFETY: a new file, and new memory at an address that the kernel chooses.
            let at = unsafe {
                let file = libc::memfd_create(c"input".as_ptr(), libc::MFD_CLOEXEC);
                assert_eq!(libc::ftruncate(file, bytes as i64), 0);
                let at = libc::mmap(nowhere, bytes, rights, libc::MAP_PRIVATE, file, 0);
                libc::close(file);
                at
            };
            assert_ne!(at, libc::MAP_FAILED);
            Self { start: at as usize }
        }

        const fn end(&self) -> usize {
            self.start + PAGES * PAGE
        }

        fn page(&self, number: usize) -> *mut u8 {
            (self.start + number * PAGE) as *mut u8
        }

        fn read_all(&self) {
            for number in 0..PAGES {
                // SAFETY: the page is mapped.
                assert_eq!(unsafe { self.page(number).read_volatile() }, 0);
            }
        }

        fn write(&self, number: usize) {
            // SAFETY: the page is mapped and nobody else uses it.
            unsafe { self.page(number).write_volatile(1) };
        }
    }

    impl Drop for Mapped {
        fn drop(&mut self) {
            // SAFETY: mapped by `new`; nothing refers to it.
            unsafe { libc::munmap(self.start as *mut _, PAGES * PAGE) };
        }
    }

    #[test]
    fn a_page_is_the_files_own_until_it_is_written() {
        let mapped = Mapped::new();
        assert_eq!(pages(mapped.start, mapped.end()), Some(0));
        mapped.read_all();
        assert_eq!(pages(mapped.start, mapped.end()), Some(PAGES));
        // Behind what is looked at at once.
        mapped.write(PAGES - 1);
        assert_eq!(pages(mapped.start, mapped.end()), None);
        assert_eq!(pages(mapped.start, mapped.end() - PAGE), Some(PAGES - 1));
    }

    #[test]
    fn a_mapping_is_kept_once_it_was_only_read_for_a_while() {
        let (control, mapped) = (testing::control(), Mapped::new());
        let slot = &control.slots[0];
        let kept = || keep(&control, slot, mapped.start, mapped.end());
        mapped.read_all();
        assert!(!kept() && !kept(), "it was just met");
        control.inputs[0].since.store(0, Relaxed);
        assert!(kept());
        assert_eq!(slot.inputs.load(Relaxed), 1);
        assert_eq!(control.inputs[1].state.load(Relaxed), input::FREE);
        forget(&control, mapped.start + PAGE, PAGE);
        assert!(!kept(), "another mapping may lie there");
        forget(&control, mapped.start, PAGE);
        meet(&control, mapped.start, mapped.end());
        assert!(kept(), "the program has read much of it");
        forget(&control, mapped.start, PAGE);
        meet(&control, mapped.start, mapped.start + PAGE);
        assert!(!keep(&control, slot, mapped.start, mapped.start + PAGE));
    }

    #[test]
    fn a_write_is_noticed_and_ends_it_for_all() {
        let (control, mapped) = (testing::control(), Mapped::new());
        let [first, second] = [&control.slots[0], &control.slots[1]];
        let kept = |slot| keep(&control, slot, mapped.start, mapped.end());
        assert!(!kept(first));
        control.inputs[0].since.store(0, Relaxed);
        assert!(kept(first) && kept(second));
        // In the program itself it can be written.
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: mapped by this test.
        unsafe { libc::mprotect(mapped.start as *mut _, PAGES * PAGE, rights) };
        let (mut ours, mut others) = (faults(), faults());
        mapped.read_all();
        assert!(are_unwritten(&control, first, &mut ours), "faults of reads");
        mapped.write(3);
        assert!(!are_unwritten(&control, first, &mut ours));
        assert!(!are_unwritten(&control, second, &mut others));
        assert!(!kept(first) && !kept(second));
        let none = &control.slots[2];
        assert!(are_unwritten(&control, none, &mut ours), "it has none");
    }
}
