//! Steps of loops as compilers make them without optimisation: variables are in the function's
//! frame. Slots, from rbp: -8 and -16 point to the group, -24 to memory next to the page, -48
//! to the group and -56 next to it (rbx: to memory that nothing else writes); the rest are
//! numbers.

/// How many kinds of steps there are.
pub const KINDS: u32 = 16;

/// The slots below rbp: the distance and the value.
pub const SLOTS: [(u64, &str); 9] = [
    (8, "rdi"),
    (16, "r12"),
    (24, "rsi"),
    (32, "rcx"),
    (40, "rcx"),
    (48, "rdi"),
    (56, "rbx"),
    (64, "rcx"),
    (72, "rsi"),
];

/// One step.
pub fn step(kind: u32, offset: u32, scratch: u32) -> String {
    let r = ["rax", "rdx", "r8", "r9", "r10", "r11"][scratch as usize % 6];
    let r32 = ["eax", "edx", "r8d", "r9d", "r10d", "r11d"][scratch as usize % 6];
    let word = offset % 2 * 8;
    let far = 0x100 + offset % 64 * 8;
    match kind {
        0 => format!("mov r13, [rbp-8]\n add [r13+{word}], {r}"),
        1 => format!(
            "mov r13, [rbp-8]\n mov {r}, [r13+{word}]\n mov [rbp-32], {r}\n add qword ptr [rbp-32], 1\n \
             mov {r}, [rbp-32]\n mov r13, [rbp-8]\n mov [r13+{word}], {r}"
        ),
        2 => "add qword ptr [rbp-40], 1".to_owned(),
        3 => format!("mov r13, [rbp-16]\n xor [r13], {r32}\n mov r14, [rbp-8]\n mov [rbp-16], r14"),
        // Two pointers that are exchanged, one to the group and one not.
        4 => format!(
            "mov r13, [rbp-48]\n xor [r13+{word}], {r}\n mov r14, [rbp-56]\n mov [rbp-48], r14\n \
             mov [rbp-56], r13"
        ),
        5 => format!("mov r13, [rbp-24]\n mov [r13+{far}], {r}"),
        // A pointer in memory outside of the frame, which stays, and one that is set now and
        // then.
        6 => format!("mov r13, [rbp-24]\n mov r13, [r13]\n add [r13+{word}], {r}"),
        7 => "mov r13, [rbp-24]\n test cl, 3\n jnz 7f\n mov r14, [rbp-48]\n mov [r13], r14\n7:"
            .to_owned(),
        // A store to the slot at -8 through its address, which no code of the function
        // computes.
        8 => {
            "mov r13, [rbp-24]\n mov r13, [r13+8]\n mov r14, [rbp-16]\n add r14, 8\n mov [r13], r14"
                .to_owned()
        }
        9 => format!("inc dword ptr [rbp-64]\n mov {r32}, [rbp-64]"),
        10 => "mov r14d, [rbp-16]\n mov [rbp-16], r14d".to_owned(),
        // An address that is computed and stored into the frame in each round.
        11 => format!(
            "mov r13, [rbp-24]\n mov r14, [r13+16]\n mov r13, [rbp-8]\n add r13, r14\n \
             mov [rbp-72], r13\n mov r13, [rbp-72]\n movzx {r32}, byte ptr [r13]\n \
             lea r14d, [{r}+1]\n mov r13, [rbp-72]\n mov [r13], r14b"
        ),
        12 => format!("test rcx, 1\n jz 7f\n mov r13, [rbp-8]\n sub [r13+{word}], {r}\n7:"),
        13 => format!("mov r13, [rbp-8]\n sub r13, [rbp-64]\n add r13, [rbp-64]\n mov {r}, [r13]"),
        // An address of the frame; the stack.
        14 => format!("lea r13, [rbp-8]\n mov r14, [r13]\n add [r14], {r}"),
        _ => format!("push {r}\n pop r14"),
    }
}
