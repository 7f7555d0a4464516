//! Calls through the linker's slots, tables and registers, tail calls, and kernel calls, as
//! text.

use crate::support::{CACHE, GROUP, PAGE, TEXT, ask, assemble, moved, registers_at, text};
use sunder_access::{Address, CodeAddress};
use sunder_rewrite::{
    Block, Code, Frame, Memory, Met, Registers, Request, call_targets, is_linker_stub,
    more_targets, specialise, without_hooks,
};

/// A loop that faults at its first instruction, with functions after it.
const STUB: u64 = 0x40;
const LEAF: u64 = 0x60;
const OTHER: u64 = 0xa0;
/// The stub's slot, as an offset from the code.
const SLOT: u64 = 0x3000;

fn program(body: &str, stub: &str, leaf: &str, other: &str) -> Option<Vec<u8>> {
    assemble(&format!(
        "1: add [rdi], rax\n {body}\n sub rcx, 1\n jne 1b\n ret\n\
         .org {STUB}\n {stub}\n .org {LEAF}\n {leaf}\n .org {OTHER}\n {other}\n ret\n"
    ))
}

fn registers() -> Registers {
    registers_at(
        0,
        &[
            (4, 0x7000),
            (5, 0x8000),
            (6, 0x9000),
            (7, GROUP.0),
            (12, 0x9000),
        ],
    )
}

/// The slot, a table of functions at 0xa000, and a pointer to it at 0x9000.
fn read(at: Address, width: u64) -> Option<u64> {
    let value = match at.0 {
        0x9000 => 0xa000,
        0xa010 => TEXT + LEAF,
        slot if slot == TEXT + SLOT => TEXT + LEAF,
        // On the moved page, at its new place.
        slot if slot == PAGE + 0x10_0800 => TEXT + LEAF,
        _ => return None,
    };
    (width == 8).then_some(value)
}

fn request<'a>(
    code: &'a [u8],
    callees: &'a [Code<'a>],
    page: &'a sunder_rewrite::MovedPage,
) -> Request<'a> {
    let mut request = ask(&code[..STUB as usize], registers(), page, &[]);
    request.callees = callees;
    request.memory = Memory(&read);
    request
}

fn callees(code: &[u8]) -> [Code<'_>; 3] {
    let part = |start: u64, end: u64| Code {
        start: CodeAddress(TEXT + start),
        bytes: &code[start as usize..end as usize],
    };
    [
        part(STUB, LEAF),
        part(LEAF, OTHER),
        part(OTHER, code.len() as u64),
    ]
}

/// The copy of such a loop; `None` without an assembler.
fn copy(body: &str, stub: &str, leaf: &str, other: &str) -> Option<(Block, Vec<String>)> {
    let code = program(body, stub, leaf, other)?;
    let (page, callees) = (moved(), callees(&code));
    let block = specialise(&request(&code, &callees, &page)).expect("the operand moves");
    let text = text(&block);
    let lines = text.lines().filter_map(|l| l.split_once(": "));
    Some((block, lines.map(|l| l.1.to_owned()).collect()))
}

/// Whether these lines are there, directly after one another.
fn has(lines: &[String], wanted: &[&str]) -> bool {
    lines.windows(wanted.len()).any(|window| {
        let mut pairs = window.iter().zip(wanted);
        pairs.all(|(line, wanted)| line.starts_with(wanted))
    })
}

const LEADS: &str = ".Lstub: jmp [rip+0x2fba]";

#[test]
fn a_call_into_a_library_stays_in_the_copy_while_the_linkers_slot_stays() {
    let Some((block, lines)) = copy("call .Lstub", LEADS, "inc rbx\n ret", "nop") else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert!(block.is_loop, "{lines:#?}");
    let wanted = [
        "cmp dword ptr [0x403000],0x400060",
        "jne ",
        "cmp dword ptr [0x403004],0",
        "jne ",
        "inc rbx",
    ];
    assert!(has(&lines, &wanted), "{lines:#?}");
    // After a change of the slot, the original jump is executed.
    assert!(
        lines.contains(&"jmp qword ptr [0x403000]".into()),
        "{lines:#?}"
    );
}

