//! Answers threads of the program that have faulted on moved bytes: makes copies of their code that
//! find the bytes. Runs on threads of its own, which do nothing else, since the program's threads wait
//! for the answers. They run before other threads of the machine where the kernel lets them: each
//! stands in for a thread that waits, and must not have less of the CPUs than that one had. There is
//! one for every second CPU, so that half of the machine is left to others. Started by `repairer`.

mod area;
mod called;
mod crossings;
mod draft;
mod memo;
mod publish;
#[cfg(test)]
mod tests;

use self::area::{MOST_BLOCKS, MovedArea};
use self::crossings::Crossings;
use self::draft::{How, Learnt, Question, drafted};
use self::memo::Memo;
use super::busy::Busy;
use super::code::TargetCode;
use super::control::ControlFile;
use super::urgency::run_before_others;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;
use sunder_access::{CodeAddress, Mappings, ProcessId};
use sunder_findings::RewrittenCode;
use sunder_observe::proc;
use sunder_pipeline::CopiedCode;
use sunder_plan::remap::Group;
use sunder_rewrite::{Draft, MovedPage};
use sunder_wire::remap::{ACTIVE, CACHE, REQUESTS, Request};

/// Why no copy is made for an area.
const NO_ROOM: &str = "there is no room for more copies of code";
/// The same.
const TOO_LONG: &str = "its threads waited for copies of code most of the time";

/// Most threads that answer. More of the program's threads seldom ask at the same time for long.
const MOST_WORKERS: usize = 8;

struct State {
    areas: HashMap<usize, MovedArea>,
    /// Copies that have been made since somebody last asked; at most [`MOST_BLOCKS`] of each area.
    made: Vec<CopiedCode>,
    crossings: Crossings,
}

struct Shared {
    process: ProcessId,
    file: Arc<ControlFile>,
    code: TargetCode,
    memo: Memo,
    state: Mutex<State>,
    /// The requests that one of the threads answers now.
    claimed: [AtomicBool; REQUESTS],
    workers: usize,
    /// As [`Request::compares_all`](sunder_rewrite::Request::compares_all).
    compares_all: bool,
    stop: AtomicBool,
}

