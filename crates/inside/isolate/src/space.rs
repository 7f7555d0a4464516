//! Handles system calls that change the address space, from anywhere: the program's, those inside
//! the C library's `malloc` and thread functions, and the dynamic linker's. Hooks (`sunder_hooks`)
//! lead them here. A worker has the address space of the moment in which it was made, so its
//! episode must end before memory is unmapped or replaced.
//!
//! Contexts: any thread, also with all signals blocked and inside `malloc`: nothing here may
//! allocate or call a function that takes a lock. [`install_hooks`]: a thread in [`crate::enter`],
//! while all others are stopped.

use crate::hold::Hold;
use crate::maps::{self, Sharable};
use crate::{chosen, code, files, inputs, living, withdraw};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use sunder_access::PAGE_SIZE as PAGE;
use sunder_guest::{bytes, system};
use sunder_hooks::{Call, Hooks};
use sunder_wire::isolation::{Control, RANGES, SCRATCH, SCRATCH_AT, closed};

/// The hooks: [`change`] runs in the place of each call. Other calls are not hooked.
const HOOKS: Hooks = Hooks {
    instead: change,
    failed: do_nothing,
};

/// Installs the hooks for changes of the address space, by the plan that the tool has put into the
/// scratch space, unless they are installed. Returns whether they are. All other threads are
/// stopped, and none of them at an instruction that is replaced.
pub fn install_hooks(control: &Control) -> bool {
    if sunder_hooks::areas().any(|(start, _)| start != 0) {
        return true;
    }
    let bytes = control.plan_bytes.load(Acquire) as usize;
    let at = &raw const *control as usize + SCRATCH_AT;
    // SAFETY: the scratch space follows the control file's head; the tool does not write it while a
    // conversion is under way.
    let plan = unsafe { core::slice::from_raw_parts(at as *const u8, bytes.min(SCRATCH)) };
    // SAFETY: no other thread runs, and this one has all signals blocked; the tool has checked the
    // instruction pointers of the stopped threads.
    if unsafe { sunder_hooks::install(plan, HOOKS) }.is_err() {
        return false;
    }
    for (kept, (start, end)) in control.hooks.iter().zip(sunder_hooks::areas()) {
        kept[0].store(start as u64, Relaxed);
        kept[1].store(end as u64, Relaxed);
    }
    true
}

const DONTNEED_LOCKED: i32 = 24;

unsafe extern "C" fn do_nothing(_: &mut Call) {}

/// Runs in the place of a call that changes the address space, and makes it.
unsafe extern "C" fn change(call: &mut Call) {
    let Some(hold) = Hold::without_recall() else {
        // SAFETY: the program's own call with its own arguments.
        unsafe { call.make() };
        return;
    };
    let [start, bytes, third, fourth, ..] = call.arguments;
    match call.number {
        // A new mapping matters to no worker: it replaces nothing that a worker has.
        libc::SYS_mmap if fourth as i32 & libc::MAP_FIXED == 0 => make(call),
        libc::SYS_mmap => {
            hold.recall();
            mark_broken(hold.control(), start, bytes);
            make(call);
            forget_place(hold.control(), start, bytes);
            if call.result >= 0 {
                forget(hold.control(), start, bytes);
            }
        }
        libc::SYS_munmap => {
            hold.recall();
            mark_broken(hold.control(), start, bytes);
            make(call);
            forget_place(hold.control(), start, bytes);
            if call.result == 0 {
                forget(hold.control(), start, bytes);
            }
        }
        libc::SYS_madvise => advise(&hold, call, third as i32),
        libc::SYS_mremap => {
            hold.recall();
            let place = call.arguments[4];
            let replaces = fourth as i32 & libc::MREMAP_FIXED != 0;
            mark_broken(hold.control(), start, bytes);
            if replaces {
                mark_broken(hold.control(), place, third);
            }
            remap(hold.control(), call);
            forget_place(hold.control(), start, bytes);
            if replaces {
                forget_place(hold.control(), place, third);
            }
        }
        libc::SYS_brk => set_break(&hold, call),
        libc::SYS_mprotect | libc::SYS_pkey_mprotect => {
            hold.recall();
            make(call);
            code::forget(hold.control(), start, bytes);
            inputs::forget(hold.control(), start, bytes);
        }
        libc::SYS_shmat if third as i32 & libc::SHM_REMAP != 0 => {
            hold.recall();
            // How much memory the call replaces is not in its arguments.
            mark_broken(hold.control(), 0, usize::MAX);
            make(call);
            forget_place(hold.control(), 0, usize::MAX);
        }
        _ => {
            hold.recall();
            make(call);
        }
    }
}