#[test]
fn a_moved_linker_slot_is_read_at_its_new_place() {
    // 0x600800 is on the page, which moved by 0x100000.
    let stub = ".Lstub: jmp [rip+0x2007ba]";
    let Some((block, lines)) = copy("call .Lstub", stub, "inc rbx\n ret", "nop") else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert!(block.is_loop, "{lines:#?}");
    assert!(
        has(&lines, &["cmp dword ptr [0x700800],0x400060", "jne "]),
        "{lines:#?}"
    );
    assert!(
        lines.contains(&"jmp qword ptr [0x700800]".into()),
        "{lines:#?}"
    );
}

#[test]
fn a_call_through_an_unexpected_pointer_leaves_the_copy() {
    for (body, compared) in [
        // As compilers call virtual functions, and through the linker's slots without stubs.
        (
            "mov rdx, [rsi]\n call [rdx+0x10]",
            "cmp dword ptr [rdx+0x10],0x400060",
        ),
        (
            "mov rdx, [rsi]\n mov rdx, [rdx+0x10]\n call rdx",
            "cmp rdx,0x400060",
        ),
        ("call [rip+0x2ff7]", "cmp dword ptr [0x403000],0x400060"),
    ] {
        let Some((block, lines)) = copy(body, "nop", "inc rbx\n ret", "nop") else {
            println!("SKIP: there is no assembler");
            return;
        };
        assert!(block.is_loop, "{body}: {lines:#?}");
        // Another pointer is followed with the return address of the original call on the stack.
        let at = lines.iter().position(|l| l == compared);
        let at = at.unwrap_or_else(|| panic!("{body}: {lines:#?}"));
        let leaves = lines[at + 1].strip_prefix("jne 0x");
        let leaves = leaves.unwrap_or_else(|| panic!("{body}: {lines:#?}"));
        let address = u64::from_str_radix(leaves.trim_start_matches('0'), 16);
        let offset = address.expect("a number") - CACHE;
        let (shown, pushed) = (text(&block), format!("{offset:x}: push qword ptr ["));
        let mut behind = shown.lines().skip_while(|l| !l.starts_with(&pushed));
        let wanted = compared.split(',').next().unwrap_or_default();
        let wanted = wanted.replace("cmp ", "jmp ").replace("dword", "qword");
        assert!(
            behind.nth(1).is_some_and(|l| l.ends_with(&wanted)),
            "{shown}"
        );
        assert!(lines.contains(&"inc rbx".into()), "{body}: {lines:#?}");
    }
}

#[test]
fn a_pointer_on_the_moved_page_is_followed_to_all_functions_that_were_met() {
    // The call faults itself, and neither its pointer nor its functions are known at first.
    let Some(code) = program("call [rdi+8]", "inc rdx\n ret", "inc rbx\n ret", "dec rbx") else {
        println!("SKIP: there is no assembler");
        return;
    };
    let call = 3;
    let (page, all) = (moved(), callees(&code));
    let mut asked = request(&code, &all, &page);
    asked.frame.ip = CodeAddress(TEXT + call);
    asked.registers.ip = asked.frame.ip;
    let block = specialise(&asked).expect("the operand moves");
    let alone = text(&block);
    assert!(
        !block.is_loop && alone.contains("jmp qword ptr [rdi+0x101008]"),
        "{alone}"
    );
    // A thread that is stopped at the jump has to take what was pushed off its stack again.
    let pushed: Vec<_> = block.resume.iter().filter(|r| r.pushed == 8).collect();
    assert_eq!(pushed.len(), 1, "{alone}");
    assert_eq!(pushed[0].original.0, TEXT + call);
    assert!(
        alone.contains(&format!("{:x}: jmp", pushed[0].offset)),
        "{alone}"
    );

    let back = CodeAddress(TEXT + call + 3);
    let met = [STUB, LEAF, OTHER].map(|at| Met {
        back,
        function: CodeAddress(TEXT + at),
    });
    asked.met = &met;
    let block = specialise(&asked).expect("the operand moves");
    let shown = text(&block);
    assert!(block.is_loop, "{shown}");
    for wanted in [
        "cmp dword ptr [rdi+0x101008],0x400040",
        "cmp dword ptr [rdi+0x101008],0x400060",
        "cmp dword ptr [rdi+0x101008],0x4000a0",
        "inc rdx",
        "inc rbx",
        "dec rbx",
        "jmp qword ptr [rdi+0x101008]",
    ] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
}

#[test]
fn no_comparison_is_placed_where_flags_are_live() {
    let Some((_, lines)) = copy(
        "cmp rax, rbx\n call .Lstub",
        LEADS,
        "adc rbx, 0\n ret",
        "nop",
    ) else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert!(
        !lines.iter().any(|l| l.contains("[0x403000],")),
        "{lines:#?}"
    );
}

