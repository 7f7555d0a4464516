//! Chooses addresses for our memory in the program's address space. Called by `repairer` and
//! `attach::layout`. Pure computation.

use sunder_access::Mappings;

/// Space that is left free on each side, for later mappings of the program.
const MARGIN: u64 = 1 << 20;
/// Space below the first thread's stack, which grows downwards.
const FOR_THE_STACK: u64 = 1 << 30;
/// The same where there is no other room. Without randomisation the C library lies right below what the
/// kernel keeps free for the stack: as much as the stack's limit, and at least 128 MiB. Our memory then
/// lies right above the library, where the stack would come last.
const LEAST_FOR_THE_STACK: u64 = 64 << 20;
/// Space above the heap, which grows upwards.
const FOR_THE_HEAP: u64 = 1 << 30;
/// Displacements and branches reach 2 GiB; what is left out allows for the sizes of both parts.
const REACH: u64 = (1 << 31) - (1 << 26);
/// Nothing is mapped below this (`vm.mmap_min_addr` is 64 KiB at most).
const LOWEST: u64 = 1 << 16;
/// End of user space, less a margin.
const HIGHEST: u64 = (1 << 47) - (1 << 21);

/// A free address for `bytes`, as close to `near` as possible. Ranges in `taken` are not free
/// although nothing is mapped there yet.
pub fn near(mappings: &Mappings, taken: &[(u64, u64)], near: u64, bytes: u64) -> Option<u64> {
    let with = |for_the_stack| beside_the_stack(mappings, taken, near, bytes, for_the_stack);
    with(FOR_THE_STACK).or_else(|| with(LEAST_FOR_THE_STACK))
}

/// The same with `for_the_stack` bytes left free below the first thread's stack.
fn beside_the_stack(
    mappings: &Mappings,
    taken: &[(u64, u64)],
    near: u64,
    bytes: u64,
    for_the_stack: u64,
) -> Option<u64> {
    let mut used: Vec<(u64, u64, bool)> = mappings
        .iter()
        .map(|m| {
            let below = if m.path == "[stack]" {
                for_the_stack
            } else {
                0
            };
            let start = m.span.start.0.saturating_sub(below);
            (start, m.span.end().0, m.path == "[heap]")
        })
        .collect();
    used.extend(taken.iter().map(|&(start, end)| (start, end, false)));
    used.sort_unstable();
    let mut best: Option<u64> = None;
    let mut before = (LOWEST, false);
    for (start, end, heap) in used.into_iter().chain([(HIGHEST, HIGHEST, false)]) {
        // The kernel's own page of old system calls is listed too, far above user space.
        let start = start.min(HIGHEST);
        let margin = if before.1 { FOR_THE_HEAP } else { MARGIN };
        let low = (before.0 + margin).next_multiple_of(4096);
        if let Some(high) = start.checked_sub(MARGIN + bytes).map(|h| h & !4095)
            && low <= high
        {
            let at = near.clamp(low, high) & !4095;
            let distance = |at: u64| at.abs_diff(near) + bytes;
            if at >= low
                && distance(at) < REACH
                && best.is_none_or(|best| distance(at) < distance(best))
            {
                best = Some(at);
            }
        }
        if end >= before.0 {
            before = (end, heap);
        }
    }
    best
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use sunder_access::{Address, Mapping, Span};

    /// A mapping of plain memory, for tests.
    pub fn writable(start: u64, end: u64, path: &str) -> Mapping {
        Mapping {
            span: Span::new(Address(start), end - start),
            file_offset: 0,
            path: path.into(),
            inode: 0,
            read: true,
            write: true,
            execute: false,
            shared: false,
        }
    }

    fn mapped(all: &[(u64, u64, &str)]) -> Mappings {
        let all = all.iter();
        all.map(|&(start, end, path)| writable(start, end, path))
            .collect()
    }

    #[test]
    fn it_lies_below_a_program_whose_heap_is_above() {
        let text = 0x5555_5555_0000;
        let all = mapped(&[
            (text, text + 0x5000, "/p"),
            (text + 0x8000, text + 0x30000, "[heap]"),
            (0x7fff_0000_0000, 0x7fff_0010_0000, "[stack]"),
        ]);
        let at = near(&all, &[], text + 0x9000, 0x4_0000).expect("there is room");
        assert_eq!(at, text - MARGIN - 0x4_0000);
    }

    /// Without randomisation, libraries lie below the first thread's stack, and that at the end of
    /// user space. What comes then is the kernel's.
    #[test]
    fn nothing_lies_beyond_user_space() {
        let library = 0x7fff_f7dd_9000;
        let all = mapped(&[
            (library, library + 0x20_0000, "/libc.so.6"),
            (0x7fff_fffd_e000, 0x7fff_ffff_f000, "[stack]"),
            (0xffff_ffff_ff60_0000, 0xffff_ffff_ff60_1000, "[vsyscall]"),
        ]);
        let at = near(&all, &[], library, 0x4_0000).expect("there is room");
        assert!(at + 0x4_0000 <= 0x7fff_fffd_e000 - FOR_THE_STACK, "{at:#x}");
        // Memory below the library, as much as a displacement reaches.
        let below = (library - (3 << 30), library - 0x1000);
        let at = near(&all, &[below], library, 0x4_0000).expect("there is room");
        let behind = library + 0x20_0000;
        assert_eq!(at, behind + MARGIN, "as far from the stack as can be");
    }

    /// As on most kernels: the vDSO lies just above the first thread's stack.
    #[test]
    fn stacks_keep_their_room() {
        let (stack, library) = (0x7ffd_0000_0000, 0x7ffd_0030_0000);
        let all = mapped(&[
            (0x7f00_0000_0000, 0x7f00_0100_0000, "/l"),
            (stack - 0x2_0000, stack, "[stack]"),
            (library, library + 0x2000, "[vdso]"),
        ]);
        let at = near(&all, &[], library, 0x1000).expect("there is room");
        assert!(at > stack, "{at:#x}");
        let top = mapped(&[
            (stack - 0x2_0000, stack, "[stack]"),
            (stack, HIGHEST, "[vdso]"),
        ]);
        let at = near(&top, &[], library, 0x1000).expect("there is room far below");
        assert!(at + FOR_THE_STACK < stack, "{at:#x}");
    }

    #[test]
    fn addresses_that_are_taken_are_not_given_again() {
        let text = 0x5555_5555_0000;
        let all = mapped(&[(text, text + 0x5000, "/p")]);
        let first = near(&all, &[], text, 0x1000).expect("there is room");
        let second = near(&all, &[(first, first + 0x1000)], text, 0x1000).expect("there is room");
        assert!(second + 0x1000 + MARGIN <= first || second >= first + 0x1000 + MARGIN);
    }

    #[test]
    fn out_of_reach_is_none() {
        let all = mapped(&[(LOWEST, 0x6000_0000_0000, "")]);
        assert_eq!(near(&all, &[], 0x1000_0000_0000, 0x1000), None);
    }
}
