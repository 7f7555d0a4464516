//! Which code the threads of a stopped process may still return to or execute: their instruction
//! pointers, and the instruction pointers that signal frames on their stacks hold. Asked by
//! `protect` and `repair` before they change or unmap code. Reads the process; must not change it.

use crate::thread::Stopped;
use crate::world::Memory;
use std::io;
use sunder_access::{Address, Mapping, Mappings, PAGE};

/// Bytes below the stack pointer that a function may use (the red zone of the System V ABI).
const RED_ZONE: u64 = 128;
/// Words from the return address at the start of a signal frame to the saved instruction pointer.
const TO_IP: usize = 176 / 8;
/// Most bytes of stacks that are searched while all threads are stopped; that takes a fraction of a
/// second. There may be more where no thread descriptor marks the end of a stack, as for coroutines
/// whose stacks lie in the heap.
const MOST: u64 = 256 << 20;
/// Bytes of a stack that are read at once.
const PART: usize = 64 << 10;

/// The instruction pointers of `threads`, and those of code that signal handlers on their stacks
/// have interrupted. `restorers` are the addresses of code that returns from signal handlers.
/// `None` if a stack can't be read or there is too much of them.
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

/// The highest address at which a thread's stack can end. The thread's descriptor lies at the top
/// of its stack; what is mapped above belongs to others.
pub fn top_of(registers: &libc::user_regs_struct, stack: &Mapping) -> u64 {
    let (own, end) = (registers.fs_base, stack.span.end().0);
    if own > registers.rsp && own < end {
        end.min(own + PAGE)
    } else {
        end
    }
}

/// Finds signal frames from `start` to `end` and adds the instruction pointers that they hold to
/// `found`.
fn interrupted(
    start: u64,
    end: u64,
    restorers: &[u64],
    mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    found: &mut Vec<u64>,
) -> io::Result<()> {
    // A frame that begins in one part may end in the next one.
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

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::Span;

    fn registers(rsp: u64, own: u64) -> libc::user_regs_struct {
        // SAFETY: plain data, for which zeroes are valid.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        (registers.rsp, registers.fs_base) = (rsp, own);
        registers
    }

    /// The kernel merges a stack with the mappings beside it.
    #[test]
    fn a_threads_stack_ends_behind_its_descriptor() {
        let stack = Mapping {
            span: Span::new(Address(0x10_0000), 0x80_0000),
            file_offset: 0,
            path: String::new(),
            inode: 0,
            read: true,
            write: true,
            execute: false,
            shared: false,
        };
        let top = |rsp, own| top_of(&registers(rsp, own), &stack);
        assert_eq!(top(0x1f_f000, 0x20_0700), 0x20_0700 + PAGE);
        assert_eq!(top(0x1f_f000, 0x8f_ff00), 0x90_0000, "the last one");
        // The descriptor belongs to another stack: for a coroutine, the first thread, another
        // thread.
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
            interrupted(start, end, &[RESTORER], read, &mut found)
                .expect("the buffer covers the range");
            assert_eq!(found, [0x40_1000], "{frame}");
        }
    }
}
