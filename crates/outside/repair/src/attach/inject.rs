//! Puts the library into a running program; then it moves bytes (`moves`), until everything is taken
//! out again (`leave`). Each of these steps is done while all threads are stopped, for some milliseconds, and either wholly
//! or not at all. The program's loader and allocator take no part: the library is written into
//! fresh memory, and hooks are written into code through `/proc/<pid>/mem`, as debuggers do. Called
//! by `entry`, `repairer` and `attach`.

use super::image::{self, Image};
use super::layout::{DESK, FRAME, Layout};
use super::plan::Plan;
use super::refuse::{Confined, confined, own_confinement};
use crate::control::ControlFile;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::cell::Cell;
use std::io;
use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};
use sunder_access::{Address, Mappings, PAGE, ProcessId, ThreadId};
use sunder_observe::foreign;
use sunder_observe::proc::{self, Folder};
use sunder_stop::{
    Borrowed, Collector, Gate, Memory, STUB, StopError, Stopped, World, set_mask, stands,
};
use sunder_wire::attach::{Begin, Table};
use sunder_wire::remap::{APPLYING, ROLLING_BACK, TOTAL};
use sunder_x86::trampoline::{Entries, Trampoline};

mod hooks;
mod leave;
mod moves;

pub use leave::Left;
pub use moves::Applied;

/// How long we try to find a moment at which no thread is in the way.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause before the threads are stopped again.
const PAUSE: Duration = Duration::from_millis(3);
/// How often it is tried to write the program's own code back.
const ATTEMPTS: u32 = 3;
const FAULTS: u64 = 1 << (libc::SIGSEGV - 1);
const CONFINED: &str = "it has been confined by seccomp meanwhile, which may end it for kernel \
                        calls that it does not expect";

const AT_WORK: &str = "a thread of it is not back yet from what it did for us";

/// The library in a program, and what is needed to use it and to take it out.
pub struct Inside {
    process: ProcessId,
    memory: Memory,
    plan: Plan,
    layout: Layout,
    table: Table<u64>,
    /// Address of the control file in the program.
    control: Cell<u64>,
    /// Whether it could not be taken out after it could not begin.
    stays: Cell<bool>,
    gate: Gate,
    /// Addresses of code that returns from signal handlers.
    restorers: Vec<u64>,
    /// Threads that blocked the signal of faults, and the signal masks that they had.
    opened: Vec<(i32, u64)>,
    /// How seccomp confined the threads when the library was put in: in the same way as us.
    confined: Confined,
    /// If the program executes another one while threads are being stopped, the `exec` waits until
    /// the traced threads are reaped.
    _collector: Collector,
}

impl Inside {
    /// Puts `library`, the control file, and the hooks of `plan` into the process, which has these
    /// mappings.
    ///
    /// # Errors
    /// Says why it could not be done; the program is then as it was.
    pub fn put(
        process: ProcessId,
        library: &[u8],
        plan: Plan,
        mappings: &Mappings,
    ) -> Result<(Self, ControlFile)> {
        let memory = Memory::of(process).context("its memory can't be written to")?;
        let gate = plan
            .gate()
            .context("its C library makes no kernel calls of the kind that is needed")?;
        let layout = Layout::new(&plan, image::size(library)?, mappings)?;
        let image = image::image(library, layout.start)?;
        let mut inside = Self {
            process,
            memory,
            layout,
            table: image.table,
            control: Cell::new(0),
            stays: Cell::new(false),
            gate,
            restorers: plan
                .modules
                .iter()
                .flat_map(|m| m.restorers.clone())
                .collect(),
            opened: Vec::new(),
            confined: own_confinement()?.clone(),
            _collector: Collector::start(process.0 as i32).context("cannot start a thread")?,
            plan,
        };
        inside.is_as_planned()?;
        let begun = Instant::now();
        loop {
            let world = match World::stop(process) {
                // A thread that did not stop in time is still attached to us, and stopping it again
                // is refused for that reason.
                Err(StopError::NotNow | StopError::Refused(_)) if begun.elapsed() < PATIENCE => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                other => other?,
            };
            ensure!(
                world.threads().iter().all(|t| inside.may_work(t)),
                "a thread of it is confined by seccomp, which may end it for kernel calls that it does \
                 not expect"
            );
            let Some(places) = inside.stands(&world) else {
                bail!("a thread of it has no stack that can be read, or too long a one");
            };
            if places.iter().any(|&ip| inside.plan.is_inside(ip)) {
                ensure!(
                    begun.elapsed() < PATIENCE,
                    "a thread of it stays where its C library's code would be changed"
                );
                drop(world);
                std::thread::sleep(PAUSE);
                continue;
            }
            // A module may have been unloaded since the plan was made.
            let now = proc::mappings(process)?;
            ensure!(
                inside.plan.is_for(&now),
                "a module of it that makes kernel calls of its own has just gone"
            );
            inside.is_as_planned()?;
            // This comes first: if we are killed later, the library must not fault in a thread that
            // blocks the signal.
            inside.open(&world);
            let entered = inside.enter(&world, &image);
            let file = entered.inspect_err(|_| inside.close(&world))?;
            return Ok((inside, file));
        }
    }

