//! Raw system calls: `errno` stays as the program left it. The one place that talks to
//! the kernel. Contexts: all; a worker that computes uses [`worker_call`] alone.

use core::arch::{asm, naked_asm};
use core::sync::atomic::AtomicU32;

/// A system call; a negative result is an error number.
///
/// # Safety
/// As the call demands of its arguments.
#[inline]
pub unsafe fn call(number: i64, arguments: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the kernel clobbers rcx and r11 only; the caller vouches for the
    // arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c,
            in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

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
    let timeout = libc::timespec {
        tv_sec: i64::from(microseconds / 1_000_000),
        tv_nsec: i64::from(microseconds % 1_000_000) * 1000,
    };
    let at = word.as_ptr() as usize;
    // SAFETY: word and timeout are valid for the call.
    unsafe {
        call(
            libc::SYS_futex,
            [
                at,
                libc::FUTEX_WAIT as usize,
                value as usize,
                &raw const timeout as usize,
                0,
                0,
            ],
        )
    };
}

/// Wakes all that wait on `word`.
pub fn wake(word: &AtomicU32) {
    // SAFETY: waking takes the address alone.
    unsafe {
        call(
            libc::SYS_futex,
            [
                word.as_ptr() as usize,
                libc::FUTEX_WAKE as usize,
                i32::MAX as usize,
                0,
                0,
                0,
            ],
        )
    };
}

/// Opens a file for reading, or for writing too.
///
/// # Safety
/// `path` points to a string that ends with a zero byte.
pub unsafe fn open(path: *const u8, write: bool) -> Option<i32> {
    let mode = if write { libc::O_RDWR } else { libc::O_RDONLY };
    let flags = (mode | libc::O_CLOEXEC) as usize;
    let here = libc::AT_FDCWD as usize;
    // SAFETY: by this function's contract.
    let fd = unsafe { call(libc::SYS_openat, [here, path as usize, flags, 0, 0, 0]) };
    (fd >= 0).then_some(fd as i32)
}

/// Reads on; how many bytes, 0 at the end or on an error.
pub fn read(fd: i32, bytes: &mut [u8]) -> usize {
    let (at, len) = (bytes.as_mut_ptr() as usize, bytes.len());
    // SAFETY: the buffer is valid for its length.
    let done = unsafe { call(libc::SYS_read, [fd as usize, at, len, 0, 0, 0]) };
    usize::try_from(done).unwrap_or(0)
}

/// Closes a descriptor of ours.
pub fn close(fd: i32) {
    // SAFETY: the callers pass what `open` gave them.
    unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Bytes of an open file; 0 if the kernel does not tell.
pub fn file_size(fd: i32) -> usize {
    look_at(&[], fd, libc::AT_EMPTY_PATH).map_or(0, |found| found.st_size as usize)
}

/// How many threads this process has; 0 if the kernel does not tell.
pub fn threads() -> usize {
    // A folder has two links and one for each folder in it.
    look_at(b"/proc/self/task", libc::AT_FDCWD, 0)
        .map_or(0, |found| (found.st_nlink as usize).saturating_sub(2))
}

/// What the kernel says of a file.
fn look_at(path: &[u8], folder: i32, flags: i32) -> Option<libc::stat> {
    let mut name = [0u8; 32];
    for (to, from) in name.iter_mut().take(31).zip(path) {
        *to = *from;
    }
    let mut found = core::mem::MaybeUninit::<libc::stat>::zeroed();
    let arguments = [
        folder as usize,
        name.as_ptr() as usize,
        found.as_mut_ptr() as usize,
        flags as usize,
        0,
        0,
    ];
    // SAFETY: a C string, since the last byte stays zero, and a valid place for the answer,
    // for which zeroes are valid too.
    unsafe {
        let done = call(libc::SYS_newfstatat, arguments);
        (done == 0).then(|| found.assume_init())
    }
}

/// Says one line on standard error.
pub fn say(line: &[u8]) {
    let (at, len) = (line.as_ptr() as usize, line.len());
    // SAFETY: the buffer is valid for its length.
    unsafe { call(libc::SYS_write, [2, at, len, 0, 0, 0]) };
}

/// The number of the calling process.
pub fn process_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_getpid, [0; 6]) as u32 }
}

/// The number of the calling thread.
pub fn thread_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_gettid, [0; 6]) as u32 }
}

/// Nanoseconds on the monotonic clock.
pub fn now() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let at = &raw mut now as usize;
    // SAFETY: `now` is a valid place for the result.
    unsafe {
        call(
            libc::SYS_clock_gettime,
            [libc::CLOCK_MONOTONIC as usize, at, 0, 0, 0, 0],
        )
    };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The calling thread's pointer (`fs` base).
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the ABI keeps the thread pointer in its own first word.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    pointer
}
