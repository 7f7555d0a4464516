//! Tests with entries and the code around them, both as compilers write it and otherwise.

use super::*;
use alloc::vec;

const AT: u64 = 0x1000;

/// The plan for one function of these bytes.
fn planned(bytes: &[u8], want: Want) -> Plan {
    let function = Function {
        start: AT,
        end: AT + bytes.len() as u64,
    };
    plan(bytes, AT, &[function], |_| want)
}

const MOV_EAX_11: [u8; 5] = [0xb8, 11, 0, 0, 0];
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const CMP_RAX: [u8; 6] = [0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff];
const JAE_OVER_RET: [u8; 2] = [0x73, 0x01];
const RET: [u8; 1] = [0xc3];

#[test]
fn a_usual_wrapper_allows_result_and_call_hooks() {
    let code = [
        &MOV_EAX_11[..],
        &SYSCALL,
        &CMP_RAX,
        &JAE_OVER_RET,
        &RET,
        &RET,
    ]
    .concat();
    let after = planned(&code, Want::Result);
    assert_eq!(
        after.patches,
        [Patch {
            entry: AT + 5,
            number: Number::Always(11),
            want: Want::Result,
            from: AT + 7,
            length: 6,
            head: vec![],
            tail: CMP_RAX.to_vec(),
            elsewhere: None,
            returns: false,
            guarded: false,
        }]
    );
    let whole = planned(&code, Want::Call);
    assert_eq!(
        whole.patches,
        [Patch {
            entry: AT + 5,
            number: Number::Always(11),
            want: Want::Call,
            from: AT,
            length: 7,
            head: MOV_EAX_11.to_vec(),
            tail: vec![],
            elsewhere: None,
            returns: false,
            guarded: false,
        }]
    );
    let before = planned(&code, Want::Before);
    assert_eq!(
        before.patches,
        [Patch {
            entry: AT + 5,
            number: Number::Always(11),
            want: Want::Before,
            from: AT,
            length: 5,
            head: MOV_EAX_11.to_vec(),
            tail: vec![],
            elsewhere: None,
            returns: false,
            guarded: false,
        }]
    );
    assert_eq!(planned(&code, Want::Nothing).entries, 1);
    assert_eq!(planned(&code, Want::Nothing).patches, []);
}

/// As in `read` of the C library, whose number is zero.
#[test]
fn zero_is_a_number_too() {
    let xor_eax = [0x31, 0xc0];
    let code = [&xor_eax[..], &SYSCALL, &CMP_RAX, &RET].concat();
    let plan = planned(&code, Want::Result);
    assert_eq!(plan.patches[0].number, Number::Always(0));
}

#[test]
fn a_before_hook_overwrites_as_many_instructions_as_a_jump_needs() {
    let mov_r10_r9 = [0x4d, 0x89, 0xca];
    let mov_edx_1 = [0xba, 1, 0, 0, 0];
    let xor_eax = [0x31, 0xc0];
    let code = [&mov_edx_1[..], &mov_r10_r9, &xor_eax, &SYSCALL, &RET].concat();
    let plan = planned(&code, Want::Before);
    assert_eq!(plan.patches[0].head, [&mov_r10_r9[..], &xor_eax].concat());
    assert_eq!(plan.patches[0].from, AT + 5);
    assert_eq!(plan.patches[0].number, Number::Always(0));
}

#[test]
fn a_call_that_a_branch_leads_to_has_nothing_before_it() {
    // mov eax, 11; syscall; jmp to the syscall
    let back = [0xeb, 0xfc_u8];
    let code = [&MOV_EAX_11[..], &SYSCALL, &back].concat();
    let plan = planned(&code, Want::Before);
    assert_eq!(plan.patches, []);
    assert_eq!(plan.refused[0].reason, Reason::BranchInside);
    // Nor does a call at the beginning of its function.
    let code = [&SYSCALL[..], &CMP_RAX, &RET].concat();
    assert_eq!(
        planned(&code, Want::Before).refused[0].reason,
        Reason::NoRoom
    );
}

