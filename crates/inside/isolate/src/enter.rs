//! Where a thread enters isolation. The tool stops it in the middle of its work and sends it here:
//! it makes a worker process, parks, and continues where the worker ended. It runs on a stack in
//! its thread area with all signals blocked and touches neither the program's stack nor its signal
//! handlers.
//!
//! Contexts: signal (the thread was stopped anywhere), with all signals blocked.

use crate::collect::{self, collect};
use crate::hold::CONFINEMENT;
use crate::{control, convert, inputs, resume, space, tick, upkeep, worker};
use core::arch::naked_asm;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use sunder_guest::system;
use sunder_wire::isolation::{
    Control, REGISTERS, Registers, Slot, THREAD_AREA, VECTORS, closed, order, state, why,
};

/// The tool sets the instruction pointer to this, `rdi` to the slot's address, and the stack
/// pointer to the registers in its thread area, where it has saved the thread's own.
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

/// Clones a process that does not share the thread's memory and begins in `worker::main` on a stack
/// of its own. Returns its process id, or a negative error number.
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

/// Without `CLONE_VM`, `CLONE_SIGHAND` and `CLONE_THREAD`, and without a signal at its end: the
/// program's own calls of `wait` do not see it.
const CLONE: i32 = libc::CLONE_FILES | libc::CLONE_FS | libc::CLONE_IO | libc::CLONE_SYSVSEM;

unsafe extern "C" fn enter(slot: *const Slot) -> ! {
    // Counted out by the last instructions ([`resume`]).
    CONFINEMENT.calling.fetch_add(1, SeqCst);
    // The tool has blocked all signals, unless it was killed while it was sending this thread.
    system::set_mask(libc::SIG_SETMASK, u64::MAX);
    // SAFETY: the tool sends only threads of a process with a control file, and passes the address
    // of one of its slots.
    let (Some(control), Some(slot)) = (control::get(), unsafe { slot.as_ref() }) else {
        kill_program(b"sunder: a thread was sent into isolation, but there is none\n");
    };
    let Some(area) = control::thread_area(control, slot) else {
        kill_program(b"sunder: a thread was sent into isolation without a place there\n");
    };
    slot.state.store(state::ENTERING, SeqCst);
    let reason = if may_enter(control, slot) {
        isolate(control, slot, area)
    } else {
        Some(why::NO_MEMORY)
    };
    let Some(reason) = reason else {
        resume_from_worker(control, slot)
    };
    // No worker has run: the thread itself continues.
    count_return(control, reason);
    slot.why.store(reason, Relaxed);
    // This counts as an episode of length zero.
    slot.until.store(slot.since.load(Relaxed), Relaxed);
    slot.episodes.fetch_add(1, Relaxed);
    slot.state.store(state::HOME, Release);
    control::wake(&slot.state);
    resume_itself(slot, area)
}

/// The thread itself continues where it was stopped. Its registers are first copied to its own
/// stack: with its signals unblocked, handlers may run for long, and the thread area must be free
/// when the thread is sent again.
fn resume_itself(slot: &Slot, area: usize) -> ! {
    const RED_ZONE: u64 = 128;
    let kept = control::registers(area);
    let bytes = size_of::<Registers>();
    // SAFETY: the thread area holds this thread's registers, and only this thread uses it now.
    let stack = unsafe { (*kept).frame[3].load(Relaxed) };
    let at = stack.wrapping_sub(RED_ZONE + bytes as u64) & !15;
    let from = [kept as usize, bytes];
    let to = [at as usize, bytes];
    // The kernel writes, because it returns an error where the stack is not mapped.
    // SAFETY: memory below the red zone is free; signal handlers may overwrite it at any time.
    let written = unsafe {
        let (from, to) = (from.as_ptr() as usize, to.as_ptr() as usize);
        let me = system::process_id() as usize;
        system::call(libc::SYS_process_vm_writev, [me, from, 1, to, 1, 0])
    };
    let registers = if written == bytes as isize {
        at as *const Registers
    } else {
        kept
    };
    // SAFETY: the mask is valid; the registers and vectors are this thread's own.
    unsafe { resume::restore_with(registers, control::vectors(area), slot.mask.as_ptr()) }
}

