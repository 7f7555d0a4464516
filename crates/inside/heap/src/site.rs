//! The call site of an allocation: the return address of the call. To pad the call sites of a saved
//! result, addresses of this run are compared with the list that `sunder run` wrote: a line for
//! each, with an offset (the address minus the load bias, hexadecimal), a space and the file that
//! holds the code. Contexts: normal, signal, post-fork; `load`
//! before `main`.
//!
//! If the call is in a wrapper that the whole program uses, the line continues with the wrapper's
//! caller after a tab: an object of the wrapper counts only if that caller called it. The offset of
//! such a wrapper is followed by the rule for finding its caller's stack frame, `:BASE:CFA:SAVED`,
//! as the file's call-frame information says: the frame's end lies CFA bytes above the stack
//! pointer (`s`) or the frame pointer (`b`), the return address just below it, and the caller's
//! frame pointer SAVED bytes below it (0: not saved, still in its register). So only these
//! wrappers' frames are ever walked, each by one addition and one load.

use crate::lock::{Lock, Rank};
use crate::memory;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sunder_guest::allocator::Caller;
use sunder_guest::callers::{self, Key, Rule};
use sunder_guest::{code, system};

/// A call in the list. One without `parent` is a call of an allocation function; any other is a
/// call of its parent.
#[derive(Clone, Copy)]
struct ListedCall {
    parent: u16,
    /// A line of the list ends with this call.
    listed: bool,
    offset: u64,
    file: &'static [u8],
    rule: Option<Rule>,
}

/// The most calls. Their numbers begin at 1; 0 is none.
const MOST_CALLS: usize = 4096;

/// The number of addresses that [`RECENT`] remembers: a power of two.
const REMEMBERED: usize = 4096;
/// Recently looked-up addresses, each with the number of its call below it.
static RECENT: [AtomicU64; REMEMBERED] = [const { AtomicU64::new(0) }; REMEMBERED];

/// The address of the calls; 0 if there are none.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// glibc's function that finds the object of an address without a lock.
static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);
/// Size in bytes at which a longer list is cut off.
const MOST_BYTES: usize = 1 << 20;

/// The number of loaded objects whose paths are remembered.
const OBJECTS: usize = 64;

#[derive(Clone, Copy)]
struct Object {
    /// glibc's `struct link_map`; 0 for none.
    link_map: usize,
    /// Whether a call of the list is in this object.
    listed: bool,
    path: [u8; 256],
    len: usize,
}

const NO_OBJECT: Object = Object {
    link_map: 0,
    listed: false,
    path: [0; 256],
    len: 0,
};

static KNOWN_OBJECTS: Lock<[Object; OBJECTS]> = Lock::new(Rank::CallSites, [NO_OBJECT; OBJECTS]);

/// In the child of a fork in which other threads ran: one of them may have been filling in an
/// object, so all are looked up again.
pub fn after_fork() {
    if let Some(mut objects) = KNOWN_OBJECTS.take_over() {
        for object in objects.iter_mut() {
            object.link_map = 0;
        }
    }
}

/// Reads the list; returns whether there is one.
///
/// # Safety
/// `path` is a C string.
pub unsafe fn load(path: *const u8) -> bool {
    // SAFETY: by this function's contract.
    let Some(fd) = (unsafe { system::open(libc::AT_FDCWD, path, libc::O_RDONLY) }) else {
        return false;
    };
    let (Some(memory), Some(calls)) = (
        memory::take(MOST_BYTES),
        memory::take(MOST_CALLS * size_of::<ListedCall>()),
    ) else {
        system::close(fd);
        return false;
    };
    let mut len = 0;
    loop {
        // SAFETY: the remaining memory of our own mapping.
        let rest =
            unsafe { core::slice::from_raw_parts_mut((memory + len) as *mut u8, MOST_BYTES - len) };
        let read = usize::try_from(system::read(fd, rest)).unwrap_or(0);
        len += read;
        if read == 0 {
            break;
        }
    }
    system::close(fd);
    // SAFETY: filled above, and never changed afterwards.
    let text: &'static [u8] = unsafe { core::slice::from_raw_parts(memory as *const u8, len) };
    let mut count = 0;
    for line in text.split(|&byte| byte == b'\n') {
        // SAFETY: the mapping has room for so many calls, and no other thread uses it yet.
        unsafe { add_line(line, calls as *mut ListedCall, &mut count) };
    }
    // SAFETY: the name is a C string.
    let find = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    FIND_OBJECT.store(find as usize, Ordering::Relaxed);
    CALLS.store(calls, Ordering::Relaxed);
    COUNT.store(count, Ordering::Release);
    count > 0
}

