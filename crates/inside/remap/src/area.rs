//! Moves pages and moves them back.
//!
//! Contexts: signal, normal; any thread, any time.
//!
//! Moving: the pages lose all access rights and are then moved away whole (the kernel changes page
//! tables; nothing is copied). A mapping without rights stays in their place. Only the groups of
//! bytes are copied, from the moved pages to lines of their own. A thread that accesses the old
//! place meanwhile faults, and the handler waits.
//!
//! Moving back: first the new places lose all rights, so that threads in redirected code fault and
//! wait as well. Then the groups are copied into the pages, at an address that no other code knows,
//! and the pages move over their old place in one step.

use crate::pages::{self, map, protect, relocate, unmap};
use crate::shared::{self, areas, control, is_held, wait, wake};
use crate::{context_stacks, stacks, under_way};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use sunder_guest::system::{self, NoSignals, READ_WRITE};
use sunder_wire::remap::{
    ACTIVE, APPLY_AGAIN, APPLYING, AREA_BYTES, Area, BYTES, CACHE, FREE, MOST_MOVED, NOTHING, POOL,
    POOL_BYTES, READY, REFUSED, ROLLED_BACK, ROLLING_BACK, SCRATCH, SCRATCH_POOL, UNDERLAY,
};

const NONE: i32 = libc::PROT_NONE;
use sunder_access::PAGE;

/// How often a step of a rollback is tried. A rollback must not fail: without its bytes the program
/// can't continue.
const TRIES: u32 = 1000;

/// Moves the pages of `area`, the area with this number, for the first time or again. Runs with all
/// signals blocked.
pub fn apply(area: &Area, number: u64) {
    let again = area.wanted.load(Acquire) == APPLY_AGAIN;
    let before = if again { ROLLED_BACK } else { FREE };
    // Several threads may have been asked to move the area; one of them gets past this. The state
    // is set before anything else is read: a thread that must not meet moved bytes announces itself
    // first and reads the state afterwards.
    if area
        .state
        .compare_exchange(before, APPLYING, SeqCst, Relaxed)
        .is_err()
    {
        return;
    }
    shared::count_move();
    let ready = control().is_some_and(|c| c.ready.load(SeqCst) == READY);
    let used = under_way::any_in(area.page.load(Relaxed), area.len.load(Relaxed));
    // A condition that may pass: the tool asks again later.
    if is_held() || !ready || used || holds_stack(area) || overlaps_moved(area) {
        return finish(area, before);
    }
    let began = system::now();
    let error = if again {
        move_again(area)
    } else {
        carry_out(area, number)
    };
    if error == 0 {
        area.applied.store(began, Relaxed);
        area.took.store(system::now().wrapping_sub(began), Relaxed);
        // The tool may have asked for something else meanwhile; its request stays.
        let _ = area
            .wanted
            .compare_exchange(APPLY_AGAIN, NOTHING, AcqRel, Relaxed);
        finish(area, ACTIVE);
    } else {
        area.reason.store(error as u32, Relaxed);
        area.spoilt.store(1, Relaxed);
        finish(area, if again { ROLLED_BACK } else { REFUSED });
    }
}

/// Whether another area on the same pages is moved or moving. The mapping there now holds none of
/// this area's bytes, and moving it back later would overwrite theirs. If two areas ask at the same
/// time, neither is moved.
fn overlaps_moved(area: &Area) -> bool {
    let pages = |a: &Area| {
        let page = a.page.load(Relaxed);
        (page, page.saturating_add(a.len.load(Relaxed)))
    };
    let (start, end) = pages(area);
    areas().any(|other| {
        let (from, to) = pages(other);
        !core::ptr::eq(area, other)
            && from < end
            && start < to
            && matches!(other.state.load(SeqCst), APPLYING | ACTIVE | ROLLING_BACK)
    })
}

/// Ends a move or rollback: sets the area's state and wakes the threads that wait for it.
fn finish(area: &Area, state: u32) {
    area.state.store(state, Release);
    wake(&area.state);
}

