//! Tests of instructions before and after, as text.
#![allow(missing_docs)]

mod support;

use sunder_access::{Address, CodeAddress, Span};
use sunder_rewrite::{
    Code, Condition, Memory, MovedPage, Refusal, Register, Registers, Rule, Seen, return_slot,
    specialise, specialise_alone,
};
use support::{GROUP, PAGE, TEXT, UNDERLAY, ask, assemble, moved, registers_at, text};

/// rdi and r12 point to the group, rsi and rbp next to the page; control is at `at` bytes from
/// the start.
fn registers(at: u64) -> Registers {
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
    let mut page = moved();
    let group = page.rules[1];
    let columns = (0..4).map(|n| Rule {
        bytes: Span::new(Address(group.bytes.start.0 + 8 * n), 8),
        delta: group.delta + 0x1000 * (n % 2) as i64,
    });
    page.rules.splice(1..2, columns);
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

#[test]
fn what_cannot_be_redirected_is_refused_with_its_reason() {
    let at = CodeAddress(TEXT);
    for (source, wanted) in [
        // Sixteen bytes that begin at the group's last eight.
        ("movups xmm0, [rdi+0x18]\n ret", Refusal::Straddles(at)),
        // Half of it is on the page.
        ("mov rax, [rdi-0x44]\n ret", Refusal::Straddles(at)),
        ("rep movsb\n ret", Refusal::Operand(at)),
        ("push qword ptr [rdi]\n ret", Refusal::Operand(at)),
        ("call [rdi]\n ret", Refusal::NoInstruction(at)),
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
fn behind_a_call_the_return_address_lies_where_it_lay() {
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
    request.at = CodeAddress(1 << 40);
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

/// A pointer that is loaded in each round.
const LOADED: &str = "1: mov rdx, [rsi]\n inc dword ptr [rdx+8]\n sub rcx, 1\n jne 1b\n ret";

/// The copy for these registers if the word at `at` points to the group.
fn with_pointer(source: &str, now: Registers, at: u64) -> Option<sunder_rewrite::Block> {
    let code = assemble(source)?;
    let page = moved();
    let mut request = ask(&code, now, &page, &[]);
    let read = |asked: Address, _| (asked.0 == at).then_some(GROUP.0);
    request.memory = Memory(&read);
    Some(specialise(&request).expect("a loop"))
}

fn with_memory(source: &str) -> Option<sunder_rewrite::Block> {
    with_pointer(source, registers(3), 0x9000)
}

#[test]
fn a_pointer_from_memory_is_checked_where_it_is_loaded() {
    let Some(block) = with_memory(LOADED) else {
        println!("SKIP: there is no assembler");
        return;
    };
    let text = text(&block);
    let lines: Vec<&str> = text.lines().filter_map(|l| l.split(": ").nth(1)).collect();
    assert_eq!((block.direct, block.guarded), (1, 0), "{text}");
    assert_eq!(lines[..2], ["mov rdx,[rsi]", "cmp rdx,0x600040"]);
    assert!(lines[2].starts_with("jne "), "{text}");
    assert_eq!(lines[3], "inc dword ptr [rdx+0x101008]");
    // The other copy of the loop returns to the first when the pointer has its old value again.
    assert!(lines.iter().any(|l| l.starts_with("je ")), "{text}");
    assert!(lines.contains(&"inc dword ptr [rdx+8]"), "{text}");
}

#[test]
fn what_the_loop_changes_is_not_expected_to_stay() {
    let Some(block) = with_memory(&LOADED.replace("sub", "add qword ptr [rsi], 8\n sub")) else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert_eq!((block.direct, block.guarded), (0, 1), "{}", text(&block));
}

#[test]
fn a_pointer_that_walks_to_a_bound_needs_no_guard() {
    let walk = |end: u64| {
        let source = format!(
            "1: mov r8, rdi\n lea r9, [rdi+{end}]\n2: add [r8], rax\n add r8, 8\n \
             cmp r8, r9\n jne 2b\n sub rcx, 1\n jne 1b\n ret"
        );
        let code = assemble(&source)?;
        let page = moved();
        let mut now = registers(7);
        (now.general[8], now.general[9]) = (GROUP.0 + 8, GROUP.0 + end);
        let block = specialise(&ask(&code, now, &page, &[])).expect("a loop");
        Some((block.direct, block.guarded))
    };
    let Some(within) = walk(32) else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert_eq!(within, (1, 0));
    // One more word is beyond the group.
    assert_eq!(walk(40), Some((0, 1)));
}

/// A loop that calls a function and faults before the call; the function's code follows it.
/// Returns the text of the copy.
fn calling(leaf: &str, seen: &[Seen]) -> Option<(String, sunder_rewrite::Block)> {
    let outer = "1: add [rdi], rax\n call 2f\n sub rcx, 1\n jne 1b\n ret\n2:";
    let code = assemble(&format!("{outer} {leaf}\n ret"))?;
    let (outer, leaf) = code.split_at(15);
    let callees = [Code {
        start: CodeAddress(TEXT + 15),
        bytes: leaf,
    }];
    let page = moved();
    let mut request = ask(outer, registers(0), &page, seen);
    request.callees = &callees;
    let block = specialise(&request).expect("a loop");
    Some((text(&block), block))
}

#[test]
fn a_return_looks_at_its_address_only_if_a_store_may_have_reached_it() {
    // rsp is 0x7000 at the call, rsi 0x9000, rbp 0x8000; there are no facts about r9.
    for (leaf, looks) in [
        ("mov [rsi], rcx", false),
        ("push rcx\n mov [rsp-0x10], rax\n pop rcx", false),
        ("movzx edx, cl\n mov [rsi+rdx*8], rax", false),
        ("mov rax, [rsp]", false),
        // An entry has conditions for the registers from which the index follows, up to a
        // number.
        (
            "mov edx, ecx\n add edx, r10d\n xor edx, r11d\n sub edx, r13d\n sub edx, r14d\n \
             and edx, 7\n mov [rsi+rdx*8], rax",
            false,
        ),
        (
            "mov edx, ecx\n add edx, r10d\n xor edx, r11d\n sub edx, r13d\n sub edx, r14d\n \
             sub edx, r15d\n sub edx, r9d\n sub edx, r8d\n and edx, 7\n mov [rsi+rdx*8], rax",
            true,
        ),
        // Nothing is known of a value that follows from memory, so its other parts need no
        // conditions.
        (
            "mov r9, [rsi+64]\n add r9, r10\n xor r9, r11\n sub r9, r13\n sub r9, r14\n \
             sub r9, r15\n sub r9, r8\n mov edx, r9d\n and edx, 7\n mov [rsi+rdx*8], rax",
            false,
        ),
        // Its own return address, half of it, and one byte before it.
        ("mov [rsp], rcx", true),
        ("mov dword ptr [rsp+4], 0", true),
        ("mov [rsp-7], rcx", true),
        ("mov [rsp-8], rcx\n mov [rsp+8], rcx", false),
        // At an unknown address.
        ("mov r9, [rsi]\n mov [r9], rcx", true),
        ("mov [rsi+rcx*8], rax", true),
        ("mov fs:[rsi], rcx", true),
        ("lea rdi, [rsi]\n rep stosb", true),
        ("bts [rsi], rcx", true),
        ("fxsave [rsp-0x200]", false),
        ("fxsave [rsp-0x1ff]", true),
        ("xsave [rsi]", true),
    ] {
        let Some((text, _)) = calling(leaf, &[]) else {
            println!("SKIP: there is no assembler");
            return;
        };
        assert_eq!(
            text.contains("cmp dword ptr [rsp"),
            looks,
            "{leaf}:\n{text}"
        );
        assert!(text.contains("lea rsp,[rsp+8]"), "{leaf}:\n{text}");
    }
}

#[test]
fn who_enters_a_copy_whose_returns_do_not_look_brings_its_stack_and_its_pointers() {
    let Some((_, block)) = calling("mov [rsi], rcx", &[]) else {
        println!("SKIP: there is no assembler");
        return;
    };
    let [entry] = &block.entries[..] else {
        panic!("{block:?}");
    };
    for (register, value) in [(4, 0x7000), (6, 0x9000), (7, GROUP.0)] {
        let demanded = Condition::Register(Register(register), value, value);
        assert!(entry.conditions.contains(&demanded), "{entry:x?}");
    }
    // If the thread did not come in this way, the next copy has fewer conditions.
    let before = Seen {
        ip: CodeAddress(TEXT),
        base: GROUP.0 + 8,
        index: 0,
    };
    let Some((text, block)) = calling("mov [rsi], rcx", &[before]) else {
        return;
    };
    assert!(text.contains("cmp dword ptr [rsp"), "{text}");
    assert_eq!(block.entries[0].conditions.len(), 1, "{block:x?}");
}

#[test]
fn flags_live_across_a_return_that_need_not_look() {
    // The loop reads a flag that the function sets.
    let source = "1: add [rdi], rax\n call 2f\n jne 1b\n ret\n2: sub rcx, 1\n ret";
    let Some(code) = assemble(source) else {
        println!("SKIP: there is no assembler");
        return;
    };
    let (outer, leaf) = code.split_at(11);
    let callees = [Code {
        start: CodeAddress(TEXT + 11),
        bytes: leaf,
    }];
    let page = moved();
    let mut request = ask(outer, registers(0), &page, &[]);
    request.callees = &callees;
    let block = specialise(&request).expect("a loop");
    let text = text(&block);
    let lines: Vec<&str> = text.lines().filter_map(|l| l.split(": ").nth(1)).collect();
    assert!(block.is_loop, "{text}");
    assert_eq!(lines[2..4], ["sub rcx,1", "lea rsp,[rsp+8]"], "{text}");
}

#[test]
fn what_was_elsewhere_for_a_while_is_looked_at_behind_the_loop() {
    let source = "1: add [rdi], rax\n mov rax, [rdi+rdx*8]\n mov rdx, [rsi]\n \
                  sub rcx, 1\n jne 1b\n ret";
    let Some(code) = assemble(source) else {
        println!("SKIP: there is no assembler");
        return;
    };
    let page = moved();
    let mut now = registers(3);
    now.general[2] = 1;
    let lines = |seen: &[Seen]| {
        let block = specialise(&ask(&code, now, &page, seen)).expect("a loop");
        let text = text(&block);
        let lines = text.lines().filter_map(|l| l.split_once(": "));
        lines.map(|l| l.1.to_owned()).collect::<Vec<_>>()
    };
    // At the thread's first fault the guard comes before the operand.
    let first = lines(&[]);
    assert_eq!(first[1], "cmp rdx,3");
    assert!(first[2].starts_with("ja "), "{first:?}");
    assert_eq!(first[3], "mov rax,[rdi+rdx*8+0x101000]");
    // The thread has faulted in this loop before, so in some rounds the operand was not on the
    // page.
    let before = Seen {
        ip: CodeAddress(TEXT),
        base: GROUP.0,
        index: 0,
    };
    let late = lines(&[before]);
    assert_eq!(late[1], "cmp rdx,3");
    assert!(late[2].starts_with("jbe "), "{late:?}");
    assert_eq!(late[3], "mov rax,[rdi+rdx*8]");
    let moved = late
        .iter()
        .position(|l| l == "mov rax,[rdi+rdx*8+0x101000]");
    let guarded = moved.expect("the guarded operand");
    assert_eq!(late[guarded - 2], "cmp rdx,3");
    assert!(late[guarded + 1].starts_with("jmp "), "{late:?}");
    assert_eq!(late[guarded + 2], "mov rax,[rdi+rdx*8]");
}

/// A loop that was compiled without optimisation: its variables are at rbp, here 0x8000 with
/// rsp at 0x7000. It faults at its second instruction.
const FRAMED: &str = "push rbp\n mov rbp, rsp\n 1: mov rax, [rbp-16]\n add qword ptr [rax+8], 1\n \
    add qword ptr [rbp-8], 1\n mov rax, [rbp-16]\n mov rdx, [rax]\n mov [rbp-24], rdx\n \
    sub rcx, 1\n jne 1b\n pop rbp\n ret";

fn in_frame(source: &str) -> Option<sunder_rewrite::Block> {
    let mut now = registers(8);
    now.general[0] = GROUP.0;
    with_pointer(source, now, 0x8000 - 16)
}

#[test]
fn a_pointer_in_a_frame_that_nobody_else_reaches_needs_no_check() {
    let Some(block) = in_frame(FRAMED) else {
        println!("SKIP: there is no assembler");
        return;
    };
    let shown = text(&block);
    assert!(!shown.contains("cmp "), "{shown}");
    assert_eq!((block.direct, block.guarded, block.checked), (2, 0, 0));
    // An entry at the first operand demands this pointer in the register, and in the slot from
    // which the second operand's pointer is loaded.
    let slot = Condition::Stack(0x1000 - 16, GROUP.0);
    for entry in &block.entries {
        assert!(entry.conditions.contains(&slot), "{entry:x?}");
    }
}

#[test]
fn a_slot_that_others_may_reach_is_checked() {
    for (what, from, to) in [
        (
            "its address is made",
            "pop rbp",
            "lea rdi, [rbp-16]\n pop rbp",
        ),
        (
            "the frame's address is made",
            "pop rbp",
            "mov rdi, rbp\n pop rbp",
        ),
        (
            "the frame is pushed",
            "pop rbp",
            "push rbp\n pop rbp\n pop rbp",
        ),
        (
            "an array beside it",
            "pop rbp",
            "mov [rbp+rdx*8-64], rax\n pop rbp",
        ),
        ("a store by rsp", "pop rbp", "mov [rsp+8], rax\n pop rbp"),
        (
            "another part of the function",
            "jne 1b",
            "jne 1b\n jc 0x10000",
        ),
        ("no frame", "mov rbp, rsp", "mov rbp, rdi"),
        (
            "half of it is stored",
            "sub rcx",
            "mov [rbp-12], edx\n sub rcx",
        ),
        (
            "a store to anywhere",
            "sub rcx",
            "mov rdx, [rsi]\n mov [rdx], rcx\n sub rcx",
        ),
        (
            "a store to it",
            "sub rcx",
            "mov [rsi-0x1010], rcx\n sub rcx",
        ),
        (
            "the stack in the loop",
            "sub rcx",
            "push rdx\n pop rdx\n sub rcx",
        ),
        ("a string", "sub rcx", "lea rdi, [rsi]\n stosb\n sub rcx"),
    ] {
        let Some(block) = in_frame(&FRAMED.replacen(from, to, 1)) else {
            println!("SKIP: there is no assembler");
            return;
        };
        let shown = text(&block);
        let looks = block.guarded + block.checked > 0;
        assert!(looks && shown.contains("cmp "), "{what}:\n{shown}");
    }
}
