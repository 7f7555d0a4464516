//! Makes the program's private memory sharable, and private again.
//!
//! Contexts: a thread in [`crate::enter`] (`share`), or one that is about to fork (`unshare`); all
//! other threads are stopped meanwhile.
//!
//! All sharable memory lies in one file, at the offset that is its address. So no two ranges
//! overlap in the file, and a mapping that grows finds zeroes. Memory is converted piece by piece,
//! so that little of it exists twice at any time.

use crate::{arguments, control, files, inputs, maps};
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use sunder_access::PAGE_SIZE as PAGE;
use sunder_guest::{bytes, system};
use sunder_wire::isolation::{APART, CONTROL_BYTES, Control, RANGES, SCRATCH, SCRATCH_AT};

/// Size of the pieces that are converted at a time, in bytes: so much memory exists twice.
const PIECE: usize = 16 << 20;
/// Bytes of `/proc/PID/pagemap` for one piece.
const PRESENCE: usize = PIECE / PAGE * 8;
/// The main stack is shared up to its limit; with a larger limit than this it stays private.
const LARGEST_STACK: usize = 64 << 20;
/// No conversion with more mappings than this. The kernel allows 65,530 by default.
const MOST_MAPPINGS: usize = 20_000;

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Makes all memory sharable that is not yet. False if that failed half-way: memory that is not yet
/// sharable is as it was. Memory that is sharable by then stays so and counts as a conversion, so
/// that a fork still makes it private and changes of the address space are followed.
pub fn share(control: &Control) -> bool {
    let Some(file) = files::open_memory() else {
        return false;
    };
    // SAFETY: the path is a C string.
    let presence = unsafe { files::open(c"/proc/thread-self/pagemap".as_ptr().cast(), false) };
    let before = control.shared_bytes.load(Relaxed);
    let done = share_into(control, file, presence);
    system::close(file);
    if let Some(presence) = presence {
        system::close(presence);
    }
    if done || control.shared_bytes.load(Relaxed) != before {
        control.conversions.fetch_add(1, SeqCst);
    }
    done
}

fn scratch(control: &Control) -> (&'static mut [u8], &'static mut [u64]) {
    let at = &raw const *control as usize + SCRATCH_AT;
    // SAFETY: the scratch space follows the control file's head, and one thread at a time converts.
    unsafe {
        (
            core::slice::from_raw_parts_mut(at as *mut u8, SCRATCH - PRESENCE),
            core::slice::from_raw_parts_mut((at + SCRATCH - PRESENCE) as *mut u64, PRESENCE / 8),
        )
    }
}

fn share_into(control: &Control, file: i32, presence: Option<i32>) -> bool {
    let (buffer, present) = scratch(control);
    let Some(text) = maps::read(buffer) else {
        return false;
    };
    if maps::all(text).count() > MOST_MAPPINGS {
        return false;
    }
    let own = control::library();
    let head = &raw const *control as usize;
    let kept = [own, [head, head + CONTROL_BYTES]];
    // The file whose code came last in the list: the mappings that follow are its data.
    let mut module: &[u8] = b"";
    let mut before = 0;
    for mapping in maps::all(text) {
        let free_from = core::mem::replace(&mut before, mapping.end);
        if mapping.is_executable() {
            module = mapping.name;
        }
        if mapping.mode != *b"rw-p" || is_apart(control, &mapping) {
            continue;
        }
        let stack = mapping.name == b"[stack]";
        let anonymous = mapping.name.is_empty()
            || mapping.name == b"[heap]"
            || mapping.name.starts_with(b"[anon:");
        let data = mapping.is_of_file() && mapping.name == module;
        let lowest = if stack {
            match stack_start(mapping.end, free_from) {
                Some(lowest) => lowest,
                None => continue,
            }
        } else if anonymous || data {
            usize::MAX
        } else {
            if maps::may_be_input(text, &mapping) {
                inputs::meet(control, mapping.start, mapping.end);
            }
            continue;
        };
        let presence = presence.filter(|_| !data);
        for [from, end] in maps::outside(mapping.start, mapping.end, &kept) {
            let range = [lowest.min(from), from, end];
            if !share_range(control, file, presence, present, range) {
                return false;
            }
            arguments::keep(from, end);
        }
    }
    true
}

/// Whether the program has told the kernel that forked children must not get this memory as it is;
/// the kernel keeps that for private memory only.
fn is_apart(control: &Control, mapping: &maps::Mapping<'_>) -> bool {
    let count = (control.apart_count.load(Acquire) as usize).min(APART);
    control.apart.iter().take(count).any(|[from, to]| {
        mapping.start < to.load(Relaxed) as usize && (from.load(Relaxed) as usize) < mapping.end
    })
}