/// The answering threads, which end when this is dropped; see the head of this file.
pub struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts answering threads of `process`. With `compares_all`, copies are not specialised
    /// ([`Request::compares_all`](sunder_rewrite::Request::compares_all)).
    ///
    /// # Errors
    /// If a thread can't be started.
    pub fn start(
        file: Arc<ControlFile>,
        process: ProcessId,
        compares_all: bool,
    ) -> std::io::Result<Self> {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let shared = Arc::new(Shared {
            process,
            file,
            code: TargetCode::new(process),
            memo: Memo::default(),
            state: Mutex::new(State {
                areas: HashMap::new(),
                made: Vec::new(),
                crossings: Crossings::default(),
            }),
            claimed: std::array::from_fn(|_| AtomicBool::new(false)),
            workers: (cpus / 2).clamp(1, MOST_WORKERS),
            compares_all,
            stop: AtomicBool::new(false),
        });
        let mut server = Self {
            shared,
            threads: Vec::new(),
        };
        for _ in 0..server.shared.workers {
            let its = Arc::clone(&server.shared);
            let thread = thread::Builder::new().name("sunder-repair".into());
            let thread = thread.spawn(move || {
                // Where answers take half of the time, bytes go back (`busy`).
                run_before_others();
                its.serve();
            })?;
            server.threads.push(thread);
        }
        Ok(server)
    }

    /// Reads the file of the code at `ip`, which uses bytes that are about to move. The threads that
    /// ask about it first would otherwise have to wait for that, and give up where the file is large.
    pub fn prepare(&self, ip: u64) {
        self.shared.code.prepare(ip);
    }

    /// Why a copy of code could not be made for area `number`, if so.
    pub fn refusal_of(&self, number: usize) -> Option<String> {
        self.shared.lock().areas.get(&number)?.refusal.clone()
    }

    /// Announces that these pages are about to move, as area `number`. Copies of code will lie at
    /// `at`; the `groups` go to lines of their own.
    pub fn moves(&self, number: usize, moved: MovedPage, groups: Vec<Group>, at: u64) {
        let area = MovedArea {
            moved: Arc::new(moved),
            groups,
            at,
            used: 0,
            blocks: 0,
            seen: HashMap::new(),
            alone: HashMap::new(),
            asked: HashMap::new(),
            met: Vec::new(),
            code: BTreeMap::new(),
            refusal: None,
            busy: Busy::new(self.shared.workers),
        };
        self.shared.memo.forget();
        let mut state = self.shared.lock();
        state.crossings.forget(number);
        state.areas.insert(number, area);
    }

    /// Announces that a move begins in a program with these mappings.
    pub fn renew(&self, mappings: &Mappings) {
        self.shared.code.renew(mappings);
        self.shared.memo.forget();
    }

    /// Pairs of areas whose bytes the same loops use, so that threads leave one copy for the other all the time.
    pub fn crossed(&self) -> Vec<(usize, usize)> {
        self.shared.lock().crossings.told()
    }

    /// The copies that have been made since the last call.
    pub fn made(&self) -> Vec<CopiedCode> {
        std::mem::take(&mut self.shared.lock().made)
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
        // Whoever is about to wait must not.
        let bell = &self.shared.file.control().bell;
        bell.fetch_add(1, Ordering::AcqRel);
        wake(bell);
        for thread in self.threads.drain(..) {
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
            for (request, claimed) in control.requests.iter().zip(&self.claimed) {
                if request.question().is_none() || claimed.swap(true, Ordering::AcqRel) {
                    continue;
                }
                // Another thread may have answered it before the claim.
                if let Some(asked) = request.question() {
                    self.reply(request, asked);
                    answered = true;
                }
                claimed.store(false, Ordering::Release);
            }
            if !answered {
                wait(&control.bell, rung);
            }
        }
    }

    /// Answers the question `asked`.
    fn reply(&self, request: &Request, asked: u32) {
        let begun = Instant::now();
        let question = Question::of(request);
        let mut answer = None;
        if request.was_read(asked) {
            answer = self.answer(&question);
            answer = answer.filter(|_| !self.keeps_threads(&question, begun));
        }
        // The thread may have given up.
        let _ = request.answer(asked, answer.unwrap_or(0));
        wake(&request.state);
    }

    /// Whether answers like this one, which took from `begun` to now, keep the program's threads from
    /// getting on.
    fn keeps_threads(&self, question: &Question, begun: Instant) -> bool {
        let mut state = self.lock();
        let Some(area) = state.areas.get_mut(&question.area) else {
            return false;
        };
        let is_last = || proc::threads(self.process).is_ok_and(|threads| threads.len() == 1);
        let keeps = (area.busy).took(question.thread, begun, Instant::now(), is_last);
        if keeps {
            area.refusal = Some(TOO_LONG.into());
        }
        keeps
    }

    /// The address at which the thread goes on; `None` if it can't.
    fn answer(&self, question: &Question) -> Option<u64> {
        let (thread, ip) = (question.thread, question.registers.ip.0);
        let (known, few) = {
            let mut state = self.lock();
            let State {
                areas, crossings, ..
            } = &mut *state;
            let area = areas.get_mut(&question.area)?;
            crossings.asks(question.area, thread, ip, |other| self.is_moved(other));
            if area.blocks >= MOST_BLOCKS {
                area.refusal = Some(NO_ROOM.into());
                return None;
            }
            // Many instructions run once, as those of the C library that print a result. Looking for
            // the loops around each would keep the thread waiting for longer than copying the single
            // instructions does.
            let asks = area.asks(thread, ip);
            let few = !question.again && asks <= area.patience(thread, question.address);
            (area.known(thread), few)
        };
        let made = |alone| {
            drafted(
                (&self.code, &self.memo),
                &known,
                question,
                How {
                    alone,
                    compares_all: self.compares_all,
                },
                |draft, learnt| self.place(question, &known.moved, (draft, learnt), alone),
            )
        };
        let made = match few.then(|| made(true)) {
            Some(Ok(at)) => Ok(at),
            _ => made(false),
        };
        let refuse = |why| {
            let mut state = self.lock();
            let area = state.areas.get_mut(&question.area);
            if let Some(area) = area.filter(|area| Arc::ptr_eq(&area.moved, &known.moved)) {
                area.refusal = Some(why);
            }
        };
        made.map_err(refuse).ok()
    }

    /// Whether the bytes of an area are away.
    fn is_moved(&self, number: usize) -> bool {
        let area = self.file.control().areas.get(number);
        area.is_some_and(|area| area.state.load(Ordering::Acquire) == ACTIVE)
    }

    /// Gives a copy its place in the area whose bytes moved as `moved` says; gives the address at which
    /// the thread goes on.
    fn place(
        &self,
        question: &Question,
        moved: &Arc<MovedPage>,
        (draft, learnt): (&Draft<'_>, Learnt),
        alone: bool,
    ) -> Result<u64, String> {
        let mut state = self.lock();
        let State {
            areas,
            made,
            crossings,
        } = &mut *state;
        let area = areas.get_mut(&question.area);
        let Some(area) = area.filter(|area| Arc::ptr_eq(&area.moved, moved)) else {
            // Since the thread has asked, other bytes have moved. It tries its instruction again.
            return Ok(question.registers.ip.0);
        };
        let block = draft.block(CodeAddress(area.at + area.used));
        let block = block.map_err(|refusal| refusal.to_string())?;
        area.remember(question.thread, &block, learnt, alone);
        let placed = self.publish(question.area, area, &block, alone);
        let (at, copy) = placed.ok_or(NO_ROOM)?;
        if block.is_loop {
            let originals = block.resume.iter().map(|one| one.original.0);
            crossings.copied(question.area, question.thread, originals);
        }
        made.extend(copy);
        Ok(at + u64::from(block.entry))
    }
}

/// Waits until the word is no longer `value`, half a second at most.
fn wait(word: &AtomicU32, value: u32) {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 500_000_000,
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

const _: () = assert!(
    CACHE < 1 << 24,
    "copies lie near the beginning of their area"
);
