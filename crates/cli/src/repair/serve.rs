//! Answers threads of the program that could not reach moved bytes: makes copies of
//! their code. A thread of ours does nothing else, since theirs wait.

use super::code::TargetCode;
use super::control::ControlFile;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use sunder_access::{Address, CodeAddress, ProcessId};
use sunder_findings::RewrittenCode;
use sunder_rewrite::{
    Block, Code, Condition, Frame, Memory, MovedPage, Registers, Request, Seen, call_targets,
    return_slot, specialise,
};
use sunder_wire::remap::{
    ANSWERED, ASKED, CACHE, CONDITIONS, Control, ENTRIES, RESUMES, STACK, bucket,
};

/// What is remembered of one thread's faults.
const MOST_SEEN: usize = 256;
/// Copies of one area.
const MOST_BLOCKS: u32 = 1024;

/// What is known of a range of pages that has moved.
struct MovedArea {
    moved: MovedPage,
    /// Where its code lies.
    at: u64,
    /// Bytes of code so far.
    used: u64,
    blocks: u32,
    seen: HashMap<u32, Vec<Seen>>,
    code: BTreeMap<u64, RewrittenCode>,
    refusal: Option<String>,
}

/// Functions that a loop calls, and that these call, and that are copied with it.
const MOST_CALLED: usize = 32;
/// Functions around the one of an instruction in which its loop may be.
const MOST_CALLERS: usize = 3;
/// Bytes of such a function.
const LONGEST_CALLED: usize = 2048;

struct State {
    code: TargetCode,
    areas: HashMap<usize, MovedArea>,
}

struct Shared {
    file: Arc<ControlFile>,
    state: Mutex<State>,
    stop: AtomicBool,
}

