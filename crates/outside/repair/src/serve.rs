//! Answers threads of the program that have faulted on moved bytes: makes copies of their code that
//! find the bytes. Runs on a thread of its own, which does nothing else, since the program's
//! threads wait for the answer. It runs before other threads of the machine where the kernel lets it:
//! it stands in for a thread that waits, and must not have less of the CPUs than that one had.
//! Started by `repairer`.

use super::busy::Busy;
use super::code::TargetCode;
use super::control::ControlFile;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;
use sunder_access::{Address, CodeAddress, Mappings, ProcessId};
use sunder_findings::RewrittenCode;
use sunder_plan::remap::Group;
use sunder_rewrite::{
    Block, Called, Code, Condition, Frame, Memory, Met, MovedPage, Registers, Request, Seen,
    call_targets, more_targets, return_slot, specialise, specialise_alone,
};
use sunder_wire::remap::{CACHE, CONDITIONS, Control, ENTRIES, RESUMES, STACK, bucket};

/// Most faults that are remembered of one thread.
const MOST_SEEN: usize = 256;
/// Most copies for one area.
const MOST_BLOCKS: u32 = 1024;
/// Most threads of which faults are remembered. The program writes the number of its thread; when
/// there are more, all are forgotten and what is made for the next faults is as for the first.
const MOST_THREADS: usize = 1024;
/// Most pairs of a thread and an instruction of which requests are counted: several for each copy.
const MOST_ASKED: usize = 1 << 14;
/// Most calls that are remembered. Calls of one place that lead to several functions are made
/// through a pointer that changes.
const MOST_CALLS: usize = 256;

/// A range of pages whose bytes have moved.
struct MovedArea {
    moved: MovedPage,
    /// Address of its copies of code in the program.
    at: u64,
    /// Bytes of copies so far.
    used: u64,
    blocks: u32,
    seen: HashMap<u32, Vec<Seen>>,
    /// The groups that have lines of their own, with their threads.
    groups: Vec<Group>,
    /// How many times each thread has asked about an instruction.
    asked: HashMap<(u32, u64), u32>,
    /// Calls that threads were in when they asked, at most [`MOST_CALLS`].
    met: Vec<Met>,
    code: BTreeMap<u64, RewrittenCode>,
    refusal: Option<String>,
    busy: Busy,
}

/// How many copies of single instructions a thread gets that only uses bytes beside the groups, as
/// a thread that prints results at the end. Most such instructions run a few times; looking for a
/// loop in the functions around one takes as long as this many answers, or longer.
const PASSING: u32 = 16;

/// Most functions that are copied with a loop because it calls them, directly or through others.
const MOST_CALLED: usize = 40;
/// Rounds of following pointers to functions: code that one pointer leads to may hold another.
const MOST_POINTERS: usize = 3;
/// Most callers of an instruction's function in which its loop is looked for.
const MOST_CALLERS: usize = 3;
/// Most bytes of a called function that is copied.
const LONGEST_CALLED: usize = 2048;

/// Why no copy is made for an area.
const NO_ROOM: &str = "there is no room for more copies of code";
/// The same.
const TOO_LONG: &str = "its threads waited for copies of code most of the time";

struct State {
    code: TargetCode,
    areas: HashMap<usize, MovedArea>,
}

struct Shared {
    file: Arc<ControlFile>,
    state: Mutex<State>,
    stop: AtomicBool,
}

/// The answering thread, which ends when this is dropped; see the head of this file.
pub struct Server {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts answering threads of `process`.
    ///
    /// # Errors
    /// If the thread can't be started.
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
            .spawn(move || {
                run_before_others();
                its.serve();
            })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Reads the file of the code at `ip`, which uses bytes that are about to move. The threads that
    /// ask about it first would otherwise have to wait for that, and give up where the file is large.
    pub fn prepare(&self, ip: u64) {
        let unread = self.shared.lock().code.unread(ip);
        // Without the lock, since threads may ask about bytes that moved before.
        if let Some((mapping, files)) = unread {
            let read = TargetCode::read_module(&mapping, &files);
            self.shared.lock().code.take_module(mapping.path, read);
        }
    }

    /// Why a copy of code could not be made for area `number`, if so.
    pub fn refusal_of(&self, number: usize) -> Option<String> {
        self.shared.lock().areas.get(&number)?.refusal.clone()
    }

