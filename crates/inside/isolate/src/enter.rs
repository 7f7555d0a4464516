//! Where the tool sends a thread that it has stopped in the middle of its work: the
//! thread makes a worker, parks, and goes on where the worker ended. It runs on a
//! stack in its suitcase with all signals blocked; the program's stack and signal
//! handlers are not touched. Contexts: signal (the thread was stopped anywhere), with all
//! signals blocked.

use crate::{control, convert, worker};
use core::arch::naked_asm;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use sunder_guest::system;
use sunder_wire::isolation::{
    Control, REGISTERS, Registers, SUITCASE, Slot, VECTORS, closed, order, state, why,
};

/// What the tool makes the instruction pointer, with the slot's address in `rdi` and
/// the stack pointer at the suitcase's registers, in which it has put the thread's.
#[unsafe(naked)]
pub unsafe extern "C" fn entry(slot: *const Slot) {
    naked_asm!(
        "cld",
        "mov eax, -1",
        "mov edx, -1",
        "xsave64 [rsp + {vectors}]",
        "call {enter}",
        "ud2",
        vectors = const VECTORS - REGISTERS,
        enter = sym enter,
    )
}

/// Takes [`Registers`] from the stack and goes on with them.
macro_rules! restore_registers {
    () => {
        "pop r15; pop r14; pop r13; pop r12; pop rbp; pop rbx; pop r11; pop r10; pop r9; pop r8; \
         pop rax; pop rcx; pop rdx; pop rsi; pop rdi; iretq"
    };
}

/// Goes on where the registers in the suitcase say, with the vector state there. In a worker,
/// whose signals have a stack of their own.
#[unsafe(naked)]
pub unsafe extern "C" fn restore(registers: *const Registers, vectors: usize) -> ! {
    naked_asm!(
        "mov eax, -1",
        "mov edx, -1",
        "xrstor64 [rsi]",
        "mov rsp, rdi",
        restore_registers!(),
    )
}

/// As [`restore`], in the thread itself, and with this signal mask as soon as the stack
/// pointer is at the registers: signals that arrive from then on have what is below for
/// their stack, and nothing else is needed any more.
#[unsafe(naked)]
unsafe extern "C" fn restore_with(
    registers: *const Registers,
    vectors: usize,
    mask: *const u64,
) -> ! {
    naked_asm!(
        "mov r9, rdx",
        "mov eax, -1",
        "mov edx, -1",
        "xrstor64 [rsi]",
        "mov rsp, rdi",
        "mov eax, {number}",
        "mov edi, {set}",
        "mov rsi, r9",
        "xor edx, edx",
        "mov r10d, 8",
        "syscall",
        restore_registers!(),
        number = const libc::SYS_rt_sigprocmask,
        set = const libc::SIG_SETMASK,
    )
}

/// Returns from the signal whose context this is.
#[unsafe(naked)]
unsafe extern "C" fn go_home(context: usize) -> ! {
    naked_asm!(
        "mov rsp, rdi",
        "mov eax, {number}",
        "syscall",
        "ud2",
        number = const libc::SYS_rt_sigreturn,
    )
}

/// Clones a process without the thread's memory, which begins in `worker::main` on a
/// stack of its own. Its number, or a negative error number.
#[unsafe(naked)]
unsafe extern "C" fn spawn(flags: usize, stack: usize, slot: *const Slot) -> isize {
    naked_asm!(
        "mov r9, rdx",
        "xor edx, edx",
        "xor r10d, r10d",
        "xor r8d, r8d",
        "mov eax, {number}",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2:",
        "xor ebp, ebp",
        "mov rdi, r9",
        "call {main}",
        "ud2",
        number = const libc::SYS_clone,
        main = sym worker::main,
    )
}

/// Not `CLONE_VM`, `CLONE_SIGHAND` or `CLONE_THREAD`, and no signal at its end: the
/// program's own waiting does not see it.
const CLONE: i32 = libc::CLONE_FILES | libc::CLONE_FS | libc::CLONE_IO | libc::CLONE_SYSVSEM;

