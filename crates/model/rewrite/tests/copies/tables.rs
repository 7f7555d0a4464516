//! Tests of instructions before and after, as text.

use crate::support::{
    GROUP, PAGE, TEXT, UNDERLAY, ask, assemble, moved, moved_in_turn, registers_at, text,
};
use sunder_access::CodeAddress;
use sunder_rewrite::{
    Code, Condition, Memory, MovedPage, Refusal, Register, Registers, Seen, return_slot,
    specialise, specialise_alone,
};

/// rdi and r12 point to the group, rsi and rbp next to the page; control is at `at` bytes from
/// the start.
pub(super) fn registers(at: u64) -> Registers {
    registers_at(
        at,
        &[
            (4, 0x7000),
            (5, 0x8000),
            (6, 0x9000),
            (7, GROUP.0),
            (2, GROUP.0),
            (12, GROUP.0),
        ],
    )
}

struct Case {
    what: &'static str,
    source: &'static str,
    /// The offset of the instruction that faults.
    at: u64,
    wanted: &'static str,
}

/// The group moves by 0x101000 (from 0x600040 to 0x701040), the rest of the page by
/// 0x100000, code from 0x400000 to 0x500000.
const CASES: &[Case] = &[
    Case {
        what: "another displacement where the register never changes",
        source: "1: add qword ptr [rdi+8], rax\n sub rcx, 1\n jne 1b\n ret",
        at: 0,
        wanted: "add [rdi+0x101008],rax|sub rcx,1|jne 0x0000000000500000|jmp 0x000000000040000a",
    },
    Case {
        what: "a register that is set to a known value in the loop",
        source: "1: mov rdx, r12\n inc dword ptr [rdx]\n sub rcx, 1\n jne 1b\n ret",
        at: 3,
        wanted: "mov rdx,r12|inc dword ptr [rdx+0x101000]|sub rcx,1|jne 0x0000000000500000|jmp 0x000000000040000b",
    },
    Case {
        what: "the group's bytes and the others go to different places",
        source: "1: mov rax, [rdi]\n mov [rdi+0x40], rax\n sub rcx, 1\n jne 1b\n ret",
        at: 0,
        wanted: "mov rax,[rdi+0x101000]|mov [rdi+0x100040],rax|sub rcx,1|jne 0x0000000000500000|jmp 0x000000000040000d",
    },
    Case {
        what: "an operand that is known to be elsewhere stays",
        source: "1: mov rax, [rsi]\n add [rdi], rax\n sub rcx, 1\n jne 1b\n ret",
        at: 3,
        wanted: "mov rax,[rsi]|add [rdi+0x101000],rax|sub rcx,1|jne 0x0000000000500000|jmp 0x000000000040000c",
    },
    Case {
        what: "an index that varies has bounds: the group has room for four words",
        source: "1: add [rdi+rcx*8], rax\n sub rcx, 1\n jne 1b\n ret",
        at: 0,
        wanted: "cmp rcx,3|ja 0x0000000000500019|add [rdi+rcx*8+0x101000],rax|sub rcx,1|jne 0x0000000000500000|jmp 0x000000000040000a|add [rdi+rcx*8],rax|jmp 0x000000000050000e",
    },
    Case {
        what: "an index that is masked stays in the group: no guard",
        source: "1: mov r8, rcx\n and r8d, 3\n add [rdi+r8*8], rax\n sub rcx, 1\n jne 1b\n ret",
        at: 7,
        wanted: "mov r8,rcx|and r8d,3|add [rdi+r8*8+0x101000],rax|sub rcx,1|jne 0x0000000000500000|jmp 0x0000000000400011",
    },
    Case {
        what: "no guard where flags live across: the instruction alone",
        source: "1: sub rcx, 1\n mov r8, [rsi]\n mov rdx, [rdi+r8]\n jne 1b\n ret",
        at: 7,
        wanted: "mov rdx,[rdi+r8+0x101000]|jmp 0x000000000040000b",
    },
    Case {
        what: "without a loop: the instruction alone",
        source: "mov rax, [rdi]\n ret",
        at: 0,
        wanted: "mov rax,[rdi+0x101000]|jmp 0x0000000000400003",
    },
    Case {
        what: "relative to the instruction pointer",
        source: "1: add qword ptr [rip+0x200038], 1\n sub rcx, 1\n jne 1b\n ret",
        at: 0,
        wanted: "add qword ptr [0x701040],1|sub rcx,1|jne 0x0000000000500000|jmp 0x000000000040000e",
    },
    Case {
        what: "a jump through a table goes where it went",
        source: "jmp [rdi+8]",
        at: 0,
        wanted: "jmp qword ptr [rdi+0x101008]",
    },
    Case {
        what: "a locked instruction stays locked",
        source: "1: lock xadd [rdi], rax\n sub rcx, 1\n jne 1b\n ret",
        at: 0,
        wanted: "lock xadd [rdi+0x101000],rax|sub rcx,1|jne 0x0000000000500000|jmp 0x000000000040000b",
    },
    Case {
        what: "a call goes to the original with the original's return address",
        source: "1: add [rdi], rax\n test rax, rax\n jz 2f\n sub rcx, 1\n jne 1b\n2: call 3f\n3: ret",
        at: 0,
        wanted: "add [rdi+0x101000],rax|test rax,rax|je 0x000000000040000e|sub rcx,1|jne 0x0000000000500000|jmp 0x000000000040000e",
    },
];

