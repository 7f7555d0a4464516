//! Ways through called functions on which registers are restored: whether they are in the copy.

use crate::support::{GROUP, TEXT, ask, assemble, moved, registers_at, text};
use sunder_access::{Address, CodeAddress};
use sunder_rewrite::{Block, Code, Memory, Seen, specialise};

/// A loop over the group's four words, which calls a function in each round.
const LOOP: &str = "1: mov edx, ecx\n and edx, 3\n lea r14, [r12+rdx*8]\n call 3f\n add [r14], rax\n \
                    sub rcx, 1\n jne 1b\n ret\n";
const FUNCTION: u64 = 0x60;

/// The copy for a thread that faults at the addition; `None` without an assembler. `seen`: it has
/// faulted there before; `whole`: all ways are asked for.
fn copy(function: &str, seen: bool, whole: bool) -> Option<Block> {
    copy_of(LOOP, function, seen, whole)
}

fn copy_of(around: &str, function: &str, seen: bool, whole: bool) -> Option<Block> {
    let code = assemble(&format!("{around}\n.org {FUNCTION}\n3: {function}\n"))?;
    let at = code.windows(3).position(|w| w == [0x49, 0x01, 0x06]);
    let at = at.expect("the addition") as u64;
    let values = [
        (1, 9),
        (4, 0x7000),
        (12, GROUP.0),
        (13, 0x9000),
        (14, GROUP.0 + 8),
    ];
    let before = [Seen {
        ip: CodeAddress(TEXT + at),
        base: GROUP.0 + 16,
        index: 0,
        count: 0,
    }];
    let page = moved();
    let (own, function) = code.split_at(FUNCTION as usize);
    let callees = [Code {
        start: CodeAddress(TEXT + FUNCTION),
        bytes: function,
    }];
    let seen = if seen { &before[..] } else { &[] };
    let mut request = ask(own, registers_at(at, &values), &page, seen);
    request.callees = &callees;
    request.whole = whole;
    let read = |at: Address, _| (at.0 == 0x9000).then_some(GROUP.0 + 8);
    request.memory = Memory(&read);
    Some(specialise(&request).expect("the operand moves"))
}

/// The pops in the copy and the guarded operands.
fn pops(function: &str, seen: bool, whole: bool) -> Option<(usize, u32)> {
    let block = copy(function, seen, whole)?;
    let text = text(&block);
    assert!(block.is_loop, "{text}");
    Some((text.matches(": pop ").count(), block.guarded))
}

#[test]
fn a_way_that_restores_what_others_leave_alone_is_left_out() {
    let popped = "test ebx, ebx\n jne 2f\n ret\n2: push r14\n mov r14, rbx\n pop r14\n ret";
    let loaded = "test ebx, ebx\n jne 2f\n ret\n2: push r14\n xor r14d, r14d\n mov r14, [rsp]\n \
                  add rsp, 8\n ret";
    let without = |function| pops(function, false, false);
    let Some(found) = without(popped) else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert_eq!(found, (0, 0));
    assert_eq!(without(loaded), Some((0, 0)));
    // If threads have left such a copy often, the whole function is copied.
    assert_eq!(pops(popped, false, true), Some((1, 1)));
    assert_eq!(pops(popped, true, false), Some((0, 0)), "also later");
}

#[test]
fn other_ways_stay() {
    for (what, function) in [
        ("all ways restore it", "push r14\n pop r14\n ret"),
        (
            "it does so on both ways",
            "push r14\n test ebx, ebx\n jne 2f\n pop r14\n ret\n2: pop r14\n ret",
        ),
    ] {
        let Some((pops, guarded)) = pops(function, false, false) else {
            println!("SKIP: there is no assembler");
            return;
        };
        assert!(pops > 0 && guarded == 1, "{what}: {pops} {guarded}");
    }
    // Nothing depends on the register.
    let other = "test ebx, ebx\n jne 2f\n ret\n2: push r13\n mov r13, rbx\n pop r13\n ret";
    assert_eq!(pops(other, false, false), Some((1, 0)));
}

/// A pointer that is loaded can be checked if its place is known.
#[test]
fn the_place_of_a_pointer_is_of_use_too() {
    let around = "1: call 3f\n mov r14, [r13]\n add [r14], rax\n sub rcx, 1\n jne 1b\n ret\n";
    let function = "test ebx, ebx\n jne 2f\n ret\n2: push r13\n mov r13, rbx\n pop r13\n ret";
    let Some(block) = copy_of(around, function, false, false) else {
        println!("SKIP: there is no assembler");
        return;
    };
    let found = (block.direct, block.guarded, block.checked);
    assert_eq!(found, (1, 0, 1), "{}", text(&block));
}