unsafe extern "C" fn enter(slot: *const Slot) -> ! {
    // The tool has blocked all signals; not yet, if it was killed in the middle of sending us.
    system::set_mask(libc::SIG_SETMASK, u64::MAX);
    // SAFETY: the tool sends threads of a process with a control file, and passes a slot
    // of it.
    let (Some(control), Some(slot)) = (control::get(), unsafe { slot.as_ref() }) else {
        die(b"sunder: a thread was sent into isolation, but there is none\n");
    };
    let Some(suitcase) = control::suitcase(control, slot) else {
        die(b"sunder: a thread was sent into isolation without a place there\n");
    };
    slot.state.store(state::ENTERING, SeqCst);
    let reason = if may_enter(control, slot) {
        isolate(control, slot, suitcase)
    } else {
        Some(why::NO_MEMORY)
    };
    let Some(reason) = reason else {
        home(control, slot)
    };
    // No worker has run: the thread goes on by itself.
    count(control, reason);
    slot.why.store(reason, Relaxed);
    // It counts as an episode without length.
    slot.until.store(slot.since.load(Relaxed), Relaxed);
    slot.episodes.fetch_add(1, Relaxed);
    slot.state.store(state::HOME, Release);
    control::wake(&slot.state);
    go_on(slot, suitcase)
}

/// The thread goes on by itself where it was stopped. Signals are let in on its own stack:
/// handlers may compute for long, and the suitcase is needed when their thread is sent the
/// next time.
fn go_on(slot: &Slot, suitcase: usize) -> ! {
    const RED_ZONE: u64 = 128;
    let kept = control::registers(suitcase);
    let bytes = size_of::<Registers>();
    // SAFETY: the suitcase's registers are the thread's.
    let stack = unsafe { (*kept).frame[3].load(Relaxed) };
    let place = stack.wrapping_sub(RED_ZONE + bytes as u64) & !15;
    let from = [kept as usize, bytes];
    let to = [place as usize, bytes];
    // By way of the kernel, which says so where no stack is.
    // SAFETY: what lies below a red zone is free for signal handlers at any time.
    let written = unsafe {
        let (from, to) = (from.as_ptr() as usize, to.as_ptr() as usize);
        let me = system::process_id() as usize;
        system::call(libc::SYS_process_vm_writev, [me, from, 1, to, 1, 0])
    };
    let registers = if written == bytes as isize {
        place as *const Registers
    } else {
        kept
    };
    // SAFETY: the mask is valid; the registers and vectors are the thread's own.
    unsafe { restore_with(registers, control::vectors(suitcase), slot.mask.as_ptr()) }
}

fn may_enter(control: &Control, slot: &Slot) -> bool {
    if has_cpu_timer() {
        control.closed.store(closed::TIMERS, SeqCst);
    }
    if may_use_tiles() {
        control.closed.store(closed::TILES, SeqCst);
    }
    if slot.order.load(Acquire) == order::CONVERT {
        // In this order: who makes a process without going on holding has closed before.
        let held = control.held.load(SeqCst) > 0;
        if held || control.closed.load(SeqCst) != closed::OPEN {
            // Somebody is in the middle of a change of the address space, or of a fork.
            control.converted.store(3, Release);
            control::wake(&control.converted);
            return false;
        }
        let hooked = convert::install_hooks(control);
        let done = hooked && convert::share(control);
        if !done {
            let why = if hooked {
                closed::MEMORY
            } else {
                closed::HOOKS
            };
            control.closed.store(why, Release);
        }
        control.converted.store(if done { 1 } else { 2 }, Release);
        control::wake(&control.converted);
    }
    control.held.load(SeqCst) == 0
        && control.closed.load(SeqCst) == closed::OPEN
        && control.conversions.load(SeqCst) > 0
}

/// Whether the process is to be told of CPU time that it has used: that of workers is not
/// its own, so that it would wait for ever.
pub fn has_cpu_timer() -> bool {
    [libc::ITIMER_VIRTUAL, libc::ITIMER_PROF]
        .into_iter()
        .any(|which| {
            let mut timer = [0usize; 4];
            let at = timer.as_mut_ptr() as usize;
            // SAFETY: a valid place for the answer, four words.
            unsafe { system::call(libc::SYS_getitimer, [which as usize, at, 0, 0, 0, 0]) };
            timer != [0; 4]
        })
}

