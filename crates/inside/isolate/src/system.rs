//! System calls of the isolating library, the one place where it talks to the kernel. Contexts: all; a worker that computes uses [`worker_call`] alone.

use core::arch::{asm, naked_asm};
use core::sync::atomic::AtomicU32;
use sunder_kernel::Reach;
pub use sunder_kernel::{call, close, now, process_id, read, thread_pointer};

/// As [`call`], from the only place, besides [`restorer`], at which a worker's filter
/// allows any.
///
/// # Safety
/// As the call demands of its arguments.
#[inline]
pub unsafe fn worker_call(number: i64, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: by this function's contract.
    unsafe { from_worker(number as usize, a, b, c, d, e, f) }
}

/// # Safety
/// As the call demands of its arguments.
#[unsafe(naked)]
unsafe extern "C" fn from_worker(
    number: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    naked_asm!(
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, [rsp + 8]",
        ".globl sunder_isolate_call_end",
        ".hidden sunder_isolate_call_end",
        "syscall",
        "sunder_isolate_call_end:",
        "ret",
    )
}

/// Blocks all signals that can be blocked; what was before.
pub fn block_signals() -> u64 {
    let (all, mut before) = (u64::MAX, 0u64);
    let (new, old) = (&raw const all as usize, &raw mut before as usize);
    let arguments = [libc::SIG_SETMASK as usize, new, old, 8, 0, 0];
    // SAFETY: valid places for both.
    unsafe { call(libc::SYS_rt_sigprocmask, arguments) };
    before
}

/// Blocks these signals and no others.
pub fn set_signals(mask: u64) {
    let arguments = [
        libc::SIG_SETMASK as usize,
        &raw const mask as usize,
        0,
        8,
        0,
        0,
    ];
    // SAFETY: a valid place.
    unsafe { call(libc::SYS_rt_sigprocmask, arguments) };
}

/// Nanoseconds of CPU time that the calling thread has used.
pub fn own_cpu_time() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let (clock, at) = (
        libc::CLOCK_THREAD_CPUTIME_ID as usize,
        &raw mut now as usize,
    );
    // SAFETY: `now` is a valid place for the result.
    unsafe { call(libc::SYS_clock_gettime, [clock, at, 0, 0, 0, 0]) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds on a clock, in a worker.
pub fn worker_clock(clock: i32) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let at = &raw mut now as usize;
    // SAFETY: `now` is a valid place for the result.
    unsafe { worker_call(libc::SYS_clock_gettime, [clock as usize, at, 0, 0, 0, 0]) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Where a worker's signal handlers return to.
#[unsafe(naked)]
pub unsafe extern "C" fn restorer() {
    naked_asm!(
        "mov eax, {number}",
        ".globl sunder_isolate_return_end",
        ".hidden sunder_isolate_return_end",
        "syscall",
        "sunder_isolate_return_end:",
        "ud2",
        number = const libc::SYS_rt_sigreturn,
    )
}

unsafe extern "C" {
    #[link_name = "sunder_isolate_call_end"]
    static CALL_END: u8;
    #[link_name = "sunder_isolate_return_end"]
    static RETURN_END: u8;
}

/// The addresses after the two system call instructions of workers.
pub fn allowed_instructions() -> [usize; 2] {
    [&raw const CALL_END as usize, &raw const RETURN_END as usize]
}

/// Maps memory; the address, or a negative error number.
///
/// # Safety
/// Nobody needs what a fixed mapping replaces.
pub unsafe fn map(
    at: usize,
    bytes: usize,
    protection: i32,
    flags: i32,
    fd: i32,
    offset: usize,
) -> isize {
    // SAFETY: by this function's contract.
    unsafe {
        call(
            libc::SYS_mmap,
            [
                at,
                bytes,
                protection as usize,
                flags as usize,
                fd as usize,
                offset,
            ],
        )
    }
}

/// Waits while `*word` is `value`, at most so many microseconds; may come back for no
/// reason. The word may be shared between processes.
pub fn wait(word: &AtomicU32, value: u32, microseconds: u32) {
    let nanoseconds = u64::from(microseconds) * 1000;
    sunder_kernel::wait(word, value, Some(nanoseconds), Reach::All);
}

/// Wakes all that wait on `word`.
pub fn wake(word: &AtomicU32) {
    sunder_kernel::wake(word, i32::MAX, Reach::All);
}

/// Opens a file for reading, or for writing too, with a high number: whoever has closed a
/// low one counts on getting that next, and who still waits to read from it must not read our
/// file.
///
/// # Safety
/// `path` points to a string that ends with a zero byte.
pub unsafe fn open(path: *const u8, write: bool) -> Option<i32> {
    const HIGH: usize = 48;
    let mode = if write { libc::O_RDWR } else { libc::O_RDONLY };
    // SAFETY: by this function's contract.
    let file = unsafe { sunder_kernel::open(libc::AT_FDCWD, path, mode) }?;
    let duplicate = libc::F_DUPFD_CLOEXEC as usize;
    // SAFETY: integers.
    let high = unsafe { call(libc::SYS_fcntl, [file as usize, duplicate, HIGH, 0, 0, 0]) };
    // There need not be so many. (More than 64 would make the kernel wait for a larger table.)
    if high < 0 {
        return Some(file);
    }
    close(file);
    Some(high as i32)
}

/// Copies memory without the C library, some of whose code uses wider registers than hooks may.
///
/// # Safety
/// As `core::ptr::copy_nonoverlapping` demands of so many bytes.
pub unsafe fn copy(from: usize, to: usize, bytes: usize) {
    // SAFETY: by this function's contract.
    unsafe {
        asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}

/// Says one line on standard error.
pub fn say(line: &[u8]) {
    let (at, len) = (line.as_ptr() as usize, line.len());
    // SAFETY: the buffer is valid for its length.
    unsafe { call(libc::SYS_write, [2, at, len, 0, 0, 0]) };
}