/// Forgets what was known of a range that was unmapped or replaced.
fn forget_place(control: &Control, start: usize, bytes: usize) {
    code::forget(control, start, bytes);
    living::forget_in(control, start, bytes);
    inputs::forget(control, start, bytes);
}

fn make(call: &mut Call) {
    // SAFETY: the program's own call with its own arguments.
    unsafe { call.make() };
}

/// Whether memory of this range was ever made sharable. It may have been unmapped since, and
/// something else may lie there.
fn may_be_converted(control: &Control, start: usize, bytes: usize) -> bool {
    let count = (control.range_count.load(Relaxed) as usize).min(RANGES);
    let end = start.saturating_add(bytes);
    control.conversions.load(Relaxed) > 0
        && control.ranges.iter().take(count).any(|[low, high]| {
            start < high.load(Relaxed) as usize && (low.load(Relaxed) as usize) < end
        })
}

/// Which ranges of the control file, by index, may have had a part unmapped or replaced. All others
/// are sharable memory to the last byte.
static BROKEN: [AtomicBool; RANGES] = [const { AtomicBool::new(false) }; RANGES];

/// Called before sharable memory in a range is unmapped or replaced.
fn mark_broken(control: &Control, start: usize, bytes: usize) {
    let end = start.saturating_add(bytes);
    let count = (control.range_count.load(Relaxed) as usize).min(RANGES);
    for ([low, high], broken) in control.ranges.iter().zip(&BROKEN).take(count) {
        if start < high.load(Relaxed) as usize && (low.load(Relaxed) as usize) < end {
            broken.store(true, SeqCst);
        }
    }
}

/// Whether all of a range is certainly sharable memory; decided without asking the kernel.
fn is_all_sharable(control: &Control, start: usize, bytes: usize) -> bool {
    let end = start.saturating_add(bytes);
    let count = (control.range_count.load(Relaxed) as usize).min(RANGES);
    let mut ranges = control.ranges.iter().zip(&BROKEN).take(count);
    control.conversions.load(Relaxed) > 0
        && ranges.any(|([low, high], broken)| {
            let has = low.load(Relaxed) as usize <= start && end <= high.load(Relaxed) as usize;
            has && !broken.load(SeqCst)
        })
}

/// Frees sharable memory, which then reads as zeroes; returns whether that worked. Must not be
/// called for a file of the program's, whose contents it would discard.
fn remove(start: usize, bytes: usize) -> bool {
    // SAFETY: the program said that it does not need the contents.
    unsafe { system::advise(start, bytes, libc::MADV_REMOVE) == 0 }
}

/// Frees the memory file's pages of a range, which this process has unmapped or which are to read
/// as zeroes. They lie at the same place in the file. Returns whether that worked.
fn forget(control: &Control, start: usize, bytes: usize) -> bool {
    if bytes == 0 || !start.is_multiple_of(PAGE) || !may_be_converted(control, start, bytes) {
        return true;
    }
    let Some(file) = files::open_memory() else {
        return false;
    };
    // SAFETY: callers pass only memory that the program has unmapped, replaced or discarded.
    let done = unsafe { system::punch_hole(file, start, bytes.next_multiple_of(PAGE)) };
    system::close(file);
    done == 0
}

/// `madvise`. Some advice must be followed: discarded memory reads as zeroes.
fn advise(hold: &Hold, call: &mut Call, advice: i32) {
    let [start, bytes, ..] = call.arguments;
    let control = hold.control();
    let discards = advice == libc::MADV_DONTNEED || advice == DONTNEED_LOCKED;
    // Discarding shared pages reaches workers too, but not their private pages.
    if !discards || chosen::may_be_private(control, start, bytes) {
        hold.recall();
    }
    let converted = may_be_converted(control, start, bytes);
    let for_children = matches!(advice, libc::MADV_WIPEONFORK | libc::MADV_DONTFORK);
    if converted && for_children && sharable(start, bytes) != Some(Sharable::Nothing) {
        // Private memory can follow the advice.
        if !withdraw::close_for_good(hold, closed::MOVED) {
            call.result = -(libc::ENOMEM as isize);
            return;
        }
    }
    // The kernel accepts this for private memory only. The advice may be ignored.
    if converted && advice == libc::MADV_FREE {
        call.result = 0;
        return;
    }
    make(call);
    let valid = call.result == 0 || call.result == -(libc::ENOMEM as isize);
    // Tried first without a file descriptor: the program may have used them all.
    let mut done = !(discards && converted && valid);
    done = done || is_all_sharable(control, start, bytes) && remove(start, bytes);
    if !done && !forget(control, start, bytes) {
        each_converted(start, bytes, |from, length| {
            remove(from, length);
        });
    }
}

