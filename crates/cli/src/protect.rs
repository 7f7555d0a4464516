//! `sunder protect`: runs a program natively, and while threads of it compute on pages
//! that are falsely shared, gives each of these threads such a page for itself. How:
//! `docs/design/isolate.md`. The exit status is the program's.
//!
//! This process decides who is isolated when. It stops a thread for a moment with
//! `ptrace`, looks where it is, and sends it into the library that was preloaded.

mod image;
mod report;
mod shared;
mod target;
mod trace;

use crate::args::Protect;
use crate::detect::{exit_code, start_failure};
use crate::embed::MemoryFile;
use crate::observers::{self, Linkage};
use crate::output::note;
use crate::signals::Signals;
use anyhow::{Context, Result};
use image::Images;
use shared::Shared;
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::time::{Duration, Instant};
use sunder_observe::launch::Launch;
use sunder_wire::isolation::{
    CODES, ISOLATE_MAGIC, ISOLATE_VARIABLE, REGISTERS, SLOTS, SUITCASE, SUITCASES_AT, Slot, closed,
    order, state, why,
};
use target::Targets;
use trace::{Stop, Stopped};

/// How often threads are looked at, unless tests want it otherwise.
const LOOK: Duration = Duration::from_millis(5);
/// The bounded interval of commits in microseconds: SHERIFF's sampling interval.
const TICK: u32 = 10_000;
/// Episodes shorter than this on average cost more than they bring.
const SHORT: f64 = 1.5e6;
/// The longest time that a thread with short episodes is left alone.
const MOST_PAUSE: Duration = Duration::from_secs(2);
/// The weight of the past in that average (SHERIFF, section 5).
const ALPHA: f64 = 0.9;

/// Runs the command; the value is the status to exit with.
///
/// # Errors
/// If the result can't be read or the program not be started.
pub fn run(options: &Protect) -> Result<u8> {
    let targets = Targets::new(options)?;
    let (name, arguments) = options
        .program
        .split_first()
        .context("no program was given")?;
    let launch = Launch::new(name.clone()).arguments(arguments.to_vec());
    let native = |why: &str| -> Result<u8> {
        if !options.quiet {
            note(&format!("the program runs natively: {why}"));
        }
        wait_natively(&launch)
    };
    if let Some(why) = cannot_be_loaded(name) {
        return native(why);
    }
    if let Some(why) = targets.hindrance(name) {
        return native(&why);
    }
    let library = MemoryFile::isolate().context("cannot make the library available")?;
    let shared = Shared::new()?;
    let [control, memory] = shared.paths();
    let before = std::env::var_os("LD_PRELOAD");
    let mut preload = library.path().into_os_string();
    if let Some(before) = &before {
        preload.push(":");
        preload.push(before);
    }
    let mut variable = OsString::from(&control);
    for path in [&memory, &library.path()] {
        variable.push(",");
        variable.push(path);
    }
    let launch = launch
        .environment("LD_PRELOAD", Some(preload))
        .environment(ISOLATE_VARIABLE, Some(variable));
    let signals = Signals::hold();
    let prepared = match launch.prepare() {
        Ok(prepared) => prepared,
        Err(error) => return Ok(start_failure(&error.into())),
    };
    let process = prepared.pid();
    shared.tick.store(options.every.unwrap_or(TICK), Relaxed);
    shared.tool.store(std::process::id(), Relaxed);
    targets.ask_for_blocks(&shared);
    shared.process.store(process.0, Relaxed);
    // It is waited for below, with its threads.
    let child = match prepared.go() {
        Ok(child) => child,
        Err(error) => return Ok(start_failure(&error.into())),
    };
    std::mem::forget(child);
    signals.forward_to(process);
    let mut keeper = Keeper {
        process: process.0 as i32,
        shared,
        images: Images::default(),
        targets,
        any_code: options.any_code,
        look: options
            .every
            .map_or(LOOK, |every| Duration::from_micros(every.into())),
        short: if options.every.is_some() { 0.0 } else { SHORT },
        threads: HashMap::new(),
        refused: None,
        exit: None,
        changes: None,
        next_conversion: None,
    };
    let collector = trace::Collector::start(process.0 as i32);
    let exit = keeper.keep()?;
    drop(collector);
    signals.release();
    keeper.tell(options)?;
    Ok(exit_code(exit))
}

fn wait_natively(launch: &Launch) -> Result<u8> {
    let signals = Signals::hold();
    let run = || -> Result<ExitStatus> {
        let prepared = launch.prepare()?;
        signals.forward_to(prepared.pid());
        Ok(prepared.go()?.wait()?)
    };
    let result = run();
    signals.release();
    Ok(result.map_or_else(|error| start_failure(&error), exit_code))
}