/// The lowest address that the main thread's stack may grow to. A shared mapping does not grow, so
/// the whole range is mapped.
fn stack_start(end: usize, free_from: usize) -> Option<usize> {
    const GUARD: usize = 1 << 20;
    let bytes = usize::try_from(system::limit(libc::RLIMIT_STACK))
        .ok()
        .filter(|b| *b <= LARGEST_STACK)?;
    let start = end.checked_sub(bytes)? & !(PAGE - 1);
    (start >= free_from.checked_add(GUARD)?).then_some(start)
}

/// Makes `[start, end)` sharable; memory exists from `from` on, and below is room for the stack.
fn share_range(
    control: &Control,
    file: i32,
    presence: Option<i32>,
    present: &mut [u64],
    [start, from, end]: [usize; 3],
) -> bool {
    // An earlier use of these addresses may have left data in the file.
    // SAFETY: the memory at these addresses is still private, so this range of the file is unused.
    let punched = unsafe { system::punch_hole(file, start, end - start) };
    if punched < 0 {
        return failed(control, punched);
    }
    let count = control.range_count.load(Relaxed) as usize;
    let Some(range) = control.ranges.get(count).filter(|_| count < RANGES) else {
        return false;
    };
    let [low, high] = range;
    low.store(start as u64, Relaxed);
    high.store(start as u64, Relaxed);
    control.range_count.store(count as u32 + 1, Relaxed);
    let mut at = start;
    while at < end {
        let next = end.min((at | (PIECE - 1)) + 1);
        let length = next - at;
        if next > from && !copy(control, file, presence, present, at.max(from), next) {
            return false;
        }
        let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: the contents are in the file, and no other thread runs.
        let mapped = unsafe { system::map(at, length, READ_WRITE, flags, file, at) };
        if mapped != at as isize {
            if start < at && at <= from {
                // The stack itself could not be shared; the program may need the addresses below
                // it.
                // SAFETY: the range was unmapped before, and only our new mapping lies there.
                unsafe { system::unmap(start, at - start) };
                high.store(start as u64, Relaxed);
                control.shared_bytes.fetch_sub((at - start) as u64, Relaxed);
            }
            return failed(control, mapped);
        }
        control.shared_bytes.fetch_add(length as u64, Relaxed);
        high.store(next as u64, Relaxed);
        at = next;
    }
    true
}

fn failed(control: &Control, error: isize) -> bool {
    control.error.store(error as i64, Relaxed);
    false
}

/// Writes the pages of `[from, to)` that exist to the file; the range is at most one piece.
fn copy(
    control: &Control,
    file: i32,
    presence: Option<i32>,
    present: &mut [u64],
    from: usize,
    to: usize,
) -> bool {
    const PRESENT_OR_SWAPPED: u64 = 3 << 62;
    let pages = (to - from) / PAGE;
    let Some(present) = present.get_mut(..pages) else {
        return false;
    };
    present.fill(u64::MAX);
    if let Some(presence) = presence {
        let at = present.as_mut_ptr().cast();
        // SAFETY: the buffer is valid for its length, and every bit pattern is a valid number.
        let bytes = unsafe { core::slice::from_raw_parts_mut(at, pages * 8) };
        if system::read_at(presence, bytes, (from / PAGE * 8) as u64) != bytes.len() as isize {
            present.fill(u64::MAX);
        }
    }
    let exists = |i: usize| present.get(i).is_some_and(|p| p & PRESENT_OR_SWAPPED != 0);
    let mut i = 0;
    while i < pages {
        if !exists(i) {
            i += 1;
            continue;
        }
        let first = i;
        while i < pages && exists(i) {
            i += 1;
        }
        if !write(control, file, from + first * PAGE, (i - first) * PAGE) {
            return false;
        }
    }
    true
}

fn write(control: &Control, file: i32, mut at: usize, mut bytes: usize) -> bool {
    while bytes > 0 {
        // SAFETY: the kernel only reads the program's memory, which is mapped readable.
        let done = unsafe { system::write_at(file, at, bytes, at as u64) };
        if done <= 0 {
            return failed(control, done);
        }
        at += done as usize;
        bytes -= done as usize;
    }
    true
}

/// Makes all sharable memory private to this process again. False if memory ran out half-way, or if
/// the list of mappings can't be read.
pub fn unshare(control: &Control) -> bool {
    // Opening fails in a program that has dropped its privileges; then memory itself is copied.
    let file = files::open_memory();
    let (buffer, _) = scratch(control);
    let mut done = false;
    if let Some(text) = maps::read(buffer) {
        done = maps::all(text)
            .filter(maps::is_converted)
            .all(|mapping| unshare_mapping(control, file, &mapping));
    }
    if let Some(file) = file {
        system::close(file);
    }
    if done {
        control.range_count.store(0, Relaxed);
        control.conversions.store(0, SeqCst);
    }
    done
}

