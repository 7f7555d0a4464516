//! The programs that the test executes: the layout of their memory, the steps of loops and
//! functions, and the text of the whole. Used by `machine.rs`, which executes them, and by the
//! tests. It must not know about copies.

use crate::support::framed::{SLOTS, step as framed_step};

/// All memory of a run: code, its copies, the page, the page's new place, and memory that does
/// not move.
pub const BASE: u64 = 0x1_2000_0000;
pub const BYTES: u64 = 0x40_0000;
pub const LOOP: u64 = BASE + 0x200;
pub const LEAF: u64 = BASE + 0x1000;
pub const INNER: u64 = BASE + 0x1800;
/// The other target of pointers of calls, a linker's stub, and its slot.
pub const OTHER: u64 = BASE + 0x1a00;
pub const STUB: u64 = BASE + 0x1b00;
pub const SLOT: u64 = PRIVATE + 0x1000 - 112;
/// More groups on the page, which move by the same distance: the first one, how far apart they are,
/// their length, and how many there are.
pub const FIRST: u64 = 0x900;
pub const APART: u64 = 0x80;
pub const MORE_BYTES: u64 = 0x10;
pub const MORE: u64 = 8;
/// Added to the address of half of these groups, it makes a number whose lower half is negative for a
/// signed comparison, and to that of the others, one whose lower half is positive.
pub const BEYOND: u64 = (1 << 31) - ((PAGE + FIRST + MORE / 2 * APART) & 0xffff_ffff);
/// A pointer on the page that moves, which the loops change in no other way.
pub const ON_PAGE: u64 = 0x800;
pub const END: u64 = BASE + 0x1c00;
pub const SAVES: u64 = BASE + 0x2000;
pub const CONTEXT: u64 = BASE + 0x3000;
pub const PAGE: u64 = BASE + 0x1_0000;
pub const PRIVATE: u64 = BASE + 0x2_0000;
pub const STACK: u64 = BASE + 0x3f_0000;
pub const UNDERLAY: u64 = BASE + 0x5_0000;
pub const POOL: u64 = BASE + 0x6_0000;
pub const CACHE: u64 = BASE + 0x10_0000;
/// The group of bytes that moves by another distance than the rest of the page.
pub const GROUP: u64 = 0x40;
pub const GROUP_BYTES: u64 = 0x20;

/// An addition to memory relative to rip that does not move.
pub const FAR: Step = (OUTSIDE, 0, 0);
const OUTSIDE: u32 = 1000;