#[test]
fn a_number_that_a_branch_may_change_is_unknown() {
    // mov eax, 11; syscall (reached again with another number); cmp; mov eax, 12; jmp
    let back = [0xeb, 0xec_u8];
    let mov_eax_12 = [0xb8, 12, 0, 0, 0];
    let code = [&MOV_EAX_11[..], &SYSCALL, &CMP_RAX, &mov_eax_12, &back].concat();
    // From the end (20) back to 5, the entry: -15; the byte above says -20, the start.
    let mut to_entry = code.clone();
    *to_entry.last_mut().expect("not empty") = (-15_i8) as u8;
    assert_eq!(
        planned(&to_entry, Want::Result).patches[0].number,
        Number::Any
    );
    assert_eq!(
        planned(&code, Want::Result).patches[0].number,
        Number::Always(11)
    );
    // The entry may be overwritten with what comes before it only in the second.
    assert_eq!(planned(&code, Want::Call).patches[0].from, AT);
    let alone = planned(&to_entry, Want::Call);
    assert_eq!(alone.patches[0].from, AT + 5);
    assert_eq!(alone.patches[0].tail, CMP_RAX);
}

/// As the C library waits for a barrier: the number is in a register from before the loop.
#[test]
fn a_number_in_a_register_that_stays_is_known_to_be_there() {
    let number = |before: &[&[u8]]| {
        let code = [&before.concat()[..], &SYSCALL, &CMP_RAX].concat();
        planned(&code, Want::Result).patches[0].number
    };
    let (eax_r13d, eax_ebp) = ([0x44, 0x89, 0xe8], [0x89, 0xe8]);
    let xor_edx = [0x31, 0xd2];
    assert_eq!(number(&[&eax_r13d, &xor_edx]), Number::In(13));
    assert_eq!(number(&[&eax_ebp]), Number::In(5));
    // xor ebp, ebp: the number is lost.
    assert_eq!(number(&[&eax_ebp, &[0x31, 0xed]]), Number::Any);
    // Registers that the kernel changes: rcx, r11.
    assert_eq!(number(&[&[0x89, 0xc8]]), Number::Any);
    assert_eq!(number(&[&[0x44, 0x89, 0xd8]]), Number::Any);
    // mov eax, [rbp]; mov ax, bp; mov rax, rbp.
    assert_eq!(number(&[&[0x8b, 0x45, 0]]), Number::Any);
    assert_eq!(number(&[&[0x66, 0x89, 0xe8]]), Number::Any);
    assert_eq!(number(&[&[0x48, 0x89, 0xe8]]), Number::Any);
}

#[test]
fn instructions_bound_to_their_address_are_relocated_or_refused() {
    let elsewhere = |code: &[u8], want| {
        let mut plan = planned(code, want);
        plan.patches.remove(0).elsewhere.expect("not as it is")
    };
    // syscall; mov edi, [rip+1]: right in its place, and elsewhere with another distance.
    let relative = [0x8b, 0x3d, 1, 0, 0, 0];
    let code = [&SYSCALL[..], &relative, &RET].concat();
    let to = AT + 2 + 6 + 1;
    let run = elsewhere(&code, Want::Result);
    assert_eq!(run.distances, [Distance { at: 2, to }]);
    let before = [&relative[..], &SYSCALL].concat();
    let run = elsewhere(&before, Want::Before);
    assert_eq!(run.distances, [Distance { at: 2, to: to - 2 }]);
    // If the entry moves too, such instructions are not moved.
    let refused = planned(&[&SYSCALL[..], &relative].concat(), Want::Call).refused;
    assert_eq!(refused[0].reason, Reason::Bound);
    // syscall; cmp rax, -38; jne to the end: as in libgomp.
    let code = [&SYSCALL[..], &[0x48, 0x83, 0xf8, 0xda, 0x75, 1, 0xc3, 0xc3]].concat();
    let run = elsewhere(&code, Want::Result);
    assert_eq!(run.distances, [Distance { at: 6, to: AT + 9 }]);
    let patch = &planned(&code, Want::Result).patches[0];
    assert_eq!((patch.length, patch.returns), (6, false));
    // syscall; jmp to the start, and the padding after it.
    let jump = [&SYSCALL[..], &[0xeb, 0xfc, 0x0f, 0x1f, 0]].concat();
    let run = elsewhere(&jump, Want::Result);
    assert_eq!(run.distances, [Distance { at: 1, to: AT }]);
    assert!(planned(&jump, Want::Result).patches[0].returns);
    // A call next to it would return into the jump.
    let code = [&[0xe8, 0, 0, 0, 0][..], &SYSCALL, &RET].concat();
    for want in [Want::Call, Want::Before] {
        assert_eq!(planned(&code, want).patches, []);
    }
}

