//! Where the tool sends a thread that it has stopped in the middle of its work: the
//! thread makes a worker, parks, and goes on where the worker ended. It runs on a
//! stack in its suitcase with all signals blocked; the program's stack and signal
//! handlers are not touched.

use crate::{control, convert, system, worker};
use core::arch::naked_asm;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
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

/// Goes on where the registers in the suitcase say, with the vector state there.
/// Signals may arrive meanwhile: what is below the registers is stack.
#[unsafe(naked)]
pub unsafe extern "C" fn restore(registers: *const Registers, vectors: usize) -> ! {
    naked_asm!(
        "mov eax, -1",
        "mov edx, -1",
        "xrstor64 [rsi]",
        "mov rsp, rdi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "pop r11",
        "pop r10",
        "pop r9",
        "pop r8",
        "pop rax",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "iretq",
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
    system::wake(&slot.state);
    let mask = slot.mask.load(Relaxed);
    // SAFETY: the mask is valid; the registers are the thread's own.
    unsafe {
        system::call(
            libc::SYS_rt_sigprocmask,
            [
                libc::SIG_SETMASK as usize,
                &raw const mask as usize,
                0,
                8,
                0,
                0,
            ],
        );
        restore(control::registers(suitcase), control::vectors(suitcase))
    }
}

fn may_enter(control: &Control, slot: &Slot) -> bool {
    if slot.order.load(Acquire) == order::CONVERT {
        if control.held.load(SeqCst) > 0 {
            // Somebody is in the middle of a change of the address space.
            control.converted.store(3, Release);
            system::wake(&control.converted);
            return false;
        }
        let done = convert::share(control);
        control.converted.store(if done { 1 } else { 2 }, Release);
        system::wake(&control.converted);
        if !done {
            control.closed.store(closed::MEMORY, Release);
        }
    }
    if has_cpu_timer() {
        control.closed.store(closed::TIMERS, SeqCst);
    }
    control.held.load(SeqCst) == 0
        && control.closed.load(SeqCst) == closed::OPEN
        && control.conversions.load(SeqCst) > 0
}

/// Whether the process is to be told of CPU time that it has used: that of workers is not
/// its own, so that it would wait for ever.
fn has_cpu_timer() -> bool {
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
    slot.spent.store(system::own_cpu_time(), Relaxed);
    // SAFETY: the new process has a stack of its own and shares what it must.
    let pid = unsafe { spawn(CLONE as usize, suitcase + SUITCASE, slot) };
    if pid <= 0 {
        control.error.store(pid as i64, Relaxed);
        return Some(why::NO_WORKER);
    }
    slot.worker.store(pid as u32, Release);
    let tick = control.tick.load(Relaxed).clamp(100, 1_000_000);
    loop {
        let now = slot.state.load(Acquire);
        if now == state::RETURNING {
            return None;
        }
        if now != state::ENTERING && now != state::ISOLATED {
            // The worker could not be prepared.
            collect(slot, true);
            return Some(why::NO_WORKER);
        }
        system::wait(&slot.state, now, tick);
        if slot.state.load(Acquire) == now {
            tick_worker(control, slot);
        }
    }
}

/// What a parked thread does at every tick: its worker commits and takes over what
/// others wrote, or comes home if there is something to do for the thread.
fn tick_worker(control: &Control, slot: &Slot) {
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
    let mut pending: u64 = 0;
    // SAFETY: a valid place for a signal set.
    unsafe {
        system::call(
            libc::SYS_rt_sigpending,
            [&raw mut pending as usize, 8, 0, 0, 0, 0],
        )
    };
    if let Some(ours) = control.our_signal.load(Relaxed).checked_sub(1) {
        pending &= !1u64.checked_shl(ours).unwrap_or(0);
    }
    let waits = pending & !slot.mask.load(Relaxed) != 0;
    if waits || control.held.load(SeqCst) > 0 || control.closed.load(SeqCst) != closed::OPEN {
        slot.recall.store(1, SeqCst);
    }
    remind(slot);
}

/// Sends a worker its tick.
pub fn remind(slot: &Slot) {
    let pid = slot.worker.load(Acquire) as usize;
    if pid != 0 {
        let signal = worker::TICK as usize;
        // SAFETY: takes integers; the worker is our child and was not collected.
        unsafe { system::call(libc::SYS_tgkill, [pid, pid, signal, 0, 0, 0]) };
    }
}

/// Whether the worker has ended; it is collected then.
fn ended(slot: &Slot) -> bool {
    let pid = slot.worker.load(Acquire);
    if pid == 0 {
        return true;
    }
    let options = (libc::__WCLONE | libc::WNOHANG) as usize;
    // SAFETY: no pointer is passed.
    let result = unsafe { system::call(libc::SYS_wait4, [pid as usize, 0, options, 0, 0, 0]) };
    if result == 0 {
        return false;
    }
    slot.worker.store(0, Release);
    true
}

/// Collects the worker of an earlier episode, which is at its end.
fn collect(slot: &Slot, kill: bool) {
    let pid = slot.worker.swap(0, SeqCst) as usize;
    if pid == 0 {
        return;
    }
    // SAFETY: integers; the process is our child and was not collected.
    unsafe {
        if kill {
            system::call(libc::SYS_kill, [pid, libc::SIGKILL as usize, 0, 0, 0, 0]);
        }
        system::call(libc::SYS_wait4, [pid, 0, libc::__WCLONE as usize, 0, 0, 0]);
    }
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
        system::wake(&slot.state);
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
    system::say(line);
    loop {
        let pid = system::process_id() as usize;
        // SAFETY: takes integers.
        unsafe { system::call(libc::SYS_kill, [pid, libc::SIGKILL as usize, 0, 0, 0, 0]) };
    }
}
