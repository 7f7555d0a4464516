//! Puts the library into a running program; then it moves bytes (`moves`), until everything is taken
//! out again (`leave`). Each of these steps is done while all threads are stopped, for some milliseconds, and either wholly
//! or not at all. The program's loader and allocator take no part: the library is written into
//! fresh memory, and hooks are written into code through `/proc/<pid>/mem`, as debuggers do. Called
//! by `entry`, `repairer` and `attach`.

use super::image::{self, Image};
use super::layout::{DESK, Layout};
use super::leave::{Left, PATIENCE, PAUSE};
use super::ledger::Ledger;
use super::plan::Plan;
use super::presence::{AT_WORK, Presence};
use crate::control::ControlFile;
use anyhow::{Context, Result, bail, ensure};
use std::cell::Cell;
use std::io;
use std::sync::atomic::Ordering::Release;
use std::time::Instant;
use sunder_access::{Mappings, PAGE, ProcessId};
use sunder_observe::foreign;
use sunder_observe::proc;
use sunder_stop::{Borrowed, STUB, StopError, World};
use sunder_wire::attach::{Begin, Table};
use sunder_wire::parked::PARKED;
use sunder_wire::remap::TOTAL;
use sunder_x86::trampoline::{Entries, Trampoline};

mod hooks;
mod moves;

pub use moves::Applied;

/// How often it is tried to write the program's own code back.
const ATTEMPTS: u32 = 3;
const CONFINED_THREAD: &str = "a thread of it is confined by seccomp, which may end it for kernel calls that it does \
                               not expect";

