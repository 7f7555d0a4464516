//! What of ours is in a program, and how its threads are made to work for us while all of them are
//! stopped. Called by `inject`, which puts it there, and by `leave`, which takes it out; `remnant`
//! finds one that an earlier Sunder has left. Decides nothing.

use super::ledger::{Hook, Ledger};
use super::refuse::{Confined, confined, own_confinement};
use crate::control::ControlFile;
use anyhow::{Context, Result, anyhow, ensure};
use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use sunder_access::{Address, ProcessId, ThreadId};
use sunder_observe::proc::{self, Folder};
use sunder_stop::{Borrowed, Collector, Memory, Stopped, World, set_mask, stands};
use sunder_wire::remap::{APPLYING, ROLLING_BACK, TOTAL};

/// Bytes for the signal frame of a borrowed thread.
pub const FRAME: u64 = 8 * sunder_access::PAGE;
const FAULTS: u64 = 1 << (libc::SIGSEGV - 1);
pub const CONFINED: &str = "it has been confined by seccomp meanwhile, which may end it for kernel \
                            calls that it does not expect";
pub const AT_WORK: &str = "a thread of it is not back yet from what it did for us";

/// See the head of this file.
pub struct Presence {
    pub process: ProcessId,
    pub memory: Memory,
    pub ledger: Ledger,
    /// Whether our mapping of the control file is a copy: the file itself is another Sunder's.
    pub is_copied: bool,
    /// How seccomp confined the threads when the library was put in: in the same way as us.
    confined: Confined,
    /// If the program executes another one while threads are being stopped, the `exec` waits until
    /// the traced threads are reaped.
    _collector: Collector,
}

impl Presence {
    /// For `process`, as the ledger says.
    ///
    /// # Errors
    /// If its memory can't be written to.
    pub fn new(process: ProcessId, ledger: Ledger) -> Result<Self> {
        Ok(Self {
            process,
            memory: Memory::of(process).context("its memory can't be written to")?,
            ledger,
            is_copied: false,
            confined: own_confinement()?.clone(),
            _collector: Collector::start(process.0 as i32).context("cannot start a thread")?,
        })
    }

    /// Writes down which threads block the signal of faults.
    pub fn note_masks(&mut self, world: &World) {
        let threads = world.threads().iter();
        let masks = threads.filter_map(|t| Some((t.thread(), t.mask().ok()?)));
        self.ledger.opened = masks.filter(|(_, mask)| mask & FAULTS != 0).collect();
    }

    /// Unblocks the signal of faults in these threads; hooks keep it unblocked. Without us this
    /// changes nothing for the program: a real fault with the signal blocked ends it too.
    pub fn open(&self, world: &World) {
        for thread in world.threads() {
            if let Some(mask) = self.mask_before(thread) {
                // If this fails the thread has been killed.
                let _ = set_mask(thread, mask & !FAULTS);
            }
        }
    }

    fn mask_before(&self, thread: &Stopped) -> Option<u64> {
        let mut opened = self.ledger.opened.iter();
        let before = opened.find(|(t, _)| *t == thread.thread());
        before.map(|&(_, mask)| mask)
    }

    /// Blocks the signal again in threads whose mask is otherwise unchanged.
    pub fn close(&self, world: &World) {
        for thread in world.threads() {
            if let Some(mask) = self.mask_before(thread)
                && thread.mask().is_ok_and(|now| now == mask & !FAULTS)
            {
                // If this fails the thread has been killed.
                let _ = set_mask(thread, mask);
            }
        }
    }

    /// See [`Stopped::move_to`].
    ///
    /// # Errors
    /// As that has.
    pub fn move_to(
        &self,
        thread: &mut Stopped,
        ip: u64,
        change: impl FnOnce(&mut [u64; 16]),
    ) -> io::Result<()> {
        // Our memory in the program has room there, above the frames of borrowed threads.
        let free = self.ledger.frames.saturating_sub(8);
        thread.move_to(|thread| self.memory.is_of(thread, free), ip, change)
    }

    /// Where the threads and the code that signals have interrupted stand.
    pub fn stands(&self, world: &World) -> Option<Vec<u64>> {
        let mappings = proc::mappings(self.process).ok()?;
        let restorers = &self.ledger.restorers;
        stands(world.threads(), &self.memory, &mappings, restorers)
    }

    /// Whether a thread may make kernel calls for us: it is confined as the threads were when the
    /// library was put in.
    pub fn may_work(&self, thread: &Stopped) -> bool {
        let task = Folder::Thread(self.process, ThreadId(thread.thread().unsigned_abs()));
        confined(task).is_ok_and(|now| now == self.confined)
    }

    /// Whether all threads, or any of them, are confined otherwise than when the library was put in. To be
    /// asked before they are stopped: the kernel begins the waits of stopped threads anew by a call of its
    /// own (`restart_syscall`), for which a filter may end the program.
    pub fn is_confined(&self, all: bool) -> bool {
        let threads = proc::listed_threads(self.process).unwrap_or_default();
        let otherwise = |&thread: &ThreadId| {
            let now = confined(Folder::Thread(self.process, thread));
            now.is_ok_and(|now| now != self.confined)
        };
        match all {
            true => !threads.is_empty() && threads.iter().all(otherwise),
            false => threads.iter().any(otherwise),
        }
    }

