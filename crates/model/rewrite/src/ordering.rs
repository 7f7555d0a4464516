//! Finds the pages of code with instructions that order memory between threads, and with loops that wait
//! for other threads. A thread whose stores are kept private must not execute these. Called by the tool on
//! the code of files. Pure.

use crate::function::{Flow, Function};
use crate::waiting::{Loop, Waits, pages_of};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

/// What orders memory between threads in some code, by the addresses of the code.
#[derive(Debug, Default)]
pub struct OrderingCode {
    /// The pages with bytes of an ordering instruction: one that is locked, fences, waits for another
    /// thread, or changes which memory may be used.
    pub pages: BTreeSet<u64>,
    /// Loops that seem to wait for another thread by plain loads; see [`waiting_pages`].
    pub loops: Vec<Loop>,
}

impl OrderingCode {
    /// `code` begins at `address` and is decoded as one sequence of instructions, as compilers write it.
    #[must_use]
    pub fn of(code: &[u8], address: u64) -> Self {
        let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut found = Self::default();
        let mut waits = Waits::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            found.loops.extend(waits.next(&instruction));
            if orders(&instruction) {
                found
                    .pages
                    .extend(pages_of(instruction.ip(), instruction.next_ip()));
            }
        }
        found
    }
}

/// The pages with bytes of those loops in a function that do wait for another thread.
#[must_use]
pub fn waiting_pages(function: &Function<'_>, loops: &[Loop]) -> BTreeSet<u64> {
    let flow = Flow::new(function, |_| {});
    let waits = |one: &&Loop| flow.as_ref().is_none_or(|flow| flow.waits(one).is_some());
    let waiting = loops.iter().filter(waits);
    waiting.flat_map(Loop::pages).collect()
}

/// Finds code that may be executed on a page with ordering instructions: loops without any of
/// them. The result has a bit for each byte of the page, set where an instruction begins that
/// must not be executed before all stores are made visible. `bytes` is the page at the address
/// `page`; `functions` are those with bytes on it.
///
/// Outside of such loops, all instructions of a function are closed, not only the ordering
/// ones: the plain store that releases a lock is near the instruction that acquired it.
///
/// `None` if there is no such loop, or if it is not certain where instructions begin: a
/// function does not decode, a branch or an address leads into the middle of an instruction, or
/// there is data between instructions. Bytes outside of all functions (such as the C compiler's
/// start-up code) stay open if they order nothing.
#[must_use]
pub fn closed_points(page: u64, bytes: &[u8], functions: &[Function<'_>]) -> Option<[u64; 64]> {
    let end = page.checked_add(bytes.len() as u64)?;
    let mut known: Vec<Range<u64>> = Vec::new();
    let mut addressed = Vec::new();
    let mut starts = BTreeSet::new();
    let mut points = [0u64; 64];
    let mut any = false;
    for function in functions {
        let read = Read::new(function, &mut addressed)?;
        for (step, is_open) in read.flow.steps.iter().zip(&read.open) {
            starts.insert(step.ip);
            if !(page..end).contains(&step.ip) {
                continue;
            }
            if *is_open {
                any = true;
            } else {
                let at = (step.ip - page) as usize;
                *points.get_mut(at / 64)? |= 1 << (at % 64);
            }
        }
        let length = function.code.len() as u64;
        known.push(function.address..function.address + length);
    }
    let is_odd = |(target, code): &(u64, bool)| {
        let within = known.iter().any(|k| k.contains(target));
        within && !(*code && starts.contains(target))
    };
    if !any || addressed.iter().any(is_odd) {
        return None;
    }
    known.sort_unstable_by_key(|k| k.start);
    let mut from = page;
    for range in known.iter().chain([&(end..end)]) {
        let gap = bytes.get((from - page) as usize..)?;
        let length = range.start.clamp(from, end) - from;
        if !is_quiet(gap.get(..length as usize)?, from) {
            return None;
        }
        from = range.end.clamp(from, end);
    }
    Some(points)
}

/// A function's instructions, and for each whether it is in a loop without ordering
/// instructions.
struct Read {
    flow: Flow,
    open: Vec<bool>,
}

impl Read {
    /// Adds to `addressed` the addresses that instructions compute relative to rip, and whether
    /// each may be an instruction's.
    fn new(function: &Function<'_>, addressed: &mut Vec<(u64, bool)>) -> Option<Self> {
        let mut ordering = Vec::new();
        let mut waits = Waits::default();
        let mut loops = Vec::new();
        let flow = Flow::new(function, |instruction| {
            let flow = instruction.flow_control();
            let branches = matches!(
                flow,
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
            );
            if branches || instruction.is_call_near() {
                addressed.push((instruction.near_branch_target(), true));
            }
            if instruction.is_ip_rel_memory_operand() {
                let is_code = instruction.mnemonic() == Mnemonic::Lea;
                addressed.push((instruction.ip_rel_memory_address(), is_code));
            }
            ordering.push(orders(instruction));
            loops.extend(waits.next(instruction));
        })?;
        for one in loops.iter().filter_map(|one| flow.waits(one)).flatten() {
            if let Some(orders) = ordering.get_mut(one) {
                *orders = true;
            }
        }
        let open = open_steps(&flow, &ordering);
        Some(Self { flow, open })
    }
}

/// For each instruction, whether it is in a loop without ordering instructions.
fn open_steps(flow: &Flow, ordering: &[bool]) -> Vec<bool> {
    let mut open = vec![false; flow.steps.len()];
    let orders = |i: &usize| ordering.get(*i).is_none_or(|orders| *orders);
    let loops = flow
        .branches_back()
        .filter_map(|(first, last)| flow.body(first, last));
    for body in loops.filter(|body| !body.iter().any(orders)) {
        for i in body {
            if let Some(open) = open.get_mut(i) {
                *open = true;
            }
        }
    }
    open
}

/// Whether bytes outside of all known functions are instructions that order nothing, or zeroes
/// that linkers put between functions.
fn is_quiet(code: &[u8], address: u64) -> bool {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut is_between = true;
    let mut waits = Waits::default();
    while decoder.can_decode() {
        let at = decoder.position();
        if is_between && code.get(at) == Some(&0) {
            if decoder.set_position(at + 1).is_err() {
                return false;
            }
            decoder.set_ip(address + at as u64 + 1);
            continue;
        }
        decoder.decode_out(&mut instruction);
        let is_waiting = waits.next(&instruction).is_some();
        if instruction.is_invalid() || is_waiting || orders(&instruction) {
            return false;
        }
        is_between = match instruction.flow_control() {
            FlowControl::Return
            | FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Interrupt
            | FlowControl::Exception => true,
            _ => matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Hlt),
        };
    }
    true
}