/// See the module's head. Ends with this value.
pub struct Server {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Begins to answer threads of `process`.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(file: Arc<ControlFile>, process: ProcessId) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            file,
            state: Mutex::new(State {
                code: TargetCode::new(process),
                areas: HashMap::new(),
            }),
            stop: AtomicBool::new(false),
        });
        let its = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("sunder-repair".into())
            .spawn(move || its.serve())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// These pages are about to move, as area `number`; their code will lie at `at`.
    pub fn moves(&self, number: usize, moved: MovedPage, at: u64) {
        let area = MovedArea {
            moved,
            at,
            used: 0,
            blocks: 0,
            seen: HashMap::new(),
            code: BTreeMap::new(),
            refusal: None,
        };
        self.shared.lock().areas.insert(number, area);
    }

    /// What was made for area `number`, by function, and why something could not be.
    pub fn told(&self, number: usize) -> (Vec<(u64, RewrittenCode)>, Option<String>) {
        let state = self.shared.lock();
        state.areas.get(&number).map_or_else(Default::default, |a| {
            let code = a.code.iter().map(|(&at, code)| (at, code.clone()));
            (code.collect(), a.refusal.clone())
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        wake(&self.shared.file.control().bell);
        if let Some(thread) = self.thread.take() {
            // A panic there was told when it came.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let control = self.file.control();
        while !self.stop.load(Ordering::Acquire) {
            let rung = control.bell.load(Ordering::Acquire);
            let mut answered = false;
            for request in &control.requests {
                if request.state.load(Ordering::Acquire) == ASKED {
                    let answer = self.answer(request).unwrap_or(0);
                    request.answer.store(answer, Ordering::Relaxed);
                    // It may have given up.
                    let _ = request.state.compare_exchange(
                        ASKED,
                        ANSWERED,
                        Ordering::AcqRel,
                        Ordering::Relaxed,
                    );
                    wake(&request.state);
                    answered = true;
                }
            }
            if !answered {
                wait(&control.bell, rung);
            }
        }
    }

    /// Where the thread goes on; none if it can't.
    fn answer(&self, request: &sunder_wire::remap::Request) -> Option<u64> {
        let number = request.area.load(Ordering::Relaxed) as usize;
        let thread = request.thread.load(Ordering::Relaxed);
        let registers = Registers {
            general: std::array::from_fn(|i| request.general[i].load(Ordering::Relaxed)),
            ip: CodeAddress(request.ip.load(Ordering::Relaxed)),
        };
        let mut state = self.lock();
        let State { code, areas } = &mut *state;
        let area = areas.get_mut(&number)?;
        match area.block(code, thread, registers) {
            Ok(block) => self.publish(number, area, &block),
            Err(why) => {
                area.refusal = Some(why);
                None
            }
        }
    }

    /// Puts a block into the program; where the thread that asked enters it.
    fn publish(&self, number: usize, area: &mut MovedArea, block: &Block) -> Option<u64> {
        let control = self.file.control();
        let offset = area.used;
        if area.blocks >= MOST_BLOCKS || !self.file.write_code(number, offset, &block.bytes) {
            area.refusal = Some("there is no room for more copies of code".into());
            return None;
        }
        let shared = control.areas.get(number)?;
        let first = shared.resume_count.load(Ordering::Relaxed) as usize;
        if first + block.resume.len() > RESUMES {
            area.refusal = Some("there is no room for more copies of code".into());
            return None;
        }
        for (place, resume) in shared.resumes[first..].iter().zip(&block.resume) {
            let at = offset + u64::from(resume.offset);
            place.offset.store(at, Ordering::Relaxed);
            place.original.store(resume.original.0, Ordering::Relaxed);
        }
        let count = (first + block.resume.len()) as u32;
        shared.resume_count.store(count, Ordering::Release);
        area.used = (offset + block.bytes.len() as u64).next_multiple_of(64);
        area.blocks += 1;
        for entry in &block.entries {
            let target = area.at + offset + u64::from(entry.offset);
            publish_entry(control, number, block.is_loop, target, entry);
        }
        Some(area.at + offset + u64::from(block.entry))
    }
}

impl MovedArea {
    fn block(
        &mut self,
        code: &mut TargetCode,
        thread: u32,
        registers: Registers,
    ) -> Result<Block, String> {
        let ip = registers.ip.0;
        let unreadable = || format!("the code at {ip:#x} can't be read");
        let (start, bytes) = code.function(ip).ok_or_else(unreadable)?;
        let own = Code {
            start: CodeAddress(start),
            bytes: &bytes,
        };
        let frame = Frame {
            code: own,
            ip: registers.ip,
        };
        let calling = callers(code, own, registers);
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
        let callees = called(code, frame, &callers);
        let callees: Vec<Code<'_>> = callees
            .iter()
            .map(|(start, bytes)| Code {
                start: CodeAddress(*start),
                bytes,
            })
            .collect();
        let seen = self.seen.entry(thread).or_default();
        let memory = |at: Address, width| code.number(at.0, width);
        let request = Request {
            frame,
            callers: &callers,
            callees: &callees,
            registers,
            moved: &self.moved,
            seen,
            memory: Memory(&memory),
            at: CodeAddress(self.at + self.used),
        };
        let block = specialise(&request).map_err(|refusal| refusal.to_string())?;
        if seen.len() < MOST_SEEN && !seen.contains(&block.seen) {
            seen.push(block.seen);
        }
        let told = self.code.entry(start).or_default();
        told.copies += 1;
        told.loops += u32::from(block.is_loop);
        told.direct = told.direct.max(block.direct);
        told.guarded = told.guarded.max(block.guarded);
        Ok(block)
    }
}

/// The functions that a thread is in, beyond `own` at `registers`, by the return
/// addresses on its stack: where each begins, its bytes, and where it goes on.
fn callers(code: &mut TargetCode, own: Code<'_>, registers: Registers) -> Vec<(u64, Vec<u8>, u64)> {
    let mut found: Vec<(u64, Vec<u8>, u64)> = Vec::new();
    let mut rsp = registers.general[4];
    for depth in 0..MOST_CALLERS {
        let read = |at: Address, width| code.number(at.0, width);
        let memory = Memory(&read);
        let slot = match depth.checked_sub(1).and_then(|last| found.get(last)) {
            None => return_slot(own, registers.ip, memory),
            Some((start, bytes, back)) => {
                let caller = Code {
                    start: CodeAddress(*start),
                    bytes,
                };
                return_slot(caller, CodeAddress(*back), memory)
            }
        };
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

/// The functions that these call, and those that they call, if they are short.
fn called(code: &mut TargetCode, own: Frame<'_>, callers: &[Frame<'_>]) -> Vec<(u64, Vec<u8>)> {
    let mut open: Vec<CodeAddress> = Vec::new();
    for frame in std::iter::once(&own).chain(callers) {
        let read = |at: Address, width| code.number(at.0, width);
        open.extend(call_targets(frame.code, frame.ip, Memory(&read)));
    }
    let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut next = 0;
    while let Some(target) = open
        .get(next)
        .copied()
        .filter(|_| found.len() < MOST_CALLED)
    {
        next += 1;
        let known = found.iter().any(|(start, _)| *start == target.0);
        let function = code.function(target.0).filter(|_| !known);
        let Some((start, bytes)) = function.filter(|f| f.1.len() <= LONGEST_CALLED) else {
            continue;
        };
        let inner = Code {
            start: CodeAddress(start),
            bytes: &bytes,
        };
        let read = |at: Address, width| code.number(at.0, width);
        open.extend(call_targets(inner, target, Memory(&read)));
        found.push((start, bytes));
    }
    found
}

/// Makes an entry known to the program; without room it is left out, and asked for
/// again.
fn publish_entry(
    control: &Control,
    area: usize,
    is_loop: bool,
    target: u64,
    entry: &sunder_rewrite::Entry,
) {
    let place = control.entry_count.load(Ordering::Relaxed);
    let Some(to) = control.entries.get(place as usize) else {
        return;
    };
    if entry.conditions.len() > CONDITIONS || place as usize >= ENTRIES {
        return;
    }
    to.original.store(entry.original.0, Ordering::Relaxed);
    to.target.store(target, Ordering::Relaxed);
    to.area.store(area as u32, Ordering::Relaxed);
    to.alone.store(u32::from(!is_loop), Ordering::Relaxed);
    let count = entry.conditions.len() as u32;
    to.count.store(count, Ordering::Relaxed);
    for (slot, condition) in to.conditions.iter().zip(&entry.conditions) {
        let (what, low, high) = match *condition {
            Condition::Register(register, low, high) => (u64::from(register.0), low, high),
            Condition::Stack(offset, value) => ((offset << 8) as u64 | STACK, value, value),
        };
        slot.what.store(what, Ordering::Relaxed);
        slot.low.store(low, Ordering::Relaxed);
        slot.high.store(high, Ordering::Relaxed);
    }
    let head = &control.buckets[bucket(entry.original.0)];
    to.next
        .store(head.load(Ordering::Relaxed), Ordering::Relaxed);
    control.entry_count.store(place + 1, Ordering::Relaxed);
    head.store(place + 1, Ordering::Release);
}

/// Waits until the word is no longer `value`, or a moment.
fn wait(word: &AtomicU32, value: u32) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    // SAFETY: a futex on a word that lives; the time is on our stack.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            value,
            &raw const time,
        )
    };
}

fn wake(word: &AtomicU32) {
    // SAFETY: a futex on a word that lives.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

const _: () = assert!(CACHE < 1 << 31, "offsets of code are 32 bits");
