//! Random loops, executed as they are and executed with a page that has moved: the
//! page is protected, each fault is answered by a copy of the loop, and registers,
//! flags and memory must be the same in the end.
#![allow(missing_docs)]

mod support;

use proptest::prelude::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use sunder_access::{Address, CodeAddress, Span};
use sunder_rewrite::{
    Block, Code, Condition, Frame, Memory, MovedPage, Refusal, Registers, Request, Resume, Rule,
    Seen, return_slot, specialise,
};

/// All memory of a run: code, its copies, the page, what it moves to, and memory
/// that stays.
const BASE: u64 = 0x1_2000_0000;
const BYTES: u64 = 0x40_0000;
const LOOP: u64 = BASE + 0x200;
const LEAF: u64 = BASE + 0x1000;
const INNER: u64 = BASE + 0x1800;
const END: u64 = BASE + 0x1c00;
const SAVES: u64 = BASE + 0x2000;
const CONTEXT: u64 = BASE + 0x3000;
const PAGE: u64 = BASE + 0x1_0000;
const PRIVATE: u64 = BASE + 0x2_0000;
const STACK: u64 = BASE + 0x3f_0000;
const UNDERLAY: u64 = BASE + 0x5_0000;
const POOL: u64 = BASE + 0x6_0000;
const CACHE: u64 = BASE + 0x10_0000;
/// The group that moves away from the rest of the page.
const GROUP: u64 = 0x40;
const GROUP_BYTES: u64 = 0x20;
/// More would mean that a copy is left again at once.
const MOST_FAULTS: usize = 400;

/// What is left undefined by some instructions of the loops.
const FLAGS: u64 = 0x8c1;

struct Run {
    moved: MovedPage,
    seen: Vec<Seen>,
    blocks: Vec<(u64, Block)>,
    next: u64,
    faults: usize,
    refusal: Option<Refusal>,
    code: Vec<u8>,
}

static ONE: Mutex<()> = Mutex::new(());
static mut RUN: Option<Run> = None;
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Positions of the registers in a context, in the order of their numbers.
const ORDER: [i32; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

extern "C" fn fault(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a context; the run is this thread's, which is in
    // code of the test and holds no lock.
    unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        let registers = &mut context.uc_mcontext.gregs;
        #[allow(static_mut_refs)]
        let run = RUN.as_mut().filter(|_| ACTIVE.load(Ordering::SeqCst));
        let Some(run) = run else {
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
            return;
        };
        let mut now = Registers {
            general: ORDER.map(|place| registers[place as usize] as u64),
            ip: CodeAddress(registers[libc::REG_RIP as usize] as u64),
        };
        now.ip = original(run, now.ip);
        registers[libc::REG_RIP as usize] = match answer(run, now) {
            Ok(to) => to as i64,
            Err(refusal) => {
                run.refusal = Some(refusal);
                END as i64
            }
        };
    }
}

/// Where a thread in the cache would be in the original code.
fn original(run: &Run, ip: CodeAddress) -> CodeAddress {
    for (at, block) in &run.blocks {
        let offset = ip.0.wrapping_sub(*at);
        if offset < block.bytes.len() as u64 {
            let place: Option<&Resume> =
                block.resume.iter().find(|r| u64::from(r.offset) == offset);
            return place
                .expect("a thread stops before an instruction")
                .original;
        }
    }
    ip
}

/// Memory of the run, as the tool would read it.
fn read(at: Address, width: u64) -> Option<u64> {
    let inside = (BASE..BASE + BYTES - 8).contains(&at.0);
    let on_page = at.0 & !0xfff == PAGE;
    let mut bytes = [0; 8];
    if !inside || on_page || width > 8 {
        return None;
    }
    // SAFETY: memory of the run, not protected.
    unsafe {
        std::ptr::copy_nonoverlapping(at.0 as *const u8, bytes.as_mut_ptr(), width as usize);
    }
    Some(u64::from_le_bytes(bytes))
}