fn orders(instruction: &Instruction) -> bool {
    let memory = || (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory);
    match instruction.mnemonic() {
        // Locked without a prefix.
        Mnemonic::Xchg => memory(),
        Mnemonic::Mfence
        | Mnemonic::Sfence
        | Mnemonic::Lfence
        | Mnemonic::Pause
        | Mnemonic::Xbegin
        | Mnemonic::Wrpkru
        | Mnemonic::Umwait
        | Mnemonic::Mwaitx => true,
        _ => instruction.has_lock_prefix(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(at: u64, code: &[u8]) -> Vec<u64> {
        OrderingCode::of(code, at).pages.into_iter().collect()
    }

    #[test]
    fn locked_instructions_and_fences_are_found() {
        // lock inc qword ptr [rax]
        assert_eq!(pages(0x1000, &[0xf0, 0x48, 0xff, 0x00]), [0x1000]);
        // xchg [rdi], eax
        assert_eq!(pages(0x1000, &[0x87, 0x07]), [0x1000]);
        // mfence; pause
        assert_eq!(pages(0x1000, &[0x0f, 0xae, 0xf0]), [0x1000]);
        assert_eq!(pages(0x1000, &[0xf3, 0x90]), [0x1000]);
    }

    #[test]
    fn bytes_that_resemble_locked_instructions_are_ignored() {
        // mov rax, [rbp-0x10] (a byte of 0xf0); add [rax], ecx
        assert_eq!(pages(0x1000, &[0x48, 0x8b, 0x45, 0xf0, 0x01, 0x08]), []);
        // xchg eax, ecx: registers only.
        assert_eq!(pages(0x1000, &[0x91]), []);
    }

    #[test]
    fn an_instruction_across_a_border_counts_for_both_pages() {
        let mut code = vec![0x90; 0x1000];
        code.splice(0xffe.., [0xf0, 0x48, 0xff, 0x00]);
        assert_eq!(pages(0x5000, &code), [0x5000, 0x6000]);
    }

    /// A page that begins with this function and is filled with `rest`.
    fn closed(code: &[u8], rest: u8) -> Option<[u64; 64]> {
        let mut bytes = vec![rest; 0x1000];
        bytes[..code.len()].copy_from_slice(code);
        let function = Function {
            address: 0x1000,
            code,
        };
        closed_points(0x1000, &bytes, &[function])
    }

    /// The positions of the set bits.
    fn places(points: Option<[u64; 64]>) -> Option<Vec<usize>> {
        let points = points?;
        let is_set = |at: &usize| points[at / 64] >> (at % 64) & 1 != 0;
        Some((0..0x1000).filter(is_set).collect())
    }

    /// inc qword ptr [rdi]; dec rsi; jne to the first.
    const LOOP: [u8; 8] = [0x48, 0xff, 0x07, 0x48, 0xff, 0xce, 0x75, 0xf8];
    /// lock inc qword ptr [rax].
    const LOCKED: [u8; 4] = [0xf0, 0x48, 0xff, 0x00];

    #[test]
    fn a_loop_beside_a_locked_instruction_may_be_executed_and_nothing_else() {
        // ...; mov dword ptr [rax], 0 (releases a lock); ret
        let back = [0xc7, 0x00, 0, 0, 0, 0];
        let code = [&LOOP[..], &LOCKED, &back, &[0xc3]].concat();
        assert_eq!(places(closed(&code, 0x90)), Some(vec![8, 12, 18]));
        // The same within a loop around both: jmp to the first.
        let code = [&LOOP[..], &LOCKED, &back, &[0xeb, 0xec]].concat();
        assert_eq!(places(closed(&code, 0x90)), Some(vec![8, 12, 18]));
    }

    #[test]
    fn a_loop_with_a_locked_instruction_may_not() {
        let code = [&LOCKED[..], &LOOP[..6], &[0x75, 0xf4, 0xc3]].concat();
        assert_eq!(closed(&code, 0x90), None);
        // Without a loop there is nothing to gain.
        assert_eq!(closed(&[0x48, 0xff, 0x07, 0xc3], 0x90), None);
    }

    #[test]
    fn beside_a_loop_that_waits_only_loops_that_do_not_may_be_executed() {
        // Computes, publishes by a plain store, and waits: mov [rdx], rsi; mov rax, [rcx]; cmp rax, rsi;
        // jl to the load; ret.
        let publish = [0x48, 0x89, 0x32];
        let wait = [0x48, 0x8b, 0x01, 0x48, 0x39, 0xf0, 0x7c, 0xf8];
        let code = [&LOOP[..], &publish, &wait, &[0xc3]].concat();
        assert_eq!(places(closed(&code, 0x90)), Some(vec![8, 11, 14, 17, 19]));
        let waiting = |code: &[u8]| {
            let loops = OrderingCode::of(code, 0x1000).loops;
            let address = 0x1000;
            waiting_pages(&Function { address, code }, &loops).len()
        };
        assert_eq!(waiting(&code), 1);
        assert_eq!(waiting(&LOOP), 0);
    }

    #[test]
    fn a_branch_back_from_out_of_line_code_is_no_loop() {
        // lock inc [rax]; jne aside; back: mov dword ptr [rax], 0; ret; aside: inc [rdi]; jmp back.
        // The store releases what the first instruction acquired, and must stay closed.
        let back = [0xc7, 0x00, 0, 0, 0, 0];
        let aside = [0x48, 0xff, 0x07, 0xeb, 0xf4];
        let code = [&LOCKED[..], &[0x75, 0x07], &back, &[0xc3], &aside].concat();
        assert_eq!(closed(&code, 0x90), None);
        // The same if the predecessors are not known (a jump table, an exception).
        let code = [&LOCKED[..], &back, &[0xc3], &aside].concat();
        assert_eq!(closed(&code, 0x90), None);
        // A loop with an out-of-line part is a loop, and that part counts for it:
        // inc [rdi]; je aside; dec rsi; jne to the first; ret; aside: inc [rdi]; jmp to dec.
        let with = |aside: &[u8]| {
            let first = [
                0x48, 0xff, 0x07, 0x74, 0x06, 0x48, 0xff, 0xce, 0x75, 0xf6, 0xc3,
            ];
            let jump = 0u8.wrapping_sub(11 + 2 - 5 + aside.len() as u8);
            places(closed(&[&first, aside, &[0xeb, jump]].concat(), 0x90))
        };
        assert_eq!(with(&[0x48, 0xff, 0x07]), Some(vec![10]));
        assert_eq!(with(&LOCKED), None);
    }

    #[test]
    fn code_with_uncertain_instruction_boundaries_is_refused() {
        let with = |more: &[u8]| closed(&[&LOOP[..], more].concat(), 0x90);
        assert!(with(&[0xc3]).is_some());
        // Branches into the middle of the first instruction, and of one of the next function.
        assert_eq!(with(&[0x75, 0xf7, 0xc3]), None);
        // Data in the function: mov eax, [rip - 14]; lea is of code if it is an instruction's
        // beginning.
        assert_eq!(with(&[0x8b, 0x05, 0xf2, 0xff, 0xff, 0xff, 0xc3]), None);
        assert!(with(&[0x48, 0x8d, 0x05, 0xf1, 0xff, 0xff, 0xff, 0xc3]).is_some());
        assert_eq!(
            with(&[0x48, 0x8d, 0x05, 0xf2, 0xff, 0xff, 0xff, 0xc3]),
            None
        );
        // An instruction that the function's end cuts off, and bytes that are no instruction.
        assert_eq!(with(&[0x48]), None);
        assert_eq!(with(&[0x06]), None);
    }

    #[test]
    fn bytes_of_no_function_are_left_if_they_order_nothing() {
        let code = [&LOOP[..], &[0xc3]].concat();
        let page = |more: &[u8]| {
            let mut bytes = vec![0x90; 0x1000];
            bytes[0x800..0x809].copy_from_slice(&code);
            bytes[0x100..0x100 + more.len()].copy_from_slice(more);
            bytes[0xf00..].fill(0);
            let function = Function {
                address: 0x1800,
                code: &code,
            };
            places(closed_points(0x1000, &bytes, &[function]))
        };
        assert_eq!(page(&[]), Some(vec![0x808]));
        assert_eq!(page(&[0x48, 0xff, 0x07, 0xc3]), Some(vec![0x808]));
        assert_eq!(page(&LOCKED), None);
        assert_eq!(page(&[0x06]), None);
        // An odd number of zeroes before and after: sub rsp, 8; add rsp, 8; ret.
        let fini = [0x48, 0x83, 0xec, 0x08, 0x48, 0x83, 0xc4, 0x08, 0xc3];
        let all = [&[0; 3][..], &fini, &[0; 5], &fini].concat();
        assert_eq!(page(&all), Some(vec![0x808]));
        let all = [&[0; 3][..], &LOCKED, &[0xc3]].concat();
        assert_eq!(page(&all), None);
        // Zeroes up to the end are not instructions, even if their number is odd.
        assert!(closed(&code, 0).is_some());
    }

    #[test]
    fn functions_across_borders_count_for_what_lies_on_the_page() {
        // From 0x1ffd on: the first instruction here, the rest on the next page.
        let code = [&LOOP[..], &LOCKED, &[0xc3]].concat();
        let function = Function {
            address: 0x1ffd,
            code: &code,
        };
        let mut first = vec![0x90; 0x1000];
        first[0xffd..].copy_from_slice(&code[..3]);
        assert_eq!(
            places(closed_points(0x1000, &first, &[function])),
            Some(vec![])
        );
        let mut second = vec![0x90; 0x1000];
        second[..10].copy_from_slice(&code[3..]);
        let points = closed_points(0x2000, &second, &[function]);
        assert_eq!(places(points), Some(vec![5, 9]));
    }

    proptest::proptest! {
        /// For any bytes, no ordering instruction is open.
        #[test]
        fn ordering_instructions_are_never_on_open_pages(
            parts in proptest::collection::vec(0..6usize, 1..40),
            noise in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..4),
        ) {
            let kinds: [&[u8]; 6] = [
                &LOOP, &LOCKED, &[0x75, 0xec], &[0x87, 0x07], &[0xf3, 0x90], &noise,
            ];
            let code: Vec<u8> = parts.iter().flat_map(|i| kinds[*i].iter().copied()).collect();
            if let Some(points) = closed(&code, 0x90) {
                let set = places(Some(points)).expect("there are points");
                let mut decoder = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE);
                for instruction in &mut decoder {
                    if orders(&instruction) {
                        assert!(set.contains(&(instruction.ip() as usize)));
                    }
                }
            }
        }
    }
}