    /// Unblocks the signal of faults in all threads; hooks keep it unblocked. Without us this
    /// changes nothing for the program: a real fault with the signal blocked ends it too.
    fn open(&mut self, world: &World) {
        for thread in world.threads() {
            if let Ok(mask) = thread.mask()
                && mask & FAULTS != 0
                && set_mask(thread, mask & !FAULTS).is_ok()
            {
                self.opened.push((thread.thread(), mask));
            }
        }
    }

    /// Blocks the signal again in threads whose mask is otherwise unchanged.
    fn close(&self, world: &World) {
        for thread in world.threads() {
            let before = self.opened.iter().find(|(t, _)| *t == thread.thread());
            if let Some(&(_, mask)) = before
                && thread.mask().is_ok_and(|now| now == mask & !FAULTS)
            {
                // If this fails the thread has been killed.
                let _ = set_mask(thread, mask);
            }
        }
    }

    /// Checks that the code to be overwritten is the code that the plan was made for.
    fn is_as_planned(&self) -> Result<()> {
        for (base, patch) in self.plan.patches() {
            let head = patch.head();
            let at = base + patch.entry - head.len() as u64;
            let wanted = [head, &[0x0f, 0x05], patch.tail()].concat();
            let found = self.memory.read(at, wanted.len())?;
            ensure!(
                found == wanted,
                "something else has changed the code of its C library, or of another that makes kernel \
                 calls"
            );
        }
        Ok(())
    }

    fn stands(&self, world: &World) -> Option<Vec<u64>> {
        let mappings = proc::mappings(self.process).ok()?;
        stands(world.threads(), &self.memory, &mappings, &self.restorers)
    }

    /// Does everything for which the program must make kernel calls. Undoes it if a part fails.
    fn enter(&self, world: &World, image: &Image) -> Result<ControlFile> {
        let worker = self.lend(world)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let fixed = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let mut made = Vec::new();
        let mapped = self.code().try_for_each(|(at, end)| {
            let got = self.map(&worker, at, end - at, rights, fixed, -1)?;
            made.push((got, end - at));
            ensure!(got == at, "the kernel does not give memory near its code");
            Ok(())
        });
        let entered = mapped.and_then(|()| self.fill(world, &worker, image));
        if entered.is_err() && !self.stays.get() {
            if self.control.get() != 0 {
                self.unmap(&worker, self.control.get(), TOTAL as u64);
            }
            for (at, bytes) in made {
                self.unmap(&worker, at, bytes);
            }
        }
        entered
    }

