//! Executes a program unchanged and with a moved page, and compares. The page is protected, and
//! each fault is answered by a copy, as the tool would do it. Called by the tests. It must not
//! decide anything about copies: it does what the rewriter says.

use super::program::{
    APART, BASE, BYTES, CACHE, CONTEXT, END, FIRST, GROUP, GROUP_BYTES, INNER, LEAF, LOOP, MORE,
    MORE_BYTES, ON_PAGE, OTHER, PAGE, POOL, PRIVATE, SAVES, SLOT, STACK, STUB, Step, UNDERLAY, Way,
    program,
};
use crate::support;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use sunder_access::{Address, CodeAddress, Span};
use sunder_rewrite::{
    Block, Code, Condition, Draft, Frame, Memory, Met, MovedPage, Refusal, Registers, Request,
    Resume, Rule, Seen, more_targets, return_slot,
};

/// More faults would mean that threads leave copies again at once.
const MOST_FAULTS: usize = 400;

/// Flags that some instructions of the loops leave undefined.
const FLAGS: u64 = 0xcc1;

/// The execution with a moved page, as the handler of its faults sees it.
struct Execution {
    moved: MovedPage,
    seen: Vec<Seen>,
    met: Vec<Met>,
    blocks: Vec<(u64, Block)>,
    next: u64,
    faults: usize,
    refusal: Option<Refusal>,
    code: Vec<u8>,
    groups: Groups,
    conduct: Conduct,
    /// Whether the bytes were put back.
    is_back: bool,
    steps: u64,
}

/// Groups of the page: offset, length, and new place.
pub type Groups = Vec<(u64, u64, u64)>;

/// The processor stops after each instruction.
const TRAP: i64 = 0x100;
/// String instructions go downwards.
const DOWNWARDS: i64 = 0x400;

static ONE: Mutex<()> = Mutex::new(());
static mut RUN: Option<Execution> = None;

/// The execution, for the handlers and the test that starts it: never two of them at the same time.
const fn running() -> *mut Option<Execution> {
    &raw mut RUN
}
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// The positions of the registers in a signal context, by register number.
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
    // SAFETY: the kernel passes a valid context; the run belongs to this thread, which executes
    // code of the test and holds no lock.
    unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        let registers = &mut context.uc_mcontext.gregs;
        let run = (&mut *running())
            .as_mut()
            .filter(|_| ACTIVE.load(Ordering::SeqCst));
        let Some(run) = run else {
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
            return;
        };
        let mut now = Registers {
            general: ORDER.map(|place| registers[place as usize] as u64),
            ip: CodeAddress(registers[libc::REG_RIP as usize] as u64),
        };
        now = original(run, now);
        for (place, value) in ORDER.iter().zip(now.general) {
            registers[*place as usize] = value as i64;
        }
        if run.conduct.thrown.is_some() {
            registers[libc::REG_EFL as usize] |= TRAP;
        }
        let downwards = registers[libc::REG_EFL as usize] & DOWNWARDS != 0;
        registers[libc::REG_RIP as usize] = match answer(run, now, downwards) {
            Ok(to) => to as i64,
            Err(Refusal::Operand(ip) | Refusal::Straddles(ip)) if run.conduct.goes_back => {
                put_back(run);
                ip.0 as i64
            }
            Err(refusal) => {
                run.refusal = Some(refusal);
                END as i64
            }
        };
    }
}

/// Sends a thread that has done one more instruction to the original, if it is its turn.
extern "C" fn step(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: as for `fault`.
    unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        let registers = &mut context.uc_mcontext.gregs;
        let run = (&mut *running())
            .as_mut()
            .filter(|_| ACTIVE.load(Ordering::SeqCst));
        let ip = registers[libc::REG_RIP as usize] as u64;
        let is_over = (END..CACHE).contains(&ip);
        let Some(run) = run.filter(|_| !is_over) else {
            registers[libc::REG_EFL as usize] &= !TRAP;
            return;
        };
        let Some((each, left)) = &mut run.conduct.thrown else {
            return;
        };
        if ip < CACHE || *left == 0 {
            return;
        }
        run.steps += 1;
        if !run.steps.is_multiple_of(*each) {
            return;
        }
        *left -= 1;
        let now = Registers {
            general: ORDER.map(|place| registers[place as usize] as u64),
            ip: CodeAddress(ip),
        };
        let now = original(run, now);
        for (place, value) in ORDER.iter().zip(now.general) {
            registers[*place as usize] = value as i64;
        }
        registers[libc::REG_RIP as usize] = now.ip.0 as i64;
    }
}