/// One instruction of a loop, or a few that belong together.
fn step(kind: u32, offset: u32, scratch: u32) -> String {
    let r = ["rax", "rdx", "r8", "r9", "r10", "r11"][scratch as usize % 6];
    let r32 = ["eax", "edx", "r8d", "r9d", "r10d", "r11d"][scratch as usize % 6];
    let word = offset % 4 * 8;
    let far = 0x100 + offset % 64 * 8;
    match kind {
        // Through the invariant pointer, on the group.
        0 => format!("add qword ptr [rdi+{word}], {r}"),
        1 => format!("mov {r}, [rdi+{word}]"),
        2 => format!("mov [rdi+{word}], {r}"),
        3 => format!("lock xadd [rdi+{word}], {r}"),
        4 => format!("inc dword ptr [rdi+{word}]"),
        5 => format!(
            "movups xmm0, [rdi+{}]\n movups [rsi+{far}], xmm0",
            word % 16
        ),
        // A copy of the pointer.
        6 => format!("mov r13, r12\n add [r13+{word}], {r32}"),
        7 => format!("lea r13, [rdi+8]\n imul {r}, [r13+{}]", offset % 3 * 8),
        // A pointer from memory.
        8 => format!("mov r13, [rbp-8]\n add {r}, [r13+{word}]"),
        9 => format!("mov r13, [rbp-16]\n mov byte ptr [r13+{word}], 7"),
        // An index that varies.
        10 => format!("mov r13, rcx\n and r13, 3\n mov {r}, [rdi+r13*8]"),
        11 => format!("mov r13, rcx\n and r13, 3\n add [rdi+r13*8], {r}"),
        // Elsewhere on the page, and next to it.
        12 => format!("mov {r}, [rdi+{far}]"),
        13 => format!("xor [rdi+{far}], {r}"),
        14 => format!("mov [rsi+{far}], {r}"),
        15 => format!("mov {r}, [rsi+rcx*8]"),
        16 => format!("add {r}, rcx"),
        17 => format!("push {r}\n pop r14"),
        // A branch over an access.
        18 => format!("test rcx, 1\n jz 7f\n add [rdi+{word}], {r}\n7:"),
        // Flags that live across an access.
        19 => format!("cmp {r}, rcx\n mov r13, [rbp-8]\n mov r13, [r13+{word}]\n adc {r}, 1"),
        20 => format!("shl {r}, 3\n rol {r32}, 5"),
        21 => format!("mov {r}, [rip+page+{}]", GROUP + u64::from(word)),
        22 => format!("add qword ptr [rip+page+{}], 5", 0x200 + word),
        OUTSIDE => format!("add dword ptr [rip+page+{}], ecx\n adc eax, 3", PRIVATE - PAGE + 0x400),
        23 => format!("cmp byte ptr [rdi+{word}], 9\n setb al"),
        // A pointer to a pointer, and one that the loop itself puts there.
        24 => format!("mov r13, [rbp-24]\n mov r13, [r13]\n add [r13+{word}], {r}"),
        25 => format!("mov [rbp-32], rdi\n mov r13, [rbp-32]\n sub [r13+{word}], {r}"),
        // A pointer that changes between rounds, to elsewhere and back.
        26 => format!(
            "mov r13, [rbp-40]\n xor [r13+{word}], {r}\n mov r14, rcx\n and r14, 1\n mov r13, [rbp+r14*8-72]\n mov [rbp-40], r13"
        ),
        // An index in memory; one of 32 bits; one that is computed.
        27 => format!("movsxd r13, dword ptr [rbp-48]\n add [rdi+r13*8], {r}"),
        28 => format!("mov r13d, [rbp-48]\n lea r13, [rdi+r13*4+4]\n mov [r13], {r32}"),
        29 => format!(
            "movzx r13d, cl\n and r13d, 1\n shl r13, 4\n mov {r}, [r12+r13+{}]",
            offset % 2 * 8
        ),
        30 => format!(
            "mov r13, rdi\n imul r13, r13, 3\n sub r13, rdi\n shr r13, 1\n add [r13+{word}], {r}"
        ),
        31 => "mov rax, r12\n mov r13, [rbp-56]\n mul r13\n mov [rax+8], rcx".to_owned(),
        // Inner loops over the group and over more than it.
        32 => format!(
            "mov r13, rdi\n lea r14, [rdi+32]\n6: add [r13], {r}\n add r13, 8\n cmp r13, r14\n jne 6b"
        ),
        33 => format!(
            "xor r13d, r13d\n6: inc dword ptr [rdi+r13*4]\n inc r13\n cmp r13d, {}\n jl 6b",
            1 + offset % 12
        ),
        34 => format!(
            "mov r13d, {}\n6: mov {r}, [rdi+r13*8]\n sub r13, 1\n jnz 6b",
            1 + offset % 9
        ),
        35 => format!("mov r13, rcx\n and r13, 7\n add [rdi+r13*8], {r}"),
        // Two operands through one pointer, one of them conditional.
        36 => format!(
            "mov r13, [rbp-8]\n test rcx, 2\n jz 7f\n add [r13], {r}\n7: add [r13+{word}], rcx"
        ),
        37 => format!("mov r13, [rbp-8]\n cmp rcx, 4\n cmovb r13, r12\n add [r13+{word}], {r}"),
        // The index is bounded by a comparison before.
        38 => format!(
            "mov r13, rcx\n cmp r13, {}\n ja 7f\n add [rdi+r13*8], {r}\n7:",
            offset % 8
        ),
        // Two cases of a switch, as compilers make it: the table lies behind a jump.
        40 => format!(
            "mov r13, rcx\n and r13d, 1\n lea {r}, [rip+8f]\n movsxd r13, dword ptr [{r}+r13*4]\n add r13, {r}\n jmp r13\n5: add qword ptr [rdi+{word}], rcx\n jmp 7f\n6: sub qword ptr [rdi+{word}], rcx\n jmp 7f\n8: .long 5b-8b, 6b-8b\n7:"
        ),
        // A kernel call with the same result each time, which leaves flags in r11.
        KERNEL => "mov r13, rcx\n mov eax, 39\n syscall\n mov rcx, r13\n xor r11d, r11d".to_owned(),
        // Changes the pointers of calls to another function, and back.
        CHANGES => {
            "mov r13, rcx\n and r13, 1\n mov r13, [rbp+r13*8-136]\n mov [rbp-112], r13\n mov [rip+page+0x800], r13".to_owned()
        }
        // A pointer that is another one in each round: to each of the other groups in turn.
        WANDERS => {
            format!("mov r14, rcx\n and r14, 7\n mov r13, [rbp+r14*8-208]\n add [r13+{}], {r}", word % 16)
        }
        // The same pointers, moved by a number that the operand takes off again.
        WANDERS_BEYOND => {
            format!(
                "mov r14, rcx\n and r14, 7\n mov r13, [rbp+r14*8-208]\n lea r13, [r13+{BEYOND}]\n add [r13-{}], {r}",
                BEYOND - u64::from(word % 16)
            )
        }
        // Elements of an array, by products as compilers compute them: of some the groups are, and what
        // lies between them.
        PRODUCTS => {
            let times = [
                "lea r13, [rdx+rdx*2]",
                "lea r13, [rdx*8]\n sub r13, rdx",
                "mov r13, rdx\n shl r13, 2\n add r13, rdx",
                "lea r13d, [rdx+rdx*4]\n add r13d, r13d\n sub r13d, edx",
            ][offset as usize / 16 % 4];
            let even = ["", "add edx, edx\n "][offset as usize / 8 % 2];
            format!(
                "mov rax, rcx\n xor edx, edx\n mov r14d, {}\n div r14\n {even}{times}\n and r13d, 15\n shl r13, 6\n lea r14, [rip+page+{FIRST}]\n add [r14+r13+{}], {r}",
                2 + offset % 8,
                word % 16
            )
        }
        // In functions only: a return into the function itself, by the address on the stack and
        // by a pointer to it.
        RETURNS => {
            "mov r14, [rsp]\n lea r13, [rip+5f]\n mov [rsp], r13\n ret\n5: push r14".to_owned()
        }
        RETURNS_BY_POINTER => format!(
            "mov [rbp-96], rsp\n mov {r}, rcx\n mov r8, [rbp-96]\n mov r14, [r8]\n lea r13, [rip+5f]\n mov [r8], r13\n ret\n5: push r14"
        ),
        // In some rounds a register is saved and restored.
        RESTORES => {
            let register = ["rdi", "r12"][offset as usize % 2];
            format!(
                "test cl, {}\n jz 7f\n push {register}\n lea {register}, [rcx+{r}]\n mov {r}, {register}\n pop {register}\n7:",
                [4, 0x80][offset as usize / 2 % 2]
            )
        }
        // Stores of a function.
        STORES => format!(
            "mov r13, rcx\n and r13, 63\n mov [rsi+r13*8], {r}\n mov [rsp-{}], {r}",
            8 + word
        ),
        _ => format!(
            "mov r13, rcx\n neg r13\n and r13d, 3\n lea r13, [rdi+r13*8]\n lock add [r13], {r}"
        ),
    }
}