    /// Announces that these pages are about to move, as area `number`. Copies of code will lie at
    /// `at`; the `groups` go to lines of their own.
    pub fn moves(&self, number: usize, moved: MovedPage, groups: Vec<Group>, at: u64) {
        let area = MovedArea {
            moved,
            groups,
            at,
            used: 0,
            blocks: 0,
            seen: HashMap::new(),
            asked: HashMap::new(),
            met: Vec::new(),
            code: BTreeMap::new(),
            refusal: None,
            busy: Busy::default(),
        };
        self.shared.lock().areas.insert(number, area);
    }

    /// Announces that a move begins in a program with these mappings.
    pub fn renew(&self, mappings: &Mappings) {
        self.shared.lock().code.renew(mappings);
    }

    /// The copies that were made for area `number`, by function, and the reason if one could not be
    /// made.
    pub fn code_of(&self, number: usize) -> (Vec<(u64, RewrittenCode)>, Option<String>) {
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
            // A panic of that thread was reported when it happened.
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
                if let Some(asked) = request.question() {
                    let begun = Instant::now();
                    let mut answer = self.answer(request, asked).unwrap_or(0);
                    if self.keeps_threads(request, begun) {
                        answer = 0;
                    }
                    // The thread may have given up.
                    let _ = request.answer(asked, answer);
                    wake(&request.state);
                    answered = true;
                }
            }
            if !answered {
                wait(&control.bell, rung);
            }
        }
    }

    /// Whether answers like this one, which took from `begun` to now, keep the program's threads from
    /// getting on.
    fn keeps_threads(&self, request: &sunder_wire::remap::Request, begun: Instant) -> bool {
        let number = request.area.load(Ordering::Relaxed) as usize;
        let mut state = self.lock();
        let Some(area) = state.areas.get_mut(&number) else {
            return false;
        };
        let keeps = area.busy.took(begun, Instant::now());
        if keeps {
            area.refusal = Some(TOO_LONG.into());
        }
        keeps
    }

    /// The address at which the thread goes on; `None` if it can't.
    fn answer(&self, request: &sunder_wire::remap::Request, asked: u32) -> Option<u64> {
        let number = request.area.load(Ordering::Relaxed) as usize;
        let thread = request.thread.load(Ordering::Relaxed);
        let registers = Registers {
            general: std::array::from_fn(|i| request.general[i].load(Ordering::Relaxed)),
            ip: CodeAddress(request.ip.load(Ordering::Relaxed)),
        };
        let address = request.address.load(Ordering::Relaxed);
        let downwards = request.downwards.load(Ordering::Relaxed) != 0;
        if !request.was_read(asked) {
            return None;
        }
        let mut state = self.lock();
        let State { code, areas } = &mut *state;
        let area = areas.get_mut(&number)?;
        if area.blocks >= MOST_BLOCKS {
            area.refusal = Some(NO_ROOM.into());
            return None;
        }
        // Many instructions run once, as those of the C library that print a result. Looking for
        // the loops around each would keep the thread waiting for longer than copying the single
        // instructions does.
        let few = area.asks(thread, registers.ip.0) <= area.patience(thread, address);
        let alone = few.then(|| area.block(code, thread, (registers, downwards), true));
        if let Some(Ok(block)) = alone {
            return self.publish(number, area, &block, true);
        }
        match area.block(code, thread, (registers, downwards), false) {
            Ok(block) => self.publish(number, area, &block, false),
            Err(why) => {
                area.refusal = Some(why);
                None
            }
        }
    }

    /// Writes a copy into the program; gives the address at which the asking thread enters it.
    fn publish(
        &self,
        number: usize,
        area: &mut MovedArea,
        block: &Block,
        once: bool,
    ) -> Option<u64> {
        let control = self.file.control();
        let offset = area.used;
        if !self.file.write_code(number, offset, &block.bytes) {
            area.refusal = Some(NO_ROOM.into());
            return None;
        }
        let shared = control.areas.get(number)?;
        let first = shared.resume_count.load(Ordering::Relaxed) as usize;
        if first + block.resume.len() > RESUMES {
            area.refusal = Some(NO_ROOM.into());
            return None;
        }
        for (place, resume) in shared.resumes[first..].iter().zip(&block.resume) {
            // Offsets of code have 32 bits.
            let at = offset as u32 + resume.offset;
            place.offset.store(at, Ordering::Relaxed);
            let pushed = if resume.pushed { 8 } else { 0 };
            place.pushed.store(pushed, Ordering::Relaxed);
            place.original.store(resume.original.0, Ordering::Relaxed);
            let shifts = [
                (&place.destination, resume.shift.destination),
                (&place.source, resume.shift.source),
                (&place.count, resume.shift.count),
            ];
            for (place, shift) in shifts {
                place.store(shift as u32, Ordering::Relaxed);
            }
        }
        let count = (first + block.resume.len()) as u32;
        shared.resume_count.store(count, Ordering::Release);
        area.used = (offset + block.bytes.len() as u64).next_multiple_of(64);
        area.blocks += 1;
        // A copy of a single instruction gets no entry from other code: it is no loop.
        let entries = block.entries.iter().filter(|_| !once);
        for entry in entries {
            let target = area.at + offset + u64::from(entry.offset);
            publish_entry(control, number, block.is_loop, target, entry);
        }
        Some(area.at + offset + u64::from(block.entry))
    }
}