    fn fill(&self, world: &World, worker: &Borrowed<'_>, image: &Image) -> Result<ControlFile> {
        let file = self.share(worker)?;
        let layout = &self.layout;
        for (at, bytes) in image.contents() {
            self.memory.write(layout.start + at, bytes)?;
        }
        for (i, (base, patch)) in self.plan.patches().enumerate() {
            let at = self.trampoline(i);
            let code = Trampoline::new(patch, base as usize, at as usize, self.entries())
                .context("its C library is out of reach")?;
            self.memory.write(at, &code.bytes)?;
        }
        self.memory.write(layout.stub, &STUB)?;
        let code = (
            layout.trampolines - layout.start,
            layout.alive - layout.trampolines,
            libc::PROT_READ | libc::PROT_EXEC,
        );
        let parts = image.parts.iter().chain([&code]);
        let parts = parts.map(|&(from, len, rights)| (layout.start + from, len, rights));
        let far = layout.far.iter();
        let far = far.map(|&(at, end)| (at, end - at, libc::PROT_READ | libc::PROT_EXEC));
        for (at, len, rights) in parts.chain(far) {
            let arguments = [at, len, rights as u64, 0, 0, 0];
            self.done(worker.call(libc::SYS_mprotect, arguments)?)
                .context("the kernel does not let it have code that is no file's")?;
        }
        /// `MADV_WIPEONFORK`: forked children find the page empty.
        const WIPED: u64 = 18;
        let wiped = [layout.alive, PAGE, WIPED, 0, 0, 0];
        self.done(worker.call(libc::SYS_madvise, wiped)?)
            .context("the kernel can't keep memory from its children")?;
        self.memory.write(layout.alive, &1u64.to_le_bytes())?;
        let stacks = self.stacks(world, worker)?;
        let begin = Begin {
            control: self.control.get(),
            alive: layout.alive,
            stacks: layout.desk + PAGE,
            stack_count: stacks,
        };
        let words = [begin.control, begin.alive, begin.stacks, begin.stack_count];
        let words: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.memory.write(layout.desk, &words)?;
        let asked = |function| match self.library(worker, function, layout.desk) {
            Ok(0) => Ok(()),
            Ok(error) => Err(io::Error::from_raw_os_error(error as i32)),
            Err(error) => Err(error),
        };
        let begun = asked(self.table.lead)
            .map_err(anyhow::Error::new)
            .and_then(|()| self.divert())
            .and_then(|()| Ok(asked(self.table.begin)?));
        match begun {
            Ok(()) => Ok(file),
            Err(error) => {
                let undone = self.undo(worker);
                self.stays.set(undone.is_err());
                let error = error.context("the library can't begin in it");
                Err(match undone {
                    Ok(()) => error,
                    Err(_) => error.context("the library stays in it, and does nothing"),
                })
            }
        }
    }

    /// Takes back what [`Self::fill`] has changed in code and signal handlers. A thread that is lost
    /// in the library must find hooks and what they lead to.
    fn undo(&self, worker: &Borrowed<'_>) -> Result<()> {
        ensure!(!worker.is_lost(), AT_WORK);
        self.library(worker, self.table.end, 0)?;
        let mut undone = Ok(());
        for _ in 0..ATTEMPTS {
            undone = self.hooks_there().and_then(|hooks| self.restore(&hooks));
            if undone.is_ok() {
                break;
            }
        }
        undone
    }

    /// Has the program make the control file, so that it needs no permission to open a file of
    /// ours.
    fn share(&self, worker: &Borrowed<'_>) -> Result<ControlFile> {
        self.memory.write(self.layout.desk, b"sunder-remap\0")?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let name = [self.layout.desk, flags.into(), 0, 0, 0, 0];
        let fd = worker.call(libc::SYS_memfd_create, name)?;
        let fd = self.done(fd).context("it can't make a file in memory")?;
        let made = self.open_and_map(worker, fd);
        worker.call(libc::SYS_close, [fd, 0, 0, 0, 0, 0])?;
        made
    }

    fn open_and_map(&self, worker: &Borrowed<'_>, fd: u64) -> Result<ControlFile> {
        let file = foreign::memory_file(self.process, fd as i32, TOTAL as u64);
        let file = ControlFile::of(file.context("the file that it makes can't be taken over")?)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let bytes = TOTAL as u64;
        let at = self.map(worker, 0, bytes, rights, libc::MAP_SHARED, fd as i64)?;
        self.control.set(at);
        Ok(file)
    }

