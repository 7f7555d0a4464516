//! Finds which kernel call a `syscall` instruction makes: the value of `eax` there. Mostly the
//! straight line of code before it tells. If a loop or a branch comes between the number and
//! the call, as in loops that spin and then wait, the whole function is analysed. If several
//! paths give different numbers, the number is not known. Used by [`crate::sites`].

use super::code::{is_padding, target};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use iced_x86::{Code, FlowControl, Instruction};
use sunder_x86::register::{CHANGED_BY_KERNEL, KEPT_BY_CALLS, RAX, RSP};
use sunder_x86::{Control, Does, Manual, Rule, Source, Value, values};

/// The number of the call that an entry makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// This one on all paths.
    Always(u32),
    /// The lower half of the general register with this number (0 is `rax`), which the kernel
    /// does not change; in a loop, the number is loaded before it.
    In(u8),
    /// The code does not tell it.
    Any,
}

/// The number of the call at each entry among a function's instructions, by address. `targets` are
/// the targets of branches, ascending; `catches` says that exceptions may be caught in the function.
pub fn all(
    instructions: &[Instruction],
    targets: &[u64],
    catches: bool,
) -> impl Iterator<Item = (u64, Number)> {
    let mut constants = None;
    let entries = instructions.iter().enumerate();
    let entries = entries.filter(|(_, one)| one.code() == Code::Syscall);
    entries.map(move |(i, entry)| {
        let number = match before(instructions, i, targets) {
            Number::Always(number) => Number::Always(number),
            other => constants
                .get_or_insert_with(|| of(instructions, targets, catches))
                .get(&i)
                .map_or(other, |&number| Number::Always(number)),
        };
        (entry.ip(), number)
    })
}

/// The value that the straight line before entry `i` leaves in `eax`: a constant, or the value
/// of another register. `targets` are the targets of branches, ascending.
fn before(instructions: &[Instruction], i: usize, targets: &[u64]) -> Number {
    let is_target = |n: usize| targets.binary_search(&instructions[n].ip()).is_ok();
    let mut manual = Manual::new();
    let mut next = i;
    while next > 0 && !is_target(next) {
        let before = &instructions[next - 1];
        if before.next_ip() != instructions[next].ip() || before.flow_control() != FlowControl::Next
        {
            break;
        }
        let does = manual.does(before);
        if writes(&does, RAX) {
            let mut between = instructions[next..i].iter();
            return match moved_to_rax(before, &does) {
                Some(Source::Constant(number)) => Number::Always(number as u32),
                Some(Source::Register(register))
                    if is_kept(register)
                        && !writes(&does, register)
                        && !between.any(|j| writes(&manual.does(j), register)) =>
                {
                    Number::In(register)
                }
                _ => Number::Any,
            };
        }
        next -= 1;
    }
    Number::Any
}

/// The lower halves of the general registers before an instruction, as far as they are
/// constant.
type State = [Option<u32>; 16];
/// Nothing is known.
const UNKNOWN: State = [None; 16];

/// The value of `eax` at each `syscall` of a function that is the same on all paths, by the
/// instruction's index. Empty if a jump has targets that the code does not tell. `catches` says
/// that exceptions may be caught in the function.
fn of(instructions: &[Instruction], targets: &[u64], catches: bool) -> BTreeMap<usize, u32> {
    let Some(ways) = Ways::of(instructions, targets, catches) else {
        return BTreeMap::new();
    };
    let mut states: Vec<Option<State>> = vec![None; instructions.len()];
    let mut open: Vec<usize> = Vec::new();
    for &n in &ways.unknown {
        meet(&mut states, &mut open, n, &UNKNOWN);
    }
    while let Some(n) = open.pop() {
        let Some(state) = states.get(n).copied().flatten() else {
            continue;
        };
        let after = apply(&instructions[n], state);
        for &next in &ways.next[n] {
            meet(&mut states, &mut open, next, &after);
        }
    }
    let calls = instructions.iter().zip(&states).enumerate();
    let calls = calls.filter(|(_, (i, _))| i.code() == Code::Syscall);
    calls
        .filter_map(|(n, (_, state))| Some((n, (*state)?.first().copied().flatten()?)))
        .collect()
}

