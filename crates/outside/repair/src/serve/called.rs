//! The code around an instruction that belongs into its copy: the functions that have called its own, and
//! those that its loop calls.

use super::memo::Memo;
use crate::code::TargetCode;
use sunder_access::{Address, CodeAddress};
use sunder_rewrite::{
    Called, Code, Frame, Memory, Met, MovedPage, Registers, Request, call_targets, more_targets,
    return_slot,
};

/// Most calls that are remembered. Calls of one place that lead to several functions are made
/// through a pointer that changes.
pub const MOST_CALLS: usize = 256;

/// Most functions that are copied with a loop because it calls them, directly or through others.
const MOST_CALLED: usize = 40;
/// Rounds of following pointers to functions: code that one pointer leads to may hold another.
const MOST_POINTERS: usize = 3;
/// Most callers of an instruction's function in which its loop is looked for.
const MOST_CALLERS: usize = 3;
/// Most bytes of a called function that is copied.
const LONGEST_CALLED: usize = 2048;

/// The callers of `own` on a thread's stack, found by return addresses: start of each function, its
/// bytes, and the return address in it.
pub fn callers(
    code: &TargetCode,
    memo: &Memo,
    own: Code<'_>,
    registers: Registers,
) -> Vec<(u64, Vec<u8>, u64)> {
    let mut found: Vec<(u64, Vec<u8>, u64)> = Vec::new();
    let mut rsp = registers.general[4];
    for depth in 0..MOST_CALLERS {
        let read = |at: Address, width| code.number(at.0, width);
        let memory = Memory(&read);
        let (within, ip) = match depth.checked_sub(1).and_then(|last| found.get(last)) {
            None => (own, registers.ip),
            Some((start, bytes, back)) => {
                let caller = Code {
                    start: CodeAddress(*start),
                    bytes,
                };
                (caller, CodeAddress(*back))
            }
        };
        let place = (within.start.0, ip.0);
        let slot = memo.slot(place, || return_slot(within, ip, memory));
        let Some(slot) = slot else { break };
        let at = rsp.wrapping_add_signed(slot);
        let back = code.word(at);
        let Some((back, (start, bytes))) = back.and_then(|b| Some((b, code.function(b)?))) else {
            break;
        };
        rsp = at.wrapping_add(8);
        found.push((start, bytes, back));
    }
    found
}

/// Functions: start address and bytes.
pub type Functions = Vec<(u64, Vec<u8>)>;

/// The same as code.
pub fn codes(functions: &Functions) -> Vec<Code<'_>> {
    let codes = functions.iter().map(|(start, bytes)| Code {
        start: CodeAddress(*start),
        bytes,
    });
    codes.collect()
}

/// The calls that the instruction's function makes, and those of its callers, the innermost first, up to
/// the outermost function whose own loop the thread is in. Empty if it is in no loop. What is known of
/// functions from earlier questions about the area comes from `memo`.
pub fn calls_in_loops(
    code: &TargetCode,
    (memo, area): (&Memo, usize),
    request: &Request<'_>,
) -> Vec<Called> {
    let read = |at: Address, width| code.number(at.0, width);
    let frames = std::iter::once(&request.frame).chain(request.callers);
    let calls = frames.map(|frame| {
        let place = (frame.code.start.0, frame.ip.0);
        let found = || call_targets(frame, Memory(&read), request.moved);
        memo.called(area, place, found)
    });
    let mut calls: Vec<Called> = calls.collect();
    let outermost = calls.iter().rposition(|called| called.looped.is_some());
    calls.truncate(outermost.map_or(0, |at| at + 1));
    calls
}

/// The short functions among `calls`, those of the outermost loop and of the functions within it, and
/// those that they call. Also the request's calls through pointers to such functions, with those
/// that were met before.
pub fn called_functions(
    code: &TargetCode,
    request: &Request<'_>,
    mut calls: Vec<Called>,
) -> (Functions, Vec<Met>) {
    let looped = calls.pop().and_then(|outermost| outermost.looped);
    let inner = calls.into_iter().flat_map(|called| called.all);
    let mut open: Vec<CodeAddress> = inner.chain(looped.unwrap_or_default()).collect();
    let mut found = Functions::new();
    let mut met = request.met.to_vec();
    // The target of a pointer may be known only from the code around another pointer's target.
    for _ in 0..MOST_POINTERS {
        let before = found.len();
        add_called(code, &mut found, std::mem::take(&mut open), request.moved);
        let callees = codes(&found);
        let read = |at: Address, width| code.number(at.0, width);
        let more = more_targets(&Request {
            callees: &callees,
            met: &met,
            memory: Memory(&read),
            ..*request
        });
        let is_new = |at: &CodeAddress| !callees.iter().any(|code| code.start == *at);
        open = more.iter().map(|met| met.function).filter(is_new).collect();
        for one in more {
            if met.len() < MOST_CALLS && !met.contains(&one) {
                met.push(one);
            }
        }
        if open.is_empty() || before > 0 && found.len() == before {
            break;
        }
    }
    (found, met)
}

/// Adds the functions at `open`, and those that they call.
fn add_called(
    code: &TargetCode,
    found: &mut Functions,
    mut open: Vec<CodeAddress>,
    moved: &MovedPage,
) {
    let mut next = 0;
    while let Some(target) = open
        .get(next)
        .copied()
        .filter(|_| found.len() < MOST_CALLED)
    {
        next += 1;
        if found.iter().any(|(start, _)| *start == target.0) {
            continue;
        }
        let function = code.beginning(target.0);
        let Some((start, bytes)) = function.filter(|f| f.1.len() <= LONGEST_CALLED) else {
            continue;
        };
        let inner = Code {
            start: CodeAddress(start),
            bytes: &bytes,
        };
        let read = |at: Address, width| code.number(at.0, width);
        let frame = Frame {
            code: inner,
            ip: target,
        };
        let calls = call_targets(&frame, Memory(&read), moved);
        // From a function without an end a thread does not come back to the loop.
        if calls.ends {
            open.extend(calls.all);
            found.push((start, bytes));
        }
    }
}