fn answer(run: &mut Run, now: Registers) -> Result<u64, Refusal> {
    run.faults += 1;
    if run.faults > MOST_FAULTS {
        return Err(Refusal::Elsewhere(now.ip));
    }
    let function = |start: u64, end: u64| Code {
        start: CodeAddress(start),
        bytes: &run.code[(start - BASE) as usize..(end - BASE) as usize],
    };
    let functions = [
        function(LOOP, LEAF),
        function(LEAF, INNER),
        function(INNER, END),
    ];
    let of = |ip: u64| {
        let last = functions.iter().rfind(|f| f.start.0 <= ip);
        *last.expect("the code of the test")
    };
    let own = Frame {
        code: of(now.ip.0),
        ip: now.ip,
    };
    let mut callers: Vec<Frame<'_>> = Vec::new();
    let (mut inner, mut rsp) = (own, now.general[4]);
    while inner.code.start.0 != LOOP {
        let slot =
            return_slot(inner.code, inner.ip, Memory(&read)).expect("the functions are simple");
        let at = rsp.wrapping_add_signed(slot);
        // SAFETY: the test's own stack.
        let back = unsafe { *(at as *const u64) };
        rsp = at + 8;
        inner = Frame {
            code: of(back),
            ip: CodeAddress(back),
        };
        callers.push(inner);
    }
    let request = Request {
        frame: own,
        callers: &callers,
        callees: &functions[1..],
        registers: now,
        moved: &run.moved,
        seen: &run.seen,
        memory: Memory(&read),
        at: CodeAddress(run.next),
    };
    let block = specialise(&request)?;
    // What the block says of its ways in must let this thread in.
    let fits = block.entries.iter().any(|entry| {
        entry.original == now.ip
            && entry.offset == block.entry
            && entry.conditions.iter().all(|condition| match *condition {
                Condition::Register(r, low, high) => (low..=high).contains(&now.get(r)),
                Condition::Stack(offset, value) => {
                    let at = now.general[4].wrapping_add_signed(offset);
                    // SAFETY: the test's own stack.
                    value == unsafe { *(at as *const u64) }
                }
            })
    });
    assert!(fits, "{block:x?}");
    // SAFETY: the cache is ours, writable and executable.
    unsafe {
        std::ptr::copy_nonoverlapping(block.bytes.as_ptr(), run.next as *mut u8, block.bytes.len());
    }
    let to = run.next + u64::from(block.entry);
    let at = run.next;
    run.next += (block.bytes.len() as u64).next_multiple_of(64);
    run.seen.push(block.seen);
    run.blocks.push((at, block));
    Ok(to)
}

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
        // Elsewhere on the page, and beside it.
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
        23 => format!("cmp byte ptr [rdi+{word}], 9\n setb al"),
        // A pointer to a pointer, and one that the loop itself puts there.
        24 => format!("mov r13, [rbp-24]\n mov r13, [r13]\n add [r13+{word}], {r}"),
        25 => format!("mov [rbp-32], rdi\n mov r13, [rbp-32]\n sub [r13+{word}], {r}"),
        // One that changes between rounds, to elsewhere and back.
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
        _ => format!(
            "mov r13, rcx\n neg r13\n and r13d, 3\n lea r13, [rdi+r13*8]\n lock add [r13], {r}"
        ),
    }
}

type Step = (u32, u32, u32);

fn program([steps, leaf, inner]: [&[Step]; 3], rounds: u32) -> String {
    let mut text = String::new();
    let names = [
        "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12",
        "r13", "r14", "r15",
    ];
    text += &format!(".set page, .Lbase + {:#x}\n.Lbase:\n", PAGE - BASE);
    for name in ["rbx", "rbp", "r12", "r13", "r14", "r15"] {
        text += &format!("push {name}\n");
    }
    text += &format!(".set saves, .Lbase + {:#x}\n", SAVES - BASE);
    text += &format!(".set context, .Lbase + {:#x}\n", CONTEXT - BASE);
    text += "mov [rip+saves+256], rsp\n";
    for (number, name) in names.iter().enumerate() {
        text += &format!("mov {name}, [rip+context+{}]\n", 8 * number);
    }
    text += &format!("jmp .Lloop\n.org {:#x}\n.Lloop:\n", LOOP - BASE);
    text += &format!("mov rcx, {rounds}\n.Lagain:\n");
    for &(kind, offset, scratch) in steps {
        text += &step(kind, offset, scratch);
        text += "\n";
    }
    if !leaf.is_empty() {
        text += "call .Lleaf\n";
    }
    text += "sub rcx, 1\n jnz .Lagain\n jmp .Lend\n";
    text += &format!(".org {:#x}\n.Lleaf:\n", LEAF - BASE);
    for &(kind, offset, scratch) in leaf {
        text += &step(kind, offset, scratch);
        text += "\n";
    }
    if !inner.is_empty() {
        text += "push rbx\ncall .Linner\npop rbx\n";
    }
    text += &format!("ret\n.org {:#x}\n.Linner:\n", INNER - BASE);
    for &(kind, offset, scratch) in inner {
        text += &step(kind, offset, scratch);
        text += "\n";
    }
    text += &format!("ret\n.org {:#x}\n.Lend:\n", END - BASE);
    for (number, name) in names.iter().enumerate() {
        text += &format!("mov [rip+saves+{}], {name}\n", 8 * number);
    }
    text += "pushfq\n pop qword ptr [rip+saves+128]\n mov rsp, [rip+saves+256]\n";
    for name in ["r15", "r14", "r13", "r12", "rbp", "rbx"] {
        text += &format!("pop {name}\n");
    }
    text += "ret\n";
    text
}