fn cannot_be_loaded(name: &OsStr) -> Option<&'static str> {
    if let Some(why) = observers::preload_hindrance(name) {
        return Some(why);
    }
    match observers::find(name).map(|path| observers::linkage(&path)) {
        Some(Linkage::Static) => Some("it is statically linked"),
        Some(Linkage::Privileged) => Some("it has set-user-id or other privileges"),
        _ => None,
    }
}

/// What is kept of a thread.
#[derive(Debug)]
struct Thread {
    /// Its place in the control file.
    slot: Option<usize>,
    /// When to look at it again.
    next: Instant,
    /// How long to wait after the next look that brings nothing.
    pause: Duration,
    /// Average length of its episodes in nanoseconds.
    average: f64,
    /// Episodes that the average knows.
    episodes: u64,
}

/// Who keeps the program's threads where they are best.
struct Keeper {
    process: i32,
    shared: Shared,
    images: Images,
    targets: Targets,
    any_code: bool,
    look: Duration,
    short: f64,
    threads: HashMap<i32, Thread>,
    refused: Option<String>,
    exit: Option<i32>,
    /// What the library had said of blocks when pages were last chosen.
    changes: Option<u32>,
    next_conversion: Option<Instant>,
}

impl Keeper {
    /// Until the program ends; how it did.
    fn keep(&mut self) -> Result<ExitStatus> {
        // SAFETY: takes integers; the process has not been waited for.
        let watch = unsafe { libc::syscall(libc::SYS_pidfd_open, self.process, 0) } as i32;
        loop {
            self.wait_for_end(watch);
            self.exit = self.exit.or_else(|| trace::sweep(self.process));
            if let Some(status) = self.exit {
                // SAFETY: our own descriptor, or -1.
                unsafe { libc::close(watch) };
                return Ok(ExitStatus::from_raw(status));
            }
            if self.shared.stop.load(SeqCst) != 0 {
                self.stop_for_a_fork();
            } else if self.may_isolate() {
                self.look_around();
            }
        }
    }

    fn wait_for_end(&self, watch: i32) {
        let mut poll = libc::pollfd {
            fd: watch,
            events: libc::POLLIN,
            revents: 0,
        };
        let timeout = libc::timespec {
            tv_sec: 0,
            tv_nsec: self.look.subsec_nanos().into(),
        };
        // SAFETY: one valid entry; a negative descriptor is left out.
        unsafe { libc::ppoll(&raw mut poll, 1, &raw const timeout, std::ptr::null()) };
    }

    fn may_isolate(&mut self) -> bool {
        self.refused.is_none()
            && self.shared.ready.load(Acquire) == 1
            && self.shared.closed.load(Acquire) == closed::OPEN
            && self.prepare()
    }

    /// Finds what is to be isolated, as far as the program has it by now; whether there is
    /// anything.
    fn prepare(&mut self) -> bool {
        let changes = self.shared.block_changes.load(SeqCst);
        if self.changes != Some(changes) {
            self.changes = Some(changes);
            let before = self.shared.page_count.load(Relaxed);
            self.targets
                .choose_pages(self.process, &mut self.images, &self.shared);
            if before == 0 && self.shared.page_count.load(Relaxed) > 0 {
                self.learn_code();
            }
        }
        let count = self.shared.page_count.load(Relaxed) as usize;
        let mut pages = self.shared.pages.iter().take(count);
        pages.any(|page| page.given_up.load(Relaxed) == 0)
    }

    fn learn_code(&mut self) {
        let code = self.images.code(self.process, self.any_code);
        let count = code.len().min(CODES);
        for (to, from) in self.shared.codes.iter().zip(&code) {
            to[0].store(from[0], Relaxed);
            to[1].store(from[1], Relaxed);
        }
        self.shared.code_count.store(count as u32, Relaxed);
    }

    /// Looks at every thread that it is time for.
    fn look_around(&mut self) {
        let threads = threads_of(self.process);
        self.threads.retain(|thread, _| threads.contains(thread));
        self.free_slots(&threads);
        if threads.len() < 2 {
            return;
        }
        for thread in threads {
            if self.exit.is_some() || self.refused.is_some() {
                return;
            }
            if self.is_time(thread) && is_running(self.process, thread) {
                self.look_at(thread);
            }
        }
    }

    /// Slots of threads that are gone belong to nobody.
    fn free_slots(&self, threads: &[i32]) {
        for slot in &self.shared.slots {
            let thread = slot.thread.load(Relaxed) as i32;
            if thread != 0 && !threads.contains(&thread) {
                slot.thread.store(0, Relaxed);
                slot.state.store(state::FREE, Relaxed);
            }
        }
    }

