//! System calls of code that lives inside a target, made around the C library: `errno`
//! stays as the program left it, no wait is a cancellation point, and no hook sees them.
//! Called by every library that we put into programs; each adds what only it needs.
//! Contexts: all, signal handlers too. It must not allocate, panic or call anything.

#![cfg_attr(not(test), no_std)]

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

/// The number of the calling process.
#[must_use]
pub fn process_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_getpid, [0; 6]) as u32 }
}

/// The number of the calling thread.
#[must_use]
pub fn thread_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_gettid, [0; 6]) as u32 }
}

/// The calling thread's pointer (`fs` base).
#[inline]
#[must_use]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the ABI keeps the thread pointer in its own first word.
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    pointer
}

/// Nanoseconds on the monotonic clock, by a system call: the kernel's page of code may be
/// what a debugger steps through.
#[must_use]
pub fn now() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let (clock, place) = (libc::CLOCK_MONOTONIC as usize, &raw mut time as usize);
    // SAFETY: a valid place for the result.
    unsafe { call(libc::SYS_clock_gettime, [clock, place, 0, 0, 0, 0]) };
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

/// Gives the CPU to others.
pub fn give_way() {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_sched_yield, [0; 6]) };
}

/// Opens an existing file, closed on exec, from the folder `folder` or, with
/// `AT_FDCWD`, from the working folder. `flags` are those of `openat`.
///
/// # Safety
/// `path` points to a string that ends with a zero byte.
#[must_use]
pub unsafe fn open(folder: i32, path: *const u8, flags: i32) -> Option<i32> {
    let flags = (flags | libc::O_CLOEXEC) as usize;
    let arguments = [folder as usize, path as usize, flags, 0, 0, 0];
    // SAFETY: by this function's contract.
    let result = unsafe { call(libc::SYS_openat, arguments) };
    (result >= 0).then_some(result as i32)
}

/// Reads on; how many bytes, 0 at the end or on an error.
pub fn read(fd: i32, bytes: &mut [u8]) -> usize {
    let (at, len) = (bytes.as_mut_ptr() as usize, bytes.len());
    // SAFETY: the buffer is valid for its length.
    let done = unsafe { call(libc::SYS_read, [fd as usize, at, len, 0, 0, 0]) };
    usize::try_from(done).unwrap_or(0)
}

/// Closes a descriptor of the caller's own.
pub fn close(fd: i32) {
    // SAFETY: takes one integer; the callers pass what [`open`] gave them.
    unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Who may wait for a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Threads of one process.
    Process,
    /// Whoever has the word mapped.
    All,
}

impl Reach {
    const fn flag(self) -> i32 {
        match self {
            Self::Process => libc::FUTEX_PRIVATE_FLAG,
            Self::All => 0,
        }
    }
}

/// Waits while `*word` is `value`, at most so many nanoseconds if that is given; may come
/// back for no reason.
pub fn wait(word: &AtomicU32, value: u32, nanoseconds: Option<u64>, reach: Reach) {
    let time = nanoseconds.map(|nanoseconds| libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000).cast_signed(),
        tv_nsec: (nanoseconds % 1_000_000_000).cast_signed(),
    });
    let time = time.as_ref().map_or(0, |time| &raw const *time as usize);
    let operation = (libc::FUTEX_WAIT | reach.flag()) as usize;
    let at = word.as_ptr() as usize;
    // SAFETY: word and time live as long as the call.
    unsafe { call(libc::SYS_futex, [at, operation, value as usize, time, 0, 0]) };
}

/// Wakes at most so many of those that wait for `word`.
pub fn wake(word: &AtomicU32, most: i32, reach: Reach) {
    let operation = (libc::FUTEX_WAKE | reach.flag()) as usize;
    let at = word.as_ptr() as usize;
    // SAFETY: waking takes the address alone.
    unsafe { call(libc::SYS_futex, [at, operation, most as usize, 0, 0, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::{Acquire, Release};

    #[test]
    fn the_numbers_are_those_of_the_c_library() {
        assert_eq!(process_id(), std::process::id());
        // SAFETY: takes nothing.
        let thread = unsafe { libc::gettid() };
        assert_eq!(thread_id(), thread as u32);
        // SAFETY: takes nothing; glibc's thread is its pointer.
        assert_eq!(thread_pointer(), unsafe { libc::pthread_self() } as usize);
    }

    #[test]
    fn errors_are_told_by_the_result_alone() {
        // SAFETY: errno is the calling thread's.
        unsafe { *libc::__errno_location() = 77 };
        // SAFETY: closes no descriptor, as there is none of this number.
        let result = unsafe { call(libc::SYS_close, [usize::MAX, 0, 0, 0, 0, 0]) };
        assert_eq!(result, -(libc::EBADF as isize));
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, 77);
    }

    #[test]
    fn a_file_is_read_to_its_end() {
        // SAFETY: a string that ends.
        let none = unsafe { open(libc::AT_FDCWD, c"/nowhere".as_ptr().cast(), libc::O_RDONLY) };
        assert_eq!(none, None);
        let path = c"/proc/self/comm".as_ptr().cast();
        // SAFETY: a string that ends.
        let fd = unsafe { open(libc::AT_FDCWD, path, libc::O_RDONLY) }.expect("Linux has it");
        // SAFETY: takes integers.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC);
        let mut bytes = [0; 64];
        assert!(read(fd, &mut bytes) > 1);
        assert_eq!(read(fd, &mut bytes), 0, "it was at its end");
        close(fd);
        assert_eq!(read(fd, &mut bytes), 0, "it is closed");
    }

    #[test]
    fn who_waits_is_woken_and_who_need_not_wait_does_not() {
        for reach in [Reach::Process, Reach::All] {
            let word = AtomicU32::new(0);
            // Another value: comes back at once, or this test never ends.
            wait(&word, 1, None, reach);
            let before = now();
            wait(&word, 0, Some(2_000_000), reach);
            assert!(now() > before, "time goes on");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while word.load(Acquire) == 0 {
                        wait(&word, 0, None, reach);
                    }
                });
                word.store(1, Release);
                wake(&word, i32::MAX, reach);
            });
        }
    }
}
