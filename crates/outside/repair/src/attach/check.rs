//! Where stopped threads stand, and whether that is in the way of what is about to be
//! done: nobody may be in the middle of code that changes or goes away, nor have handed
//! memory to the kernel that is about to move. Reads the program; changes nothing.

use super::plan::Plan;
use sunder_access::{Address, Mappings};
use sunder_stop::{Memory, Stopped, World, stands, top_of};

const PAGE: u64 = 4096;
/// Bytes of a thread's own variables below its descriptor.
const OWN: u64 = 64 << 10;
/// What calls that get no length may use behind a pointer.
const SMALL: u64 = 64 << 10;
/// The kernel takes no more bytes at once.
const LARGE: u64 = 1 << 31;

/// What is in the way.
#[derive(Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It will be gone.
    Passing(&'static str),
    /// It will not.
    Lasting(&'static str),
}

/// What keeps these pages from being moved.
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
        if thread.computing_at().is_none() && is_in_the_way(memory, thread.registers(), page, len) {
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

/// Whether a kernel call that is under way may use these pages, or changes what is
/// mapped or who shares it.
fn is_in_the_way(memory: &Memory, registers: &libc::user_regs_struct, page: u64, len: u64) -> bool {
    let arguments = [
        registers.rdi,
        registers.rsi,
        registers.rdx,
        registers.r10,
        registers.r8,
        registers.r9,
    ];
    let meets = |start: u64, bytes: u64| start < page + len && page < start.saturating_add(bytes);
    let [_, b, c, d, e, f] = arguments;
    let vectors = |at: u64, count: u64| {
        let count = usize::try_from(count.min(1024)).unwrap_or(0);
        memory.words(at, 2 * count).map_or(true, |words| {
            let (pairs, _) = words.as_chunks::<2>();
            pairs.iter().any(|&[start, bytes]| meets(start, bytes))
        })
    };
    // A mask for the time of the call hides the one that comes back after it.
    let masks = |at: u64| at != 0;
    let near = arguments.iter().any(|&start| meets(start, SMALL));
    match registers.orig_rax as i64 {
        // What their registers have means nothing.
        libc::SYS_sched_yield | libc::SYS_pause => false,
        libc::SYS_futex
        | libc::SYS_nanosleep
        | libc::SYS_clock_nanosleep
        | libc::SYS_poll
        | libc::SYS_select
        | libc::SYS_epoll_wait
        | libc::SYS_wait4
        | libc::SYS_waitid
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_restart_syscall
        | libc::SYS_rt_sigtimedwait => near,
        libc::SYS_ppoll => near || masks(d),
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => near || masks(e),
        libc::SYS_pselect6 => {
            let mask = memory.words(f, 1).map_or(1, |w| w[0]);
            near || f != 0 && masks(mask)
        }
        libc::SYS_read
        | libc::SYS_write
        | libc::SYS_pread64
        | libc::SYS_pwrite64
        | libc::SYS_recvfrom
        | libc::SYS_sendto => near || meets(b, c.min(LARGE)),
        libc::SYS_readv
        | libc::SYS_writev
        | libc::SYS_preadv
        | libc::SYS_pwritev
        | libc::SYS_preadv2
        | libc::SYS_pwritev2 => near || vectors(b, c),
        libc::SYS_recvmsg | libc::SYS_sendmsg => {
            near || memory.words(b, 7).map_or(true, |m| {
                meets(m[0], m[1] & 0xffff_ffff) || meets(m[4], m[5]) || vectors(m[2], m[3])
            })
        }
        // What else there is may use any memory, or makes processes, or changes what is
        // mapped: none of it takes long.
        _ => true,
    }
}