/// The page with the present bytes of its groups.
fn gathered(groups: &Groups) -> Vec<u8> {
    let mut page = bytes(UNDERLAY, 4096);
    for &(at, len, to) in groups {
        page[at as usize..(at + len) as usize].copy_from_slice(&bytes(to, len));
    }
    page
}

fn put_back(run: &mut Execution) {
    let page = gathered(&run.groups);
    protect(PAGE, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: the memory belongs to the run.
    unsafe { std::ptr::copy_nonoverlapping(page.as_ptr(), PAGE as *mut u8, 4096) };
    run.is_back = true;
}

/// The registers in the original code of a thread that is perhaps in the code cache.
fn original(run: &Execution, mut now: Registers) -> Registers {
    for (at, block) in &run.blocks {
        let offset = now.ip.0.wrapping_sub(*at);
        if offset < block.bytes.len() as u64 {
            let place: Option<&Resume> =
                block.resume.iter().find(|r| u64::from(r.offset) == offset);
            let place = place.expect("a thread stops before an instruction");
            let [_, _, _, _, rsp, ..] = now.general;
            place.restore(&mut now.general, read(Address(rsp), 8).unwrap_or(0));
            now.ip = place.original;
            return now;
        }
    }
    now
}

/// Memory of the run, as the tool would read it.
fn read(at: Address, width: u64) -> Option<u64> {
    let inside = (BASE..BASE + BYTES - 8).contains(&at.0);
    let on_page = at.0 & !0xfff == PAGE;
    let mut bytes = [0; 8];
    if !inside || on_page || width > 8 {
        return None;
    }
    // SAFETY: the memory belongs to the run and is not protected.
    unsafe {
        std::ptr::copy_nonoverlapping(at.0 as *const u8, bytes.as_mut_ptr(), width as usize);
    }
    Some(u64::from_le_bytes(bytes))
}

/// At each so many faults a copy with all ways is asked for.
pub const AGAIN: usize = 4;

fn answer(run: &mut Execution, now: Registers, downwards: bool) -> Result<u64, Refusal> {
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
        function(INNER, OTHER),
        function(OTHER, STUB),
        function(STUB, END),
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
        // After a return to another address nothing is known.
        let Some(slot) = return_slot(inner.code, inner.ip, Memory(&read)) else {
            break;
        };
        let at = rsp.wrapping_add_signed(slot);
        // SAFETY: the address is on the test's own stack.
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
        loops: None,
        callees: &functions[1..],
        registers: now,
        downwards,
        // The handler of faults asks for that after many of them.
        whole: run.faults.is_multiple_of(AGAIN),
        compares_all: run.conduct.compares_all,
        moved: &run.moved,
        seen: &run.seen,
        alone: &[],
        met: &run.met,
        memory: Memory(&read),
        near: CodeAddress(if run.conduct.is_far { 1 << 40 } else { CACHE }),
    };
    let mut met = run.met.clone();
    met.extend(more_targets(&request));
    met.sort_unstable();
    met.dedup();
    let request = Request {
        met: &met,
        ..request
    };
    // As the tool does it, the place is chosen when the draft is there.
    let block = Draft::of(&request)?.block(CodeAddress(run.next))?;
    // The block's own conditions must allow this thread to enter.
    let fits = block.entries.iter().any(|entry| {
        entry.original == now.ip
            && entry.offset == block.entry
            && entry.conditions.iter().all(|condition| match *condition {
                Condition::Register(r, low, high) => (low..=high).contains(&now.get(r)),
                Condition::Steps(r, low, high, step) => {
                    let value = now.get(r);
                    (low..=high).contains(&value) && (value - low).is_multiple_of(step)
                }
                Condition::Stack(offset, value) => {
                    let at = now.general[4].wrapping_add_signed(offset);
                    // SAFETY: the address is on the test's own stack.
                    value == unsafe { *(at as *const u64) }
                }
            })
    });
    assert!(fits, "{block:x?}");
    // SAFETY: the cache belongs to the test, and is writable and executable.
    unsafe {
        std::ptr::copy_nonoverlapping(block.bytes.as_ptr(), run.next as *mut u8, block.bytes.len());
    }
    let to = run.next + u64::from(block.entry);
    let at = run.next;
    run.next += (block.bytes.len() as u64).next_multiple_of(64);
    run.seen.push(block.seen);
    run.met = met;
    run.blocks.push((at, block));
    Ok(to)
}