    /// Whether a lost thread still runs on our stack or returns through our frame: the next
    /// borrowed thread would overwrite both.
    pub fn is_at_work(&self, file: &ControlFile, world: &World) -> bool {
        let threads = world.threads().iter();
        let mut others = threads.filter(|t| self.parked(file, t).is_none());
        others.any(|t| self.ledger.has(t.registers().rsp))
    }

    /// The threads that may make kernel calls for us.
    fn workers<'a>(&'a self, world: &'a World) -> impl Iterator<Item = &'a Stopped> {
        world.workers().filter(move |t| self.may_work(t))
    }

    pub fn worker<'a>(&'a self, world: &'a World) -> Option<&'a Stopped> {
        self.workers(world).next()
    }

    /// Borrows a thread with its frame on the thread's own stack: for the time before our memory is
    /// in the program, and while it is taken out.
    pub fn lend<'a>(&'a self, world: &'a World) -> Result<Borrowed<'a>> {
        let mappings = proc::mappings(self.process)?;
        let has_room = |t: &&Stopped| {
            let rsp = t.registers().rsp;
            let stack = mappings.at(Address(rsp));
            stack.is_some_and(|m| m.write && rsp - m.span.start.0 > FRAME)
        };
        let worker = self.workers(world).find(has_room);
        let worker = worker.context("no thread of it has room on its stack")?;
        Ok(Borrowed::new(worker, &self.memory, self.ledger.gate)?)
    }

    /// Borrows a thread with its frame in our memory in the program.
    pub fn borrow<'a>(&'a self, thread: &'a Stopped) -> io::Result<Borrowed<'a>> {
        Borrowed::below(thread, &self.memory, self.ledger.gate, self.ledger.frames)
    }

    /// Has the thread call a function of the library.
    pub fn library(&self, worker: &Borrowed<'_>, function: u64, argument: u64) -> io::Result<u64> {
        worker.function(function, argument, self.ledger.stack, self.ledger.stub)
    }

    pub fn unmap(&self, worker: &Borrowed<'_>, at: u64, bytes: u64) {
        // The range is mapped, or the program has ended.
        let _ = worker.call(libc::SYS_munmap, [at, bytes, 0, 0, 0, 0]);
    }

    /// The result of a kernel call, or its error.
    pub fn done(&self, result: i64) -> Result<u64> {
        u64::try_from(result).map_err(|_| anyhow!(io::Error::from_raw_os_error(-result as i32)))
    }

    /// Whether the bytes of any area are being moved at this moment.
    pub fn is_on_its_way(&self, file: &ControlFile) -> bool {
        let mut areas = file.control().areas.iter();
        areas.any(|a| matches!(a.state.load(Acquire), APPLYING | ROLLING_BACK))
    }

    /// Sets a word of the control file, for the program to see.
    ///
    /// # Errors
    /// If the program has no longer mapped it.
    pub fn set(&self, file: &ControlFile, word: &AtomicU32, value: u32) -> Result<()> {
        word.store(value, Release);
        if self.is_copied {
            let at = self.ledger.control + file.offset(word);
            self.memory.write(at, &value.to_le_bytes())?;
        }
        Ok(())
    }

    /// Looks at the control file again, if ours is a copy.
    ///
    /// # Errors
    /// If the program has no longer mapped it.
    pub fn refresh(&self, file: &ControlFile) -> Result<()> {
        if self.is_copied {
            file.fill(|into| self.memory.read_into(self.ledger.control, into))?;
        }
        Ok(())
    }

    /// Whether a hook is in the code. Where nothing is mapped, none is.
    pub fn has_hook(&self, hook: &Hook) -> Result<bool> {
        let bytes = hook.code()?;
        match self.memory.read(hook.at, bytes.len()) {
            Ok(found) => Ok(found == bytes),
            Err(error) => {
                let mappings = proc::mappings(self.process)?;
                let is_mapped = mappings.at(Address(hook.at)).is_some();
                ensure!(!is_mapped, "its code can't be read: {error}");
                Ok(false)
            }
        }
    }

    /// Writes all hooks into the program's code.
    ///
    /// # Errors
    /// If that fails; some are there then.
    pub fn divert(&self) -> Result<()> {
        self.ledger.hooks.iter().try_for_each(|hook| {
            let written = self.memory.write(hook.at, &hook.code()?);
            written.context("the code of its C library can't be changed")
        })
    }

    /// Hooks that are in the code: a module may have been unloaded, and something else may lie
    /// there.
    pub fn hooks_there(&self) -> Result<Vec<&Hook>> {
        let mut there = Vec::new();
        for hook in &self.ledger.hooks {
            if self.has_hook(hook)? {
                there.push(hook);
            }
        }
        Ok(there)
    }

    /// Writes the original code back. After an error some hooks are still there.
    pub fn restore(&self, hooks: &[&Hook]) -> Result<()> {
        hooks.iter().try_for_each(|hook| {
            let written = self.memory.write(hook.at, &hook.original);
            written.context("the code of its C library can't be changed back")
        })
    }

    /// Whether `ip` lies inside code that a hook overwrites.
    pub fn is_inside_a_hook(&self, ip: u64) -> bool {
        self.ledger.hooks.iter().any(|hook| hook.is_inside(ip))
    }

    /// Address ranges of our memory in the program, except the areas.
    pub fn ours(&self) -> impl Iterator<Item = (u64, u64)> {
        let control = self.ledger.control;
        let parts = self.ledger.parts.iter().copied();
        parts.chain([(control, control + TOTAL as u64)])
    }
}
