//! Begin and end of the recording, and the program's system calls. Contexts: normal; `in_child`
//! post-fork.

use crate::api::{self, Id, Info};
use crate::{RECORDER, modules, thread, translate};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use sunder_recorder::Start;
use sunder_recorder::Ticks;
use sunder_trace::meta::{Reason, Via};
use sunder_trace::slot::{Slot, Sync};

/// The variable with the trace file's path, which must be absolute.
const VARIABLE: &str = "SUNDER_TRACE";

/// Called when the emulator loads the plugin. The plugin's arguments are `skip=N`, the number of the
/// emulator's own arguments before the program's, and `from=N`, the descriptor of the plugin's file,
/// which the program must not see.
///
/// # Safety
/// Called only by the emulator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const Info,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: the emulator passes valid pointers, by its interface.
    let (is_ours, skip, from) = unsafe {
        (
            CStr::from_ptr((*info).target) == c"x86_64",
            number("skip=", count, arguments),
            number("from=", count, arguments),
        )
    };
    if let Some(from) = from {
        // SAFETY: takes an integer. The descriptor was made for the emulator, which has opened the
        // file by now.
        unsafe { libc::close(from) };
    }
    let Some(emulator) = api::functions() else {
        return 0;
    };
    if !is_ours || !begin(skip.and_then(|n| n.try_into().ok()).unwrap_or(0)) {
        return 0;
    }
    // SAFETY: the handler is a function without arguments.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    (emulator.on_translate)(id, translate::block);
    (emulator.on_begin)(id, processor_begins);
    (emulator.on_end)(id, processor_ends);
    (emulator.on_enter)(id, enters);
    (emulator.on_leave)(id, leaves);
    (emulator.on_exit)(id, exits, core::ptr::null_mut());
    0
}

/// The number after this name among the plugin's arguments.
///
/// # Safety
/// `arguments` is null or points to `count` strings.
unsafe fn number(name: &str, count: c_int, arguments: *const *const c_char) -> Option<c_int> {
    let count = usize::try_from(count).unwrap_or(0);
    if arguments.is_null() {
        return None;
    }
    // SAFETY: the caller vouches for it.
    let arguments = unsafe { core::slice::from_raw_parts(arguments, count) };
    // SAFETY: as above.
    let mut texts = arguments.iter().map(|&a| unsafe { CStr::from_ptr(a) });
    texts.find_map(|text| text.to_str().ok()?.strip_prefix(name)?.parse().ok())
}

/// Begins to record; returns whether that worked.
fn begin(skip: usize) -> bool {
    modules::remember_emulator();
    let Some(path) = std::env::var_os(VARIABLE) else {
        return false;
    };
    let mut path = path.as_bytes().to_vec();
    path.push(0);
    let all = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let arguments = all.split_inclusive(|&b| b == 0).skip(skip);
    let arguments: Vec<u8> = arguments.flatten().copied().collect();
    let program = arguments.split_inclusive(|&b| b == 0).next();
    // SAFETY: the call takes a number.
    let line = unsafe { libc::sysconf(libc::_SC_LEVEL1_DCACHE_LINESIZE) };
    let start = Start {
        path: &path,
        via: Via::Emulated,
        line_size: u32::try_from(line).unwrap_or(0),
        program: program.map(|p| (p.strip_suffix(&[0]).unwrap_or(p), arguments.as_slice())),
    };
    // If this fails, at most an empty file is left, which shows that nothing was recorded.
    RECORDER.start(&start).is_ok()
}

/// A forked child is not recorded.
unsafe extern "C" fn in_child() {
    RECORDER.forked();
    thread::stop_all();
}

extern "C" fn processor_begins(_: Id, processor: c_uint) {
    thread::made(processor);
}

extern "C" fn processor_ends(_: Id, processor: c_uint) {
    thread::ended(processor);
}

extern "C" fn exits(_: Id, _: *mut c_void) {
    finish(Reason::Exit);
}

fn finish(reason: Reason) {
    if RECORDER.is_recording() && RECORDER.is_own_process() {
        modules::write();
        RECORDER.finish(reason);
    }
}

/// Before a system call: a stamp, because the call may let other threads continue, whose accesses
/// come later.
extern "C" fn enters(
    _: Id,
    processor: c_uint,
    number: i64,
    first: u64,
    _: u64,
    _: u64,
    _: u64,
    fifth: u64,
    _: u64,
    _: u64,
    _: u64,
) {
    let Some(thread) = thread::of(processor) else {
        return;
    };
    let creates = number == libc::SYS_clone && first & libc::CLONE_THREAD as u64 != 0;
    if creates {
        // Before the stamp: what comes after it may be as late as the call's end.
        thread.record_frames();
        thread.push(Slot::sync(Sync::ThreadCreate, thread::creates().into()));
    }
    thread.push(Slot::stamp(RECORDER.clock().before()));
    match number {
        libc::SYS_mmap if fifth as i32 >= 0 => modules::changed(),
        // A call of the dynamic linker's between two mappings of a file: no list yet.
        libc::SYS_mmap
        | libc::SYS_close
        | libc::SYS_openat
        | libc::SYS_read
        | libc::SYS_fstat
        | libc::SYS_newfstatat
        | libc::SYS_pread64
        | libc::SYS_clone => {}
        libc::SYS_execve if can_execute(first) => finish(Reason::Exec),
        libc::SYS_execveat => finish(Reason::Exec),
        _ => modules::write(),
    }
}

/// Whether the file whose name lies at `path` can be executed; true if that can't be found out. A
/// shell tries many names, and the trace must end only at the one that exists.
fn can_execute(path: u64) -> bool {
    let path: *const c_char = core::ptr::with_exposed_provenance(path as usize);
    // SAFETY: the kernel reads the name and returns an error if it can't.
    let result = unsafe { libc::access(path, libc::X_OK) };
    result == 0 || !matches!(errno(), libc::ENOENT | libc::EACCES | libc::ENOTDIR)
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// After a system call: a stamp, because the call may have waited for other threads, which came
/// earlier.
extern "C" fn leaves(_: Id, processor: c_uint, _: i64, _: i64) {
    if let Some(thread) = thread::of(processor) {
        thread.push(Slot::stamp(RECORDER.clock().after()));
    }
}
