//! Where an object was asked for: the return address of the call. To pad the
//! call sites of a saved result, addresses of this run are compared with the
//! list that `sunder run` wrote: lines of an offset (the address less what the
//! loader added, hexadecimal) and the file that holds the code.

use crate::lock::Lock;
use crate::system;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The registers of the caller of an allocation function at its entry.
#[derive(Clone, Copy)]
pub struct Caller {
    /// Points to the return address.
    pub sp: *const u64,
}

impl Caller {
    /// Where the call returns to.
    #[inline]
    pub fn address(self) -> u64 {
        // SAFETY: our own return address.
        unsafe { *self.sp }
    }
}

/// Addresses that were looked up lately: shifted left by one, and whether they
/// are listed. A power of two.
const KNOWN: usize = 4096;
static LATELY: [AtomicU64; KNOWN] = [const { AtomicU64::new(0) }; KNOWN];

/// The text of the list; 0 if there is none.
static LIST: AtomicUsize = AtomicUsize::new(0);
static LIST_LEN: AtomicUsize = AtomicUsize::new(0);
/// glibc's function that finds the object of an address without a lock.
static FIND_OBJECT: AtomicUsize = AtomicUsize::new(0);
/// A longer list is cut off.
const MOST_BYTES: usize = 1 << 20;

/// Loaded objects whose path is known.
const OBJECTS: usize = 64;

#[derive(Clone, Copy)]
struct Object {
    /// glibc's `struct link_map`; 0 for none.
    link_map: usize,
    /// Where in the list a line of this object stands; none if none does.
    listed: bool,
    path: [u8; 256],
    len: usize,
}

static KNOWN_OBJECTS: Lock<[Object; OBJECTS]> = Lock::new(
    [Object {
        link_map: 0,
        listed: false,
        path: [0; 256],
        len: 0,
    }; OBJECTS],
);

/// Reads the list; whether there is one.
///
/// # Safety
/// `path` is a C string.
pub unsafe fn load(path: *const u8) -> bool {
    // SAFETY: by this function's contract.
    let Some(fd) = (unsafe { system::open(path) }) else {
        return false;
    };
    let Some(memory) = system::map_memory(MOST_BYTES) else {
        system::close(fd);
        return false;
    };
    let mut len = 0;
    loop {
        // SAFETY: the rest of the memory is ours.
        let rest =
            unsafe { core::slice::from_raw_parts_mut((memory + len) as *mut u8, MOST_BYTES - len) };
        let read = system::read(fd, rest);
        len += read;
        if read == 0 {
            break;
        }
    }
    system::close(fd);
    // SAFETY: the name is a C string.
    let find = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    FIND_OBJECT.store(find as usize, Ordering::Relaxed);
    LIST.store(memory, Ordering::Relaxed);
    LIST_LEN.store(len, Ordering::Release);
    len > 0
}

fn list() -> &'static [u8] {
    let (at, len) = (
        LIST.load(Ordering::Relaxed),
        LIST_LEN.load(Ordering::Acquire),
    );
    if at == 0 {
        return &[];
    }
    // SAFETY: read in by `load`, and never changed.
    unsafe { core::slice::from_raw_parts(at as *const u8, len) }
}