/// The bytes of an entry that are in no known function.
#[test]
fn entry_bytes_outside_of_functions_are_reported() {
    let code = [&MOV_EAX_11[..], &SYSCALL, &RET, &SYSCALL, &RET].concat();
    let unexplained = |bytes: &[u8], spans: &[(u64, u64)]| {
        let functions = spans.iter().map(|&(from, to)| Function {
            start: AT + from,
            end: AT + to,
        });
        let functions: Vec<Function> = functions.collect();
        Entering::of(bytes, AT, &functions).unexplained()
    };
    assert_eq!(unexplained(&code, &[(0, 8), (8, 11)]), None);
    assert_eq!(unexplained(&code, &[(0, 8)]), Some(AT + 8));
    assert_eq!(unexplained(&code, &[(8, 11)]), Some(AT + 5));
    assert_eq!(unexplained(&code, &[]), Some(AT + 5));
    // Inside another instruction: mov eax, 0x50f.
    assert_eq!(unexplained(&[0xb8, 0x0f, 0x05, 0, 0], &[(0, 5)]), None);
    // After bytes that are not an instruction.
    let broken = [&[0x06][..], &SYSCALL].concat();
    assert_eq!(unexplained(&broken, &[(0, 3)]), Some(AT + 1));
}

/// Padding after the last instruction of a function that belongs to no other function.
#[test]
fn the_gap_behind_a_function_may_be_overwritten() {
    let code = [
        &MOV_EAX_11[..],
        &SYSCALL,
        &RET,
        &[0x66, 0x90, 0x0f, 0x1f, 0, 0x55],
    ]
    .concat();
    let end = AT + 8;
    let planned = |next| {
        let functions = [
            Function { start: AT, end },
            Function {
                start: next,
                end: AT + 14,
            },
        ];
        plan(&code, AT, &functions, |_| Want::Result)
    };
    let plan = planned(AT + 13);
    assert_eq!(plan.patches[0].tail, [0xc3, 0x66, 0x90, 0x0f, 0x1f, 0]);
    assert_eq!(
        plan.patches[0]
            .elsewhere
            .as_ref()
            .expect("without the gap")
            .bytes,
        RET
    );
    // It begins before.
    assert_eq!(planned(AT + 10).refused[0].reason, Reason::NoRoom);
}

#[test]
fn a_branch_behind_the_entry_brings_another_result() {
    // syscall; cmp; nop; jmp to the comparison: the hook must tell where control came from.
    let code = [&SYSCALL[..], &CMP_RAX, &[0x90, 0xeb, (-9_i8) as u8]].concat();
    let plan = planned(&code, Want::Result);
    assert!(plan.patches[0].guarded, "{plan:?}");
    assert_eq!(plan.patches[0].tail, CMP_RAX);
    // syscall; test; cmp; jmp to the comparison, which the jump would overwrite in part.
    let test_eax = [0x85, 0xc0];
    let code = [&SYSCALL[..], &test_eax, &CMP_RAX, &[0xeb, (-8_i8) as u8]].concat();
    assert_eq!(
        planned(&code, Want::Result).refused,
        [Refused {
            entry: AT,
            number: Number::Any,
            reason: Reason::BranchInside,
        }]
    );
}