/// Adds a line of the list, completely or not at all.
///
/// # Safety
/// `calls` has room for [`MOST_CALLS`], and `count` of them are written.
unsafe fn add_line(line: &'static [u8], calls: *mut ListedCall, count: &mut usize) {
    let fields = || line.split(|&byte| byte == b'\t');
    let complete = fields().all(|field| parse(field).is_some());
    if !complete || *count + fields().count() > MOST_CALLS {
        return;
    }
    let mut parent = 0;
    for call in fields().filter_map(parse) {
        // SAFETY: by this function's contract.
        let known = unsafe { core::slice::from_raw_parts(calls, *count) };
        let same =
            |c: &ListedCall| (c.parent, c.offset, c.file) == (parent, call.offset, call.file);
        parent = match known.iter().position(same) {
            Some(index) => {
                let known = calls.wrapping_add(index);
                // SAFETY: the call is written, and the slice is not used any more. One line may
                // have the rule for a call at which another ends.
                unsafe { (*known).rule = (*known).rule.or(call.rule) };
                index as u16 + 1
            }
            None => {
                // SAFETY: the check above has found room.
                unsafe { calls.add(*count).write(ListedCall { parent, ..call }) };
                *count += 1;
                *count as u16
            }
        };
    }
    if parent > 0 {
        // SAFETY: written above.
        unsafe { (*calls.wrapping_add(usize::from(parent) - 1)).listed = true };
    }
}

/// A field of a line: `OFFSET[:BASE:CFA:SAVED] FILE`.
fn parse(field: &'static [u8]) -> Option<ListedCall> {
    let space = field.iter().position(|&byte| byte == b' ')?;
    let (position, file) = (field.get(..space)?, field.get(space + 1..)?);
    let mut parts = position.split(|&byte| byte == b':');
    let offset = hexadecimal(parts.next()?)?;
    let rule = match parts.next() {
        None => None,
        Some(base) => Some(Rule {
            from_frame_pointer: match base {
                b"s" => false,
                b"b" => true,
                _ => return None,
            },
            cfa: hexadecimal(parts.next()?)?,
            saved: hexadecimal(parts.next()?)?,
        }),
    };
    Some(ListedCall {
        parent: 0,
        listed: false,
        offset,
        file,
        rule,
    })
}

fn calls() -> &'static [ListedCall] {
    let (at, count) = (CALLS.load(Ordering::Relaxed), COUNT.load(Ordering::Acquire));
    if count == 0 {
        return &[];
    }
    // SAFETY: `load` wrote so many calls, and they are never changed.
    unsafe { core::slice::from_raw_parts(at as *const ListedCall, count) }
}

/// Whether the call of an allocation function is on the list.
#[inline]
pub fn is_listed(caller: Caller) -> bool {
    callers::is_listed(caller, find, |number| {
        let known = calls().get(usize::from(number).checked_sub(1)?)?;
        Some(callers::ListedCall {
            is_end: known.listed,
            rule: known.rule,
        })
    })
}

/// The number of the call at `address` among the calls of `parent`; 0 if there is none.
#[inline]
fn find(parent: u16, address: u64) -> u16 {
    let key = Key::of(parent, address);
    let word = &RECENT[key.place(REMEMBERED)];
    if let Some(known) = key.number_in(word.load(Ordering::Relaxed)) {
        return known;
    }
    let Some(found) = look_up(parent, address) else {
        return 0;
    };
    word.store(key.word(found), Ordering::Relaxed);
    found
}