fn may_enter(control: &Control, slot: &Slot) -> bool {
    if has_cpu_timer() {
        control.closed.store(closed::TIMERS, SeqCst);
    }
    if may_use_tiles() {
        control.closed.store(closed::TILES, SeqCst);
    }
    if slot.order.load(Acquire) == order::CONVERT {
        // `held` is read before `closed`: a thread that makes a process after dropping its hold has
        // set `closed` before.
        let held = control.held.load(SeqCst) > 0;
        if held || control.closed.load(SeqCst) != closed::OPEN {
            // Another thread is changing the address space, or forking.
            control.converted.store(3, Release);
            control::wake(&control.converted);
            return false;
        }
        let hooked = space::install_hooks(control);
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

/// Whether the process has a timer of the CPU time that it uses, or a limit of it. Time of workers is not
/// the process's own, so such a timer might never expire, and the limit never be reached.
pub fn has_cpu_timer() -> bool {
    if system::limit(libc::RLIMIT_CPU) != u64::MAX {
        return true;
    }
    [libc::ITIMER_VIRTUAL, libc::ITIMER_PROF]
        .into_iter()
        .any(|which| {
            let mut timer = [0usize; 4];
            let at = timer.as_mut_ptr() as usize;
            // SAFETY: `at` is the address of a local of four words, the size of the answer.
            unsafe { system::call(libc::SYS_getitimer, [which as usize, at, 0, 0, 0, 0]) };
            timer != [0; 4]
        })
}

/// Whether the process has requested permission for AMX tiles: a worker that uses them first would
/// have more state than the thread has room for.
fn may_use_tiles() -> bool {
    const ARCH_GET_XCOMP_PERM: usize = 0x1022;
    const TILE_DATA: u64 = 1 << 18;
    let mut permitted = 0u64;
    let at = &raw mut permitted as usize;
    // SAFETY: the kernel writes one word to a local.
    let result =
        unsafe { system::call(libc::SYS_arch_prctl, [ARCH_GET_XCOMP_PERM, at, 0, 0, 0, 0]) };
    result == 0 && permitted & TILE_DATA != 0
}

/// Makes a worker and waits until it has ended. Returns the reason if none ran.
fn isolate(control: &Control, slot: &Slot, area: usize) -> Option<u32> {
    collect(slot, false);
    let mut old: [usize; 3] = [0; 3];
    // SAFETY: the local has room for a `stack_t`, which is three words with padding.
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
    slot.inputs.store(0, Relaxed);
    // Counted before the worker gets its memory: what is written from here on is seen.
    let mut faults = inputs::faults();
    slot.since.store(system::now(), Relaxed);
    slot.spent.store(upkeep::leaves(slot), Relaxed);
    // SAFETY: the new process has a stack of its own, in the thread area, which this thread does
    // not use until the worker has ended.
    let pid = unsafe { spawn(CLONE as usize, area + THREAD_AREA, slot) };
    if pid <= 0 {
        control.error.store(pid as i64, Relaxed);
        return Some(why::NO_WORKER);
    }
    slot.worker.store(pid as u32, Release);
    let interval = tick::interval(control);
    loop {
        let now = slot.state.load(Acquire);
        if now == state::RETURNING {
            // No context: the worker was interrupted before it computed anything.
            let none = slot.context.load(Acquire) == 0;
            return none.then(|| slot.why.load(Relaxed));
        }
        if now != state::ENTERING && now != state::ISOLATED {
            // The worker failed while it was being prepared.
            collect(slot, true);
            return Some(why::NO_WORKER);
        }
        control::wait(&slot.state, now, interval);
        if slot.state.load(Acquire) == now {
            tick_worker(control, slot, &mut faults);
        }
    }
}

/// The parked thread does this at every tick: it has the worker commit and take over what others
/// wrote, or recalls it if the thread itself has something to do, or if the worker has memory that is
/// not the program's any more. `faults` is as [`inputs::are_unwritten`] takes it.
fn tick_worker(control: &Control, slot: &Slot, faults: &mut u64) {
    slot.looks.fetch_add(1, Relaxed);
    if collect::has_ended(slot) {
        let now = slot.state.load(Acquire);
        if now == state::RETURNING {
            return;
        }
        if now == state::ENTERING {
            slot.state.store(state::HOME, Release);
            return;
        }
        // The worker's uncommitted changes are lost.
        kill_program(b"sunder: an isolated thread was killed; the program can't go on\n");
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
    // A timer may have been set by a system call that is not interposed.
    let written = !inputs::are_unwritten(control, slot, faults);
    if waits || ends || written || has_cpu_timer() {
        slot.recall.store(1, SeqCst);
    }
    tick::send(slot);
}

/// The thread continues where the worker ended, with its own signal mask and signal stack.
fn resume_from_worker(control: &Control, slot: &Slot) -> ! {
    let context = slot.context.load(Acquire) as usize;
    let at = context as *mut libc::ucontext_t;
    if at.is_null() {
        kill_program(b"sunder: an isolated thread came home with nothing\n");
    }
    count_return(control, slot.why.load(Relaxed));
    let now = system::now();
    slot.until.store(now, Relaxed);
    upkeep::came_home(slot, slot.spent.load(Relaxed));
    slot.episodes.fetch_add(1, Relaxed);
    // SAFETY: the context lies in the thread area, where the kernel put the worker's signal frame;
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
        resume::return_from_signal(context)
    }
}

fn count_return(control: &Control, reason: u32) {
    if let Some(counter) = control.returns.get(reason as usize) {
        counter.fetch_add(1, Relaxed);
    }
}

/// Ends the program, which would continue with wrong data.
fn kill_program(line: &[u8]) -> ! {
    system::write(2, line);
    loop {
        system::kill(system::process_id(), libc::SIGKILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `clone` and `syscall` make their process after the hold is dropped: memory that became
    /// sharable then would be shared with the child.
    #[test]
    fn memory_is_not_made_sharable_while_a_process_is_made() {
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
