//! A worker: the process that computes in a thread's place. It has the thread's registers, stack
//! and thread pointer. Of the program's memory it has what is shared, what is only read, and
//! private pages. Anything else that it tries ends the episode.
//!
//! Contexts: [`main`] before anything of the program runs; [`on_event`] in a signal handler, where
//! the C library's code can't be executed: everything called from there must be in this library.

use crate::chosen::Chosen;
use crate::confine::{self, Executable};
use crate::control::{self, accepted};
use crate::episode::{Episode, Next};
use crate::memory::{Fault, Memory};
use crate::tool::Position;
use crate::upkeep::{self, Handler};
use crate::{from_worker, inputs, maps, resume, sequences, tick};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use sunder_guest::system::{self, Action};
use sunder_wire::isolation::{
    CODES, CONTROL_BYTES, Control, ROOM_AT, Registers, SCRATCH, Slot, THREAD_AREA, WORKER_STACK,
    state, why,
};

/// Signals that end an episode, besides a tick.
const EVENTS: [i32; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// Signals that a terminal sends to all processes of a job, and so to workers. They end the
/// episode, so that no worker computes while the program is stopped. Whether it stops is decided by
/// the thread itself, outside isolation.
const STOPS: [i32; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// The signal of the worker's own timer. It ends the episode if the parked thread does not look
/// after its worker, because it is stopped (by `SIGSTOP`, or by a stop that reached the program
/// just before the worker existed).
const TIMER: i32 = libc::SIGALRM;
/// The shortest interval of that timer, in microseconds: the parked thread may have to wait for a
/// CPU before it can look.
const SHORTEST_INTERVAL: u32 = 100_000;
/// The shortest interval of that timer, in ticks.
const TICKS: u32 = 4;

/// The thread's count of looks at the timer's last signal.
static LOOKS_BEFORE: AtomicU64 = AtomicU64::new(u64::MAX);

/// The thread's slot. The variable is in the worker's own memory.
static SLOT: AtomicPtr<Slot> = AtomicPtr::new(core::ptr::null_mut());

/// What this worker's memory has beside the program's.
static MEMORY: Memory = Memory::new();

/// The thread's episode, with the tool that the control file asks for.
fn episode<'a>(control: &'a Control, slot: &'a Slot) -> Episode<'a, Chosen<'a>> {
    Episode::new(control, slot, &MEMORY, Chosen::new(control, slot))
}

/// The worker's entry point, on its own stack, with all signals blocked.
pub unsafe extern "C" fn main(slot: *const Slot) -> ! {
    SLOT.store(slot.cast_mut(), Ordering::Relaxed);
    // SAFETY: `spawn` passes the address of the thread's slot.
    if let (Some(control), Some(slot)) = (control::get(), unsafe { slot.as_ref() })
        && let Some(area) = control::thread_area(control, slot)
        && let Some(executable) = prepare(control, slot, area)
    {
        // SAFETY: the worker is prepared, as `compute` demands.
        unsafe { compute(control, slot, area, &executable) }
    }
    exit()
}

fn prepare(control: &Control, slot: &Slot, area: usize) -> Option<Executable> {
    set_death_signal(control)?;
    // SAFETY: this process has one thread, which uses nothing of what is unmapped, except what is
    // mapped again; no other process uses the thread area.
    unsafe {
        sequences::unregister();
        let registers = &*control::registers(area);
        let episode = episode(control, slot);
        let executable = unmap_private(control, slot, &episode, registers)?;
        if !episode.begin(&saved_position(registers)) {
            return None;
        }
        handle_signals(control, area)?;
        Some(executable)
    }
}

/// Continues as the thread. From its first instruction until the process ends, no code of the C
/// library can be executed.
///
/// # Safety
/// The worker is prepared.
unsafe extern "C" fn compute(
    control: &Control,
    slot: &Slot,
    area: usize,
    executable: &Executable,
) -> ! {
    // SAFETY: by this function's contract; the registers are the thread's, and its memory is mapped
    // here.
    unsafe {
        if confine::restrict_code(control, executable).is_some()
            && confine::filter_calls().is_some()
        {
            let (from, to) = (state::ENTERING, state::ISOLATED);
            let (order, other) = (Ordering::SeqCst, Ordering::SeqCst);
            if slot.state.compare_exchange(from, to, order, other).is_ok() {
                upkeep::began(slot);
                unblock_signals();
                resume::restore(control::registers(area), control::vectors(area))
            }
        }
    }
    exit()
}

/// Ends this process. If nothing of the program has run, the parked thread sees that the worker is
/// gone.
fn exit() -> ! {
    loop {
        // SAFETY: the call passes no pointer.
        unsafe { from_worker::call(libc::SYS_exit_group, [0; 6]) };
    }
}

/// The address of code.
#[repr(transparent)]
struct Code(#[allow(dead_code, reason = "read in the file, by a test")] *const ());
// SAFETY: the address is never dereferenced.
unsafe impl Sync for Code {}

/// Every entry point of this library that a worker executes without the C library. A test
/// (`crates/cli/tests/isolate/handler.rs`) checks all code in the built library that can be reached
/// from these; it finds them by the section.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".sunder.worker")]
static ENTRY_POINTS: [Code; 3] = [
    Code(on_event as *const ()),
    Code(compute as *const ()),
    Code(from_worker::restorer as *const ()),
];

/// The kernel kills the worker when the parked thread ends, so that no worker is orphaned.
fn set_death_signal(control: &Control) -> Option<()> {
    let (option, signal) = (libc::PR_SET_PDEATHSIG as usize, libc::SIGKILL as usize);
    // SAFETY: the call passes numbers only.
    unsafe {
        accepted(system::call(libc::SYS_prctl, [option, signal, 0, 0, 0, 0]))?;
        let parent = system::parent_id();
        (parent == control.process.load(Ordering::Relaxed)).then_some(())
    }
}

/// The position at which the thread continues, from its saved registers.
fn saved_position(registers: &Registers) -> Position {
    let [rip, _, _, rsp, _] = &registers.frame;
    let [
        r15,
        r14,
        r13,
        r12,
        rbp,
        rbx,
        r11,
        r10,
        r9,
        r8,
        rax,
        rcx,
        rdx,
        rsi,
        rdi,
    ] = &registers.general;
    let all = [
        rip, rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15,
    ];
    Position(all.map(|register| register.load(Ordering::Relaxed)))
}

/// The position at which the thread was interrupted, from the kernel's signal frame.
fn interrupted_position(registers: &[libc::greg_t; 23]) -> Position {
    let register = |i: i32| registers.get(i as usize).map_or(0, |r| *r as u64);
    Position([
        register(libc::REG_RIP),
        register(libc::REG_RAX),
        register(libc::REG_RCX),
        register(libc::REG_RDX),
        register(libc::REG_RBX),
        register(libc::REG_RSP),
        register(libc::REG_RBP),
        register(libc::REG_RSI),
        register(libc::REG_RDI),
        register(libc::REG_R8),
        register(libc::REG_R9),
        register(libc::REG_R10),
        register(libc::REG_R11),
        register(libc::REG_R12),
        register(libc::REG_R13),
        register(libc::REG_R14),
        register(libc::REG_R15),
    ])
}

/// Unmaps everything that is neither shared by all threads nor constant, nor a file that is only
/// read, and adds the shared memory to the episode. Returns the code that is mapped.
unsafe fn unmap_private(
    control: &Control,
    slot: &Slot,
    episode: &Episode<'_, Chosen<'_>>,
    registers: &Registers,
) -> Option<Executable> {
    let own = control::library();
    let [_, _, _, stack, _] = &registers.frame;
    let stack = stack.load(Ordering::Relaxed) as usize;
    let head = &raw const *control as usize;
    let buffer = head + ROOM_AT;
    // SAFETY: replaces a part of the control file's mapping that is reserved for this and empty.
    accepted(unsafe {
        system::map(
            buffer,
            SCRATCH,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    })?;
    MEMORY.set_room(buffer + SCRATCH);
    // SAFETY: mapped just above, with this size.
    let bytes = unsafe { core::slice::from_raw_parts_mut(buffer as *mut u8, SCRATCH) };
    let text = maps::read(bytes)?;
    let mut executable = Executable {
        ranges: [[0; 2]; CODES],
        count: 0,
    };
    let kept = [own, [head, head + CONTROL_BYTES]];
    for mapping in maps::all(text).filter(|m| m.name != b"[vsyscall]") {
        let constant = mapping.is_private() && !mapping.is_writable();
        let named = !mapping.name.is_empty();
        let nothing = mapping.mode.starts_with(b"---");
        for [start, end] in maps::outside(mapping.start, mapping.end, &kept) {
            if maps::is_converted(&mapping) {
                if mapping.is_writable() && !episode.add(start, end, stack) {
                    return None;
                }
            } else if constant && (named || nothing) {
                if mapping.is_executable() {
                    *executable.ranges.get_mut(executable.count)? = [start, end];
                    executable.count += 1;
                }
            } else if maps::is_common(&mapping) {
                if mapping.is_writable() && !episode.add_named(start, end) {
                    return None;
                }
            } else if !(maps::may_be_input(text, &mapping)
                && inputs::keep(control, slot, start, end))
            {
                // SAFETY: a fault there ends the episode.
                let gone = unsafe { system::unmap(start, end - start) };
                accepted(gone)?;
            }
        }
    }
    Some(executable)
}

unsafe fn handle_signals(control: &Control, area: usize) -> Option<()> {
    const SA_RESTORER: u64 = 0x0400_0000;
    let stack = [area + WORKER_STACK, 0, THREAD_AREA - WORKER_STACK];
    let action = Action {
        handler: on_event as *const () as usize,
        flags: (libc::SA_SIGINFO | libc::SA_ONSTACK) as u64 | SA_RESTORER,
        restorer: from_worker::restorer as *const () as usize,
        mask: u64::MAX,
    };
    let mut blocked = u64::MAX;
    // SAFETY: this process has one thread and its own page table.
    unsafe {
        for signal in EVENTS.into_iter().chain(STOPS).chain([tick::SIGNAL, TIMER]) {
            blocked &= !(1 << (signal - 1));
            accepted(system::set_action(signal as usize, &action))?;
        }
        // This function runs on that stack and leaves it before a signal can arrive.
        let at = stack.as_ptr() as usize;
        accepted(system::call(libc::SYS_sigaltstack, [at, 0, 0, 0, 0, 0]))?;
        let interval = SHORTEST_INTERVAL.max(TICKS * tick::interval(control)) as usize;
        let every = [interval / 1_000_000, interval % 1_000_000];
        let every = [every, every];
        let (timer, at) = (libc::ITIMER_REAL as usize, every.as_ptr() as usize);
        accepted(system::call(libc::SYS_setitimer, [timer, at, 0, 0, 0, 0]))?;
    }
    MASK.store(blocked as usize, Ordering::Relaxed);
    Some(())
}

/// The signals that the worker blocks.
static MASK: AtomicUsize = AtomicUsize::new(0);

/// Unblocks the signals; the last step before the worker computes. From here on it can be
/// interrupted by a tick or a stop.
unsafe fn unblock_signals() {
    let mask = MASK.load(Ordering::Relaxed) as u64;
    let (how, at) = (libc::SIG_SETMASK as usize, &raw const mask as usize);
    // SAFETY: a valid mask; this call can't fail with valid arguments.
    unsafe { from_worker::call(libc::SYS_rt_sigprocmask, [how, at, 0, 8, 0, 0]) };
}

/// Whether an access to mapped but protected memory caused the fault, and if so, whether it was a write.
const fn forbidden_access(error: i64, code: i32) -> Option<bool> {
    const WRITE: i64 = 2;
    const FETCH: i64 = 16;
    const NOT_ALLOWED: i32 = 2;
    if error & FETCH == 0 && code == NOT_ALLOWED {
        Some(error & WRITE != 0)
    } else {
        None
    }
}

/// The processor's flag that interrupts a thread after each instruction.
const TRAP_FLAG: i64 = 1 << 8;

/// Handles a tick, an access to a page that is watched, or the end of an episode.
unsafe extern "C" fn on_event(
    signal: i32,
    info: *const libc::siginfo_t,
    context: *mut libc::ucontext_t,
) {
    // SAFETY: the slot was set before any signal was unblocked; the kernel passes the rest.
    let (Some(control), Some(slot)) = (control::get(), unsafe {
        SLOT.load(Ordering::Relaxed).as_ref()
    }) else {
        return;
    };
    let mut handler = Handler::enter();
    // SAFETY: the kernel passes a valid context and signal information.
    let (registers, address) = unsafe {
        (
            &mut (*context).uc_mcontext.gregs,
            (*info).si_addr() as usize,
        )
    };
    let instruction = registers[libc::REG_RIP as usize];
    // SAFETY: the kernel passes valid signal information.
    let code = unsafe { (*info).si_code };
    let fault = Fault {
        address,
        instruction: instruction as usize,
    };
    let episode = episode(control, slot);
    // Until the last instruction of `restore`, the stack pointer is in the thread area.
    let stack = registers[libc::REG_RSP as usize] as usize;
    let first = &raw const *control as usize;
    let has_begun = !(first..first + CONTROL_BYTES).contains(&stack);
    if signal == libc::SIGSEGV
        && let Some(writes) = forbidden_access(registers[libc::REG_ERR as usize], code)
    {
        // An instruction that pushes the flags would push the one that interrupts it, too.
        let pushes = writes && stack.wrapping_sub(address) <= 16;
        match episode.on_access(&fault, writes, !pushes) {
            Next::Goes => return,
            Next::Steps => {
                registers[libc::REG_EFL as usize] |= TRAP_FLAG;
                return;
            }
            Next::Ends => {}
        }
    }
    const TRAP_TRACE: i32 = 2;
    if signal == libc::SIGTRAP && code == TRAP_TRACE && episode.on_step() {
        registers[libc::REG_EFL as usize] &= !TRAP_FLAG;
        return;
    }
    if signal == TIMER {
        let looks = slot.looks.load(Ordering::Relaxed);
        if LOOKS_BEFORE.swap(looks, Ordering::Relaxed) != looks {
            return;
        }
    }
    let recalled = slot.recall.load(Ordering::SeqCst) != 0;
    let is_tick = signal == tick::SIGNAL;
    let sound = episode.commit(is_tick && !recalled);
    if is_tick && !recalled && sound && episode.on_tick(&interrupted_position(registers)) {
        handler.tell(slot);
        return;
    }
    let reason = match signal {
        tick::SIGNAL if recalled => why::RECALLED,
        tick::SIGNAL => why::OTHER_BYTES,
        TIMER | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => why::RECALLED,
        libc::SIGSYS => {
            // The kernel has restored `rax`; the thread repeats the call.
            registers[libc::REG_RIP as usize] = instruction.wrapping_sub(2);
            why::SYSTEM_CALL
        }
        libc::SIGSEGV | libc::SIGBUS => {
            const FETCH: i64 = 16;
            if registers[libc::REG_ERR as usize] & FETCH != 0 {
                why::CODE
            } else {
                why::MEMORY
            }
        }
        libc::SIGTRAP => {
            // After an `int3` of ours, the thread finds the program's instruction in its place,
            // which may be an `int3`, too. Not after a single step.
            const SI_KERNEL: i32 = 0x80;
            if code == SI_KERNEL {
                registers[libc::REG_RIP as usize] = instruction.wrapping_sub(1);
                why::CODE
            } else {
                why::EXCEPTION
            }
        }
        _ => why::EXCEPTION,
    };
    episode.end(reason);
    handler.tell(slot);
    if MEMORY.stepped().is_some() {
        registers[libc::REG_EFL as usize] &= !TRAP_FLAG;
    }
    slot.why.store(reason, Ordering::Relaxed);
    slot.address.store(address as u64, Ordering::Relaxed);
    slot.instruction
        .store(instruction as u64, Ordering::Relaxed);
    // A worker that has not begun has no context: the thread itself continues.
    let context = if has_begun { context as u64 } else { 0 };
    slot.context.store(context, Ordering::Relaxed);
    slot.state.store(state::RETURNING, Ordering::Release);
    let word = slot.state.as_ptr() as usize;
    let (wake, all) = (libc::FUTEX_WAKE as usize, i32::MAX as usize);
    // SAFETY: wakes the thread, which owns all of the above from here on.
    unsafe { from_worker::call(libc::SYS_futex, [word, wake, all, 0, 0, 0]) };
    exit()
}