/// `mremap`. Sharable memory can't grow or move as a mapping, because other memory follows in its
/// file: it is copied. Other mappings are moved natively, even where sharable memory once was.
fn remap(control: &Control, call: &mut Call) {
    let [old, old_bytes, bytes, flags, place, _] = call.arguments;
    let flags = flags as i32;
    let pages = |bytes: usize| bytes.checked_next_multiple_of(PAGE);
    let (Some(old_bytes), Some(bytes)) = (pages(old_bytes), pages(bytes)) else {
        make(call);
        return;
    };
    let is_elsewhere = flags & (libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP) != 0;
    let shrinks = bytes <= old_bytes && !is_elsewhere;
    let valid = old.is_multiple_of(PAGE) && bytes != 0;
    if !valid || !may_be_converted(control, old, old_bytes.max(1)) {
        make_at(control, call, place, bytes);
        return;
    }
    if shrinks {
        make(call);
        if call.result >= 0 {
            forget(control, old + bytes, old_bytes - bytes);
        }
        return;
    }
    let no_memory = -(libc::ENOMEM as isize);
    match sharable(old, old_bytes.max(1)) {
        Some(Sharable::Nothing) => make_at(control, call, place, bytes),
        Some(Sharable::Memory) if flags == libc::MREMAP_MAYMOVE && old_bytes != 0 => {
            call.result = move_by_copy(control, [old, old_bytes], bytes).unwrap_or(no_memory);
        }
        // It can't be moved as it would be natively.
        _ => call.result = no_memory,
    }
}

/// Makes the call, which may replace sharable memory at `place`.
fn make_at(control: &Control, call: &mut Call, place: usize, bytes: usize) {
    make(call);
    if call.result >= 0 && call.arguments[3] as i32 & libc::MREMAP_FIXED != 0 {
        forget(control, place, bytes);
    }
}

/// Copies readable sharable memory to a new mapping of at least the same size, then unmaps and
/// frees it. Sizes are whole pages. Returns the new address.
fn move_by_copy(control: &Control, [old, old_bytes]: [usize; 2], bytes: usize) -> Option<isize> {
    let own = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the new mapping is at least as large as the old memory, which the program gives up by
    // its call.
    unsafe {
        let new = system::map(0, bytes, rights, own, -1, 0);
        if new < 0 {
            return None;
        }
        bytes::copy(old, new as usize, old_bytes);
        if system::unmap(old, old_bytes) == 0 {
            forget(control, old, old_bytes);
        }
        Some(new)
    }
}

/// `brk`. Lowering the heap's end unmaps memory.
fn set_break(hold: &Hold, call: &mut Call) {
    let wanted = call.arguments[0];
    // SAFETY: a `brk` of 0 only returns the current end.
    let now = unsafe { system::call(libc::SYS_brk, [0; 6]) } as usize;
    if wanted == 0 || wanted >= now {
        make(call);
        return;
    }
    hold.recall();
    mark_broken(hold.control(), wanted, now - wanted);
    make(call);
    let kept = (call.result as usize).next_multiple_of(PAGE);
    if call.result as usize == wanted && kept < now {
        forget(hold.control(), kept, now - kept);
    }
}

/// How much of a range is sharable memory by the kernel's list; `None` if that can't be read.
fn sharable(start: usize, bytes: usize) -> Option<Sharable> {
    let end = start.saturating_add(bytes);
    let mut found = None;
    with_list(|text| found = Some(maps::sharable(text, start, end)));
    found
}

/// Calls `act` with the parts of a range that are sharable memory, by the kernel's list.
fn each_converted(start: usize, bytes: usize, mut act: impl FnMut(usize, usize)) {
    with_list(|text| {
        for mapping in maps::all(text).filter(maps::is_converted) {
            let from = mapping.start.max(start);
            let to = mapping.end.min(start.saturating_add(bytes));
            if from < to {
                act(from, to - from);
            }
        }
    });
}

/// Calls `act` with the kernel's list, if that can be read.
fn with_list(act: impl FnOnce(&[u8])) {
    // SAFETY: a new mapping, which is unmapped below.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let at = system::map(0, SCRATCH, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if at <= 0 {
            return;
        }
        let buffer = core::slice::from_raw_parts_mut(at as *mut u8, SCRATCH);
        if let Some(text) = maps::read(buffer) {
            act(text);
        }
        system::unmap(at as usize, SCRATCH);
    }
}
