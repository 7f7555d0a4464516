//! Drafts a copy of code for a thread that has faulted: reads the functions around its instruction, and
//! decides which code is copied and how. That takes milliseconds, and several threads of the tool
//! do it at the same time, so it must change nothing that they share; giving the copy its place is
//! left to the caller.

use super::called::{called_functions, callers, calls_in_loops, codes};
use super::memo::Memo;
use crate::code::TargetCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use sunder_access::{Address, CodeAddress};
use sunder_rewrite::{Code, Draft, Frame, Memory, Met, MovedPage, Registers, Request, Seen};

/// The question of a thread that has faulted on moved bytes.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The number of the area.
    pub area: usize,
    pub thread: u32,
    pub registers: Registers,
    /// The address that its instruction could not access.
    pub address: u64,
    /// Whether its string instructions go downwards.
    pub downwards: bool,
    /// Whether threads come back to known copies very often.
    pub again: bool,
}

impl Question {
    /// As it is in the control file, where the program may change it at any time.
    pub fn of(request: &sunder_wire::remap::Request) -> Self {
        let number = |word: &std::sync::atomic::AtomicU64| word.load(Ordering::Relaxed);
        Self {
            area: request.area.load(Ordering::Relaxed) as usize,
            thread: request.thread.load(Ordering::Relaxed),
            registers: Registers {
                general: std::array::from_fn(|i| number(&request.general[i])),
                ip: CodeAddress(number(&request.ip)),
            },
            address: number(&request.address),
            downwards: request.downwards.load(Ordering::Relaxed) != 0,
            again: request.again.load(Ordering::Relaxed) != 0,
        }
    }
}

/// What was known of an area and the thread when it asked.
#[derive(Clone, Debug)]
pub struct Known {
    pub moved: Arc<MovedPage>,
    /// Where the area's copies of code begin.
    pub near: CodeAddress,
    /// The thread's faults for which loops were copied.
    pub seen: Vec<Seen>,
    /// Those for which single instructions were.
    pub alone: Vec<Seen>,
    /// Calls that threads were in when they asked.
    pub met: Vec<Met>,
}

/// What making the draft has taught.
#[derive(Debug)]
pub struct Learnt {
    /// Where the function of the instruction begins.
    pub function: u64,
    /// All calls through pointers, with the known ones, if calls were looked at.
    pub met: Option<Vec<Met>>,
}

/// How a copy is made.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Of the instruction alone, at which the thread has faulted, and not of the code around it.
    pub alone: bool,
    /// As [`Request::compares_all`].
    pub compares_all: bool,
}

/// Drafts a copy of the code at which the thread has faulted, and gives it to `place`.
///
/// # Errors
/// If there can be none: why; or what `place` says.
pub fn drafted<T>(
    (code, memo): (&TargetCode, &Memo),
    known: &Known,
    question: &Question,
    how: How,
    place: impl FnOnce(&Draft<'_>, Learnt) -> Result<T, String>,
) -> Result<T, String> {
    let registers = question.registers;
    let ip = registers.ip;
    let unreadable = || format!("the code at {:#x} can't be read", ip.0);
    let (start, bytes) = code.function(ip.0).ok_or_else(unreadable)?;
    let own = Code {
        start: CodeAddress(start),
        bytes: &bytes,
    };
    let calling = match how.alone {
        true => Vec::new(),
        false => callers(code, memo, own, registers),
    };
    let callers: Vec<Frame<'_>> = calling
        .iter()
        .map(|(start, bytes, back)| Frame {
            code: Code {
                start: CodeAddress(*start),
                bytes,
            },
            ip: CodeAddress(*back),
        })
        .collect();
    let nothing = |_: Address, _| None;
    let mut request = Request {
        frame: Frame { code: own, ip },
        callers: &callers,
        loops: None,
        callees: &[],
        registers,
        downwards: question.downwards,
        whole: question.again,
        compares_all: how.compares_all,
        moved: &known.moved,
        seen: &known.seen,
        alone: &known.alone,
        met: &known.met,
        memory: Memory(&nothing),
        near: known.near,
    };
    let calls = match how.alone {
        true => Vec::new(),
        false => calls_in_loops(code, (memo, question.area), &request),
    };
    // Loops of callers further out are not copied.
    request.callers = &callers[..calls.len().saturating_sub(1)];
    let is_in_loop = !calls.is_empty();
    let loops: Vec<bool> = calls.iter().map(|called| called.looped.is_some()).collect();
    request.loops = Some(&loops);
    let (callees, met) = match is_in_loop {
        true => called_functions(code, &request, calls),
        false => Default::default(),
    };
    let callees = codes(&callees);
    let memory = |at: Address, width| code.number(at.0, width);
    request.callees = &callees;
    request.met = &met;
    request.memory = Memory(&memory);
    let draft = match is_in_loop {
        true => Draft::of(&request),
        false => Draft::alone(&request),
    };
    let draft = draft.map_err(|refusal| refusal.to_string())?;
    let learnt = Learnt {
        function: start,
        met: is_in_loop.then(|| met.clone()),
    };
    place(&draft, learnt)
}