/// Kinds of steps that only functions have.
pub const KERNEL: u32 = 41;
pub const CHANGES: u32 = 42;
pub const WANDERS: u32 = 43;
pub const WANDERS_BEYOND: u32 = 44;
pub const PRODUCTS: u32 = 45;
pub const RETURNS: u32 = 46;
pub const RETURNS_BY_POINTER: u32 = 47;
pub const STORES: u32 = 48;
pub const RESTORES: u32 = 49;
pub const OF_FUNCTIONS: u32 = 50;

pub type Step = (u32, u32, u32);

/// How the loop calls its function, and how that calls the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Direct,
    /// Through the linker's stub and its slot.
    Stub,
    /// Through the slot itself.
    Slot,
    Register,
    /// Like a virtual function.
    Table,
    /// Through a pointer on the page that moves.
    Moved,
    /// By a jump at the function's end: the other function returns for it.
    Ends,
    EndsThroughSlot,
}

pub const WAYS: [Way; 8] = [
    Way::Direct,
    Way::Stub,
    Way::Slot,
    Way::Register,
    Way::Table,
    Way::Moved,
    Way::Ends,
    Way::EndsThroughSlot,
];

/// The ways that go through a pointer, from the loop to its function.
pub const THROUGH: &[Way] = WAYS.split_at(1).1.split_at(5).0;

/// Pointers have the same targets as the slot: the leaf for the loop, the inner function for
/// the leaf.
fn call(way: Way, function: &str) -> String {
    match way {
        Way::Direct => format!("call {function}\n"),
        Way::Stub => "call .Lstub\n".to_owned(),
        Way::Slot => "call [rip+slot]\n".to_owned(),
        Way::Register => "mov r13, [rip+slot]\n call r13\n".to_owned(),
        Way::Table => "lea r13, [rbp-128]\n call [r13+16]\n".to_owned(),
        Way::Moved => format!("call [rdi+{}]\n", ON_PAGE - GROUP),
        Way::Ends => format!("jmp {function}\n"),
        Way::EndsThroughSlot => "jmp .Lstub\n".to_owned(),
    }
}