    fn is_time(&mut self, thread: i32) -> bool {
        let now = Instant::now();
        let kept = self.threads.entry(thread).or_insert_with(|| Thread {
            slot: None,
            next: now,
            pause: self.look,
            average: 2.0 * SHORT,
            episodes: 0,
        });
        if kept.next > now {
            return false;
        }
        let Some(slot) = kept.slot.and_then(|i| self.shared.slots.get(i)) else {
            return true;
        };
        if slot.state.load(Acquire) != state::HOME {
            return false;
        }
        let episodes = slot.episodes.load(Relaxed);
        if episodes != kept.episodes {
            kept.episodes = episodes;
            let length = slot
                .until
                .load(Relaxed)
                .saturating_sub(slot.since.load(Relaxed));
            kept.average = ALPHA * kept.average + (1.0 - ALPHA) * length as f64;
            let failed = slot.why.load(Relaxed) == why::NO_WORKER;
            if failed || kept.average < self.short {
                // Short transactions, or none: it stays home for a while, each time longer.
                kept.pause = (kept.pause * 2).clamp(Duration::from_millis(100), MOST_PAUSE);
                kept.next = now + kept.pause;
                kept.average = SHORT;
                return false;
            }
        }
        true
    }

    /// Stops a thread and sends it into isolation if it stands in code that it may
    /// execute there.
    fn look_at(&mut self, thread: i32) {
        let stopped = match Stopped::stop(thread, self.process) {
            Ok(Stop::Stopped(stopped)) => stopped,
            Ok(Stop::NotNow) => return,
            Ok(Stop::Ended(status)) => {
                self.exit = Some(status);
                return;
            }
            Err(_) if !is_alive(self.process, thread) => return,
            Err(error) => {
                self.refused = Some(format!("threads can't be stopped: {error}"));
                return;
            }
        };
        let computes = stopped.computing_at().is_some_and(|at| self.is_code(at));
        let Some(kept) = self.threads.get_mut(&thread) else {
            return;
        };
        if !computes {
            kept.pause = (kept.pause * 2).min(self.look * 16);
            kept.next = Instant::now() + kept.pause;
            return;
        }
        kept.pause = self.look;
        if !self.is_same_image() {
            self.refused = Some("the program executed another".into());
            return;
        }
        if image::is_confined(self.process, thread) {
            self.refused = Some("the program confines its system calls".into());
            return;
        }
        if self.shared.conversions.load(Acquire) == 0 {
            self.convert(stopped);
        } else {
            self.send(stopped, order::ISOLATE);
        }
    }

    fn is_code(&self, address: u64) -> bool {
        let count = self.shared.code_count.load(Relaxed) as usize;
        self.shared
            .codes
            .iter()
            .take(count)
            .any(|[from, to]| (from.load(Relaxed)..to.load(Relaxed)).contains(&address))
    }

    /// Whether the library is still where it was: an `exec` leaves nothing.
    fn is_same_image(&self) -> bool {
        let base = self.shared.base.load(Relaxed);
        let mut word = 0u64;
        let local = libc::iovec {
            iov_base: (&raw mut word).cast(),
            iov_len: 8,
        };
        let remote = libc::iovec {
            iov_base: base as *mut _,
            iov_len: 8,
        };
        // SAFETY: the local part is valid; the remote one is checked by the kernel.
        let read = unsafe {
            libc::process_vm_readv(self.process, &raw const local, 1, &raw const remote, 1, 0)
        };
        read == 8 && word == ISOLATE_MAGIC
    }

    /// Sends a stopped thread; whether it went.
    fn send(&mut self, stopped: Box<Stopped>, order: u32) -> bool {
        let thread = stopped.thread();
        let Some(index) = self.slot_of(thread) else {
            return false;
        };
        let slot = &self.shared.slots[index];
        let Ok(mask) = stopped.mask() else {
            return false;
        };
        let r = stopped.registers();
        let general = [
            r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx,
            r.rdx, r.rsi, r.rdi,
        ];
        let kept = self.shared.registers(index);
        for (to, from) in kept.general.iter().zip(general) {
            to.store(from, Relaxed);
        }
        for (to, from) in kept.frame.iter().zip([r.rip, r.cs, r.eflags, r.rsp, r.ss]) {
            to.store(from, Relaxed);
        }
        slot.mask.store(mask, Relaxed);
        slot.order.store(order, SeqCst);
        let base = self.shared.base.load(Relaxed);
        let first = (&raw const self.shared.slots[0] as usize) - (&raw const *self.shared as usize);
        let argument = base + (first + index * size_of::<Slot>()) as u64;
        let stack = base + (SUITCASES_AT + index * SUITCASE + REGISTERS) as u64;
        let entry = self.shared.entry.load(Relaxed);
        stopped.send(entry, argument, stack).is_ok()
    }