/// The control flow between the instructions of a function.
struct Ways {
    next: Vec<Vec<usize>>,
    /// Instructions to which control comes from elsewhere.
    unknown: BTreeSet<usize>,
}

impl Ways {
    fn of(instructions: &[Instruction], targets: &[u64], catches: bool) -> Option<Self> {
        let ends = |i: &Instruction| {
            matches!(
                i.flow_control(),
                FlowControl::Return
                    | FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
                    | FlowControl::Exception
            )
        };
        let index = |address: u64| instructions.binary_search_by_key(&address, |i| i.ip()).ok();
        let mut next = vec![Vec::new(); instructions.len()];
        let mut inside = BTreeSet::new();
        let mut unknown = BTreeSet::from([0]);
        let (first, last) = (instructions.first()?, instructions.last()?);
        for (n, i) in instructions.iter().enumerate() {
            match i.flow_control() {
                FlowControl::XbeginXabortXend => return None,
                // A jump through the linker's slot ends the function.
                FlowControl::IndirectBranch if !i.is_ip_rel_memory_operand() => return None,
                _ => {}
            }
            if let Some(to) = target(i).filter(|_| !i.is_call_near()) {
                match index(to) {
                    Some(to) => {
                        next[n].push(to);
                        inside.insert(to);
                    }
                    // The target is not the beginning of an instruction.
                    None if (first.ip()..last.next_ip()).contains(&to) => return None,
                    None => {}
                }
            }
            if !ends(i) {
                next[n].extend((n + 1 < instructions.len()).then_some(n + 1));
                continue;
            }
            // Padding before the target of a branch is never executed.
            let behind = instructions.iter().enumerate().skip(n + 1);
            unknown.extend(
                behind
                    .map(|(n, i)| (n, is_padding(i)))
                    .find(|b| !b.1)
                    .map(|b| b.0),
            );
        }
        unknown.retain(|n| *n == 0 || !inside.contains(n));
        // Targets of branches in other functions.
        let others = targets.iter().filter_map(|&to| index(to));
        unknown.extend(others.filter(|n| !inside.contains(n)));
        // An exception that a call throws may be caught at any branch target.
        for (n, i) in instructions.iter().enumerate().filter(|_| catches) {
            if i.code() != Code::Syscall
                && matches!(
                    i.flow_control(),
                    FlowControl::Call | FlowControl::IndirectCall
                )
            {
                next[n].extend(&inside);
            }
        }
        Some(Self { next, unknown })
    }
}

/// Adds the state `with` to what is known before instruction `n`.
fn meet(states: &mut [Option<State>], open: &mut Vec<usize>, n: usize, with: &State) {
    let Some(place) = states.get_mut(n) else {
        return;
    };
    let met = match *place {
        None => *with,
        Some(mut known) => {
            for (known, new) in known.iter_mut().zip(with) {
                *known = known.filter(|known| Some(*known) == *new);
            }
            known
        }
    };
    if *place != Some(met) {
        *place = Some(met);
        open.push(n);
    }
}

/// The registers after the instruction.
fn apply(i: &Instruction, mut state: State) -> State {
    let written = match Control::of(i) {
        // An instruction that enters the kernel otherwise than `syscall` is treated as a call.
        Control::Kernel if i.code() != Code::Syscall => !KEPT_BY_CALLS,
        Control::Call(_) | Control::CallThrough => !KEPT_BY_CALLS,
        _ => {
            let does = Manual::new().does(i);
            let before = state;
            for (number, value) in state.iter_mut().enumerate() {
                if does.registers.written >> number & 1 != 0 {
                    *value = None;
                }
            }
            for value in values(i, &does).iter().flatten() {
                state[usize::from(value.register)] = match moved(value) {
                    Some(Source::Constant(constant)) => Some(constant as u32),
                    Some(Source::Register(from)) => before[usize::from(from)],
                    _ => None,
                };
            }
            return state;
        }
    };
    for (number, value) in state.iter_mut().enumerate() {
        if written >> number & 1 != 0 {
            *value = None;
        }
    }
    state
}

