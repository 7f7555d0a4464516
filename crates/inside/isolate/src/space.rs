//! What is done about kernel calls that change the address space, whoever makes them:
//! the program by way of the C library, its `malloc` and its threads from inside, or the
//! dynamic linker. They are led here by hooks (`sunder_hooks`). A worker has the address space of the
//! moment in which it was made, so it must be gone before memory is taken away or
//! becomes something else. Contexts: any thread, also with all signals blocked and inside
//! `malloc`; nothing here may allocate, and nothing may call what takes a lock.

use crate::calls::{self, Hold};
use crate::maps::{self, Sharable};
use crate::{code, files, tool};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use sunder_access::PAGE_SIZE as PAGE;
use sunder_guest::{bytes, system};
use sunder_hooks::{Call, Hooks};
use sunder_wire::isolation::{Control, RANGES, SCRATCH};

/// See [`change`]. Other calls are not led here.
pub const HOOKS: Hooks = Hooks {
    instead: change,
    failed: nothing,
};

const DONTNEED_LOCKED: i32 = 24;

unsafe extern "C" fn nothing(_: &mut Call) {}

/// A call that changes the address space, in its place.
unsafe extern "C" fn change(call: &mut Call) {
    let Some(hold) = Hold::unconverted() else {
        // SAFETY: the program's own call.
        unsafe { call.make() };
        return;
    };
    let [start, bytes, third, fourth, ..] = call.arguments;
    match call.number {
        // What is new is no news to a worker, which has none of it.
        libc::SYS_mmap if fourth as i32 & libc::MAP_FIXED == 0 => make(call),
        libc::SYS_mmap => {
            hold.recall();
            breaks(hold.control(), start, bytes);
            make(call);
            code::forget(hold.control(), start, bytes);
            if call.result >= 0 {
                forget(hold.control(), start, bytes);
            }
        }
        libc::SYS_munmap => {
            hold.recall();
            breaks(hold.control(), start, bytes);
            make(call);
            code::forget(hold.control(), start, bytes);
            if call.result == 0 {
                forget(hold.control(), start, bytes);
            }
        }
        libc::SYS_madvise => advise(&hold, call, third as i32),
        libc::SYS_mremap => {
            hold.recall();
            let place = call.arguments[4];
            let replaces = fourth as i32 & libc::MREMAP_FIXED != 0;
            breaks(hold.control(), start, bytes);
            if replaces {
                breaks(hold.control(), place, third);
            }
            remap(hold.control(), call);
            code::forget(hold.control(), start, bytes);
            if replaces {
                code::forget(hold.control(), place, third);
            }
        }
        libc::SYS_brk => set_break(&hold, call),
        libc::SYS_mprotect | libc::SYS_pkey_mprotect => {
            hold.recall();
            make(call);
            code::forget(hold.control(), start, bytes);
        }
        libc::SYS_shmat if third as i32 & libc::SHM_REMAP != 0 => {
            hold.recall();
            // How much of it is not said here.
            breaks(hold.control(), 0, usize::MAX);
            make(call);
            code::forget(hold.control(), 0, usize::MAX);
        }
        _ => {
            hold.recall();
            make(call);
        }
    }
}

fn make(call: &mut Call) {
    // SAFETY: the program's own call.
    unsafe { call.make() };
}

/// Whether memory of this range was made sharable at some time: it may have been given back, and
/// something else lie there.
fn may_be_converted(control: &Control, start: usize, bytes: usize) -> bool {
    let count = (control.range_count.load(Relaxed) as usize).min(RANGES);
    let end = start.saturating_add(bytes);
    control.conversions.load(Relaxed) > 0
        && control.ranges.iter().take(count).any(|[low, high]| {
            start < high.load(Relaxed) as usize && (low.load(Relaxed) as usize) < end
        })
}

/// Ranges in the control file of which something may have been given back or replaced, in their
/// order. All others are sharable memory to the last byte.
static BROKEN: [AtomicBool; RANGES] = [const { AtomicBool::new(false) }; RANGES];

/// Before sharable memory of a range goes.
fn breaks(control: &Control, start: usize, bytes: usize) {
    let end = start.saturating_add(bytes);
    let count = (control.range_count.load(Relaxed) as usize).min(RANGES);
    for ([low, high], broken) in control.ranges.iter().zip(&BROKEN).take(count) {
        if start < high.load(Relaxed) as usize && (low.load(Relaxed) as usize) < end {
            broken.store(true, SeqCst);
        }
    }
}

/// Whether all of a range is sharable memory for sure, without asking the kernel.
fn is_whole(control: &Control, start: usize, bytes: usize) -> bool {
    let end = start.saturating_add(bytes);
    let count = (control.range_count.load(Relaxed) as usize).min(RANGES);
    let mut ranges = control.ranges.iter().zip(&BROKEN).take(count);
    control.conversions.load(Relaxed) > 0
        && ranges.any(|([low, high], broken)| {
            let has = low.load(Relaxed) as usize <= start && end <= high.load(Relaxed) as usize;
            has && !broken.load(SeqCst)
        })
}