fn bytes(at: u64, len: u64) -> Vec<u8> {
    // SAFETY: the memory belongs to the run.
    unsafe { std::slice::from_raw_parts(at as *const u8, len as usize) }.to_vec()
}

fn protect(at: u64, protection: i32) {
    // SAFETY: the memory belongs to the run, and nothing else uses it.
    let done = unsafe { libc::mprotect(at as *mut libc::c_void, 4096, protection) };
    assert_eq!(done, 0);
}

/// Fills all memory with values that depend on the address only, and writes the code there,
/// with a slot that leads to `function`.
fn prepare(code: &[u8], function: u64) {
    protect(PAGE, libc::PROT_READ | libc::PROT_WRITE);
    let fill = |from: u64, len: u64| {
        for at in (from..from + len).step_by(8) {
            let value = (at.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 9;
            // SAFETY: the memory belongs to the run.
            unsafe { *(at as *mut u64) = value };
        }
    };
    fill(PAGE - 0x1000, 0x5000);
    fill(PRIVATE, 0x4000);
    fill(STACK - 0x4000, 0x4000);
    // SAFETY: the memory belongs to the run.
    unsafe {
        std::ptr::copy_nonoverlapping(code.as_ptr(), BASE as *mut u8, code.len());
        *((PRIVATE + 0x1000 - 8) as *mut u64) = PAGE + GROUP;
        *((PRIVATE + 0x1000 - 16) as *mut u64) = PAGE + GROUP;
        *((PRIVATE + 0x1000 - 24) as *mut u64) = PRIVATE + 0x1000 - 8;
        *((PRIVATE + 0x1000 - 40) as *mut u64) = PRIVATE + 0x3000;
        *((PRIVATE + 0x1000 - 64) as *mut u64) = PAGE + GROUP;
        *((PRIVATE + 0x1000 - 72) as *mut u64) = PRIVATE + 0x3000;
        *(SLOT as *mut u64) = function;
        *((SLOT - 16) as *mut u64) = function;
        *((PAGE + ON_PAGE) as *mut u64) = function;
        for number in 0..MORE {
            let slot = PRIVATE + 0x1000 - 208 + 8 * number;
            *(slot as *mut u64) = PAGE + FIRST + APART * number;
        }
        *((SLOT - 24) as *mut u64) = OTHER;
        *((PRIVATE + 0x1000 - 48) as *mut u64) = 2;
        *((PRIVATE + 0x1000 - 56) as *mut u64) = 1;
        // For functions with frames: a pointer to the group, the address of their first slot
        // (below the return address and rbp), a small number.
        *((PRIVATE + 0x2000) as *mut u64) = PAGE + GROUP;
        *((PRIVATE + 0x2000 + 8) as *mut u64) = STACK - 0x100 - 24;
        *((PRIVATE + 0x2000 + 16) as *mut u64) = 3;
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
    // SAFETY: the code was written there, and follows the calling convention.
    unsafe {
        let code: extern "C" fn() = std::mem::transmute(BASE as *const ());
        code();
    }
}

/// Registers, flags, the page and other memory after a run.
type After = (Vec<u8>, u64, Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>);

fn after(page: Vec<u8>) -> After {
    let flags = bytes(SAVES + 128, 8);
    let flags = u64::from_le_bytes(flags.try_into().expect("eight bytes"));
    (
        bytes(SAVES, 128),
        flags & FLAGS,
        page,
        bytes(PRIVATE, 0x4000),
        bytes(STACK - 0x100, 0x100),
        [bytes(PAGE - 0x1000, 0x1000), bytes(PAGE + 0x1000, 0x3000)].concat(),
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

pub fn compare(steps: &[Step], leaf: &[Step], rounds: u32) -> Option<usize> {
    compare_deep([steps, leaf, &[]], rounds)
}

pub fn compare_deep(parts: [&[Step]; 3], rounds: u32) -> Option<usize> {
    compare_through(parts, [Way::Direct; 2], rounds)
}

/// The number of faults of the loop with a function and one that this calls; `None` without an
/// assembler.
pub fn compare_through(parts: [&[Step]; 3], ways: [Way; 2], rounds: u32) -> Option<usize> {
    let function = if ways[0] == Way::Direct { INNER } else { LEAF };
    compare_source(&program(parts, ways, rounds), function)
}

pub fn compare_source(source: &str, function: u64) -> Option<usize> {
    let more = (0..MORE).map(|n| (FIRST + APART * n, MORE_BYTES));
    let groups = [(GROUP, GROUP_BYTES)].into_iter().chain(more);
    let groups = groups.map(|(from, len)| (from, len, POOL + from)).collect();
    compare_divided(source, function, groups, Conduct::default())
}

/// The loop without functions, with copies that are made as if they lay out of the code's reach, and of
/// which the thread is sent to the original now and then.
pub fn compare_far(steps: &[Step], rounds: u32, thrown: (u64, u32)) -> Option<usize> {
    let source = program([steps, &[], &[]], [Way::Direct; 2], rounds);
    let conduct = Conduct {
        is_far: true,
        thrown: Some(thrown),
        ..Conduct::default()
    };
    let groups = vec![(GROUP, GROUP_BYTES, POOL + GROUP)];
    compare_divided(&source, INNER, groups, conduct)
}

/// The loop and its functions, in copies that compare each address with all groups.
pub fn compare_with_all(parts: [&[Step]; 3], rounds: u32) -> Option<usize> {
    let groups = vec![
        (GROUP, GROUP_BYTES, POOL + GROUP),
        (FIRST, MORE_BYTES, POOL + FIRST),
    ];
    let conduct = Conduct {
        compares_all: true,
        ..Conduct::default()
    };
    compare_divided(
        &program(parts, [Way::Direct; 2], rounds),
        INNER,
        groups,
        conduct,
    )
}

/// How copies are made and executed.
#[derive(Clone, Copy, Default)]
pub struct Conduct {
    /// An instruction that can't be redirected puts the bytes back.
    pub goes_back: bool,
    /// Each how many steps a thread in a copy is sent to the original, and how often still.
    pub thrown: Option<(u64, u32)>,
    /// They are made as if they lay out of the code's reach.
    pub is_far: bool,
    /// As `Request::compares_all`.
    pub compares_all: bool,
}

/// The same with these groups, ascending.
pub fn compare_divided(
    source: &str,
    function: u64,
    groups: Groups,
    conduct: Conduct,
) -> Option<usize> {
    let _one = ONE.lock().unwrap_or_else(|e| e.into_inner());
    let code = support::assemble_at(BASE, source)?;
    // SAFETY: nothing else is mapped at this address, which only the test uses.
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
    prepare(&code, function);
    execute();
    let wanted = after(bytes(PAGE, 4096));

    prepare(&code, function);
    let page = bytes(PAGE, 4096);
    let mut rules = Vec::new();
    let mut done = 0;
    for &(from, len, to) in &groups {
        rules.push(rule(done, from - done, UNDERLAY + done));
        rules.push(rule(from, len, to));
        done = from + len;
    }
    rules.push(rule(done, 4096 - done, UNDERLAY + done));
    rules.retain(|rule| rule.bytes.len > 0);
    let moved = MovedPage {
        page: Span {
            start: Address(PAGE),
            len: 4096,
        },
        rules,
    };
    // SAFETY: the memory belongs to the run; the handler is set in this process only.
    unsafe {
        std::ptr::copy_nonoverlapping(page.as_ptr(), UNDERLAY as *mut u8, 4096);
        for &(at, len, to) in &groups {
            let from = page.as_ptr().add(at as usize);
            std::ptr::copy_nonoverlapping(from, to as *mut u8, len as usize);
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSEGV, &raw const action, std::ptr::null_mut());
        action.sa_sigaction = step as *const () as usize;
        libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut());
        RUN = Some(Execution {
            moved,
            seen: Vec::new(),
            met: Vec::new(),
            blocks: Vec::new(),
            next: CACHE,
            faults: 0,
            refusal: None,
            code: code.clone(),
            groups,
            conduct,
            is_back: false,
            steps: 0,
        });
    }
    protect(PAGE, libc::PROT_NONE);
    ACTIVE.store(true, Ordering::SeqCst);
    execute();
    ACTIVE.store(false, Ordering::SeqCst);
    // SAFETY: no handler is running any more.
    let run = unsafe { (&mut *running()).take() }.expect("it was set");
    assert_eq!(run.refusal, None, "{source}");
    let page = if run.is_back {
        bytes(PAGE, 4096)
    } else {
        gathered(&run.groups)
    };
    let got = after(page);
    assert_eq!(got.0, wanted.0, "registers differ:\n{source}");
    assert!(got == wanted, "flags or memory differ:\n{source}");
    Some(run.faults)
}
