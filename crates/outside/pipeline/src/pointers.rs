//! Finds the thread pointers of a process that has not loaded the runtime and so does not
//! report them: it searches its memory where glibc puts the descriptors of threads. Used by
//! `process`. It must not stop the process, and accepts only what can't be there by chance.

use sunder_access::{Address, Mapping, Mappings, ThreadId};
use sunder_objects::ThreadPointer;

/// The bytes above a thread's stack pointer that are searched for its descriptor. It lies at
/// the upper end of the stack, and stacks are seldom used deeper than this.
const ABOVE: u64 = 256 << 10;
/// The first thread's descriptor lies in a small mapping that the loader made; larger ones are
/// not searched.
const SMALL: u64 = 256 << 10;
/// The alignment of descriptors (`TCB_ALIGNMENT` of glibc).
const ALIGN: u64 = 64;
/// The thread's number is within this many bytes from the descriptor's start.
const NUMBER_WITHIN: usize = 0x400;

/// The thread pointer of `thread`, whose stack pointer was `stack_pointer` in a sample. `read`
/// copies bytes from the process's memory.
pub fn find(
    thread: ThreadId,
    stack_pointer: u64,
    mappings: &Mappings,
    read: &mut dyn FnMut(Address, &mut [u8]) -> bool,
) -> Option<ThreadPointer> {
    let stack = mappings.at(Address(stack_pointer))?;
    let anonymous = |m: &&Mapping| m.path.is_empty() && m.read && m.write;
    let fs_base = if stack.path.starts_with("[stack") {
        let small = |m: &&Mapping| m.span.len <= SMALL;
        let mut places = mappings.iter().filter(anonymous).filter(small);
        places.find_map(|m| search(thread, m.span.start.0, m.span.end().0, read))
    } else {
        let start = stack_pointer & !(ALIGN - 1);
        let end = stack.span.end().0.min(start.saturating_add(ABOVE));
        search(thread, start, end, read)
    }?;
    Some(ThreadPointer {
        thread,
        fs_base: Address(fs_base),
    })
}

/// The descriptor of `thread` in `start..end`. It begins with its own address (System V ABI,
/// x86-64), repeats it after the pointer to the table of thread-local blocks, and holds the
/// thread's number.
fn search(
    thread: ThreadId,
    start: u64,
    end: u64,
    read: &mut dyn FnMut(Address, &mut [u8]) -> bool,
) -> Option<u64> {
    let mut bytes = vec![0; usize::try_from(end.checked_sub(start)?).ok()?];
    if !read(Address(start), &mut bytes) {
        return None;
    }
    let word = |at: usize| {
        let word = bytes.get(at..at + 8)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    };
    let number = thread.0.to_le_bytes();
    let mut found = (0..bytes.len()).step_by(ALIGN as usize).filter(|&at| {
        let address = start + at as u64;
        let own = word(at) == Some(address) && word(at + 16) == Some(address);
        let rest = bytes.get(at..(at + NUMBER_WITHIN).min(bytes.len()));
        own && rest.is_some_and(|r| r.chunks_exact(4).any(|w| w == number))
    });
    let only = found.next()?;
    found.next().is_none().then_some(start + only as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::Span;

    const STACK: u64 = 0x7000_0000_0000;

    fn stack() -> Mappings {
        let mapping = Mapping {
            span: Span::new(Address(STACK), 0x4000),
            file_offset: 0,
            path: String::new(),
            inode: 0,
            read: true,
            write: true,
            execute: false,
            shared: false,
        };
        [mapping].into_iter().collect()
    }

    /// A stack with a descriptor at `at` that begins with these words and has the thread number
    /// 77.
    fn memory(at: usize, first: u64, third: u64) -> Vec<u8> {
        let mut bytes = vec![0; 0x4000];
        bytes[at..at + 8].copy_from_slice(&first.to_le_bytes());
        bytes[at + 16..at + 24].copy_from_slice(&third.to_le_bytes());
        bytes[at + 0x2d0..at + 0x2d4].copy_from_slice(&77_u32.to_le_bytes());
        bytes
    }

    fn found(thread: u32, memory: &[u8]) -> Option<u64> {
        let mut read = |at: Address, bytes: &mut [u8]| {
            let from = (at.0 - STACK) as usize;
            bytes.copy_from_slice(&memory[from..from + bytes.len()]);
            true
        };
        let pointer = find(ThreadId(thread), STACK + 0x1008, &stack(), &mut read);
        pointer.map(|p| p.fs_base.0)
    }

    #[test]
    fn a_descriptor_has_its_own_address_twice_and_the_thread_s_number() {
        let at = STACK + 0x3700;
        assert_eq!(found(77, &memory(0x3700, at, at)), Some(at));
        assert_eq!(found(78, &memory(0x3700, at, at)), None);
        assert_eq!(found(77, &memory(0x3700, at, 0)), None);
        assert_eq!(found(77, &memory(0x3700, at + 64, at + 64)), None);
        // Below the stack pointer, or not aligned.
        let low = STACK + 0x700;
        assert_eq!(found(77, &memory(0x700, low, low)), None);
        let odd = STACK + 0x3708;
        assert_eq!(found(77, &memory(0x3708, odd, odd)), None);
    }

    #[test]
    fn two_that_could_be_it_are_none() {
        let (one, other) = (STACK + 0x2000, STACK + 0x3700);
        let mut memory = memory(0x2000, one, one);
        memory[0x3700..0x3708].copy_from_slice(&other.to_le_bytes());
        memory[0x3710..0x3718].copy_from_slice(&other.to_le_bytes());
        memory[0x39d0..0x39d4].copy_from_slice(&77_u32.to_le_bytes());
        assert_eq!(found(77, &memory), None);
    }
}