#[test]
fn copies_read_as_expected() {
    for case in CASES {
        let Some(code) = assemble(case.source) else {
            println!("SKIP: there is no assembler");
            return;
        };
        let page = moved();
        let block = specialise(&ask(&code, registers(case.at), &page, &[]));
        let block = block.unwrap_or_else(|e| panic!("{}: {e}", case.what));
        let got: Vec<String> = text(&block)
            .lines()
            .map(|line| line.split_once(": ").map_or("", |l| l.1).to_owned())
            .collect();
        assert_eq!(got.join("|"), case.wanted, "{}", case.what);
    }
}

#[test]
fn an_instruction_is_copied_alone_whatever_is_around_it() {
    let looped = "1: mov rax, [rdi]\n mov [rdi+0x40], rax\n sub rcx, 1\n jne 1b\n ret";
    for (source, at, wanted) in [
        (looped, 3, "mov [rdi+0x100040],rax|jmp 0x0000000000400007"),
        ("nop\n jmp [rdi+8]", 1, "jmp qword ptr [rdi+0x101008]"),
    ] {
        let Some(code) = assemble(source) else {
            println!("SKIP: there is no assembler");
            return;
        };
        let page = moved();
        let block = specialise_alone(&ask(&code, registers(at), &page, &[])).expect("a copy");
        let shown = text(&block);
        let got: Vec<&str> = shown.lines().filter_map(|l| l.split(": ").nth(1)).collect();
        assert_eq!(got.join("|"), wanted);
        assert_eq!((block.is_loop, block.instructions), (false, 1));
    }
}

/// A table of two columns, one for each thread: each column moved by one distance.
#[test]
fn elements_between_those_of_another_thread_need_no_guard_if_they_moved_alike() {
    let source =
        "1: mov r8, rcx\n and r8d, 1\n shl r8, 4\n add [rdi+r8], rax\n sub rcx, 1\n jne 1b\n ret";
    let Some(code) = assemble(source) else {
        println!("SKIP: there is no assembler");
        return;
    };
    let mut page = moved_in_turn(4, 8);
    let block = |page: &MovedPage| {
        specialise(&ask(&code, registers(11), page, &[])).expect("it can be moved")
    };
    let alike = block(&page);
    let shown = text(&alike);
    assert!(shown.contains("add [rdi+r8+0x101000],rax"), "{shown}");
    assert_eq!((alike.direct, alike.guarded), (1, 0), "{shown}");
    // If one element had moved by another distance, a guard would be needed.
    page.rules[3].delta += 0x2000;
    assert_eq!(block(&page).direct, 0);
}

/// Elements of 56 bytes, which two threads use in turn: `table[(round % 8 * 2) & 15]` as gcc computes it.
#[test]
fn elements_by_a_product_and_a_remainder_need_no_guard() {
    let address = |times: &str| {
        format!(
            "1: mov rax, rcx\n xor edx, edx\n div r9\n add rdx, rdx\n and edx, 15\n {times}\n add [rdi+rax*8], rcx\n sub rcx, 1\n jne 1b\n ret"
        )
    };
    let page = moved_in_turn(16, 56);
    for (times, alike) in [
        ("lea rax, [rdx*8]\n sub rax, rdx", true),
        ("mov rax, rdx\n shl rax, 3\n sub rax, rdx", true),
        // Something else is subtracted, or the difference is computed on one of two ways only.
        ("lea rax, [rdx*8]\n sub rax, rbx", false),
        (
            "lea rax, [rdx*8]\n test cl, 4\n jz 2f\n mov rax, rdx\n2: sub rax, rdx",
            false,
        ),
        // Memory is used in between, where a thread may come from the original code.
        ("lea rax, [rdx*8]\n mov r8, [rdi]\n sub rax, rdx", false),
    ] {
        let Some(code) = assemble(&address(times)) else {
            println!("SKIP: there is no assembler");
            return;
        };
        let at = code.windows(4).position(|w| w == [0x48, 0x01, 0x0c, 0xc7]);
        let mut registers = registers(at.expect("the addition") as u64);
        registers.general[9] = 8;
        registers.general[0] = 14;
        registers.general[2] = 2;
        let block = specialise(&ask(&code, registers, &page, &[])).expect("it can be moved");
        let is_direct = block.direct > 0 && block.guarded == 0;
        assert_eq!(is_direct, alike, "{times}: {}", text(&block));
    }
}