/// Moves an area again. Its places are still reserved and its copies of code still mapped, and
/// threads may still be in them. Returns 0 or an error number; after an error nothing has changed.
fn move_again(area: &Area) -> i32 {
    let (page, len, at) = (
        area.page.load(Relaxed),
        area.len.load(Relaxed),
        area.at.load(Relaxed),
    );
    if area.spoilt.load(Relaxed) != 0 || !is_sound(area, page, len, at) {
        return libc::EINVAL;
    }
    move_away(area, page, len, at)
}

/// Whether a stack lies in the area's pages that threads enter otherwise than by calls: a signal
/// stack or a stack for `swapcontext`.
fn holds_stack(area: &Area) -> bool {
    let (page, len) = (area.page.load(Relaxed), area.len.load(Relaxed));
    stacks::any_in(page, len) || context_stacks::any_in(page, len)
}

/// Moves an area for the first time. Returns 0 or an error number; after an error nothing has
/// changed.
fn carry_out(area: &Area, number: u64) -> i32 {
    let (page, len, at) = (
        area.page.load(Relaxed),
        area.len.load(Relaxed),
        area.at.load(Relaxed),
    );
    if !is_sound(area, page, len, at) {
        return libc::EINVAL;
    }
    let place = area.code.load(Relaxed);
    for (start, bytes) in [(at, AREA_BYTES), (place, CACHE)] {
        let error = reserve(start, bytes);
        if error != 0 {
            if start == place {
                // SAFETY: the range was just reserved, and no other code knows it yet.
                unsafe { unmap(at, AREA_BYTES) };
            }
            return error;
        }
    }
    let error = code(number, place).unwrap_or_else(|| move_away(area, page, len, at));
    if error != 0 {
        // SAFETY: `reserve` has succeeded, so that only our reservation lies there.
        unsafe {
            unmap(at, AREA_BYTES);
            unmap(place, CACHE);
        }
    }
    error
}

/// Puts memory without rights and contents over a part of our reservation.
///
/// # Safety
/// Nothing uses what is mapped there.
unsafe fn cover(start: u64, bytes: u64) -> bool {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the caller upholds this function's contract.
    unsafe { map(start, bytes, NONE, kind | libc::MAP_FIXED, -1, 0) == start as isize }
}

/// Reserves a range of unused addresses; 0 or an error number.
fn reserve(start: u64, bytes: u64) -> i32 {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: `MAP_FIXED_NOREPLACE` replaces no mapping.
    let got = unsafe { map(start, bytes, NONE, kind | libc::MAP_FIXED_NOREPLACE, -1, 0) };
    if got == start as isize {
        return 0;
    }
    if got > 0 {
        // SAFETY: an old kernel took the address for a hint and mapped elsewhere; no other code
        // knows that mapping.
        unsafe { unmap(got as u64, bytes) };
        return libc::EEXIST;
    }
    -got as i32
}

/// Maps the area's code at `at`. The code is already mapped behind the control data; this is a
/// second mapping. Returns an error number if that fails.
fn code(number: u64, at: u64) -> Option<i32> {
    let offset = BYTES as u64 + number * CACHE;
    let shared = control().map_or(0, |c| &raw const *c as u64);
    let rights = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: replaces a part of our own reservation, in which no code executes yet.
    let mapped =
        unsafe { pages::duplicate(shared + offset, CACHE, at) && protect(at, CACHE, rights) };
    (!mapped).then_some(libc::EACCES)
}