/// Whether the process has asked for the CPU's tiles: a worker that uses them first would have more
/// state than the thread has room for.
fn may_use_tiles() -> bool {
    const ARCH_GET_XCOMP_PERM: usize = 0x1022;
    const TILE_DATA: u64 = 1 << 18;
    let mut permitted = 0u64;
    let at = &raw mut permitted as usize;
    // SAFETY: a valid place for the answer.
    let result =
        unsafe { system::call(libc::SYS_arch_prctl, [ARCH_GET_XCOMP_PERM, at, 0, 0, 0, 0]) };
    result == 0 && permitted & TILE_DATA != 0
}

/// Makes a worker and waits until it has ended. The reason, if none ran.
fn isolate(control: &Control, slot: &Slot, suitcase: usize) -> Option<u32> {
    collect(slot, false);
    let mut old: [usize; 3] = [0; 3];
    // SAFETY: a valid place for a `stack_t`, which is three words with padding.
    unsafe {
        system::call(
            libc::SYS_sigaltstack,
            [0, old.as_mut_ptr() as usize, 0, 0, 0, 0],
        )
    };
    for (kept, word) in slot.stack.iter().zip(old) {
        kept.store(word as u64, Relaxed);
    }
    slot.recall.store(0, Relaxed);
    slot.context.store(0, Relaxed);
    slot.written.store(0, Relaxed);
    slot.since.store(system::now(), Relaxed);
    slot.spent.store(
        system::clock_by_call(libc::CLOCK_THREAD_CPUTIME_ID),
        Relaxed,
    );
    // SAFETY: the new process has a stack of its own and shares what it must.
    let pid = unsafe { spawn(CLONE as usize, suitcase + SUITCASE, slot) };
    if pid <= 0 {
        control.error.store(pid as i64, Relaxed);
        return Some(why::NO_WORKER);
    }
    slot.worker.store(pid as u32, Release);
    let tick = tick(control);
    loop {
        let now = slot.state.load(Acquire);
        if now == state::RETURNING {
            // Without a context it was interrupted before it computed.
            let none = slot.context.load(Acquire) == 0;
            return none.then(|| slot.why.load(Relaxed));
        }
        if now != state::ENTERING && now != state::ISOLATED {
            // The worker could not be prepared.
            collect(slot, true);
            return Some(why::NO_WORKER);
        }
        control::wait(&slot.state, now, tick);
        if slot.state.load(Acquire) == now {
            tick_worker(control, slot);
        }
    }
}

/// The interval between two ticks, in microseconds.
pub fn tick(control: &Control) -> u32 {
    control.tick.load(Relaxed).clamp(100, 1_000_000)
}

/// What a parked thread does at every tick: its worker commits and takes over what
/// others wrote, or comes home if there is something to do for the thread.
fn tick_worker(control: &Control, slot: &Slot) {
    slot.looks.fetch_add(1, Relaxed);
    if ended(slot) {
        let now = slot.state.load(Acquire);
        if now == state::RETURNING {
            return;
        }
        if now == state::ENTERING {
            slot.state.store(state::HOME, Release);
            return;
        }
        // What it had computed is lost.
        die(b"sunder: an isolated thread was killed; the program can't go on\n");
    }
    if slot.state.load(Acquire) != state::ISOLATED {
        return;
    }
    let mut pending = system::pending();
    if let Some(ours) = control.our_signal.load(Relaxed).checked_sub(1) {
        pending &= !1u64.checked_shl(ours).unwrap_or(0);
    }
    let waits = pending & !slot.mask.load(Relaxed) != 0;
    let ends = control.held.load(SeqCst) > 0 || control.closed.load(SeqCst) != closed::OPEN;
    // A timer may have been set by other ways than the function.
    if waits || ends || has_cpu_timer() {
        slot.recall.store(1, SeqCst);
    }
    remind(slot);
}

/// Sends a worker its tick.
pub fn remind(slot: &Slot) {
    let pid = slot.worker.load(Acquire);
    if pid != 0 {
        // The worker is our child and was not collected.
        system::send_to(pid, pid, worker::TICK);
    }
}