/// The library in a program, and what is needed to use it and to take it out.
pub struct Inside {
    presence: Presence,
    plan: Plan,
    layout: Layout,
    table: Table<u64>,
    /// Whether it could not be taken out after it could not begin.
    stays: Cell<bool>,
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
        let gate = plan
            .gate()
            .context("its C library makes no kernel calls of the kind that is needed")?;
        let layout = Layout::new(&plan, image::size(library)?, mappings)?;
        let image = image::image(library, layout.start)?;
        let restorers = plan.modules.iter().flat_map(|m| m.restorers.clone());
        let ledger = Ledger {
            parts: layout.parts().collect(),
            stub: layout.stub,
            stack: layout.stack,
            frames: layout.frames,
            control: 0,
            end: image.table.end,
            roll_back: image.table.roll_back,
            gate,
            restorers: restorers.collect(),
            hooks: hooks::hooks(&plan, &layout)?,
            opened: Vec::new(),
        };
        let mut inside = Self {
            presence: Presence::new(process, ledger)?,
            layout,
            table: image.table,
            stays: Cell::new(false),
            plan,
        };
        inside.is_as_planned()?;
        let begun = Instant::now();
        loop {
            ensure!(!inside.presence.is_confined(false), CONFINED_THREAD);
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
                world.threads().iter().all(|t| inside.presence.may_work(t)),
                CONFINED_THREAD
            );
            let Some(places) = inside.presence.stands(&world) else {
                bail!("a thread of it has no stack that can be read, or too long a one");
            };
            if places
                .iter()
                .any(|&ip| inside.presence.is_inside_a_hook(ip))
            {
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
            inside.presence.note_masks(&world);
            let entered = inside.enter(&world, &image);
            let file = entered.inspect_err(|_| inside.presence.close(&world))?;
            return Ok((inside, file));
        }
    }

    /// Checks that the code to be overwritten is the code that the plan was made for.
    fn is_as_planned(&self) -> Result<()> {
        for (base, patch) in self.plan.patches() {
            let (at, wanted) = hooks::original(base, patch);
            let found = self.presence.memory.read(at, wanted.len())?;
            ensure!(
                found == wanted,
                "something else has changed the code of its C library, or of another that makes kernel \
                 calls: at {at:#x} there is {found:02x?} in place of {wanted:02x?}"
            );
        }
        Ok(())
    }

    /// Does everything for which the program must make kernel calls. Undoes it if a part fails.
    fn enter(&mut self, world: &World, image: &Image) -> Result<ControlFile> {
        let control = Cell::new(0);
        let entered = self.map_and_fill(world, image, &control);
        self.presence.ledger.control = control.get();
        entered
    }

    fn map_and_fill(
        &self,
        world: &World,
        image: &Image,
        control: &Cell<u64>,
    ) -> Result<ControlFile> {
        let mut made = Vec::new();
        let entered = self.lay(world, image, control, &mut made).and_then(|file| {
            // Before the library begins: if we are killed later, it must not fault in a thread
            // that blocks the signal.
            self.presence.open(world);
            self.begin(world, control)?;
            Ok(file)
        });
        if entered.is_err()
            && !self.stays.get()
            && let Ok(worker) = self.presence.lend(world)
        {
            if control.get() != 0 {
                self.presence.unmap(&worker, control.get(), TOTAL as u64);
            }
            for (at, bytes) in made {
                self.presence.unmap(&worker, at, bytes);
            }
        }
        entered
    }

    /// Maps everything of ours and fills it; what is mapped is `made`.
    fn lay(
        &self,
        world: &World,
        image: &Image,
        control: &Cell<u64>,
        made: &mut Vec<(u64, u64)>,
    ) -> Result<ControlFile> {
        let worker = self.presence.lend(world)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let fixed = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        for (at, end) in self.layout.parts() {
            let got = self.map(&worker, at, end - at, rights, fixed, -1)?;
            made.push((got, end - at));
            ensure!(got == at, "the kernel does not give memory near its code");
        }
        self.fill(&worker, image, control)
    }

    fn fill(
        &self,
        worker: &Borrowed<'_>,
        image: &Image,
        control: &Cell<u64>,
    ) -> Result<ControlFile> {
        let file = self.share(worker, control)?;
        let (presence, layout) = (&self.presence, &self.layout);
        let memory = &presence.memory;
        for (at, bytes) in image.contents() {
            memory.write(layout.start + at, bytes)?;
        }
        for (i, (base, patch)) in self.plan.patches().enumerate() {
            let at = self.trampoline(i);
            let code = Trampoline::new(patch, base as usize, at as usize, self.entries())
                .context("its C library is out of reach")?;
            memory.write(at, &code.bytes)?;
        }
        memory.write(layout.stub, &STUB)?;
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
            presence
                .done(worker.call(libc::SYS_mprotect, arguments)?)
                .context("the kernel does not let it have code that is no file's")?;
        }
        for number in 0..PARKED {
            let (guard, _) = layout.slots.slot(number);
            let none = [guard, PAGE, libc::PROT_NONE as u64, 0, 0, 0];
            presence
                .done(worker.call(libc::SYS_mprotect, none)?)
                .context("the kernel does not let it have pages without access rights")?;
        }
        /// `MADV_WIPEONFORK`: forked children find the page empty.
        const WIPED: u64 = 18;
        let wiped = [layout.alive, PAGE, WIPED, 0, 0, 0];
        presence
            .done(worker.call(libc::SYS_madvise, wiped)?)
            .context("the kernel can't keep memory from its children")?;
        memory.write(layout.alive, &1u64.to_le_bytes())?;
        self.write_down(control, self.table.end)?;
        Ok(file)
    }

    /// Has the library begin, and writes the hooks. Takes that back if a part fails.
    fn begin(&self, world: &World, control: &Cell<u64>) -> Result<()> {
        let (presence, layout) = (&self.presence, &self.layout);
        let worker = &presence.lend(world)?;
        let stacks = self.stacks(world, worker)?;
        let begin = Begin {
            control: control.get(),
            alive: layout.alive,
            stacks: layout.desk + PAGE,
            stack_count: stacks,
        };
        let words = [begin.control, begin.alive, begin.stacks, begin.stack_count];
        let words: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        presence.memory.write(layout.desk, &words)?;
        let asked = |function| match presence.library(worker, function, layout.desk) {
            Ok(0) => Ok(()),
            Ok(error) => Err(io::Error::from_raw_os_error(error as i32)),
            Err(error) => Err(error),
        };
        let begun = asked(self.table.lead)
            .map_err(anyhow::Error::new)
            .and_then(|()| presence.divert())
            .and_then(|()| Ok(asked(self.table.begin)?));
        begun.map_err(|error| {
            let undone = self.undo(worker);
            self.stays.set(undone.is_err());
            let error = error.context("the library can't begin in it");
            match undone {
                Ok(()) => error,
                Err(_) => error.context("the library stays in it, and does nothing"),
            }
        })
    }

    /// Writes the ledger into the program. `end`: the library's function that gives handlers back; 0
    /// as long as no function of the library can be called.
    fn write_down(&self, control: &Cell<u64>, end: u64) -> Result<()> {
        let ledger = Ledger {
            control: control.get(),
            end,
            ..self.presence.ledger.clone()
        };
        let written = self
            .presence
            .memory
            .write(self.layout.frames, &ledger.bytes());
        written.context("its memory can't be written to")
    }

    /// Takes back what [`Self::begin`] has changed in code and signal handlers. A thread that is lost
    /// in the library must find hooks and what they lead to.
    fn undo(&self, worker: &Borrowed<'_>) -> Result<()> {
        ensure!(!worker.is_lost(), AT_WORK);
        let presence = &self.presence;
        presence.library(worker, self.table.end, 0)?;
        let mut undone = Ok(());
        for _ in 0..ATTEMPTS {
            let there = presence.hooks_there();
            undone = there.and_then(|hooks| presence.restore(&hooks));
            if undone.is_ok() {
                break;
            }
        }
        undone
    }

    /// Has the program make the control file, so that it needs no permission to open a file of
    /// ours.
    fn share(&self, worker: &Borrowed<'_>, control: &Cell<u64>) -> Result<ControlFile> {
        let presence = &self.presence;
        presence.memory.write(self.layout.desk, b"sunder-remap\0")?;
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let name = [self.layout.desk, flags.into(), 0, 0, 0, 0];
        let fd = worker.call(libc::SYS_memfd_create, name)?;
        let fd = presence
            .done(fd)
            .context("it can't make a file in memory")?;
        let made = self.open_and_map(worker, fd, control);
        worker.call(libc::SYS_close, [fd, 0, 0, 0, 0, 0])?;
        made
    }

    fn open_and_map(
        &self,
        worker: &Borrowed<'_>,
        fd: u64,
        control: &Cell<u64>,
    ) -> Result<ControlFile> {
        let file = foreign::memory_file(self.presence.process, fd as i32, TOTAL as u64);
        let file = ControlFile::of(file.context("the file that it makes can't be taken over")?)?;
        // Before the file can be seen in the program: whoever comes after us can take out what we
        // leave, if we are killed.
        self.write_down(control, 0)?;
        file.control().ledger.store(self.layout.frames, Release);
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let bytes = TOTAL as u64;
        let at = self.map(worker, 0, bytes, rights, libc::MAP_SHARED, fd as i64)?;
        control.set(at);
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
                one = self.presence.borrow(thread)?;
                &one
            };
            let ask = [0, scratch, 0, 0, 0, 0];
            self.presence
                .done(borrowed.call(libc::SYS_sigaltstack, ask)?)?;
            let settings = self.presence.memory.words(scratch, 3)?;
            if settings[1] as i32 & libc::SS_DISABLE == 0 {
                ensure!(
                    count < room,
                    "it has too many threads with stacks for signals"
                );
                let words = [settings[0].to_le_bytes(), settings[2].to_le_bytes()].concat();
                self.presence.memory.write(list + 16 * count, &words)?;
                count += 1;
            }
        }
        Ok(count)
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
        self.presence
            .done(got)
            .context("the kernel gives it no memory")
    }

    /// Start and end addresses of our code in the program.
    pub fn code(&self) -> impl Iterator<Item = (u64, u64)> {
        self.presence.ledger.parts.iter().copied()
    }

    /// Address ranges of our memory in the program, except the areas.
    pub fn ours(&self) -> impl Iterator<Item = (u64, u64)> {
        self.presence.ours()
    }

    /// Takes everything out.
    pub fn take_out(self, file: &ControlFile) -> Left {
        self.presence.take_out(file)
    }
}