impl MovedArea {
    /// Counts the thread's requests about this instruction, this one included. Beyond
    /// [`MOST_ASKED`], each counts as the first.
    fn asks(&mut self, thread: u32, ip: u64) -> u32 {
        if self.asked.len() >= MOST_ASKED && !self.asked.contains_key(&(thread, ip)) {
            return 1;
        }
        let count = self.asked.entry((thread, ip)).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// The faults of a thread; see [`MOST_THREADS`].
    fn seen_by(seen: &mut HashMap<u32, Vec<Seen>>, thread: u32) -> &mut Vec<Seen> {
        if seen.len() >= MOST_THREADS && !seen.contains_key(&thread) {
            seen.clear();
        }
        seen.entry(thread).or_default()
    }

    /// Counts a copy of code of the function at `start`; of [`MOST_BLOCKS`] functions at most.
    fn count(&mut self, start: u64, block: &Block) {
        if self.code.len() >= MOST_BLOCKS as usize && !self.code.contains_key(&start) {
            return;
        }
        let counts = self.code.entry(start).or_default();
        counts.copies += 1;
        if block.is_loop && counts.loops == 0 {
            (counts.direct, counts.guarded, counts.checked) = (0, 0, 0);
        }
        counts.loops += u32::from(block.is_loop);
        if block.is_loop || counts.loops == 0 {
            counts.direct = counts.direct.max(block.direct);
            counts.guarded = counts.guarded.max(block.guarded);
            counts.checked = counts.checked.max(block.checked);
        }
    }

    /// How many copies of single instructions a thread gets before loops are looked for.
    fn patience(&self, thread: u32, address: u64) -> u32 {
        let page = self.moved.page.start.0;
        let on = |g: &Group| address.wrapping_sub(page).wrapping_sub(g.offset) < g.size;
        let uses = |g: &Group| on(g) || g.threads.contains(&thread);
        if self.groups.iter().any(uses) {
            1
        } else {
            PASSING
        }
    }

    fn block(
        &mut self,
        code: &mut TargetCode,
        thread: u32,
        (registers, downwards): (Registers, bool),
        alone: bool,
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
        let calling = if alone {
            Vec::new()
        } else {
            callers(code, own, registers)
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
        let seen = Self::seen_by(&mut self.seen, thread);
        let nothing = |_: Address, _| None;
        let mut request = Request {
            frame,
            callers: &callers,
            callees: &[],
            registers,
            downwards,
            moved: &self.moved,
            seen,
            met: &self.met,
            memory: Memory(&nothing),
            at: CodeAddress(self.at + self.used),
        };
        let (callees, met) = if alone {
            Default::default()
        } else {
            called_functions(code, &request)
        };
        let callees = codes(&callees);
        let memory = |at: Address, width| code.number(at.0, width);
        request.callees = &callees;
        request.met = &met;
        request.memory = Memory(&memory);
        let made = if alone {
            specialise_alone(&request)
        } else {
            specialise(&request)
        };
        let block = made.map_err(|refusal| refusal.to_string())?;
        // A copy of one instruction says nothing about the loop. If the thread comes back, that
        // counts as its first fault there.
        if !alone && seen.len() < MOST_SEEN && !seen.contains(&block.seen) {
            seen.push(block.seen);
        }
        self.count(start, &block);
        if !alone {
            self.met = met;
        }
        Ok(block)
    }
}

/// The callers of `own` on a thread's stack, found by return addresses: start of each function, its
/// bytes, and the return address in it.
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

/// Functions: start address and bytes.
type Functions = Vec<(u64, Vec<u8>)>;

fn codes(functions: &Functions) -> Vec<Code<'_>> {
    let codes = functions.iter().map(|(start, bytes)| Code {
        start: CodeAddress(*start),
        bytes,
    });
    codes.collect()
}

/// The short functions that are called within the outermost loop of a request's functions, and
/// those that they call. Also the request's calls through pointers to such functions, with those
/// that were met before.
fn called_functions(code: &mut TargetCode, request: &Request<'_>) -> (Functions, Vec<Met>) {
    let read = |at: Address, width| code.number(at.0, width);
    let frames = std::iter::once(&request.frame).chain(request.callers);
    let calls = frames.map(|frame| call_targets(frame, Memory(&read), request.moved));
    let calls: Vec<Called> = calls.collect();
    let outermost = calls.iter().rposition(|called| called.looped.is_some());
    let mut open: Vec<CodeAddress> = Vec::new();
    for (depth, called) in calls.into_iter().enumerate() {
        match outermost {
            Some(outermost) if depth < outermost => open.extend(called.all),
            Some(outermost) if depth == outermost => open.extend(called.looped.unwrap_or_default()),
            _ => {}
        }
    }
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
    code: &mut TargetCode,
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
        open.extend(call_targets(&frame, Memory(&read), moved).all);
        found.push((start, bytes));
    }
}