#[test]
fn a_return_ends_the_window() {
    // mov eax, 15; syscall; ret; code that is reached on another path.
    let code = [&[0xb8, 15, 0, 0, 0][..], &SYSCALL, &RET, &[0x53; 8]].concat();
    let plan = planned(&code, Want::Result);
    assert_eq!(plan.refused[0].reason, Reason::NoRoom);
    // xor eax, eax; syscall; ret: five bytes in all.
    let code = [&[0x31, 0xc0][..], &SYSCALL, &RET].concat();
    let whole = &planned(&code, Want::Call).patches[0];
    assert_eq!((whole.length, whole.returns), (5, true));
}

#[test]
fn broken_code_gives_no_plan_and_no_panic() {
    let function = |start, end| Function { start, end };
    for functions in [
        [function(AT, AT + 100)],
        [function(AT - 1, AT + 1)],
        [function(AT + 2, AT)],
        [function(u64::MAX - 1, u64::MAX)],
    ] {
        assert_eq!(plan(&SYSCALL, AT, &functions, |_| Want::Call).patches, []);
    }
    // Cut in the middle of an instruction.
    let code = [&SYSCALL[..], &CMP_RAX[..4]].concat();
    assert_eq!(planned(&code, Want::Result).patches, []);
}

proptest::proptest! {
    /// For any code, a patch covers whole instructions around an entry, no two patches overlap,
    /// and every wanted entry is planned or refused.
    #[test]
    fn patches_lie_in_the_code_and_do_not_overlap(
        parts in proptest::collection::vec(
            proptest::prop_oneof![
                proptest::strategy::Just(SYSCALL.to_vec()),
                proptest::strategy::Just(MOV_EAX_11.to_vec()),
                proptest::strategy::Just(CMP_RAX.to_vec()),
                proptest::strategy::Just(RET.to_vec()),
                proptest::strategy::Just(vec![0x75, 2]),
                proptest::strategy::Just(vec![0x8b, 0x35, 0, 1, 0, 0]),
                proptest::collection::vec(proptest::prelude::any::<u8>(), 1..4),
            ],
            0..40,
        ),
        want in proptest::sample::select(vec![Want::Call, Want::Result, Want::Before]),
    ) {
        let code = parts.concat();
        let plan = planned(&code, want);
        assert_eq!(plan.entries, plan.patches.len() + plan.refused.len());
        let mut end = AT;
        for patch in &plan.patches {
            let bytes = |at: u64, len: usize| &code[(at - AT) as usize..][..len];
            assert_eq!(bytes(patch.entry, 2), SYSCALL);
            assert_eq!(bytes(patch.entry + 2, patch.tail.len()), patch.tail);
            let before = patch.entry - patch.head.len() as u64;
            assert_eq!(bytes(before, patch.head.len()), patch.head);
            let (from, length) = match want {
                Want::Call => (before, patch.head.len() + 2 + patch.tail.len()),
                Want::Before => (before, patch.head.len()),
                _ => (patch.entry + 2, patch.tail.len()),
            };
            assert_eq!((patch.from, patch.length), (from, length));
            assert!(patch.length >= JUMP && patch.from >= end);
            // No more than a record of a plan has room for.
            assert!(patch.head.len().max(patch.tail.len()) <= 20);
            if let Some(run) = &patch.elsewhere {
                assert!(run.bytes.len() <= 28 && run.distances.len() <= 3);
            }
            end = patch.from + patch.length as u64;
        }
    }
}
