//! The control file, which the library inside the program shares with us: makes it, maps it, and
//! writes the plan for the C library's kernel calls into it. In this crate only this file touches
//! memory that the program can change.

use anyhow::{Context, Result};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use sunder_observe::foreign;
use sunder_rewrite::sites::Want;
use sunder_wire::descriptor_path;
use sunder_wire::remap::{AREAS, BYTES, CACHE, Control, MAGIC, TOTAL, VERSION};

/// The name of the file in a list of mappings.
pub const CONTROL_NAME: &str = "/memfd:sunder-remap";

/// The control file and our mapping of it; see the head of this file.
pub struct ControlFile {
    file: File,
    /// Never unmapped, since other threads of ours may still use it.
    base: *mut u8,
}

// SAFETY: what is read and written through `base` are atomic integers, and code that only one
// thread of ours writes.
unsafe impl Send for ControlFile {}
// SAFETY: as for `Send`.
unsafe impl Sync for ControlFile {}

impl ControlFile {
    /// Makes the file with a plan for hooks, for a program that loads the library at its start.
    ///
    /// # Errors
    /// If the kernel gives us no memory, or the C library's hooks can't be planned.
    pub fn with_plan() -> Result<Self> {
        Self::new(&sunder_hooking::plan(Want::Result)?)
    }

    /// Makes a file without a plan, which no program has mapped yet.
    ///
    /// # Errors
    /// If the kernel gives us no memory.
    pub fn unshared() -> Result<Self> {
        Self::new(&[])
    }

    fn new(plan: &[u8]) -> Result<Self> {
        let make = || -> io::Result<File> {
            let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            // SAFETY: the name is a C string.
            let fd = unsafe { libc::memfd_create(c"sunder-remap".as_ptr(), flags) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the descriptor was just opened and has no other owner.
            let file = unsafe { File::from_raw_fd(fd) };
            file.set_len((TOTAL + plan.len()) as u64)?;
            file.write_all_at(plan, TOTAL as u64)?;
            foreign::seal(&file)?;
            Ok(file)
        };
        Self::of(make().context("cannot make the file that is shared with the program")?)
    }

    /// Maps a file of at least [`TOTAL`] bytes, whose length nobody can change.
    ///
    /// # Errors
    /// If the kernel gives us no memory.
    pub fn of(file: File) -> Result<Self> {
        let map = || -> io::Result<*mut u8> {
            // SAFETY: a new mapping, at an address that the kernel chooses.
            let base = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    TOTAL,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_SHARED,
                    file.as_raw_fd(),
                    0,
                )
            };
            if base == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            Ok(base.cast())
        };
        let base = map().context("cannot map the file that is shared with the program")?;
        let made = Self { file, base };
        let control = made.control();
        control.tool.store(std::process::id(), Ordering::Relaxed);
        control.version.store(VERSION, Ordering::Relaxed);
        control.magic.store(MAGIC, Ordering::Release);
        Ok(made)
    }

    /// The part of the file that both sides read and write.
    pub fn control(&self) -> &Control {
        // SAFETY: the mapping is aligned and never unmapped, and atomic integers may hold any
        // value.
        unsafe { &*self.base.cast::<Control>() }
    }

    /// Whether it is still this process that moves bytes of the program. Another Sunder that takes
    /// the library out says so here.
    pub fn is_ours(&self) -> bool {
        self.control().tool.load(Ordering::Acquire) == std::process::id()
    }

    /// The offset in the file of a word of [`Self::control`].
    pub fn offset(&self, word: &AtomicU32) -> u64 {
        (&raw const *word as u64).wrapping_sub(self.base as u64)
    }

    /// Fills [`Self::control`] from elsewhere. Only for a file that no program has mapped.
    ///
    /// # Errors
    /// Those of `read`; then nothing is filled in.
    pub fn fill(&self, read: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<()> {
        let mut bytes = vec![0; size_of::<Control>()];
        read(&mut bytes)?;
        // SAFETY: the mapping is as long, and atomic integers may hold any value. No other thread
        // looks at this file.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base, bytes.len()) };
        Ok(())
    }

    /// Writes code into the area's cache at `offset`; whether it fits.
    pub fn write_code(&self, area: usize, offset: u64, code: &[u8]) -> bool {
        let end = offset.checked_add(code.len() as u64);
        if area >= AREAS || end.is_none_or(|end| end > CACHE) {
            return false;
        }
        let at = BYTES + area * CACHE as usize + offset as usize;
        // SAFETY: the range is within the mapping; the program executes these bytes only after they
        // were announced.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), self.base.add(at), code.len()) };
        true
    }

    /// The path by which the program can open it.
    pub fn path(&self) -> PathBuf {
        descriptor_path(std::process::id(), self.file.as_raw_fd() as u32)
    }
}