/// Has sharable memory read as zeroes and gives it back; whether that worked. Of a file of the program's the
/// same call would discard what is in it.
fn remove(start: usize, bytes: usize) -> bool {
    // SAFETY: the program said that it does not need what is there.
    unsafe { system::advise(start, bytes, libc::MADV_REMOVE) == 0 }
}

/// Gives the sharable memory of a range back, which nothing in this process reaches any
/// more or which is to read as zeroes: pages at the same place in the file. Whether
/// that worked.
fn forget(control: &Control, start: usize, bytes: usize) -> bool {
    if bytes == 0 || !start.is_multiple_of(PAGE) || !may_be_converted(control, start, bytes) {
        return true;
    }
    // SAFETY: the path is a C string.
    let Some(file) = (unsafe { files::open(crate::start::memory_path(), true) }) else {
        return false;
    };
    // SAFETY: nobody needs what is there.
    let done = unsafe { system::punch_hole(file, start, bytes.next_multiple_of(PAGE)) };
    system::close(file);
    done == 0
}

/// Advice on memory, of which some must be followed: discarded memory reads as zeroes.
fn advise(hold: &Hold, call: &mut Call, advice: i32) {
    let [start, bytes, ..] = call.arguments;
    let control = hold.control();
    let discards = advice == libc::MADV_DONTNEED || advice == DONTNEED_LOCKED;
    // Shared pages are discarded for workers too, but not the private ones.
    if !discards || tool::may_be_private(control, start, bytes) {
        hold.recall();
    }
    let converted = may_be_converted(control, start, bytes);
    let for_children = matches!(advice, libc::MADV_WIPEONFORK | libc::MADV_DONTFORK);
    if converted && for_children && sharable(start, bytes) != Some(Sharable::Nothing) {
        // As private memory it can follow the advice.
        if !calls::ends(hold, call.number) {
            call.result = -(libc::ENOMEM as isize);
            return;
        }
    }
    // The kernel knows this of private memory only. It need not do anything.
    if converted && advice == libc::MADV_FREE {
        call.result = 0;
        return;
    }
    make(call);
    let valid = call.result == 0 || call.result == -(libc::ENOMEM as isize);
    // Without a descriptor if that can be done: there may be none left.
    let mut done = !(discards && converted && valid);
    done = done || is_whole(control, start, bytes) && remove(start, bytes);
    if !done && !forget(control, start, bytes) {
        for_converted(start, bytes, |from, length| {
            remove(from, length);
        });
    }
}

/// Sharable memory neither grows nor moves as a mapping (what follows in its file is other
/// memory): it is copied. Other mappings are moved as ever, also where sharable memory once was.
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
            call.result = copied(control, [old, old_bytes], bytes).unwrap_or(no_memory);
        }
        // Whatever it is can't be moved as it would be natively.
        _ => call.result = no_memory,
    }
}

/// Makes the call, which may put a mapping in the place of sharable memory.
fn make_at(control: &Control, call: &mut Call, place: usize, bytes: usize) {
    make(call);
    if call.result >= 0 && call.arguments[3] as i32 & libc::MREMAP_FIXED != 0 {
        forget(control, place, bytes);
    }
}

/// Copies sharable memory, all of which can be read, to new memory of at least the same size, and
/// gives it back; whole pages. Where it is then.
fn copied(control: &Control, [old, old_bytes]: [usize; 2], bytes: usize) -> Option<isize> {
    let own = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: new memory, at least as large as the old, which the program gives away.
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

/// The heap's end moves: downwards it takes memory away.
fn set_break(hold: &Hold, call: &mut Call) {
    let wanted = call.arguments[0];
    // SAFETY: only asks.
    let now = unsafe { system::call(libc::SYS_brk, [0; 6]) } as usize;
    if wanted == 0 || wanted >= now {
        make(call);
        return;
    }
    hold.recall();
    breaks(hold.control(), wanted, now - wanted);
    make(call);
    let kept = (call.result as usize).next_multiple_of(PAGE);
    if call.result as usize == wanted && kept < now {
        forget(hold.control(), kept, now - kept);
    }
}

/// What of a range is sharable memory, by the kernel's list; `None` if that can't be read.
fn sharable(start: usize, bytes: usize) -> Option<Sharable> {
    let end = start.saturating_add(bytes);
    let mut found = None;
    with_list(|text| found = Some(maps::sharable(text, start, end)));
    found
}

/// Calls `act` with the parts of a range that are sharable memory, by the kernel's list.
fn for_converted(start: usize, bytes: usize, mut act: impl FnMut(usize, usize)) {
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
    // SAFETY: new memory, given back below.
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