/// Whether the worker has ended; it is collected then.
fn ended(slot: &Slot) -> bool {
    let pid = slot.worker.load(Acquire);
    if pid == 0 {
        return true;
    }
    if !has_ended(pid, libc::WNOHANG) {
        return false;
    }
    slot.worker.store(0, Release);
    true
}

/// Collects the worker if it has ended. If it was stopped, it goes on: its thread, which is
/// here, is not stopped, or not any more.
fn has_ended(pid: u32, options: i32) -> bool {
    let mut status = 0i32;
    let at = &raw mut status as usize;
    let options = (libc::__WCLONE | libc::WUNTRACED | options) as usize;
    // SAFETY: a valid place for the status.
    let result = unsafe { system::call(libc::SYS_wait4, [pid as usize, at, options, 0, 0, 0]) };
    if result <= 0 {
        // Interrupted by a handler of the program's, it has to be asked again.
        return result < 0 && result != -(libc::EINTR as isize);
    }
    let stopped = libc::WIFSTOPPED(status);
    if stopped {
        // The worker is our child and was not collected.
        system::kill(pid, libc::SIGCONT);
    }
    !stopped
}

/// Collects the workers of earlier episodes. Nobody is isolated, or can be any more.
pub fn collect_all(control: &Control) {
    for slot in &control.slots {
        collect(slot, false);
    }
}

/// Collects the worker of an earlier episode, which is at its end.
fn collect(slot: &Slot, kill: bool) {
    let pid = slot.worker.swap(0, SeqCst);
    if pid == 0 {
        return;
    }
    if kill {
        // The process is our child and was not collected.
        system::kill(pid, libc::SIGKILL);
    }
    while !has_ended(pid, 0) {}
}

/// Goes on where the worker ended, with the thread's own mask and signal stack.
fn home(control: &Control, slot: &Slot) -> ! {
    let context = slot.context.load(Acquire) as usize;
    let at = context as *mut libc::ucontext_t;
    if at.is_null() {
        die(b"sunder: an isolated thread came home with nothing\n");
    }
    count(control, slot.why.load(Relaxed));
    let now = system::now();
    slot.until.store(now, Relaxed);
    slot.episodes.fetch_add(1, Relaxed);
    // SAFETY: the context lies in the suitcase, where the worker's signal frame was put;
    // the worker does not touch it any more.
    unsafe {
        let [address, flags, size] = &slot.stack;
        (*at).uc_stack.ss_sp = address.load(Relaxed) as *mut _;
        (*at).uc_stack.ss_flags = flags.load(Relaxed) as i32;
        (*at).uc_stack.ss_size = size.load(Relaxed) as usize;
        (&raw mut (*at).uc_sigmask)
            .cast::<u64>()
            .write(slot.mask.load(Relaxed));
        slot.state.store(state::HOME, Release);
        control::wake(&slot.state);
        go_home(context)
    }
}

fn count(control: &Control, reason: u32) {
    if let Some(counter) = control.returns.get(reason as usize) {
        counter.fetch_add(1, Relaxed);
    }
}

/// Ends the program: it would go on with wrong data.
fn die(line: &[u8]) -> ! {
    system::write(2, line);
    loop {
        system::kill(system::process_id(), libc::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `clone` and `syscall` make their process when nothing is held any more: memory that is
    /// made sharable then would be the child's too.
    #[test]
    fn memory_is_not_made_sharable_once_a_process_is_being_made() {
        for (held, closed, answer) in [(1, closed::OPEN, 3), (0, closed::FORK, 3)] {
            let control = crate::testing::control();
            let slot = &control.slots[0];
            slot.order.store(order::CONVERT, Relaxed);
            control.held.store(held, Relaxed);
            control.closed.store(closed, Relaxed);
            assert!(!may_enter(&control, slot));
            assert_eq!(control.converted.load(Relaxed), answer);
            assert_eq!(control.closed.load(Relaxed), closed);
            assert_eq!(control.conversions.load(Relaxed), 0);
        }
    }
}
