//! The tool's side of the control file: makes it, and reads and writes it while the program runs.
//! The program can write to it too, so what comes from it must be used for nothing but figures in
//! the report, or be checked.

use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use sunder_guests::MemoryFile;
use sunder_live::Loaded;
use sunder_wire::isolation::{
    CONTROL_BYTES, Control, ISOLATE_MAGIC, ISOLATE_VARIABLE, ISOLATE_VERSION, MEMORY_NAME,
    REGISTERS, Registers, SCRATCH, SCRATCH_AT, THREAD_AREA, THREAD_AREAS_AT,
};

/// The control file and the file for the program's memory, and our mapping of the control file.
#[allow(
    missing_debug_implementations,
    reason = "addresses of mapped files tell nothing"
)]
pub struct Shared {
    control: MemoryFile,
    memory: MemoryFile,
    at: *mut Control,
}

impl Shared {
    /// Makes both files. The memory file is as large as an address space, and sparse.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new() -> Result<Self> {
        const ADDRESS_SPACE: u64 = 1 << 47;
        let control = MemoryFile::empty(c"sunder-control", CONTROL_BYTES as u64)
            .context("cannot make the control file")?;
        let name = std::ffi::CString::new(MEMORY_NAME).context("a constant name")?;
        let memory = MemoryFile::empty(&name, ADDRESS_SPACE)
            .context("cannot make a file for the program's memory")?;
        // SAFETY: a new mapping of a file of that size.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                CONTROL_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                control.descriptor(),
                0,
            )
        };
        ensure!(at != libc::MAP_FAILED, "cannot map the control file");
        let at = at.cast::<Control>();
        // SAFETY: the file was just mapped, is all zeroes, and is not shared with the program yet.
        unsafe {
            (&raw mut (*at).magic).write(ISOLATE_MAGIC);
            (&raw mut (*at).version).write(ISOLATE_VERSION);
        }
        Ok(Self {
            control,
            memory,
            at,
        })
    }

    /// The paths by which the program opens the control file and the memory file.
    pub fn paths(&self) -> [PathBuf; 2] {
        [self.control.path(), self.memory.path()]
    }

    /// Gives the library the plan for the hooks. To be called only while no memory is being made
    /// sharable.
    ///
    /// # Errors
    /// If the plan is too long, or can't be written.
    pub fn give_plan(&self, plan: &[u8]) -> Result<()> {
        ensure!(plan.len() <= SCRATCH, "the plan for the hooks is too long");
        self.control.write_at(plan, SCRATCH_AT as u64)?;
        self.plan_bytes.store(plan.len() as u32, Ordering::Release);
        Ok(())
    }

    /// The saved registers of a slot's thread.
    pub fn registers(&self, slot: usize) -> &Registers {
        let offset = THREAD_AREAS_AT + slot * THREAD_AREA + REGISTERS;
        assert!(offset + size_of::<Registers>() <= CONTROL_BYTES);
        // SAFETY: the offset is within the mapping, which is aligned; the registers are atomics,
        // which may be shared.
        unsafe { &*self.at.cast::<u8>().add(offset).cast::<Registers>() }
    }
}

impl Deref for Shared {
    type Target = Control;

    fn deref(&self) -> &Control {
        // SAFETY: the mapping lives as long as this value; the program writes only to atomics.
        unsafe { &*self.at }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and this value's borrows have ended.
        unsafe { libc::munmap(self.at.cast(), CONTROL_BYTES) };
    }
}

/// Wakes all threads of the program that wait for a change of `word`.
pub fn wake(word: &AtomicU32) {
    // SAFETY: waking uses the address only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Waits a millisecond at most, as long as `word` is `value`.
pub fn wait(word: &AtomicU32, value: u32) {
    let timeout = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    if word.load(Ordering::Acquire) == value {
        // SAFETY: the word and the timeout are valid for the duration of the call.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT,
                value,
                &raw const timeout,
            )
        };
    }
}

/// What the program preloads, and the variable that tells the library its control and memory files.
pub fn loaded(library: &MemoryFile, shared: &Shared) -> Loaded {
    let [control, memory] = shared.paths();
    let library = library.path();
    let mut value = OsString::from(control);
    value.push(",");
    value.push(memory);
    value.push(",");
    value.push(&library);
    Loaded {
        library,
        variable: ISOLATE_VARIABLE.into(),
        value,
    }
}
