//! What happens before kernel calls, above all in a program that was already running. Bytes that the kernel
//! will use, or that must not be away once the call has been made, are moved back.
//!
//! Contexts: all.

use crate::peek::word_in_place;
use crate::process::is_guest;
use crate::shared::{control, withdraw};
use crate::{area, cancel, memory_file, pages, shared, uses};
use sunder_guest::{confinement, system};
use sunder_hooks::Call;
use sunder_kernel::KernelCall;
use sunder_wire::remap::{
    BY_CONFINEMENT, BY_DEATH, BY_END, BY_FILE, BY_FORK, BY_KERNEL, BY_MAPPING, BY_SIGNALS,
};

/// Runs before a call that the program's own code then makes. Nothing is moved from here on until
/// the thread is in the kernel.
pub unsafe extern "C" fn before(call: &mut Call) {
    if control().is_none() {
        return;
    }
    let [a, b, c, ..] = call.arguments.map(|a| a as u64);
    match call.number {
        libc::SYS_clone | libc::SYS_clone3 | libc::SYS_fork | libc::SYS_vfork => {
            before_process(call.number, a, b);
        }
        libc::SYS_execve | libc::SYS_execveat => area::roll_back_all(BY_FORK),
        libc::SYS_exit_group => area::roll_back_all(BY_END),
        number if confinement::by(number, call.arguments[0]) => confine(),
        libc::SYS_ptrace => give_up(BY_CONFINEMENT),
        libc::SYS_tgkill if c == cancel::SIGNAL => cancel::begins(b as u32),
        // Before a signal that leaves a core file, as `abort` sends it: the bytes must be in their
        // place.
        number if !shared::is_confined() && kills(number, [a, b, c]) => {
            area::roll_back_all(BY_DEATH);
        }
        number => {
            let arguments = call.arguments.map(|a| a as u64);
            if_memory_is_opened(number, &arguments);
            other(number, arguments);
        }
    }
}

/// Runs before a call that opens a file, in a program that loaded the library at its start.
pub unsafe extern "C" fn before_opening(call: &mut Call) {
    if control().is_none() {
        return;
    }
    let (number, arguments) = (call.number, call.arguments.map(|a| a as u64));
    if_memory_is_opened(number, &arguments);
    uses::move_back(&KernelCall { number, arguments });
}

/// Moves everything back for good if the call opens the memory of a process as a file.
pub fn if_memory_is_opened(number: i64, arguments: &[u64; 6]) {
    if shared::anything_moved() && memory_file::is_opened(number, arguments) {
        give_up(BY_FILE);
    }
}

/// Whether the call sends a signal that ends this program and may leave a core file. Where it can't be told
/// whether it is for this program, it is taken to be.
pub fn kills(number: i64, [a, b, c]: [u64; 3]) -> bool {
    // 0 and negative numbers stand for groups of processes.
    let is_ours = |process: u64| process as i32 <= 0 || process == u64::from(system::process_id());
    let signal = match number {
        libc::SYS_kill | libc::SYS_rt_sigqueueinfo if is_ours(a) => b,
        libc::SYS_tkill | libc::SYS_pidfd_send_signal => b,
        libc::SYS_tgkill | libc::SYS_rt_tgsigqueueinfo if is_ours(a) => c,
        _ => return false,
    };
    leaves_core(signal)
}

/// Whether this signal ends the program by its default action and may leave a core file.
fn leaves_core(signal: u64) -> bool {
    let ends = [
        libc::SIGQUIT,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGSYS,
    ];
    ends.contains(&(signal as i32))
        && system::action(signal as usize).is_some_and(|action| action.handler == libc::SIG_DFL)
}

/// Handles calls before which only memory matters, those of `syscall` among them, whose number is
/// known only at run time.
fn other(number: i64, arguments: [u64; 6]) {
    let [a, b, c, ..] = arguments;
    match number {
        libc::SYS_rt_sigaction | libc::SYS_rt_sigprocmask => give_up(BY_SIGNALS),
        libc::SYS_mmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect if pages::is_code(c) => {
            area::roll_back_all(BY_MAPPING);
        }
        libc::SYS_mmap | libc::SYS_munmap | libc::SYS_mprotect | libc::SYS_madvise => {
            area::roll_back_in(a, b, BY_MAPPING);
        }
        libc::SYS_pkey_mprotect => area::roll_back_in(a, b, BY_MAPPING),
        // With these the kernel uses memory later, when no thread is in a call.
        libc::SYS_io_uring_setup | libc::SYS_io_setup | libc::SYS_userfaultfd => {
            give_up(BY_KERNEL);
        }
        libc::SYS_mremap | libc::SYS_brk | libc::SYS_shmat | libc::SYS_remap_file_pages => {
            area::roll_back_all(BY_MAPPING);
        }
        libc::SYS_exit | libc::SYS_rt_sigreturn => {}
        // A call may transfer its memory in pieces, or take something from a queue before it
        // writes: then it could not be made again after it had failed.
        _ => uses::move_back(&KernelCall { number, arguments }),
    }
}

/// Moves everything back for good.
pub fn give_up(reason: u32) {
    withdraw();
    area::roll_back_all(reason);
}

/// The program confines itself (seccomp): from here on this library must make no kernel call. Its
/// handlers stay, since they need none: threads may still be in copies of code and leave them by a
/// fault.
fn confine() {
    if shared::is_confined() || is_guest() {
        return;
    }
    give_up(BY_CONFINEMENT);
    shared::confine();
    shared::await_visits();
}

fn before_process(number: i64, a: u64, b: u64) {
    const CLONE_ARGUMENTS: [u64; 3] = [0, 5 * 8, 6 * 8];
    // The new thread's first stack frames lie below the top that `clone` gets.
    const FIRST: u64 = 64 << 10;
    let (flags, at, len) = match number {
        libc::SYS_clone => (a, b.saturating_sub(FIRST), 2 * FIRST),
        libc::SYS_clone3 => {
            let [flags, stack, len] = CLONE_ARGUMENTS.map(|o| word_in_place(a + o).unwrap_or(0));
            (flags, stack, len)
        }
        _ => (0, 0, 0),
    };
    if flags & libc::CLONE_THREAD as u64 != 0 {
        area::roll_back_in(at, len, BY_MAPPING);
        return;
    }
    // A process that shares this memory while this one runs would not be noticed.
    let shares = libc::CLONE_VM as u64;
    if flags & (shares | libc::CLONE_VFORK as u64) == shares {
        withdraw();
    }
    area::roll_back_all(BY_FORK);
}
