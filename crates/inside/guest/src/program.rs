//! Examines the file of a program that is about to be executed: the loader of a 32-bit program
//! would print an error about our library, that of another C library than glibc would not start
//! the program with it, and a sanitizer's runtime demands to be loaded first. Used where programs
//! are executed ([`crate::exec`]).
//! Contexts: normal, post-fork; also in a vforked child, so it uses little stack and leaves nothing
//! behind.

use crate::{environment, system};
use core::ffi::{c_char, c_int};

/// How an exec function names the program.
#[derive(Clone, Copy, Debug)]
pub enum Program {
    /// By its path.
    Path(*const c_char),
    /// By a path, or by a name that is looked up in `PATH`.
    Search(*const c_char),
    /// By a file descriptor.
    Descriptor(c_int),
    /// By a path relative to a folder.
    At(c_int, *const c_char),
}

/// A file that is closed when dropped.
struct File(c_int);

impl Drop for File {
    fn drop(&mut self) {
        system::close(self.0);
    }
}

const LONGEST_PATH: usize = 1024;
const SANITIZERS: [&[u8]; 5] = [
    b"libasan",
    b"libtsan",
    b"liblsan",
    b"libhwasan",
    b"libclang_rt",
];

/// The name of a function in a program that has the thread sanitizer's runtime in itself, as Clang links it.
const THREAD_SANITIZER: &[u8] = b"\0__tsan_create_fiber\0";

unsafe extern "C" {
    /// The C library's variable for the program's environment.
    static environ: environment::Strings;
}

/// Whether a library of ours may be loaded into `program`.
///
/// # Safety
/// A path is null or a C string.
#[must_use]
pub unsafe fn accepts(program: Program) -> bool {
    // SAFETY: by this function's contract.
    unsafe {
        match program {
            Program::Descriptor(fd) => file_accepts(fd, true),
            Program::Path(path) => path_accepts(libc::AT_FDCWD, path.cast(), true),
            Program::At(folder, path) => path_accepts(folder, path.cast(), true),
            Program::Search(name) => search_accepts(name.cast()),
        }
    }
}

/// # Safety
/// `path` is null or a C string.
unsafe fn path_accepts(folder: c_int, path: *const u8, scripts: bool) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: by this function's contract. A file that can't be read may still be executable; it
    // does not get the library.
    let file = unsafe { system::open(folder, path, libc::O_RDONLY | libc::O_NONBLOCK) }.map(File);
    file.is_some_and(|file| file_accepts(file.0, scripts))
}

/// # Safety
/// As [`accepts`].
unsafe fn search_accepts(name: *const u8) -> bool {
    if name.is_null() {
        return false;
    }
    // SAFETY: the name is a C string, and so is a value of the environment.
    unsafe {
        let length = environment::length(name);
        let bytes = core::slice::from_raw_parts(name, length);
        if bytes.contains(&b'/') {
            return path_accepts(libc::AT_FDCWD, name, true);
        }
        let Some(folders) = environment::find(environ, b"PATH=") else {
            return false;
        };
        let folders = core::slice::from_raw_parts(folders, environment::length(folders));
        let mut path = [0u8; LONGEST_PATH];
        for folder in folders.split(|&byte| byte == b':') {
            let folder: &[u8] = if folder.is_empty() { b"." } else { folder };
            let parts = folder.iter().chain(b"/").chain(bytes).chain(&[0]);
            if folder.len() + length + 2 > LONGEST_PATH {
                return false;
            }
            path.iter_mut()
                .zip(parts)
                .for_each(|(to, from)| *to = *from);
            if system::may_execute(libc::AT_FDCWD, path.as_ptr()) == 0 {
                return path_accepts(libc::AT_FDCWD, path.as_ptr(), true);
            }
        }
    }
    false
}

fn file_accepts(fd: c_int, scripts: bool) -> bool {
    let mut head = [0u8; 256];
    let read = usize::try_from(system::read_at(fd, &mut head, 0)).unwrap_or(0);
    if head.starts_with(b"#!") && scripts {
        let line = head.get_mut(2..read.min(255)).unwrap_or_default();
        let is_space = |byte: &u8| byte.is_ascii_whitespace();
        let start = line.iter().position(|b| !is_space(b)).unwrap_or(0);
        let name = line.get_mut(start..).unwrap_or_default();
        let Some(end) = name.iter().position(is_space) else {
            return false;
        };
        if let Some(end) = name.get_mut(end) {
            *end = 0;
        }
        // SAFETY: the name ends with the zero byte that was put there.
        return unsafe { path_accepts(libc::AT_FDCWD, name.as_ptr(), false) };
    }
    // Neither ELF nor a script: a shell may execute the file as text, and which one is not known
    // here.
    head.starts_with(b"\x7fELF\x02")
        && read >= 64
        && !has_other_loader(fd, &head)
        && !is_sanitized(fd, &head)
}

fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let bytes = bytes.get(at..at + size).unwrap_or_default();
    bytes
        .iter()
        .rev()
        .fold(0, |n, &byte| n << 8 | u64::from(byte))
}

/// The entries of a 64-bit ELF file's table of segments.
fn segments(fd: c_int, head: &[u8]) -> impl Iterator<Item = [u8; 56]> {
    let table = number(head, 32, 8);
    let (size, count) = (number(head, 54, 2), number(head, 56, 2).min(64));
    (0..count).map(move |i| {
        let mut entry = [0u8; 56];
        system::read_at(fd, &mut entry, table.wrapping_add(i * size));
        entry
    })
}

/// Whether the 64-bit ELF file names another dynamic loader than glibc's.
fn has_other_loader(fd: c_int, head: &[u8]) -> bool {
    const INTERPRETER: u64 = 3;
    const GLIBC: &[u8] = b"/ld-linux-x86-64.so.2\0";
    let Some(named) = segments(fd, head).find(|s| number(s, 0, 4) == INTERPRETER) else {
        return false;
    };
    let mut end = [0u8; GLIBC.len()];
    let length = number(&named, 32, 8);
    let from = length
        .checked_sub(GLIBC.len() as u64)
        .map(|before| number(&named, 8, 8).wrapping_add(before));
    from.is_none_or(|from| {
        system::read_at(fd, &mut end, from);
        end != *GLIBC
    })
}

/// Whether the 64-bit ELF file needs a sanitizer's library.
fn is_sanitized(fd: c_int, head: &[u8]) -> bool {
    const LOAD: u64 = 1;
    const DYNAMIC: u64 = 2;
    // File offset of an address of the dynamic section.
    let offset_of = |address: u64| {
        segments(fd, head).find_map(|s| {
            let (start, offset) = (number(&s, 16, 8), number(&s, 8, 8));
            let inside =
                number(&s, 0, 4) == LOAD && address.wrapping_sub(start) < number(&s, 32, 8);
            inside.then(|| address.wrapping_sub(start).wrapping_add(offset))
        })
    };
    let dynamic = segments(fd, head).find(|s| number(s, 0, 4) == DYNAMIC);
    let Some(dynamic) = dynamic else {
        return false;
    };
    let (start, entries) = (number(&dynamic, 8, 8), number(&dynamic, 32, 8) / 16);
    let entry = |i: u64| {
        let mut entry = [0u8; 16];
        system::read_at(fd, &mut entry, start.wrapping_add(i * 16));
        (number(&entry, 0, 8), number(&entry, 8, 8))
    };
    const NEEDED: u64 = 1;
    const STRINGS: u64 = 5;
    let all = || (0..entries.min(256)).map(entry).take_while(|e| e.0 != 0);
    let strings = all().find(|e| e.0 == STRINGS);
    let Some(strings) = strings.and_then(|e| offset_of(e.1)) else {
        return false;
    };
    let needs = all().filter(|e| e.0 == NEEDED).any(|(_, at)| {
        let mut name = [0u8; 16];
        system::read_at(fd, &mut name, strings.wrapping_add(at));
        SANITIZERS.iter().any(|s| name.starts_with(s))
    });
    const BYTES: u64 = 10;
    let bytes = all().find(|e| e.0 == BYTES).map_or(0, |e| e.1);
    needs || has_text(fd, strings, bytes, THREAD_SANITIZER)
}

/// Whether these bytes of a file, of which the first megabyte counts, have `text`.
fn has_text(fd: c_int, at: u64, bytes: u64, text: &[u8]) -> bool {
    let mut window = [0u8; 1024];
    let step = window.len() - text.len();
    let count = bytes.min(1 << 20);
    let starts = (0..count).step_by(step);
    starts.into_iter().any(|start| {
        window.fill(0);
        system::read_at(fd, &mut window, at.wrapping_add(start));
        window.windows(text.len()).any(|here| here == text)
    })
}