/// The source that the instruction moves to the register, if it computes nothing.
const fn moved(value: &Value) -> Option<Source> {
    match value.rule {
        Rule::Copy(from) => Some(from),
        _ => None,
    }
}

/// The source that the instruction moves to `eax`, or the constant that it moves to `rax`. A
/// move of a whole register is left out, as the hook gets only the lower half.
fn moved_to_rax(instruction: &Instruction, does: &Does) -> Option<Source> {
    let values = values(instruction, does);
    let value = values.iter().flatten().find(|v| v.register == RAX)?;
    moved(value).filter(|from| value.bits == 32 || matches!(from, Source::Constant(_)))
}

/// Whether a kernel call, and the instructions before it, preserve the register.
const fn is_kept(register: u8) -> bool {
    (CHANGED_BY_KERNEL | 1 << RSP) >> register & 1 == 0
}

fn writes(does: &Does, register: u8) -> bool {
    does.registers.written >> register & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    const AT: u64 = 0x1000;
    const FUTEX: u32 = 202;
    const SYSCALL: &[u8] = &[0x0f, 0x05];
    const MOV_R13D_FUTEX: &[u8] = &[0x41, 0xbd, 202, 0, 0, 0];
    const MOV_EAX_R13D: &[u8] = &[0x44, 0x89, 0xe8];
    const MOV_EAX_FUTEX: &[u8] = &[0xb8, 202, 0, 0, 0];
    /// A call of a function elsewhere.
    const CALL: &[u8] = &[0xe8, 0, 0x10, 0, 0];
    const RET: &[u8] = &[0xc3];

    /// The numbers of the calls in the code, in their order; `None` for one that is not known.
    fn numbers(parts: &[&[u8]]) -> Vec<Option<u32>> {
        numbers_if(true, parts)
    }

    fn numbers_if(catches: bool, parts: &[&[u8]]) -> Vec<Option<u32>> {
        let bytes = parts.concat();
        let decoder = Decoder::with_ip(64, &bytes, AT, DecoderOptions::NONE);
        let instructions: Vec<Instruction> = decoder.into_iter().collect();
        let mut targets: Vec<u64> = instructions.iter().filter_map(target).collect();
        targets.sort_unstable();
        let known = of(&instructions, &targets, catches);
        let calls = instructions.iter().enumerate();
        calls
            .filter(|(_, i)| i.code() == Code::Syscall)
            .map(|(n, _)| known.get(&n).copied())
            .collect()
    }

    /// libgomp waits for a barrier so: the number is in a register from before the loop, and
    /// the call is repeated without a flag that old kernels do not know.
    #[test]
    fn a_number_that_is_loaded_before_a_loop_is_known_in_it() {
        let (mov_r9d, mov_ebp) = ([0x41, 0xb9, 202, 0, 0, 0], [0xbd, 202, 0, 0, 0]);
        let (mov_eax_r9d, mov_eax_ebp) = ([0x44, 0x89, 0xc8], [0x89, 0xe8]);
        let (cmp_rax, cmp_edi) = ([0x48, 0x83, 0xf8, 0xda], [0x83, 0xff, 1]);
        let found = numbers(&[
            &mov_r9d,
            &mov_ebp,
            // The loop begins here, 20 bytes before its end.
            &mov_eax_r9d,
            SYSCALL,
            &cmp_rax,
            &[0x75, 4],
            &mov_eax_ebp,
            SYSCALL,
            &cmp_edi,
            &[0x75, (-20_i8) as u8],
            RET,
        ]);
        assert_eq!(found, [Some(FUTEX), Some(FUTEX)]);
    }

    /// Before `sunder_x86` answered what an instruction does, this module knew fewer ways to
    /// load a number: no `sub`, no 64-bit constant and no exchange.
    #[test]
    fn a_number_is_known_however_it_is_loaded() {
        let mov_rax_imm64 = [0x48, 0xb8, 202, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(numbers(&[&mov_rax_imm64, SYSCALL, RET]), [Some(FUTEX)]);
        let sub_eax_eax = [0x29, 0xc0];
        assert_eq!(numbers(&[&sub_eax_eax, SYSCALL, RET]), [Some(0)]);
        let xchg_eax_r13d = [0x41, 0x95];
        let found = numbers(&[MOV_R13D_FUTEX, &xchg_eax_r13d, SYSCALL, RET]);
        assert_eq!(found, [Some(FUTEX)]);
        // The register that the number came from has another value after the exchange.
        let code = [&xchg_eax_r13d[..], SYSCALL].concat();
        let decoder = Decoder::with_ip(64, &code, AT, DecoderOptions::NONE);
        let instructions: Vec<Instruction> = decoder.into_iter().collect();
        assert_eq!(before(&instructions, 1, &[]), Number::Any);
    }

    #[test]
    fn a_number_that_differs_between_two_paths_is_unknown() {
        let (mov_eax_1, mov_eax_2) = ([0xb8, 1, 0, 0, 0], [0xb8, 2, 0, 0, 0]);
        let (je_over_7, jmp_over_5) = ([0x74, 7], [0xeb, 5]);
        let made = [SYSCALL, RET].concat();
        let ways = |first: &[u8], other: &[u8]| {
            numbers(&[&[0x85, 0xff], &je_over_7, first, &jmp_over_5, other, &made])
        };
        assert_eq!(ways(&mov_eax_1, &mov_eax_2), [None]);
        assert_eq!(ways(&mov_eax_2, &mov_eax_2), [Some(2)]);
        // The kernel's result is not a known number.
        assert_eq!(
            numbers(&[&mov_eax_1, SYSCALL, SYSCALL, RET]),
            [Some(1), None]
        );
    }

    #[test]
    fn calls_change_some_registers_and_exceptions_come_from_them() {
        let (mov_r8d, mov_eax_r8d) = ([0x41, 0xb8, 202, 0, 0, 0], [0x44, 0x89, 0xc0]);
        let found = numbers(&[
            MOV_R13D_FUTEX,
            &mov_r8d,
            CALL,
            MOV_EAX_R13D,
            SYSCALL,
            &mov_eax_r8d,
            SYSCALL,
            RET,
        ]);
        assert_eq!(found, [Some(FUTEX), None]);
        // The register is changed after a call; an exception that the call throws may be caught
        // at the jump's target.
        let mov_r13d_1 = [0x41, 0xbd, 1, 0, 0, 0];
        let back = [0xeb, (-7_i8) as u8];
        let code = [MOV_R13D_FUTEX, MOV_EAX_R13D, SYSCALL, &back];
        assert_eq!(numbers(&code), [Some(FUTEX)]);
        let code = [&[&mov_r13d_1[..], CALL][..], &code].concat();
        assert_eq!(numbers(&code), [None]);
        assert_eq!(numbers_if(false, &code), [Some(FUTEX)]);
    }

    #[test]
    fn with_jumps_to_anywhere_nothing_is_known() {
        let jmp_rdi = [0xff, 0xe7];
        assert_eq!(numbers(&[MOV_EAX_FUTEX, SYSCALL, RET]), [Some(FUTEX)]);
        assert_eq!(numbers(&[MOV_EAX_FUTEX, SYSCALL, &jmp_rdi]), [None]);
    }

    /// Code after a return is reached from elsewhere.
    #[test]
    fn unreached_code_has_no_known_number() {
        let found = numbers(&[MOV_R13D_FUTEX, RET, MOV_EAX_R13D, SYSCALL, RET]);
        assert_eq!(found, [None]);
        // Padding is not reached: the branch over it leads to the call.
        let (je_over_2, nop) = ([0x74, 2], [0x90]);
        let found = numbers(&[
            MOV_R13D_FUTEX,
            &je_over_2,
            RET,
            &nop,
            MOV_EAX_R13D,
            SYSCALL,
            RET,
        ]);
        assert_eq!(found, [Some(FUTEX)]);
    }
}
