//! Copies that rest on values in memory (loaded pointers, return addresses, slots of a frame), as
//! text: where they check these values, and where they need not.

use super::tables::registers;
use crate::support::{GROUP, PAGE, TEXT, ask, assemble, moved, moved_in_turn, text};
use sunder_access::{Address, CodeAddress};
use sunder_rewrite::{Code, Condition, Memory, Register, Registers, Seen, specialise};

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
fn values_that_the_loop_changes_are_not_checked() {
    let Some(block) = with_memory(&LOADED.replace("sub", "add qword ptr [rsi], 8\n sub")) else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert_eq!((block.direct, block.guarded), (0, 1), "{}", text(&block));
}

#[test]
fn a_pointer_that_advances_to_a_known_bound_needs_no_guard() {
    // Compilers write the comparison in either order. Of the outer loop, most rounds begin lower than
    // where the thread faults.
    let walk = |start: u64, end: u64, compared: &str| {
        let source = format!(
            "1: mov r8, rdi\n mov r9, {end}\n add r9, rdi\n2: add [r8], rax\n add r8, 8\n \
             cmp {compared}\n jne 2b\n sub rcx, 1\n jne 1b\n ret"
        );
        let code = assemble(&source)?;
        let page = moved();
        let mut now = registers(13);
        (now.general[7], now.general[8], now.general[9]) = (start, start + 8, start + end);
        let block = specialise(&ask(&code, now, &page, &[])).expect("a loop");
        Some((block.direct, block.guarded))
    };
    let beside = GROUP.0 + GROUP.1;
    for compared in ["r8, r9", "r9, r8"] {
        let Some(within) = walk(GROUP.0, 32, compared) else {
            println!("SKIP: there is no assembler");
            return;
        };
        assert_eq!(within, (1, 0), "{compared}");
        // One more word is beyond the group.
        assert_eq!(walk(GROUP.0, 40, compared), Some((0, 1)), "{compared}");
        // Far more rounds than are followed one by one.
        let rest = PAGE + 4096 - beside;
        assert_eq!(walk(beside, rest, compared), Some((1, 0)), "{compared}");
        assert_eq!(walk(beside, rest + 8, compared), Some((0, 1)), "{compared}");
    }
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
fn a_return_checks_its_address_only_if_a_store_may_have_changed_it() {
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
fn entering_a_copy_with_unchecked_returns_requires_the_same_stack_and_pointers() {
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
        count: 0,
    };
    let Some((text, block)) = calling("mov [rsi], rcx", &[before]) else {
        return;
    };
    assert!(text.contains("cmp dword ptr [rsp"), "{text}");
    assert_eq!(block.entries[0].conditions.len(), 1, "{block:x?}");
}

#[test]
fn flags_stay_live_across_an_unchecked_return() {
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
fn guards_of_operands_that_are_rarely_on_the_page_lie_after_the_loop() {
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
        count: 0,
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

/// An array that begins at the end of the page: after the first rounds it is elsewhere.
#[test]
fn an_operand_that_walks_away_from_the_page_is_expected_elsewhere() {
    let loaded = |end: u64| {
        let source = format!(
            "1: xor r8d, r8d\n mov esi, {end}\n2: add [rdi], rax\n movzx eax, byte ptr [r9+r8+2]\n \
             add r8, 4\n cmp rsi, r8\n jne 2b\n sub rcx, 1\n jne 1b\n ret"
        );
        let code = assemble(&source)?;
        let page = moved();
        let mut now = registers(8);
        (now.general[6], now.general[8], now.general[9]) = (end, 0x40, PAGE + 0xf00);
        let block = specialise(&ask(&code, now, &page, &[])).expect("a loop");
        let text = text(&block);
        let lines = text.lines().filter_map(|l| l.split_once(": "));
        let lines: Vec<_> = lines.map(|l| l.1.to_owned()).collect();
        let load = lines.iter().position(|l| l.starts_with("movzx"))?;
        Some(lines[load.saturating_sub(2)..=load].join("; "))
    };
    let Some(short) = loaded(0x180) else {
        println!("SKIP: there is no assembler");
        return;
    };
    // Most of the way is on the page.
    assert!(short.starts_with("cmp r8,0xfd; ja "), "{short}");
    assert!(
        short.ends_with("movzx eax,byte ptr [r9+r8+0x100002]"),
        "{short}"
    );
    let long = loaded(0x1000).expect("an assembler");
    assert!(long.starts_with("cmp r8,0xfd; jbe "), "{long}");
    assert!(long.ends_with("movzx eax,byte ptr [r9+r8+2]"), "{long}");
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
fn a_pointer_in_a_private_frame_needs_no_check() {
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

/// An element of a table that is found by numbers in memory: `table[(round % each * threads + own) & 15]`,
/// as gcc computes it for elements of 56 bytes.
#[test]
fn an_element_found_by_numbers_in_memory_needs_checks_and_no_guard() {
    let source = "1: lea rax, [r13+r13*4]\n xor edx, edx\n div rbp\n imul rdx, rcx\n lea rbx, [rdx+r12]\n mov rdx, rbx\n and edx, 15\n lea rax, [rdx*8]\n sub rax, rdx\n mov rdx, [rsi]\n lea r14, [rdx+rax*8]\n add [r14+0x30], rbx\n add r13, 1\n cmp [rsi+16], r13\n jle 2f\n movsxd rcx, dword ptr [rsi+8]\n jmp 1b\n2: ret";
    let Some(code) = assemble(source) else {
        println!("SKIP: there is no assembler");
        return;
    };
    let page = moved_in_turn(16, 56);
    let at = code.windows(4).position(|w| w == [0x49, 0x01, 0x5e, 0x30]);
    let mut now = registers(at.expect("the addition") as u64);
    for (number, value) in [
        (1, 2),
        (3, 5),
        (5, 8),
        (6, 0x9000),
        (12, 1),
        (13, 2),
        (14, GROUP.0 + 5 * 56),
    ] {
        now.general[number] = value;
    }
    let mut request = ask(&code, now, &page, &[]);
    let read = |asked: Address, _| match asked.0 {
        0x9000 => Some(GROUP.0),
        0x9008 => Some(2),
        0x9010 => Some(1000),
        _ => None,
    };
    request.memory = Memory(&read);
    let block = specialise(&request).expect("a loop");
    assert_eq!((block.direct, block.guarded), (1, 0), "{}", text(&block));
}
