//! Where stopped threads stand, and whether that is in the way of what is about to be
//! done: nobody may be in the middle of code that changes or goes away, nor have handed
//! memory to the kernel that is about to move. Reads the program; changes nothing.

use super::plan::Plan;
use super::threads::{Memory, World};
use crate::protect::trace::Stopped;
use std::io;
use sunder_access::{Address, Mapping, Mappings};

const PAGE: u64 = 4096;
/// Below a stack pointer lie so many bytes of a function's own.
const RED_ZONE: u64 = 128;
/// Bytes of a thread's own variables below its descriptor.
const OWN: u64 = 64 << 10;
/// What calls that get no length may use behind a pointer.
const SMALL: u64 = 64 << 10;
/// The kernel takes no more bytes at once.
const LARGE: u64 = 1 << 31;
/// From the beginning of a signal's frame, which is the return address, to where the
/// thread goes on.
const TO_IP: usize = 176 / 8;
/// Bytes of stacks that are looked through while all threads are stopped: a fraction of a
/// second's. Where no thread's descriptor says where its stack ends, as in coroutines on the
/// heap, there may be more.
const MOST: u64 = 256 << 20;
/// Bytes of them that are read at once.
const PART: usize = 64 << 10;

/// What is in the way.
#[derive(Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// It will be gone.
    Passing(&'static str),
    /// It will not.
    Lasting(&'static str),
}

/// Where threads stand: each one's `ip`, and those of code that signals have
/// interrupted, by the frames on its stack.
pub fn stands<'a>(
    threads: impl IntoIterator<Item = &'a Stopped>,
    memory: &Memory,
    mappings: &Mappings,
    restorers: &[u64],
) -> Option<Vec<u64>> {
    let mut all = Vec::new();
    let mut left = MOST;
    for thread in threads {
        let registers = thread.registers();
        all.push(registers.rip);
        let stack = mappings.at(Address(registers.rsp))?;
        let start = (registers.rsp & !7).saturating_sub(RED_ZONE);
        let start = start.max(stack.span.start.0);
        let end = top_of(registers, stack);
        left = left.checked_sub(end - start)?;
        let read = |at, into: &mut [u8]| memory.read_into(at, into);
        interrupted(start, end, restorers, read, &mut all).ok()?;
    }
    Some(all)
}

/// Where a thread's stack ends at the latest. The descriptor of a thread lies at the top of its
/// stack; what is mapped above is another's.
fn top_of(registers: &libc::user_regs_struct, stack: &Mapping) -> u64 {
    let (own, end) = (registers.fs_base, stack.span.end().0);
    if own > registers.rsp && own < end {
        end.min(own + PAGE)
    } else {
        end
    }
}

/// Where the code goes on that signals have interrupted, by their frames from `start` to `end`.
fn interrupted(
    start: u64,
    end: u64,
    restorers: &[u64],
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    found: &mut Vec<u64>,
) -> io::Result<()> {
    // What begins in one part may go on in the next.
    let mut room = vec![0; PART + 8 * TO_IP];
    for at in (start..end).step_by(PART) {
        let bytes = (end - at).min(room.len() as u64) & !7;
        let part = &mut room[..bytes as usize];
        read(at, part)?;
        let (words, _) = part.as_chunks::<8>();
        let word = |i: usize| words.get(i).map(|word| u64::from_le_bytes(*word));
        let begin = (0..PART / 8).filter(|&i| word(i).is_some_and(|w| restorers.contains(&w)));
        found.extend(begin.filter_map(|i| word(i + TO_IP)));
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repair::place::tests::writable;

    fn registers(rsp: u64, own: u64) -> libc::user_regs_struct {
        // SAFETY: plain data, for which zeroes are valid.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        (registers.rsp, registers.fs_base) = (rsp, own);
        registers
    }

    /// The kernel makes one mapping of stacks and whatever else lies beside each other.
    #[test]
    fn a_threads_stack_ends_behind_its_descriptor() {
        let stack = writable(0x10_0000, 0x90_0000, "");
        let top = |rsp, own| top_of(&registers(rsp, own), &stack);
        assert_eq!(top(0x1f_f000, 0x20_0700), 0x20_0700 + PAGE);
        assert_eq!(top(0x1f_f000, 0x8f_ff00), 0x90_0000, "the last one");
        // A coroutine's, the first thread's, another's descriptor.
        for own in [0x20_0700, 0x9f_0000, 0x0f_0000] {
            assert_eq!(top(0x30_0000, own), 0x90_0000, "{own:#x}");
        }
    }

    #[test]
    fn frames_are_found_wherever_parts_begin() {
        const RESTORER: u64 = 0x7f00_1234_5678;
        let words = 3 * PART / 8;
        let part = PART / 8;
        for frame in [
            0,
            1,
            part - TO_IP,
            part - 1,
            part,
            part + 1,
            words - TO_IP - 1,
        ] {
            let mut stack = vec![1u64; words];
            stack[frame] = RESTORER;
            stack[frame + TO_IP] = 0x40_1000;
            let bytes: Vec<u8> = stack.iter().flat_map(|w| w.to_le_bytes()).collect();
            let start = 0x5000;
            let read = |at: u64, into: &mut [u8]| {
                let from = (at - start) as usize;
                into.copy_from_slice(&bytes[from..from + into.len()]);
                Ok(())
            };
            let mut found = Vec::new();
            let end = start + bytes.len() as u64;
            interrupted(start, end, &[RESTORER], read, &mut found).expect("it is there");
            assert_eq!(found, [0x40_1000], "{frame}");
        }
    }
}