    fn slot_of(&mut self, thread: i32) -> Option<usize> {
        let kept = self.threads.get_mut(&thread)?;
        if kept.slot.is_none() {
            let free = self
                .shared
                .slots
                .iter()
                .position(|s| s.thread.load(Relaxed) == 0)?;
            debug_assert!(free < SLOTS);
            let slot = &self.shared.slots[free];
            slot.thread.store(thread as u32, Relaxed);
            slot.episodes.store(0, Relaxed);
            slot.state.store(state::HOME, SeqCst);
            kept.slot = Some(free);
        }
        kept.slot
    }

    /// Has the memory made sharable by the stopped thread, with all others stopped.
    fn convert(&mut self, first: Box<Stopped>) {
        if self.next_conversion.is_some_and(|at| at > Instant::now()) {
            return;
        }
        self.next_conversion = Some(Instant::now() + Duration::from_millis(50));
        if let Some(why) = image::hindrance(self.process) {
            self.refused = Some(why);
            return;
        }
        let Some(others) = self.stop_all_but(first.thread()) else {
            return;
        };
        self.shared.converted.store(0, SeqCst);
        let thread = first.thread();
        if !self.send(first, order::CONVERT) {
            return;
        }
        while self.shared.converted.load(Acquire) == 0 && is_alive(self.process, thread) {
            shared::wait(&self.shared.converted, 0);
        }
        drop(others);
    }

    /// All threads but one, stopped. `None` if one can't be just now.
    fn stop_all_but(&mut self, one: i32) -> Option<Vec<Stopped>> {
        let mut stopped: Vec<Stopped> = Vec::new();
        let mut seen = HashSet::from([one]);
        loop {
            let threads = threads_of(self.process);
            let new: Vec<i32> = threads.into_iter().filter(|t| !seen.contains(t)).collect();
            if new.is_empty() {
                return Some(stopped);
            }
            for thread in new {
                if !is_alive(self.process, thread) {
                    seen.insert(thread);
                    continue;
                }
                match Stopped::stop(thread, self.process) {
                    Ok(Stop::Stopped(one)) => {
                        seen.insert(thread);
                        stopped.push(*one);
                    }
                    Ok(Stop::Ended(status)) => {
                        self.exit = Some(status);
                        return None;
                    }
                    Ok(Stop::NotNow) | Err(_) if !is_alive(self.process, thread) => {}
                    Ok(Stop::NotNow) | Err(_) => return None,
                }
            }
        }
    }

    /// A thread is about to fork and wants all others stopped.
    fn stop_for_a_fork(&mut self) {
        let one = self.shared.stop.load(SeqCst) as i32;
        let end = Instant::now() + Duration::from_secs(2);
        let mut others = None;
        while others.is_none() && self.exit.is_none() && Instant::now() < end {
            others = self.stop_all_but(one);
        }
        let answer = if others.is_some() { 1 } else { 2 };
        self.shared.stopped.store(answer, SeqCst);
        shared::wake(&self.shared.stopped);
        while self.shared.stop.load(SeqCst) == one as u32 && is_alive(self.process, one) {
            shared::wait(&self.shared.stop, one as u32);
        }
        drop(others);
    }

    /// The line at the end, and the report.
    ///
    /// # Errors
    /// If the report can't be written.
    fn tell(&self, options: &Protect) -> Result<()> {
        let told = report::Told::new(
            &self.shared,
            self.refused.as_deref(),
            &self.targets.left_out,
        );
        if !options.quiet {
            note(&told.line());
        }
        match &options.report {
            Some(path) => fs::write(path, told.json())
                .with_context(|| format!("cannot write {}", path.display())),
            None => Ok(()),
        }
    }
}

fn threads_of(process: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{process}/task"));
    let names = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.file_name());
    names.filter_map(|n| n.to_str()?.parse().ok()).collect()
}

/// The letter of a thread's state.
fn state_of(process: i32, thread: i32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{thread}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    rest.trim_start().chars().next()
}

fn is_running(process: i32, thread: i32) -> bool {
    state_of(process, thread) == Some('R')
}

fn is_alive(process: i32, thread: i32) -> bool {
    state_of(process, thread).is_some_and(|s| !matches!(s, 'Z' | 'X' | 'x'))
}
