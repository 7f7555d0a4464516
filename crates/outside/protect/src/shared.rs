//! The tool's side of the control file: makes it, and reads and writes it while the
//! program runs. What the program may have written there is not trusted with more than
//! figures for the report.

use anyhow::{Context, Result, ensure};
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use sunder_guests::MemoryFile;
use sunder_wire::isolation::{
    CONTROL_BYTES, Control, ISOLATE_MAGIC, ISOLATE_VERSION, MEMORY_NAME, REGISTERS, Registers,
    SCRATCH, SCRATCH_AT, SUITCASE, SUITCASES_AT,
};

/// Both files, and our mapping of the control file.
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
    /// Makes both files. The memory's is as large as an address space, and empty.
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
        // SAFETY: just mapped, all zeroes, and nobody else has it yet.
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

    /// Where the program finds them.
    pub fn paths(&self) -> [PathBuf; 2] {
        [self.control.path(), self.memory.path()]
    }

    /// Gives the library the plan for the hooks, or takes it away. Nobody converts memory
    /// now.
    ///
    /// # Errors
    /// If there is too much of it.
    pub fn give_plan(&self, plan: &[u8]) -> Result<()> {
        ensure!(plan.len() <= SCRATCH, "the plan for the hooks is too long");
        self.control.write_at(plan, SCRATCH_AT as u64)?;
        self.plan_bytes.store(plan.len() as u32, Ordering::Release);
        Ok(())
    }

    /// The registers in the suitcase of a slot.
    pub fn registers(&self, slot: usize) -> &Registers {
        let offset = SUITCASES_AT + slot * SUITCASE + REGISTERS;
        assert!(offset + size_of::<Registers>() <= CONTROL_BYTES);
        // SAFETY: within the mapping, which is aligned; atomics may be shared.
        unsafe { &*self.at.cast::<u8>().add(offset).cast::<Registers>() }
    }
}

impl Deref for Shared {
    type Target = Control;

    fn deref(&self) -> &Control {
        // SAFETY: mapped as long as this lives; what others write are atomics.
        unsafe { &*self.at }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: our mapping, of which nothing is borrowed any more.
        unsafe { libc::munmap(self.at.cast(), CONTROL_BYTES) };
    }
}

/// Wakes whoever waits for the word in the program.
pub fn wake(word: &AtomicU32) {
    // SAFETY: waking takes the address alone.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}

/// Waits a millisecond at most, while the word is `value`.
pub fn wait(word: &AtomicU32, value: u32) {
    let timeout = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    if word.load(Ordering::Acquire) == value {
        // SAFETY: word and timeout are valid for the call.
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