    /// Writes the threads' alternate signal stacks into the desk; gives their number.
    fn stacks(&self, world: &World, worker: &Borrowed<'_>) -> Result<u64> {
        let list = self.layout.desk + PAGE;
        let room = (DESK - PAGE) / 16 - 2;
        let scratch = self.layout.desk;
        let mut count = 0;
        for thread in world.threads() {
            let one;
            let borrowed = if thread.thread() == worker.thread() {
                worker
            } else {
                one = self.borrow(thread)?;
                &one
            };
            let ask = [0, scratch, 0, 0, 0, 0];
            self.done(borrowed.call(libc::SYS_sigaltstack, ask)?)?;
            let settings = self.memory.words(scratch, 3)?;
            if settings[1] as i32 & libc::SS_DISABLE == 0 {
                ensure!(
                    count < room,
                    "it has too many threads with stacks for signals"
                );
                let words = [settings[0].to_le_bytes(), settings[2].to_le_bytes()].concat();
                self.memory.write(list + 16 * count, &words)?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Borrows a thread with its frame on the thread's own stack: for the time before our memory is
    /// in the program, and while it is taken out.
    fn lend<'a>(&'a self, world: &'a World) -> Result<Borrowed<'a>> {
        let mappings = proc::mappings(self.process)?;
        let has_room = |t: &&Stopped| {
            let rsp = t.registers().rsp;
            let stack = mappings.at(Address(rsp));
            stack.is_some_and(|m| m.write && rsp - m.span.start.0 > FRAME)
        };
        let worker = self.workers(world).find(has_room);
        let worker = worker.context("no thread of it has room on its stack")?;
        Ok(Borrowed::new(worker, &self.memory, self.gate)?)
    }

    /// Whether a thread may make kernel calls for us: it is confined as the threads were when the
    /// library was put in.
    fn may_work(&self, thread: &Stopped) -> bool {
        let task = Folder::Thread(self.process, ThreadId(thread.thread().unsigned_abs()));
        confined(task).is_ok_and(|now| now == self.confined)
    }

    /// Whether a lost thread still runs on our stack or returns through our frame: the next
    /// borrowed thread would overwrite both.
    fn is_at_work(&self, world: &World) -> bool {
        let ours = self.layout.start..self.layout.frames;
        let mut threads = world.threads().iter();
        threads.any(|t| ours.contains(&t.registers().rsp))
    }

    /// The threads that may make kernel calls for us.
    fn workers<'a>(&'a self, world: &'a World) -> impl Iterator<Item = &'a Stopped> {
        world.workers().filter(move |t| self.may_work(t))
    }

    fn worker<'a>(&'a self, world: &'a World) -> Option<&'a Stopped> {
        self.workers(world).next()
    }

    /// Borrows a thread with its frame in our memory in the program.
    fn borrow<'a>(&'a self, thread: &'a Stopped) -> io::Result<Borrowed<'a>> {
        Borrowed::below(thread, &self.memory, self.gate, self.layout.frames)
    }

    fn entries(&self) -> Entries {
        Entries {
            instead: self.table.instead as usize,
            failed: self.table.failed as usize,
            before: self.table.before as usize,
        }
    }

    fn trampoline(&self, number: usize) -> u64 {
        self.layout.places[number]
    }

    fn library(&self, worker: &Borrowed<'_>, function: u64, argument: u64) -> io::Result<u64> {
        worker.function(function, argument, self.layout.stack, self.layout.stub)
    }

    fn map(
        &self,
        worker: &Borrowed<'_>,
        at: u64,
        bytes: u64,
        rights: i32,
        flags: i32,
        fd: i64,
    ) -> Result<u64> {
        let arguments = [at, bytes, rights as u64, flags as u64, fd as u64, 0];
        let got = worker.call(libc::SYS_mmap, arguments)?;
        self.done(got).context("the kernel gives it no memory")
    }

    fn unmap(&self, worker: &Borrowed<'_>, at: u64, bytes: u64) {
        // The range is mapped, or the program has ended.
        let _ = worker.call(libc::SYS_munmap, [at, bytes, 0, 0, 0, 0]);
    }

    fn done(&self, result: i64) -> Result<u64> {
        u64::try_from(result).map_err(|_| anyhow!(io::Error::from_raw_os_error(-result as i32)))
    }

    /// Start and end addresses of our code in the program.
    pub fn code(&self) -> impl Iterator<Item = (u64, u64)> {
        self.layout.parts()
    }

    /// Address ranges of our memory in the program, except the areas.
    pub fn ours(&self) -> impl Iterator<Item = (u64, u64)> {
        let control = self.control.get();
        self.code().chain([(control, control + TOTAL as u64)])
    }
}

/// Whether the bytes of any area are being moved at this moment.
fn is_on_its_way(file: &ControlFile) -> bool {
    let mut areas = file.control().areas.iter();
    areas.any(|a| matches!(a.state.load(Acquire), APPLYING | ROLLING_BACK))
}