/// A field of the elements, of which one begins before the field of the first.
#[test]
fn a_field_of_the_first_element_is_among_those_that_moved_alike() {
    let source = "1: mov r8, [rsi]\n add [rdi+r8*8+8], rax\n sub rcx, 1\n jne 1b\n ret";
    let Some(code) = assemble(source) else {
        println!("SKIP: there is no assembler");
        return;
    };
    let page = moved_in_turn(6, 16);
    let mut now = registers(3);
    now.general[8] = 4;
    let seen = [Seen {
        ip: CodeAddress(TEXT + 3),
        base: GROUP.0,
        index: 0,
        count: 0,
    }];
    let block = specialise(&ask(&code, now, &page, &seen)).expect("a loop");
    let ranges: Vec<_> = block.entries.iter().flat_map(|e| &e.conditions).collect();
    for (low, high) in [(0, 0), (3, 4), (7, 8)] {
        let wanted = Condition::Register(Register(8), low, high);
        assert!(ranges.contains(&&wanted), "{wanted:?}: {ranges:?}");
    }
}

#[test]
fn operands_that_cannot_be_redirected_are_refused_with_a_reason() {
    let at = CodeAddress(TEXT);
    for (source, wanted) in [
        // Sixteen bytes that begin at the group's last eight.
        ("movups xmm0, [rdi+0x18]\n ret", Refusal::Straddles(at)),
        // Half of it is on the page.
        ("mov rax, [rdi-0x44]\n ret", Refusal::Straddles(at)),
        ("push qword ptr [rdi]\n ret", Refusal::Operand(at)),
        ("call fs:[rdi]\n ret", Refusal::Operand(at)),
        ("fxsave [rdi]\n ret", Refusal::Operand(at)),
        ("bts [rdi], rax\n ret", Refusal::Operand(at)),
        ("mov rax, fs:[rdi]\n ret", Refusal::Operand(at)),
        ("mov rax, [esi]\n ret", Refusal::Operand(at)),
        ("mov rax, [rsi]\n ret", Refusal::Elsewhere(at)),
        ("syscall\n ret", Refusal::NoInstruction(at)),
    ] {
        let Some(code) = assemble(source) else {
            println!("SKIP: there is no assembler");
            return;
        };
        let page = moved();
        let got = specialise(&ask(&code, registers(0), &page, &[]));
        assert_eq!(got.err(), Some(wanted), "{source}");
    }
}

#[test]
fn bytes_that_are_no_code_are_refused() {
    let page = moved();
    for code in [&[0x06u8, 0x06, 0x06][..], &[0x48], &[]] {
        let got = specialise(&ask(code, registers(0), &page, &[]));
        assert_eq!(got.err(), Some(Refusal::NoInstruction(CodeAddress(TEXT))));
    }
}

#[test]
fn a_place_out_of_reach_is_refused() {
    let Some(code) = assemble("mov rax, [rdi]\n ret") else {
        println!("SKIP: there is no assembler");
        return;
    };
    let mut page = moved();
    for rule in &mut page.rules {
        rule.delta += 1 << 32;
    }
    let got = specialise(&ask(&code, registers(0), &page, &[]));
    assert_eq!(got.err(), Some(Refusal::OutOfReach(CodeAddress(TEXT))));
}

#[test]
fn several_places_seen_become_alternatives() {
    let source = "1: mov rdx, [rsi]\n mov rax, [rdx]\n sub rcx, 1\n jne 1b\n ret";
    let Some(code) = assemble(source) else {
        println!("SKIP: there is no assembler");
        return;
    };
    let page = moved();
    let mut now = registers(3);
    now.general[2] = GROUP.0 + 8;
    let seen = [Seen {
        ip: CodeAddress(TEXT + 3),
        base: PAGE + 0x800,
        index: 0,
        count: 0,
    }];
    let block = specialise(&ask(&code, now, &page, &seen)).expect("a loop");
    let text = text(&block);
    // The operand with two displacements, for the group's and the rest's new place, and
    // unchanged.
    for form in ["[rdx+0x101000]", "[rdx+0x100000]", "[rdx]"] {
        assert!(text.contains(form), "{form} is missing:\n{text}");
    }
    assert_eq!(UNDERLAY - PAGE, 0x10_0000);
    assert_eq!(block.entries.len(), 2);
}