/// Whether calls that return to `address` are on the list.
#[inline]
pub fn is_listed(address: u64) -> bool {
    let index = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize & (KNOWN - 1);
    let place = &LATELY[index];
    let known = place.load(Ordering::Relaxed);
    if known >> 1 == address {
        return known & 1 == 1;
    }
    let listed = look_up(address);
    place.store(address << 1 | u64::from(listed), Ordering::Relaxed);
    listed
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

#[cold]
#[inline(never)]
fn look_up(address: u64) -> bool {
    let find = FIND_OBJECT.load(Ordering::Relaxed);
    if find == 0 {
        return false;
    }
    // SAFETY: glibc's function has this type.
    let find: unsafe extern "C" fn(*mut c_void, *mut Found) -> i32 =
        unsafe { core::mem::transmute(find) };
    // SAFETY: plain data, for which zeroes are valid.
    let mut found: Found = unsafe { core::mem::zeroed() };
    // SAFETY: any address may be asked for. The return address may lie behind
    // the object's last instruction.
    let failed = unsafe { find((address - 1) as *mut c_void, &raw mut found) };
    if failed != 0 || found.link_map.is_null() {
        return false;
    }
    // SAFETY: the first member of a link map is what the loader added.
    let bias = unsafe { *found.link_map } as u64;
    let offset = address.wrapping_sub(bias);
    let mut objects = KNOWN_OBJECTS.lock();
    let key = found.link_map as usize;
    let place = objects
        .iter_mut()
        .find(|object| object.link_map == key || object.link_map == 0);
    let mut beyond = Object {
        link_map: 0,
        listed: false,
        path: [0; 256],
        len: 0,
    };
    let object = place.unwrap_or(&mut beyond);
    if object.link_map != key {
        object.len = path_of(address - 1, &mut object.path);
        object.link_map = key;
        let path = object.path.get(..object.len).unwrap_or_default();
        object.listed = lines().any(|(_, file)| file == path);
    }
    let path = object.path.get(..object.len).unwrap_or_default();
    object.listed && lines().any(|(at, file)| at == offset && file == path)
}

/// Offsets and files of the list.
fn lines() -> impl Iterator<Item = (u64, &'static [u8])> {
    list().split(|&byte| byte == b'\n').filter_map(|line| {
        let space = line.iter().position(|&byte| byte == b' ')?;
        let (number, rest) = line.split_at(space);
        Some((hexadecimal(number)?, rest.get(1..)?))
    })
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"0x").unwrap_or(text);
    let text = core::str::from_utf8(digits).ok()?;
    u64::from_str_radix(text, 16).ok()
}

/// The file that is mapped at `address`, from `/proc/self/maps`; its length,
/// 0 if it is not known.
fn path_of(address: u64, path: &mut [u8; 256]) -> usize {
    // SAFETY: a C string.
    let Some(fd) = (unsafe { system::open(c"/proc/self/maps".as_ptr().cast()) }) else {
        return 0;
    };
    let mut buffer = [0; 1024];
    let mut line = [0u8; 400];
    let mut len = 0;
    let mut result = 0;
    'all: loop {
        let read = system::read(fd, &mut buffer);
        if read == 0 {
            break;
        }
        for &byte in buffer.iter().take(read) {
            if byte != b'\n' {
                if let Some(place) = line.get_mut(len) {
                    *place = byte;
                    len += 1;
                }
                continue;
            }
            let whole = line.get(..len).unwrap_or_default();
            len = 0;
            if let Some(found) = path_in(whole, address) {
                for (to, from) in path.iter_mut().zip(found) {
                    *to = *from;
                }
                result = found.len().min(path.len());
                break 'all;
            }
        }
    }
    system::close(fd);
    result
}

/// The path in a line of the maps, if the line is that of `address`.
fn path_in(line: &[u8], address: u64) -> Option<&[u8]> {
    let dash = line.iter().position(|&byte| byte == b'-')?;
    let space = line.iter().position(|&byte| byte == b' ')?;
    let start = hexadecimal(line.get(..dash)?)?;
    let end = hexadecimal(line.get(dash + 1..space)?)?;
    if !(start..end).contains(&address) {
        return None;
    }
    let path = line.iter().position(|&byte| byte == b'/')?;
    line.get(path..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_maps_is_taken_apart() {
        let line = b"7f10-7f20 r-xp 00000000 fe:01 123   /usr/lib/a b.so";
        assert_eq!(path_in(line, 0x7f1f), Some(&b"/usr/lib/a b.so"[..]));
        assert_eq!(path_in(line, 0x7f20), None);
        assert_eq!(path_in(b"7f10-7f20 rw-p 00000000 00:00 0", 0x7f10), None);
        assert_eq!(hexadecimal(b"0x1f"), Some(31));
    }
}