/// Tells the program about an entry into a copy. If there is no room it is left out, and the next
/// thread asks again.
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

/// Has this thread run as soon as it is woken, before all threads of the usual policies, whatever their
/// priorities and groups. It never computes for long: where answers take half of the time, bytes go
/// back (`busy`). Children do not inherit it.
fn run_before_others() {
    let lowest = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: takes integers and a pointer to a value on our stack; 0 is the calling thread. Without
    // the right to do this, the thread stays as it is.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const lowest) };
}

/// Waits until the word is no longer `value`, 50 ms at most.
fn wait(word: &AtomicU32, value: u32) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 50_000_000,
    };
    // SAFETY: the word lives during the call, and `time` is on our stack.
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
    // SAFETY: the word lives during the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

const _: () = assert!(CACHE < 1 << 31, "offsets of code are 32 bits");

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::Span;

    fn area_at(page: u64) -> MovedArea {
        MovedArea {
            moved: MovedPage {
                page: Span::new(Address(page), 4096),
                rules: Vec::new(),
            },
            at: 0,
            used: 0,
            blocks: 0,
            seen: HashMap::new(),
            groups: Vec::new(),
            asked: HashMap::new(),
            met: Vec::new(),
            code: BTreeMap::new(),
            refusal: None,
            busy: Busy::default(),
        }
    }

    /// The program writes the numbers of its threads and instructions into its requests.
    #[test]
    fn what_is_remembered_of_requests_has_a_limit() {
        let mut area = area_at(0x1000);
        for request in 0..2 * MOST_ASKED as u64 {
            assert_eq!(area.asks(1, request), 1);
            MovedArea::seen_by(&mut area.seen, request as u32);
        }
        assert_eq!(area.asks(1, 0), 2);
        assert_eq!(area.asked.len(), MOST_ASKED);
        assert!(area.seen.len() <= MOST_THREADS);
        assert!(area.seen.contains_key(&(2 * MOST_ASKED as u32 - 1)));
    }

    /// A thread whose own bytes have moved does not only pass by, nor does a new thread that uses
    /// moved bytes.
    #[test]
    fn only_threads_that_use_unmoved_bytes_get_single_instructions_for_long() {
        let page = 0x1000_0000;
        let mut area = area_at(page);
        area.groups.push(Group {
            offset: 0x40,
            size: 8,
            threads: [7].into_iter().collect(),
        });
        assert_eq!(area.patience(7, page + 0x100), 1);
        assert_eq!(area.patience(8, page + 0x47), 1);
        for beside in [page, page + 0x3f, page + 0x48] {
            assert_eq!(area.patience(8, beside), PASSING);
        }
    }
}