#[test]
fn a_call_to_an_unknown_target_leaves_the_copy() {
    // No known memory tells where rdx points.
    let Some((block, lines)) = copy("mov rdx, [rbp]\n call rdx", "nop", "inc rbx\n ret", "nop")
    else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert!(!block.is_loop, "{lines:#?}");
}

#[test]
fn a_callers_pointer_is_known_from_the_return_address() {
    let Some(code) = program("call [rbp-8]", "nop", "inc qword ptr [rdi]\n ret", "nop") else {
        println!("SKIP: there is no assembler");
        return;
    };
    let (page, all) = (moved(), callees(&code));
    let mut asked = request(&code, &all, &page);
    let outer = Frame {
        // After the call, whose pointer has not been read.
        ip: CodeAddress(TEXT + 6),
        ..asked.frame
    };
    asked.frame = Frame {
        code: all[1],
        ip: CodeAddress(TEXT + LEAF),
    };
    asked.registers.ip = asked.frame.ip;
    let callers = [outer];
    asked.callers = &callers;
    let block = specialise(&asked).expect("the operand moves");
    let text = text(&block);
    assert!(block.is_loop, "{text}");
    assert!(text.contains("cmp dword ptr [rbp-8],0x400060"), "{text}");
}

#[test]
fn a_function_that_ends_in_another_is_followed() {
    for (leaf, compared) in [
        ("inc rbx\n jmp .Lother", false),
        // Like a tail call to a library.
        (".org 0x60\n inc rbx\n jmp .Lstub", true),
    ] {
        let stub = ".Lstub: jmp [rip+0x5fba]";
        let other = ".Lother: dec rbx";
        let Some(code) = program("call .Lleaf", stub, &format!(".Lleaf: {leaf}"), other) else {
            println!("SKIP: there is no assembler");
            return;
        };
        let (page, all) = (moved(), callees(&code));
        let mut asked = request(&code, &all, &page);
        let read = |at: Address, _| (at.0 == TEXT + 0x6000).then_some(TEXT + OTHER);
        asked.memory = Memory(&read);
        let block = specialise(&asked).expect("the operand moves");
        let text = text(&block);
        assert!(block.is_loop, "{text}");
        assert!(text.contains("dec rbx"), "{text}");
        let compares = text.contains("cmp dword ptr [0x406000],0x4000a0");
        assert_eq!(compares, compared, "{text}");
    }
}

#[test]
fn a_kernel_call_without_pointers_is_made_in_the_copy() {
    for (leaf, made) in [
        ("mov eax, 24\n syscall\n cmp rax, -4095\n ret", true),
        // It writes memory; its number is not known; another path leads to it.
        ("mov eax, 1\n syscall\n ret", false),
        ("mov eax, ebx\n syscall\n ret", false),
        (
            "test eax, eax\n jz 5f\n mov eax, 24\n5: syscall\n ret",
            false,
        ),
    ] {
        let Some((block, lines)) = copy("call .Lleaf", "nop", &format!(".Lleaf: {leaf}"), "nop")
        else {
            println!("SKIP: there is no assembler");
            return;
        };
        assert_eq!(block.is_loop, made, "{leaf}: {lines:#?}");
        // rcx has the value that the original call would leave there.
        assert_eq!(
            has(&lines, &["syscall", "mov rcx,["]),
            made,
            "{leaf}: {lines:#?}"
        );
        let constants = &block.bytes[..block.resume[0].offset as usize];
        let mut words = constants
            .chunks(8)
            .map(|w| w.try_into().map_or(0, u64::from_le_bytes));
        assert_eq!(
            words.any(|w| w == TEXT + LEAF + 7),
            made,
            "{leaf}: {lines:#?}"
        );
    }
}

#[test]
fn a_thread_that_is_stopped_behind_a_kernel_call_has_made_it() {
    let leaf = ".Lleaf: mov eax, 24\n syscall\n ret";
    let Some((block, lines)) = copy("call .Lleaf", "nop", leaf, "nop") else {
        println!("SKIP: there is no assembler");
        return;
    };
    let call = lines
        .iter()
        .position(|l| l == "syscall")
        .expect("it is made");
    assert_eq!(block.resume[call].original.0, TEXT + LEAF + 5);
    assert_eq!(block.resume[call + 1].original.0, TEXT + LEAF + 7);
}

