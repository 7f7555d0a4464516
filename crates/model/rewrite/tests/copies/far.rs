//! Operands relative to rip that the copy can't encode: which registers hold their addresses.

use crate::support::{GROUP, TEXT, ask, assemble, moved, registers_at, text};
use sunder_access::CodeAddress;
use sunder_rewrite::{Block, Registers, specialise};

fn registers() -> Registers {
    registers_at(0, &[(4, 0x7000), (7, GROUP.0)])
}

#[test]
fn far_operands_are_reached_through_their_destination_register() {
    let Some(code) = assemble(
        "1: add [rdi], rax\n lea rdx, [rip+0x100]\n mov r8d, [rip+0x100]\n sub rcx, 1\n \
         jne 1b\n ret",
    ) else {
        println!("SKIP: there is no assembler");
        return;
    };
    let page = moved();
    let mut asked = ask(&code, registers(), &page, &[]);
    asked.near = CodeAddress(1 << 40);
    let block = specialise(&asked).expect("the operand moves");
    let text = text(&block);
    assert!(block.is_loop, "{text}");
    // After `lea` it is 0x40000a, after the load 0x400011.
    for line in ["mov rdx,0x40010a", "mov r8,0x400111", "mov r8d,[r8]"] {
        assert!(text.contains(line), "{line} is missing:\n{text}");
    }
}

/// The copy of a loop with this instruction, which lies far from it; `None` without an assembler.
fn far_loop_with(instruction: &str) -> Option<Block> {
    let source = format!("1: add [rdi], rax\n {instruction}\n sub rcx, 1\n jne 1b\n ret");
    let code = assemble(&source)?;
    let page = moved();
    let mut asked = ask(&code, registers(), &page, &[]);
    asked.near = CodeAddress(1 << 40);
    Some(specialise(&asked).expect("the operand moves"))
}

/// Locks of the C library look at a byte of its own in this way.
#[test]
fn other_far_operands_are_reached_through_a_register_that_is_saved() {
    let Some(block) = far_loop_with("cmp byte ptr [rip+0x100], al") else {
        println!("SKIP: there is no assembler");
        return;
    };
    let text = text(&block);
    assert!(block.is_loop, "{text}");
    // `rax` is in use. Behind the instruction it is 0x400009, at an address of 0x400003.
    let lines = [
        ("lea rsp,[rsp-0x80]", 3, 0, false),
        ("push rcx", 3, 128, false),
        ("mov rcx,0x400109", 3, 136, true),
        ("[rcx],al", 3, 136, true),
        ("pop rcx", 9, 136, true),
        ("lea rsp,[rsp+0x80]", 9, 128, false),
    ];
    let mut at = 0;
    for (line, original, pushed, saved) in lines {
        let found = text.lines().skip(at).position(|l| l.ends_with(line));
        let found = found.unwrap_or_else(|| panic!("{line} is missing:\n{text}"));
        at += found + 1;
        let offset = text.lines().nth(at - 1).and_then(|l| l.split(':').next());
        let offset = u32::from_str_radix(offset.expect("an offset").trim(), 16).expect("a number");
        let resume = block.resume.iter().find(|r| r.offset == offset);
        let resume = resume.expect("each instruction has an original");
        assert_eq!(resume.original.0, TEXT + original, "{line}");
        assert_eq!(resume.pushed, pushed, "{line}");
        assert_eq!(
            resume.saved,
            saved.then_some(sunder_rewrite::Register(1)),
            "{line}"
        );
    }
}

#[test]
fn a_loop_is_left_before_far_operands_that_no_register_reaches() {
    let Some(block) = far_loop_with("push qword ptr [rip+0x100]") else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert!(!block.is_loop, "{}", text(&block));
}

/// Of those that a function need not keep, and whatever way the loop goes on.
#[test]
fn a_register_that_is_overwritten_before_it_is_read_is_not_saved() {
    let test = "cmp byte ptr [rip+0x100], al\n";
    for (after, is_saved) in [
        ("mov edx, 0", false),
        ("jz 2f\n xor eax, eax\n 2: mov edx, 0", false),
        ("jz 2f\n mov edx, 0\n 2: add r8, rdx", true),
        // Only a part of it.
        ("mov dl, 0", true),
        ("mov ebx, 0", true),
        // Whoever the function returns to may read it.
        ("jz 2f\n mov edx, 0\n jmp 3f\n 2: ret\n 3:", true),
    ] {
        let Some(block) = far_loop_with(&format!("{test}{after}")) else {
            println!("SKIP: there is no assembler");
            return;
        };
        let text = text(&block);
        let saves = text.contains(": push rcx");
        assert_eq!(saves, is_saved, "{after}:\n{text}");
        let through = if is_saved {
            "cmp [rcx],al"
        } else {
            "cmp [rdx],al"
        };
        assert!(text.contains(through), "{after}:\n{text}");
    }
}
