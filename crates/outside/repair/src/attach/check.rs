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

/// What prevents moving these pages at present; `None` if nothing does.
pub fn obstacle(
    world: &World,
    memory: &Memory,
    mappings: &Mappings,
    plan: &Plan,
    ours: &dyn Fn(u64) -> bool,
    restorers: &[u64],
    (page, len): (u64, u64),
) -> Option<Obstacle> {
    let Some(places) = stands(world.threads(), memory, mappings, restorers) else {
        return Some(Obstacle::Passing("a thread's stack can't be read"));
    };
    let read = |at, into: &mut [u8]| memory.read_into(at, into).is_ok();
    for thread in world.threads() {
        if lives_there(thread, mappings, page, len) {
            return Some(Obstacle::Lasting(
                "it lies on a thread's stack or beside its own variables",
            ));
        }
        match thread.mask() {
            Ok(mask) if mask >> (libc::SIGSEGV - 1) & 1 == 0 => {}
            _ => {
                let why = "a thread blocks the signal that faults make";
                return Some(Obstacle::Passing(why));
            }
        }
        let call = call_of(thread.registers());
        if thread.computing_at().is_none() && call.is_in_the_way(&read, (page, len)) {
            return Some(Obstacle::Passing(
                "a thread is in a kernel call that may use it",
            ));
        }
    }
    let between = |ip: &u64| ours(*ip) || plan.is_before_a_call(*ip);
    places
        .iter()
        .any(between)
        .then_some(Obstacle::Passing("a thread is about to call the kernel"))
}

/// Whether the thread has its stack or its own variables on these pages.
fn lives_there(thread: &Stopped, mappings: &Mappings, page: u64, len: u64) -> bool {
    let registers = thread.registers();
    let own = registers.fs_base;
    let beside = own.saturating_sub(OWN) < page + len && page < own.saturating_add(PAGE);
    let Some(stack) = mappings.at(Address(registers.rsp)) else {
        return true;
    };
    let top = top_of(registers, stack);
    beside || stack.span.start.0 < page + len && page < top
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