/// As a bounds check of Rust or an assertion: the call in the part that nothing comes back from is not
/// copied, and neither is a function that is all like that.
#[test]
fn calls_that_only_report_a_failure_are_not_followed() {
    let called = |source: &str| {
        let bytes = assemble(source)?;
        let code = Code {
            start: CodeAddress(TEXT),
            bytes: &bytes,
        };
        let ip = CodeAddress(TEXT);
        let called = call_targets(&Frame { code, ip }, Memory(&read), &moved());
        let all: Vec<u64> = called.all.iter().map(|at| at.0 - TEXT).collect();
        Some((all, called.ends))
    };
    // Calls to 0x100 and 0x200 from here; the assembler counts from its own beginning.
    let checked = "cmp rdi, rsi\n ja 1f\n call .+0x100\n ret\n 1: call .+0x200\n ud2";
    let Some(checked) = called(checked) else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert_eq!(checked.0.len(), 1, "{checked:x?}");
    assert!(checked.0[0] < 0x200 && checked.1, "{checked:x?}");
    let fails = called("sub rsp, 8\n call .+0x100\n ud2").expect("assembled");
    assert_eq!(fails, (Vec::new(), false));
    // What it ends in may come back.
    let leaves = called("sub rsp, 8\n call .+0x100\n add rsp, 8\n jmp .+0x200").expect("assembled");
    assert_eq!((leaves.0.len(), leaves.1), (2, true));
}

#[test]
fn more_targets_lists_the_functions_that_a_copy_could_include() {
    let body = "call .Lstub\n mov rdx, [r12]\n call [rdx+0x10]";
    let Some(code) = program(body, LEADS, "inc rbx\n ret", "nop") else {
        println!("SKIP: there is no assembler");
        return;
    };
    let (page, all) = (moved(), callees(&code));
    let own = request(&code, &[], &page);
    let called = call_targets(&own.frame, Memory(&read), &page);
    let stub = CodeAddress(TEXT + STUB);
    assert_eq!(called.all, [stub]);
    assert_eq!(called.looped, Some(vec![stub]));
    let leaf = CodeAddress(TEXT + LEAF);
    let frame = Frame {
        code: all[0],
        ip: stub,
    };
    let called = call_targets(&frame, Memory(&read), &page);
    assert_eq!((called.all, called.looped), (vec![leaf], None));
    // The table is known from a register that functions preserve.
    let leads = |back: u64| Met {
        back: CodeAddress(TEXT + back),
        function: leaf,
    };
    assert_eq!(more_targets(&own), [leads(15)]);
    // The stub's jump is code of the request, too.
    let more = more_targets(&request(&code, &all, &page));
    assert_eq!(more, [leads(15), leads(STUB + 6)]);
    for (source, is) in [
        ("jmp [rip+8]", true),
        ("endbr64\n bnd jmp [rip+8]", true),
        ("jmp [rax]", false),
        ("jmp .+8", false),
        ("nop\n jmp [rip+8]", false),
    ] {
        let Some(bytes) = assemble(source) else {
            return;
        };
        let code = Code {
            start: CodeAddress(TEXT),
            bytes: &bytes,
        };
        assert_eq!(is_linker_stub(code), is, "{source}");
    }
}

#[test]
fn only_hooks_after_harmless_kernel_calls_are_ignored() {
    for (source, number, overlooked) in [
        ("syscall\n cmp rax, -4095\n ret", 24, true),
        // This kernel call takes a pointer.
        ("syscall\n cmp rax, -4095\n ret", 1, false),
        // The jump overwrites two instructions.
        ("syscall\n mov rbx, rax\n mov rdx, rax\n ret", 24, false),
        // The jump is not directly after the kernel call.
        ("syscall\n nop\n cmp rax, -4095\n ret", 24, false),
    ] {
        let Some(file) = assemble(&format!("mov eax, {number}\n {source}")) else {
            println!("SKIP: there is no assembler");
            return;
        };
        let mut hooked = file.clone();
        let at = if source.contains("nop") { 8 } else { 7 };
        hooked[at..at + 5].copy_from_slice(&[0xe9, 1, 2, 3, 4]);
        let code = Code {
            start: CodeAddress(TEXT),
            bytes: &hooked,
        };
        assert_eq!(without_hooks(code, &file).is_some(), overlooked, "{source}");
    }
}