/// Moves the bytes; 0 or an error number. The new places are filled before they are mapped where
/// existing copies of code look for them.
fn move_away(area: &Area, page: u64, len: u64, at: u64) -> i32 {
    let failed = libc::ENOMEM;
    let underlay = at + UNDERLAY;
    // SAFETY: all ranges are our own reservation, or the pages; a thread that accesses the pages
    // meanwhile faults, and the handler resolves that or they are put back here.
    unsafe {
        let pool = at + SCRATCH_POOL;
        if !protect(pool, POOL_BYTES, READ_WRITE) {
            return failed;
        }
        if !protect(page, len, NONE) {
            protect(pool, POOL_BYTES, NONE);
            return failed;
        }
        if !relocate(page, len, underlay, true) {
            // The pages had these rights before, or the tool would not have asked to move them.
            protect(page, len, READ_WRITE);
            protect(pool, POOL_BYTES, NONE);
            return failed;
        }
        let filled = protect(underlay, len, READ_WRITE) && {
            for (from, to, bytes) in groups(area) {
                copy(underlay + from, pool + (to - POOL), bytes);
            }
            relocate(pool, POOL_BYTES, at + POOL, true)
        };
        protect(pool, POOL_BYTES, NONE);
        if !filled {
            retry(|| relocate(underlay, len, page, false));
            retry(|| protect(page, len, READ_WRITE));
            return failed;
        }
    }
    0
}

/// For each group: its address in the pages, its address in the area, and its length.
fn groups(area: &Area) -> impl Iterator<Item = (u64, u64, u64)> {
    let count = area.groups.load(Relaxed) as usize;
    area.group.iter().take(count).map(|g| {
        (
            g.from.load(Relaxed).into(),
            g.to.load(Relaxed).into(),
            g.len.load(Relaxed).into(),
        )
    })
}

/// Whether the numbers that the tool wrote lie within the area and the pages.
fn is_sound(area: &Area, page: u64, len: u64, at: u64) -> bool {
    let whole = |n: u64| n.is_multiple_of(PAGE) && n > 0;
    whole(page)
        && whole(at)
        && whole(area.code.load(Relaxed))
        && whole(len)
        && len <= MOST_MOVED
        && page.checked_add(len).is_some()
        && at.checked_add(AREA_BYTES).is_some()
        && groups(area).all(|(from, to, bytes)| {
            from + bytes <= len && to >= POOL && to + bytes <= POOL + POOL_BYTES
        })
}

/// # Safety
/// Both ranges are mapped for so many bytes, and no other thread uses them.
unsafe fn copy(from: u64, to: u64, bytes: u64) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { core::ptr::copy(from as *const u8, to as *mut u8, bytes as usize) };
}

/// Moves the bytes of `area` back and waits until that is done. Does nothing if they are in their
/// place.
pub fn roll_back(area: &Area, reason: u32) {
    loop {
        let state = area.state.load(Acquire);
        match state {
            ACTIVE => {
                // Signals are blocked before other threads begin to wait for this one: a signal
                // handler that ran here would make them wait, too.
                let signals = NoSignals::hold();
                let mine = area
                    .state
                    .compare_exchange(ACTIVE, ROLLING_BACK, AcqRel, Relaxed);
                if mine.is_ok() {
                    area.reason.store(reason, Relaxed);
                    put_back(area);
                    area.rolled_back.store(system::now(), Relaxed);
                    area.state.store(ROLLED_BACK, Release);
                    wake(&area.state);
                    drop(signals);
                    return;
                }
            }
            APPLYING | ROLLING_BACK => await_change(area, state),
            _ => return,
        }
    }
}

/// As [`roll_back`], for all areas.
pub fn roll_back_all(reason: u32) {
    for area in areas() {
        roll_back(area, reason);
    }
}

/// As [`roll_back`], for the areas with pages in a range of addresses.
pub fn roll_back_in(start: u64, len: u64, reason: u32) {
    let end = start.saturating_add(len);
    for area in areas() {
        let page = area.page.load(Relaxed);
        if page < end && start < page.saturating_add(area.len.load(Relaxed)) {
            roll_back(area, reason);
        }
    }
}

/// Waits a moment for an area that is moving or being moved back.
pub fn await_change(area: &Area, state: u32) {
    wait(&area.state, state, 10_000_000);
}