const NAMES: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// The code before the loop, which sets the registers.
fn before() -> String {
    let mut text = String::new();
    text += &format!(".set page, .Lbase + {:#x}\n.Lbase:\n", PAGE - BASE);
    for name in ["rbx", "rbp", "r12", "r13", "r14", "r15"] {
        text += &format!("push {name}\n");
    }
    text += &format!(".set saves, .Lbase + {:#x}\n", SAVES - BASE);
    text += &format!(".set context, .Lbase + {:#x}\n", CONTEXT - BASE);
    text += "mov [rip+saves+256], rsp\n";
    for (number, name) in NAMES.iter().enumerate() {
        text += &format!("mov {name}, [rip+context+{}]\n", 8 * number);
    }
    text
}

/// The code after the loop.
fn behind() -> String {
    let mut text = format!(".org {:#x}\n.Lend:\n", END - BASE);
    for (number, name) in NAMES.iter().enumerate() {
        text += &format!("mov [rip+saves+{}], {name}\n", 8 * number);
    }
    text += "pushfq\n pop qword ptr [rip+saves+128]\n mov rsp, [rip+saves+256]\n";
    for name in ["r15", "r14", "r13", "r12", "rbp", "rbx"] {
        text += &format!("pop {name}\n");
    }
    text + "ret\n"
}

/// A loop that is given as text.
pub fn around(body: &str) -> String {
    let start = format!("jmp .Lloop\n.org {:#x}\n.Lloop:\n", LOOP - BASE);
    let end = format!(".org {:#x}, 0x90\n", LEAF - BASE);
    before() + &start + body + &end + &behind()
}

/// A function that keeps its variables in its frame.
pub fn framed(steps: &[Step], rounds: u32) -> String {
    let mut text = before();
    text += &format!(
        "call .Lloop\n jmp .Lend\n.org {:#x}\n.Lloop:\n",
        LOOP - BASE
    );
    text += &format!("push rbp\n mov rbp, rsp\n sub rsp, 80\n mov rcx, {rounds}\n");
    text += "lea rbx, [rsi+0x800]\n";
    for (at, register) in SLOTS {
        text += &format!("mov [rbp-{at}], {register}\n");
    }
    text += ".Lagain:\n";
    for &(kind, offset, scratch) in steps {
        text += &framed_step(kind, offset, scratch);
        text += "\n";
    }
    text += &format!(
        "sub rcx, 1\n jnz .Lagain\n leave\n ret\n.org {:#x}, 0x90\n",
        LEAF - BASE
    );
    text + &behind()
}

pub fn program([steps, leaf, inner]: [&[Step]; 3], [way, within]: [Way; 2], rounds: u32) -> String {
    let mut text = before();
    text += &format!("jmp .Lloop\n.org {:#x}\n.Lloop:\n", LOOP - BASE);
    text += &format!("mov rcx, {rounds}\n.Lagain:\n");
    for &(kind, offset, scratch) in steps {
        text += &step(kind, offset, scratch);
        text += "\n";
    }
    text += &format!(".set slot, .Lbase + {:#x}\n", SLOT - BASE);
    if !leaf.is_empty() {
        // The slot is for the loop's call, unless that does not use it: then it is for the
        // leaf's.
        text += &call(way, ".Lleaf");
    }
    text += "sub rcx, 1\n jnz .Lagain\n jmp .Lend\n";
    text += &format!(".org {:#x}\n.Lleaf:\n", LEAF - BASE);
    for &(kind, offset, scratch) in leaf {
        text += &step(kind, offset, scratch);
        text += "\n";
    }
    if !inner.is_empty() && matches!(within, Way::Ends | Way::EndsThroughSlot) {
        text += &call(within, ".Linner");
    } else if !inner.is_empty() {
        text += &format!("push rbx\n{}pop rbx\n", call(within, ".Linner"));
    }
    text += &format!("ret\n.org {:#x}\n.Linner:\n", INNER - BASE);
    for &(kind, offset, scratch) in inner {
        text += &step(kind, offset, scratch);
        text += "\n";
    }
    text += &format!("ret\n.org {:#x}\nadd rbx, 3\n ret\n", OTHER - BASE);
    text += &format!(".org {:#x}\n.Lstub: jmp [rip+slot]\n", STUB - BASE);
    text + &behind()
}
