//! Whether stopped threads prevent a move. No thread may stand in code that is about to change or
//! to be unmapped, and no thread may have given the kernel an address of bytes that are about to
//! move. Called by `inject`. Reads the program; must not change it.

use super::calls_under_way::CallUnderWay;
use super::plan::Plan;
use sunder_access::{Address, Mappings, PAGE};
use sunder_kernel::KernelCall;
use sunder_stop::{Memory, Stopped, World, stands, top_of};

/// Most bytes of thread-local variables below a thread's descriptor.
const OWN: u64 = 64 << 10;

/// What prevents a move.
#[derive(Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Temporarily.
    Passing(&'static str),
    /// For good.
    Lasting(&'static str),
}

/// What stopped threads are looked at with.
pub struct Scene<'a> {
    /// The program's memory.
    pub memory: &'a Memory,
    /// Its mappings.
    pub mappings: &'a Mappings,
    /// Where its code makes kernel calls.
    pub plan: &'a Plan,
    /// Whether an address is one of our code.
    pub ours: &'a dyn Fn(u64) -> bool,
    /// Addresses of code that returns from signal handlers.
    pub restorers: &'a [u64],
    /// Where a thread goes on that is kept off its stack; `None` for other threads.
    pub parked: &'a dyn Fn(&Stopped) -> Option<u64>,
}

/// The threads on whose stacks these pages lie. Each waits in a kernel call, and has to be kept off
/// its stack before the pages may move. Threads that are kept off already are not among them.
///
/// # Errors
/// What prevents moving the pages at present.
pub fn owners(
    world: &World,
    scene: &Scene<'_>,
    (page, len): (u64, u64),
) -> Result<Vec<i32>, Obstacle> {
    let (memory, mappings) = (scene.memory, scene.mappings);
    let Some(mut places) = stands(world.threads(), memory, mappings, scene.restorers) else {
        return Err(Obstacle::Passing("a thread's stack can't be read"));
    };
    let read = |at, into: &mut [u8]| memory.read_into(at, into).is_ok();
    let mut owners = Vec::new();
    for thread in world.threads() {
        let parked = (scene.parked)(thread);
        let computes = thread.computing_at().is_some() && parked.is_none();
        if is_beside_its_own(thread, page, len) {
            return Err(Obstacle::Lasting("it lies beside a thread's own variables"));
        }
        if is_on_its_stack(thread, mappings, page, len) {
            if computes {
                return Err(Obstacle::Lasting(
                    "it lies on the stack of a thread that does not wait",
                ));
            }
            owners.push(thread.thread());
        }
        match thread.mask() {
            Ok(mask) if mask >> (libc::SIGSEGV - 1) & 1 == 0 => {}
            _ => {
                let why = "a thread blocks the signal that faults make";
                return Err(Obstacle::Passing(why));
            }
        }
        let mut call = call_of(thread.registers());
        if let Some(after) = parked {
            // Where it waits now stands for where it waited before.
            let here = thread.registers().rip;
            places.retain(|&ip| ip != here);
            places.push(after);
            call.after = after;
        }
        if !computes && call.is_in_the_way(&read, (page, len)) {
            return Err(Obstacle::Passing(
                "a thread is in a kernel call that may use it",
            ));
        }
    }
    let between = |ip: &u64| (scene.ours)(*ip) || scene.plan.is_before_a_call(*ip);
    if places.iter().any(between) {
        return Err(Obstacle::Passing("a thread is about to call the kernel"));
    }
    Ok(owners)
}

/// Whether the thread has its own variables on these pages, or near.
const fn is_beside_its_own(thread: &Stopped, page: u64, len: u64) -> bool {
    let own = thread.registers().fs_base;
    own.saturating_sub(OWN) < page + len && page < own.saturating_add(PAGE)
}

/// Whether the thread has its stack on these pages.
fn is_on_its_stack(thread: &Stopped, mappings: &Mappings, page: u64, len: u64) -> bool {
    let registers = thread.registers();
    let Some(stack) = mappings.at(Address(registers.rsp)) else {
        return true;
    };
    stack.span.start.0 < page + len && page < top_of(registers, stack)
}

/// The kernel call that a thread is stopped in.
pub(super) const fn call_of(registers: &libc::user_regs_struct) -> CallUnderWay {
    CallUnderWay {
        call: KernelCall {
            number: registers.orig_rax as i64,
            arguments: [
                registers.rdi,
                registers.rsi,
                registers.rdx,
                registers.r10,
                registers.r8,
                registers.r9,
            ],
        },
        after: registers.rip,
    }
}
