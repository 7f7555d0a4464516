//! System calls without the C library: no `errno`, no cancellation, no hooks.
//! Contexts: all.

use core::arch::asm;
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

/// # Safety
/// As `mmap`.
pub unsafe fn map(at: u64, len: u64, rights: i32, flags: i32, fd: i32, offset: u64) -> isize {
    // SAFETY: by the caller.
    unsafe {
        call(
            libc::SYS_mmap,
            [
                at as usize,
                len as usize,
                rights as usize,
                flags as usize,
                fd as usize,
                offset as usize,
            ],
        )
    }
}

/// # Safety
/// As `munmap`.
pub unsafe fn unmap(at: u64, len: u64) {
    // SAFETY: by the caller.
    unsafe { call(libc::SYS_munmap, [at as usize, len as usize, 0, 0, 0, 0]) };
}

/// Sets the rights of pages; whether that worked.
///
/// # Safety
/// Whoever uses them can bear the new rights.
pub unsafe fn protect(at: u64, len: u64, rights: i32) -> bool {
    let arguments = [at as usize, len as usize, rights as usize, 0, 0, 0];
    // SAFETY: by the caller.
    unsafe { call(libc::SYS_mprotect, arguments) == 0 }
}

/// Moves pages over others; whether that worked. With `keep` the old place stays
/// mapped, without contents.
///
/// # Safety
/// Nobody minds that the pages at `to` are gone.
pub unsafe fn relocate(from: u64, len: u64, to: u64, keep: bool) -> bool {
    const DONTUNMAP: i32 = 4;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | if keep { DONTUNMAP } else { 0 };
    let arguments = [
        from as usize,
        len as usize,
        len as usize,
        flags as usize,
        to as usize,
        0,
    ];
    // SAFETY: by the caller.
    unsafe { call(libc::SYS_mremap, arguments) == to as isize }
}

/// Maps the pages of a shared mapping at `from` once more at `to`; whether that worked.
///
/// # Safety
/// Nobody minds that the pages at `to` are gone.
pub unsafe fn duplicate(from: u64, len: u64, to: u64) -> bool {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // No old length: the kernel then leaves the old mapping as it is.
    let arguments = [
        from as usize,
        0,
        len as usize,
        flags as usize,
        to as usize,
        0,
    ];
    // SAFETY: by the caller.
    unsafe { call(libc::SYS_mremap, arguments) == to as isize }
}

/// Waits until `word` is no longer `value` or the time is over. With `shared` also
/// for another process.
pub fn wait(word: &AtomicU32, value: u32, nanoseconds: u32, shared: bool) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: i64::from(nanoseconds),
    };
    let private = if shared { 0 } else { libc::FUTEX_PRIVATE_FLAG };
    let arguments = [
        word.as_ptr() as usize,
        (libc::FUTEX_WAIT | private) as usize,
        value as usize,
        &raw const time as usize,
        0,
        0,
    ];
    // SAFETY: a futex on a word that lives; the time is on our stack.
    unsafe { call(libc::SYS_futex, arguments) };
}

/// Wakes all who wait for `word`, in all processes.
pub fn wake(word: &AtomicU32) {
    let all = i32::MAX as usize;
    let arguments = [
        word.as_ptr() as usize,
        libc::FUTEX_WAKE as usize,
        all,
        0,
        0,
        0,
    ];
    // SAFETY: a futex on a word that lives.
    unsafe { call(libc::SYS_futex, arguments) };
}

/// The calling thread.
pub fn thread() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_gettid, [0; 6]) as u32 }
}

/// The calling process.
pub fn process() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_getpid, [0; 6]) as u32 }
}

/// Nanoseconds on the monotonic clock. A system call: the kernel's page of code may
/// be what a debugger steps through, and once per fault it does not matter.
pub fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let arguments = [
        libc::CLOCK_MONOTONIC as usize,
        &raw mut time as usize,
        0,
        0,
        0,
        0,
    ];
    // SAFETY: a valid place for the result.
    unsafe { call(libc::SYS_clock_gettime, arguments) };
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

/// Gives the CPU to others.
pub fn pause() {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_sched_yield, [0; 6]) };
}

/// Opens a file for reading and writing.
///
/// # Safety
/// `path` is a C string.
pub unsafe fn open(path: *const u8) -> Option<i32> {
    let arguments = [
        libc::AT_FDCWD as usize,
        path as usize,
        (libc::O_RDWR | libc::O_CLOEXEC) as usize,
        0,
        0,
        0,
    ];
    // SAFETY: by the caller.
    let result = unsafe { call(libc::SYS_openat, arguments) };
    (result >= 0).then_some(result as i32)
}

/// Closes a descriptor of ours.
pub fn close(fd: i32) {
    // SAFETY: the callers pass what [`open`] gave.
    unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Bytes of an open file.
pub fn size(fd: i32) -> u64 {
    // SAFETY: plain data, for which zeroes are valid.
    let mut about: libc::stat = unsafe { core::mem::zeroed() };
    let arguments = [fd as usize, &raw mut about as usize, 0, 0, 0, 0];
    // SAFETY: a valid place for the result.
    let result = unsafe { call(libc::SYS_fstat, arguments) };
    if result == 0 { about.st_size as u64 } else { 0 }
}
