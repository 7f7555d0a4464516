//! The interposed functions that make processes, before which memory becomes private, and those
//! that make timers. Changes of the address space are in [`crate::space`].
//!
//! Contexts: normal; also a child of `vfork`, which is another process and is left alone.

use crate::hold::Hold;
use crate::{control, enter, real, withdraw};
use core::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use sunder_guest::{confinement, system};
use sunder_wire::isolation::closed;

fn fails(error: c_int) -> c_int {
    // SAFETY: the C library returns the valid address of this thread's error number.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// Runs a function that forks.
fn fork_with(real: impl FnOnce() -> c_int) -> c_int {
    let Some(hold) = Hold::new() else {
        return real();
    };
    if !withdraw::before_fork(&hold) {
        return fails(libc::ENOMEM);
    }
    let result = real();
    if result == 0 && hold.control().process.load(Relaxed) != system::process_id() {
        // This is the child: isolation is its parent's only, and so is the count of holds.
        control::set(core::ptr::null_mut());
        core::mem::forget(hold);
    }
    result
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fork() -> c_int {
    match real::fork() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        Some(real) => fork_with(|| unsafe { real() }),
        None => fails(libc::ENOSYS),
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn _Fork() -> c_int {
    match real::_Fork() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        Some(real) => fork_with(|| unsafe { real() }),
        None => fails(libc::ENOSYS),
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn daemon(stay: c_int, keep: c_int) -> c_int {
    match real::daemon() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        Some(real) => fork_with(|| unsafe { real(stay, keep) }),
        None => fails(libc::ENOSYS),
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn forkpty(
    master: *mut c_int,
    name: *mut c_char,
    settings: *const c_void,
    size: *const c_void,
) -> c_int {
    match real::forkpty() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        Some(real) => fork_with(|| unsafe { real(master, name, settings, size) }),
        None => fails(libc::ENOSYS),
    }
}

/// Closes isolation because of a timer of CPU time: time that workers spend would not count for it.
fn end_for_timers(hold: &Hold) {
    let (open, timers) = (closed::OPEN, closed::TIMERS);
    let _ = hold
        .control()
        .closed
        .compare_exchange(open, timers, SeqCst, Relaxed);
    hold.recall();
}

/// Called before a timer is created on a clock. A thread that makes memory sharable looks for such
/// timers once; it may have looked just before, so isolation is closed here.
fn before_timer(clock: c_int) {
    let clocks = [
        libc::CLOCK_PROCESS_CPUTIME_ID,
        libc::CLOCK_THREAD_CPUTIME_ID,
    ];
    // A negative number is the CPU clock of another process or thread.
    if (clock < 0 || clocks.contains(&clock))
        && let Some(hold) = Hold::without_recall()
    {
        end_for_timers(&hold);
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn timer_create(
    clock: c_int,
    event: *mut c_void,
    timer: *mut c_void,
) -> c_int {
    let Some(real) = real::timer_create() else {
        return fails(libc::ENOSYS);
    };
    before_timer(clock);
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    unsafe { real(clock, event, timer) }
}

/// Interposed; see the C library's manual. A thread that enters isolation later looks for these
/// timers itself.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn setitimer(
    which: c_int,
    new: *const c_void,
    old: *mut c_void,
) -> c_int {
    let Some(real) = real::setitimer() else {
        return fails(libc::ENOSYS);
    };
    let is_of_cpu_time = which != libc::ITIMER_REAL;
    let hold = is_of_cpu_time.then(Hold::without_recall).flatten();
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    let result = unsafe { real(which, new, old) };
    if let Some(hold) = hold
        && hold.control().conversions.load(SeqCst) > 0
        && enter::has_cpu_timer()
    {
        end_for_timers(&hold);
    }
    result
}

/// Interposed: the call may make a process that does not share memory.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn clone() -> c_int {
    // All argument registers are kept. The seventh argument lies on the stack, where the real
    // function finds it.
    core::arch::naked_asm!(
        "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
        "mov rdi, rdx",
        "call {before}",
        "mov r11, rax",
        "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
        "test r11, r11",
        "jz 2f",
        "jmp r11",
        "2:",
        "mov eax, -1",
        "ret",
        before = sym before_clone,
    )
}

/// The real `clone`, or 0 if it must not be called.
extern "C" fn before_clone(flags: usize) -> usize {
    let real = real::clone().map_or(0, |f| f as usize);
    if flags as c_int & libc::CLONE_VM != 0 {
        return real;
    }
    match Hold::new() {
        // The hold is dropped before the call: no thread is isolated then, and `closed` keeps
        // memory from being made sharable again.
        Some(hold) if !withdraw::close_for_fork(&hold) => {
            fails(libc::ENOMEM);
            0
        }
        _ => real,
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn prctl(
    option: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    if confinement::by(libc::SYS_prctl, option as usize) {
        withdraw::before_confinement();
    }
    match real::prctl() {
        // SAFETY: the caller's arguments, unchanged. A variadic function finds integer arguments where
        // any other function finds them.
        Some(real) => unsafe { real(option, a, b, c, d) },
        None => fails(libc::ENOSYS),
    }
}

/// Called before the program waits for children: with these options it would get workers, too. Isolation
/// ends for good, and all workers are collected.
fn before_wait(options: c_int) {
    if options & (libc::__WALL | libc::__WCLONE) == 0 {
        return;
    }
    if let Some(hold) = Hold::new() {
        withdraw::close_for_good(&hold, closed::WAITS);
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn waitpid(child: c_int, status: *mut c_int, options: c_int) -> c_int {
    before_wait(options);
    match real::waitpid() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        Some(real) => unsafe { real(child, status, options) },
        None => fails(libc::ENOSYS),
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn wait4(
    child: c_int,
    status: *mut c_int,
    options: c_int,
    usage: *mut c_void,
) -> c_int {
    before_wait(options);
    match real::wait4() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        Some(real) => unsafe { real(child, status, options, usage) },
        None => fails(libc::ENOSYS),
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn waitid(
    kind: c_uint,
    child: c_uint,
    told: *mut c_void,
    options: c_int,
) -> c_int {
    before_wait(options);
    match real::waitid() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        Some(real) => unsafe { real(kind, child, told, options) },
        None => fails(libc::ENOSYS),
    }
}

/// Interposed, for programs that make these system calls without the functions above.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn syscall() -> c_long {
    core::arch::naked_asm!(
        "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
        "call {before}",
        "mov r11, rax",
        "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
        "test r11, r11",
        "jz 2f",
        "jmp r11",
        "2:",
        "mov rax, -1",
        "ret",
        before = sym before_syscall,
    )
}

/// The real `syscall`, or 0 if it must not be called.
extern "C" fn before_syscall(number: c_long, a: usize) -> usize {
    const CLONE3: c_long = libc::SYS_clone3;
    let real = real::syscall().map_or(0, |f| f as usize);
    let forks = match number {
        libc::SYS_fork | CLONE3 => true,
        libc::SYS_clone => a as c_int & libc::CLONE_VM == 0,
        _ => false,
    };
    let moves = matches!(
        number,
        libc::SYS_munmap | libc::SYS_mremap | libc::SYS_madvise | libc::SYS_mprotect
    );
    if confinement::by(number, a) {
        withdraw::before_confinement();
        return real;
    }
    if number == libc::SYS_timer_create {
        before_timer(a as c_int);
        return real;
    }
    if !forks && !moves && number != libc::SYS_membarrier {
        return real;
    }
    let Some(hold) = Hold::new() else {
        return real;
    };
    if forks && !withdraw::close_for_fork(&hold) {
        fails(libc::ENOMEM);
        return 0;
    }
    // What such a call would have to do to sharable memory can't be decided here.
    let why = match moves {
        true => closed::MOVED,
        false => closed::MEMBARRIER,
    };
    if (moves || number == libc::SYS_membarrier) && !withdraw::close_for_good(&hold, why) {
        fails(libc::ENOMEM);
        return 0;
    }
    real
}