#[test]
fn the_return_address_of_a_leaf_is_found() {
    let source = "push rbp\n mov rbp, rsp\n sub rsp, 0x20\n mov rax, [rdi]\n leave\n ret";
    let Some(code) = assemble(source) else {
        println!("SKIP: there is no assembler");
        return;
    };
    let code = Code {
        start: CodeAddress(TEXT),
        bytes: &code,
    };
    for (at, slot) in [(0, 0), (1, 8), (4, 8), (8, 0x28), (11, 0x28), (12, 0)] {
        assert_eq!(
            return_slot(code, CodeAddress(TEXT + at), Memory(&|_, _| None)),
            Some(slot)
        );
    }
}

#[test]
fn the_return_slot_is_the_same_after_a_call() {
    for (source, at, slot) in [
        ("call 2f\n mov rax, [rdi]\n ret\n 2: ret", 5, Some(0)),
        (
            "push rbx\n call 2f\n mov rax, [rdi]\n ret\n 2: ret",
            6,
            Some(8),
        ),
        // The change of rsp is not known.
        ("and rsp, -16\n mov rax, [rdi]\n ret", 4, None),
        ("sub rsp, rax\n mov rax, [rdi]\n ret", 3, None),
    ] {
        let Some(code) = assemble(source) else {
            println!("SKIP: there is no assembler");
            return;
        };
        let code = Code {
            start: CodeAddress(TEXT),
            bytes: &code,
        };
        assert_eq!(
            return_slot(code, CodeAddress(TEXT + at), Memory(&|_, _| None)),
            slot,
            "{source}"
        );
    }
}

#[test]
fn code_far_from_its_copy_is_reached_by_address() {
    let Some(code) = assemble("1: add [rdi], rax\n sub rcx, 1\n jne 1b\n ret") else {
        println!("SKIP: there is no assembler");
        return;
    };
    let page = moved();
    let mut request = ask(&code, registers(0), &page, &[]);
    request.near = CodeAddress(1 << 40);
    let block = specialise(&request).expect("a loop");
    // The first constant is the address at which the loop continues in the original code.
    let constant = u64::from_le_bytes(block.bytes[..8].try_into().expect("eight bytes"));
    assert_eq!(constant, TEXT + 9);
}

#[test]
fn a_base_that_was_seen_with_one_value_is_compared_with_it_and_else_bounded() {
    let source = "1: mov rdx, [rsi]\n mov rax, [rdx]\n sub rcx, 1\n jne 1b\n ret";
    let Some(code) = assemble(source) else {
        println!("SKIP: there is no assembler");
        return;
    };
    let page = moved();
    let now = registers(3);
    let block = specialise(&ask(&code, now, &page, &[])).expect("a loop");
    let text_of_one = text(&block);
    assert!(text_of_one.contains("cmp rdx,0x600040"), "{text_of_one}");
    assert!(!text_of_one.contains("ja "), "{text_of_one}");
    let seen = [Seen {
        ip: CodeAddress(TEXT + 3),
        base: GROUP.0 + 8,
        index: 0,
        count: 0,
    }];
    let block = specialise(&ask(&code, now, &page, &seen)).expect("a loop");
    // Eight bytes fit at offsets 0 to 24 of the group.
    let text_of_two = text(&block);
    assert!(text_of_two.contains("cmp rdx,0x600058"), "{text_of_two}");
    assert!(text_of_two.contains("ja "), "{text_of_two}");
}

/// One value of such a base says nothing about the next.
#[test]
fn a_base_that_the_loop_makes_anew_is_bounded_at_once() {
    let made =
        "1: lea rdx, [rdi+rax*8]\n mov r8, [rdx]\n imul rax, rcx\n sub rcx, 1\n jne 1b\n ret";
    // The same, computed from registers that no round changes.
    let stays = made.replace("imul rax", "imul rbx");
    for (source, bounded) in [(made, true), (&stays, false)] {
        let Some(code) = assemble(source) else {
            println!("SKIP: there is no assembler");
            return;
        };
        let page = moved();
        let block = specialise(&ask(&code, registers(4), &page, &[])).expect("a loop");
        let text = text(&block);
        assert_eq!(text.contains("cmp rdx,0x600058"), bounded, "{text}");
        assert_eq!(text.contains("ja "), bounded, "{text}");
    }
}