fn bytes(at: u64, len: u64) -> Vec<u8> {
    // SAFETY: memory of the run.
    unsafe { std::slice::from_raw_parts(at as *const u8, len as usize) }.to_vec()
}

fn protect(at: u64, protection: i32) {
    // SAFETY: memory of the run, used by nobody else.
    let done = unsafe { libc::mprotect(at as *mut libc::c_void, 4096, protection) };
    assert_eq!(done, 0);
}

/// Fills all memory as a function of the address alone, and puts the code there.
fn prepare(code: &[u8]) {
    protect(PAGE, libc::PROT_READ | libc::PROT_WRITE);
    let fill = |from: u64, len: u64| {
        for at in (from..from + len).step_by(8) {
            let value = (at.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 9;
            // SAFETY: memory of the run.
            unsafe { *(at as *mut u64) = value };
        }
    };
    fill(PAGE, 4096);
    fill(PRIVATE, 0x4000);
    fill(STACK - 0x4000, 0x4000);
    // SAFETY: memory of the run.
    unsafe {
        std::ptr::copy_nonoverlapping(code.as_ptr(), BASE as *mut u8, code.len());
        *((PRIVATE + 0x1000 - 8) as *mut u64) = PAGE + GROUP;
        *((PRIVATE + 0x1000 - 16) as *mut u64) = PAGE + GROUP;
        *((PRIVATE + 0x1000 - 24) as *mut u64) = PRIVATE + 0x1000 - 8;
        *((PRIVATE + 0x1000 - 40) as *mut u64) = PRIVATE + 0x3000;
        *((PRIVATE + 0x1000 - 64) as *mut u64) = PAGE + GROUP;
        *((PRIVATE + 0x1000 - 72) as *mut u64) = PRIVATE + 0x3000;
        *((PRIVATE + 0x1000 - 48) as *mut u64) = 2;
        *((PRIVATE + 0x1000 - 56) as *mut u64) = 1;
        let context = CONTEXT as *mut u64;
        for number in 0..16u64 {
            *context.add(number as usize) = 0x1111_2222_3333 * (number + 3);
        }
        for (number, value) in [
            (4, STACK - 0x100),
            (5, PRIVATE + 0x1000),
            (6, PRIVATE + 0x2000),
            (7, PAGE + GROUP),
            (12, PAGE + GROUP),
        ] {
            *context.add(number) = value;
        }
    }
}

fn execute() {
    // SAFETY: the code was put there and keeps the ABI.
    unsafe {
        let code: extern "C" fn() = std::mem::transmute(BASE as *const ());
        code();
    }
}

/// Registers, flags, page and other memory after a run.
type After = (Vec<u8>, u64, Vec<u8>, Vec<u8>, Vec<u8>);

fn after(page: Vec<u8>) -> After {
    let flags = bytes(SAVES + 128, 8);
    let flags = u64::from_le_bytes(flags.try_into().expect("eight bytes"));
    (
        bytes(SAVES, 128),
        flags & FLAGS,
        page,
        bytes(PRIVATE, 0x4000),
        bytes(STACK - 0x100, 0x100),
    )
}

fn rule(from: u64, len: u64, to: u64) -> Rule {
    Rule {
        bytes: Span {
            start: Address(PAGE + from),
            len,
        },
        delta: to.wrapping_sub(PAGE + from) as i64,
    }
}

fn compare(steps: &[Step], leaf: &[Step], rounds: u32) -> Option<usize> {
    compare_deep([steps, leaf, &[]], rounds)
}

/// How often the loop faulted, with a function and one that this calls; none without
/// an assembler.
fn compare_deep(parts: [&[Step]; 3], rounds: u32) -> Option<usize> {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let source = program(parts, rounds);
    let code = support::assemble_at(BASE, &source)?;
    // SAFETY: an address that nothing else has, of the test alone.
    let memory = unsafe {
        libc::mmap(
            BASE as *mut libc::c_void,
            BYTES as usize,
            libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    assert_eq!(memory as u64, BASE);
    prepare(&code);
    execute();
    let wanted = after(bytes(PAGE, 4096));

    prepare(&code);
    let page = bytes(PAGE, 4096);
    let rest = GROUP + GROUP_BYTES;
    let moved = MovedPage {
        page: Span {
            start: Address(PAGE),
            len: 4096,
        },
        rules: vec![
            rule(0, GROUP, UNDERLAY),
            rule(GROUP, GROUP_BYTES, POOL + GROUP),
            rule(rest, 4096 - rest, UNDERLAY + rest),
        ],
    };
    // SAFETY: memory of the run; the handler is set for this process alone.
    unsafe {
        std::ptr::copy_nonoverlapping(page.as_ptr(), UNDERLAY as *mut u8, 4096);
        let from = page.as_ptr().add(GROUP as usize);
        std::ptr::copy_nonoverlapping(from, (POOL + GROUP) as *mut u8, GROUP_BYTES as usize);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
        RUN = Some(Run {
            moved,
            seen: Vec::new(),
            blocks: Vec::new(),
            next: CACHE,
            faults: 0,
            refusal: None,
            code: code.clone(),
        });
    }
    protect(PAGE, libc::PROT_NONE);
    ACTIVE.store(true, Ordering::SeqCst);
    execute();
    ACTIVE.store(false, Ordering::SeqCst);
    // SAFETY: no handler runs any more.
    #[allow(static_mut_refs)]
    let run = unsafe { RUN.take() }.expect("it was set");
    assert_eq!(run.refusal, None, "{source}");
    let mut page = bytes(UNDERLAY, 4096);
    let group = bytes(POOL + GROUP, GROUP_BYTES);
    page[GROUP as usize..rest as usize].copy_from_slice(&group);
    let got = after(page);
    assert_eq!(got.0, wanted.0, "registers differ:\n{source}");
    assert!(got == wanted, "flags or memory differ:\n{source}");
    Some(run.faults)
}

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0u32..41, 0u32..64, 0u32..6), 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_loop_whose_page_moved_does_what_it_did(body in steps(10), leaf in steps(5), inner in steps(4)) {
        if compare_deep([&body, &leaf, &inner], 9).is_none() {
            println!("SKIP: there is no assembler");
        }
    }
}

#[test]
fn an_invariant_operand_faults_once() {
    // Any number of rounds: what follows from facts needs no second fault.
    let Some(faults) = compare(&[(0, 0, 0), (1, 1, 1), (6, 2, 2)], &[], 300) else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert_eq!(faults, 1);
}

#[test]
fn a_leaf_function_stays_in_the_copy_of_its_caller() {
    let Some(faults) = compare(&[(16, 0, 0)], &[(0, 0, 0), (6, 2, 2)], 300) else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert_eq!(faults, 1);
}

#[test]
fn a_called_function_is_copied_into_the_loop_that_calls_it() {
    // Faults in the loop itself, and then in what it calls.
    let Some(faults) = compare(&[(0, 0, 0)], &[(6, 2, 2), (16, 0, 0)], 300) else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert_eq!(faults, 1);
}

#[test]
fn an_operand_that_varies_within_a_group_faults_once() {
    let Some(faults) = compare(&[(11, 0, 0), (16, 0, 0)], &[], 300) else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert_eq!(faults, 1);
}

#[test]
fn a_pointer_from_memory_is_guarded() {
    let Some(faults) = compare(&[(8, 0, 0)], &[], 300) else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert_eq!(faults, 1);
}

#[test]
fn one_fault_is_enough_for_what_can_be_told_in_advance() {
    let kinds = [
        ("a pointer from a pointer in memory", 24, 0),
        ("a pointer that the loop puts into memory itself", 25, 1),
        ("an index in memory", 27, 2),
        ("an index of 32 bits in memory", 28, 0),
        ("an index that is masked", 29, 1),
        ("an address that is multiplied and divided", 30, 2),
        ("an address that is multiplied by what is in memory", 31, 0),
        ("a pointer that walks over the group", 32, 1),
        ("an index that counts up to a bound", 33, 3),
        ("a pointer that may be one of two", 37, 0),
        ("an index that a comparison bounds", 38, 3),
        ("an index that is negated and masked", 39, 3),
        ("behind a jump through a table", 40, 1),
    ];
    for (what, kind, offset) in kinds {
        let Some(faults) = compare(&[(kind, offset, 0)], &[], 300) else {
            println!("SKIP: there is no assembler");
            return;
        };
        assert_eq!(faults, 1, "{what}");
    }
}

#[test]
fn functions_within_functions_are_copied_into_the_loop() {
    // The fault comes in the innermost, and in the loop.
    for body in [&[(16, 0, 0)][..], &[(0, 0, 0)]] {
        let Some(faults) = compare_deep([body, &[(6, 2, 2)], &[(0, 1, 2), (1, 2, 3)]], 300) else {
            println!("SKIP: there is no assembler");
            return;
        };
        assert_eq!(faults, 1);
    }
}