/// `struct dl_find_object` of glibc's `<dlfcn.h>`.
#[repr(C)]
struct Found {
    flags: u64,
    start: usize,
    end: usize,
    link_map: *const usize,
    eh_frame: usize,
    reserved: [u64; 7],
}

/// As [`find`], without memory. `None` if it can't be found out now: a signal has interrupted the
/// thread here.
#[cold]
#[inline(never)]
fn look_up(parent: u16, address: u64) -> Option<u16> {
    let find = FIND_OBJECT.load(Ordering::Relaxed);
    if find == 0 {
        return Some(0);
    }
    // SAFETY: glibc's function has this type.
    let find: unsafe extern "C" fn(*mut c_void, *mut Found) -> i32 =
        unsafe { core::mem::transmute(find) };
    // SAFETY: plain data, for which zeroes are valid.
    let mut found: Found = unsafe { core::mem::zeroed() };
    // SAFETY: the function accepts any address. One less than the return address, which may lie
    // after the object's last instruction.
    let failed = unsafe { find(address.wrapping_sub(1) as *mut c_void, &raw mut found) };
    if failed != 0 || found.link_map.is_null() {
        return Some(0);
    }
    // SAFETY: the first member of a link map is the load bias.
    let bias = unsafe { *found.link_map } as u64;
    let offset = address.wrapping_sub(bias);
    let mut objects = KNOWN_OBJECTS.lock()?;
    let key = found.link_map as usize;
    let slot = objects
        .iter_mut()
        .find(|object| object.link_map == key || object.link_map == 0);
    let mut beyond = NO_OBJECT;
    let object = slot.unwrap_or(&mut beyond);
    if object.link_map != key {
        let place = code::find(address - 1, &mut object.path);
        object.len = place.map_or(0, |(_, path)| path.len());
        object.link_map = key;
        let path = object.path.get(..object.len).unwrap_or_default();
        object.listed = calls().iter().any(|call| call.file == path);
    }
    let path = object.path.get(..object.len).unwrap_or_default();
    if !object.listed {
        return Some(0);
    }
    let same = |c: &ListedCall| (c.parent, c.offset, c.file) == (parent, offset, path);
    let index = calls().iter().position(same);
    Some(index.map_or(0, |index| index as u16 + 1))
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"0x").unwrap_or(text);
    let text = core::str::from_utf8(digits).ok()?;
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_hexadecimal() {
        assert_eq!(hexadecimal(b"0x1f"), Some(31));
        assert_eq!(hexadecimal(b"ff"), Some(255));
        assert_eq!(hexadecimal(b"g"), None);
    }

    #[test]
    fn lines_with_the_same_beginning_share_their_calls() {
        let mut memory = [const { core::mem::MaybeUninit::<ListedCall>::uninit() }; 8];
        let mut count = 0;
        for line in [
            &b"0x10:s:18:0 /lib/w.so\t0x20 /bin/a b"[..],
            b"0x10:s:18:0 /lib/w.so\t0x30:b:10:10 /bin/a b\t0x40 /bin/a b",
            b"0x50 /bin/c",
            b"0x10:x:18:0 /lib/w.so\t0x60 /bin/c",
            b"0x10:s:18 /lib/w.so\t0x60 /bin/c",
            b"",
        ] {
            // SAFETY: the memory has room for five calls.
            unsafe { add_line(line, memory.as_mut_ptr().cast(), &mut count) };
        }
        // SAFETY: `add_line` wrote so many calls.
        let calls: &[ListedCall] =
            unsafe { core::slice::from_raw_parts(memory.as_ptr().cast(), count) };
        let shown: Vec<_> = calls
            .iter()
            .map(|p| (p.parent, p.offset, p.listed))
            .collect();
        let expected = [
            (0, 0x10, false),
            (1, 0x20, true),
            (1, 0x30, false),
            (3, 0x40, true),
            (0, 0x50, true),
        ];
        assert_eq!(shown, expected);
        assert_eq!(calls[1].file, b"/bin/a b");
        let rule = Rule {
            from_frame_pointer: true,
            cfa: 16,
            saved: 16,
        };
        assert_eq!((calls[2].rule, calls[1].rule), (Some(rule), None));
    }
}