fn unshare_mapping(control: &Control, file: Option<i32>, mapping: &maps::Mapping<'_>) -> bool {
    let mut at = mapping.start;
    while at < mapping.end {
        let next = mapping.end.min((at | (PIECE - 1)) + 1);
        let offset = mapping.offset + (at - mapping.start);
        if !unshare_piece(control, file, [at, next - at], offset, mapping.mode) {
            return false;
        }
        at = next;
    }
    true
}

fn unshare_piece(
    control: &Control,
    file: Option<i32>,
    [at, bytes]: [usize; 2],
    offset: usize,
    mode: [u8; 4],
) -> bool {
    const OWN: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping; nothing else is replaced.
    let copy = unsafe { system::map(0, bytes, READ_WRITE, OWN, -1, 0) };
    if copy <= 0 {
        return failed(control, copy);
    }
    let copy = copy as usize;
    let error = match file {
        Some(file) => read_back(file, offset, copy, bytes),
        None => copy_back(at, copy, bytes),
    };
    if error < 0 {
        // SAFETY: the copy is our own mapping.
        unsafe { system::unmap(copy, bytes) };
        return failed(control, error);
    }
    let bit = |i: usize, letter: u8, flag: i32| {
        if mode.get(i) == Some(&letter) {
            flag
        } else {
            0
        }
    };
    let protection = bit(0, b'r', libc::PROT_READ)
        | bit(1, b'w', libc::PROT_WRITE)
        | bit(2, b'x', libc::PROT_EXEC);
    const OVER: i32 = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the copy replaces the memory that it was made from; no other thread runs.
    unsafe {
        if protection != READ_WRITE {
            system::protect(copy, bytes, protection);
        }
        // A second mapping of the same file pages, through which they can be freed without the
        // file.
        let again = match file {
            Some(_) => 0,
            None => system::remap(at, 0, bytes, libc::MREMAP_MAYMOVE, 0),
        };
        let moved = system::remap(copy, bytes, bytes, OVER, at);
        if let (Some(file), true) = (file, moved >= 0) {
            system::punch_hole(file, offset, bytes);
        }
        if again > 0 {
            if moved >= 0 {
                system::advise(again as usize, bytes, libc::MADV_REMOVE);
            }
            system::unmap(again as usize, bytes);
        }
        if moved < 0 {
            // Copying without the file has changed the memory's access rights.
            system::protect(at, bytes, protection);
            return failed(control, moved);
        }
    }
    true
}

/// Copies what the file holds from `offset` on to `copy`, a new mapping of so many bytes. A
/// negative value is an error.
fn read_back(file: i32, offset: usize, copy: usize, bytes: usize) -> isize {
    let mut done = 0;
    while done < bytes {
        // SAFETY: the copy is our own mapping; the file is only read.
        unsafe {
            let seek = |whence: i32, from: usize| {
                system::call(
                    libc::SYS_lseek,
                    [file as usize, from, whence as usize, 0, 0, 0],
                )
            };
            let data = seek(libc::SEEK_DATA, offset + done);
            if data < 0 || data as usize >= offset + bytes {
                break;
            }
            let hole = seek(libc::SEEK_HOLE, data as usize);
            let end = if hole < 0 {
                offset + bytes
            } else {
                (hole as usize).min(offset + bytes)
            };
            done = data as usize - offset;
            let length = end - data as usize;
            let place = core::slice::from_raw_parts_mut((copy + done) as *mut u8, length);
            let read = system::read_at(file, place, data as u64);
            if read <= 0 {
                return read.min(-1);
            }
            done += read as usize;
        }
    }
    0
}

/// Copies memory to `copy`, a new mapping of so many bytes, without its pages of zeroes. Changes
/// the access rights of the original, which the copy then replaces. A negative value is an error.
fn copy_back(at: usize, copy: usize, bytes: usize) -> isize {
    const WORD: usize = size_of::<u64>();
    // SAFETY: no other thread runs, and the copy is our own mapping.
    unsafe {
        let error = system::protect(at, bytes, READ_WRITE);
        if error < 0 {
            return error;
        }
        for page in (0..bytes).step_by(PAGE) {
            let word = |i: usize| ((at + page + i * WORD) as *const u64).read();
            if (0..PAGE / WORD).any(|i| word(i) != 0) {
                bytes::copy(at + page, copy + page, PAGE);
            }
        }
    }
    0
}