fn put_back(area: &Area) {
    let (page, len, at) = (
        area.page.load(Relaxed),
        area.len.load(Relaxed),
        area.at.load(Relaxed),
    );
    // SAFETY: the area is ours; a thread that uses its bytes faults from here on and waits.
    unsafe {
        retry(|| protect(at + UNDERLAY, SCRATCH - UNDERLAY, NONE));
        // The places stay reserved, because old copies of code still use these addresses.
        retry(|| relocate(at + POOL, POOL_BYTES, at + SCRATCH_POOL, true));
        retry(|| relocate(at + UNDERLAY, len, at + SCRATCH, true));
        // Of memory that was mapped with `MAP_SHARED`, the kernel leaves a second mapping behind.
        retry(|| cover(at + UNDERLAY, len));
        retry(|| protect(at + SCRATCH, len, READ_WRITE));
        retry(|| protect(at + SCRATCH_POOL, POOL_BYTES, READ_WRITE));
        for (from, to, bytes) in groups(area) {
            copy(at + SCRATCH_POOL + (to - POOL), at + SCRATCH + from, bytes);
        }
        retry(|| relocate(at + SCRATCH, len, page, false));
        protect(at + SCRATCH_POOL, POOL_BYTES, NONE);
    }
    // Another thread's mapping may have been placed there.
    if reserve(at + SCRATCH, len) != 0 {
        area.spoilt.store(1, Relaxed);
    }
}

/// Does a step that must not fail. If memory is short, it may suffice a moment later; if not, the
/// program ends, because it would continue with wrong data.
fn retry(mut work: impl FnMut() -> bool) {
    for _ in 0..TRIES {
        if work() {
            return;
        }
        system::give_way();
    }
    end(b"sunder: moved bytes can't be put back\n");
}

/// Writes the reason and ends the program by an abort.
fn end(why: &[u8]) -> ! {
    system::write(2, why);
    // SAFETY: `abort` takes no arguments.
    unsafe { libc::abort() }
}

/// Whether the area was ever moved.
pub fn is_used(area: &Area) -> bool {
    area.state.load(Acquire) != FREE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::set_control;
    use sunder_wire::remap::{APPLY, AREAS, Control};

    /// Some pages, moved in one area, are asked for in another. Moving the mapping that lies in
    /// their place then would bring back the wrong bytes.
    #[test]
    fn pages_are_not_moved_twice() {
        let _alone = shared::COUNTING.lock();
        // SAFETY: all fields are atomic words, for which zeroes are valid.
        let control: &'static Control = Box::leak(unsafe { Box::new_zeroed().assume_init() });
        control.ready.store(READY, SeqCst);
        // SAFETY: the control data is leaked and never freed.
        unsafe { set_control((&raw const *control).cast_mut()) };
        let area = |number: usize, page: u64, len: u64, state: u32| {
            let area = &control.areas[number % AREAS];
            area.page.store(page, Relaxed);
            area.len.store(len, Relaxed);
            area.state.store(state, SeqCst);
            area.wanted.store(APPLY, SeqCst);
            area
        };
        let became = |area: &Area| {
            apply(area, 0);
            area.state.load(SeqCst)
        };
        for (state, other, wanted) in [
            (ACTIVE, 0x5000, FREE),
            (ROLLING_BACK, 0x5000, FREE),
            (APPLYING, 0x5000, FREE),
            // The areas overlap in one page of several.
            (ACTIVE, 0x4000, FREE),
            // These numbers are not sound, so that the request gets past the overlap check and is
            // refused.
            (ROLLED_BACK, 0x5000, REFUSED),
            (ACTIVE, 0x3000, REFUSED),
            (ACTIVE, 0x6000, REFUSED),
        ] {
            area(0, other, 2 * PAGE, state);
            let asked = area(1, 0x5000, PAGE, FREE);
            assert_eq!(became(asked), wanted, "{state} at {other:#x}");
        }
        // SAFETY: `set_control` accepts null.
        unsafe { set_control(core::ptr::null_mut()) };
    }
}
