//! The file that the library inside the program shares with us: made, mapped, and
//! filled with the plan for the C library's kernel calls. The one place here that
//! touches memory that others change.

use anyhow::{Context, Result};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use sunder_rewrite::sites::Want;
use sunder_wire::remap::{AREAS, BYTES, CACHE, Control, MAGIC, TOTAL, VERSION};

/// How the file is called in a list of mappings.
pub const CONTROL_NAME: &str = "/memfd:sunder-remap";

/// See the module's head.
pub struct ControlFile {
    file: File,
    /// Never unmapped, so that no thread of ours loses it.
    base: *mut u8,
}

// SAFETY: all that is read and written through the base are atomic words, and the
// bytes of code, which only one thread writes.
unsafe impl Send for ControlFile {}
// SAFETY: as above.
unsafe impl Sync for ControlFile {}

impl ControlFile {
    /// Makes one with the plan for hooks, for a program that loads the library itself.
    ///
    /// # Errors
    /// If the kernel gives no memory, or the C library can't be planned for.
    pub fn with_plan() -> Result<Self> {
        Self::new(&sunder_hooking::plan(Want::Result)?)
    }

    /// Makes one that no program shares yet.
    ///
    /// # Errors
    /// If the kernel gives no memory.
    pub fn unshared() -> Result<Self> {
        Self::new(&[])
    }

    fn new(plan: &[u8]) -> Result<Self> {
        let make = || -> io::Result<File> {
            // SAFETY: the name is a C string.
            let fd = unsafe { libc::memfd_create(c"sunder-remap".as_ptr(), libc::MFD_CLOEXEC) };
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: just opened, and nobody else's.
            let file = unsafe { File::from_raw_fd(fd) };
            file.set_len((TOTAL + plan.len()) as u64)?;
            file.write_all_at(plan, TOTAL as u64)?;
            Ok(file)
        };
        Self::of(make().context("cannot make the file that is shared with the program")?)
    }

    /// The same in a file that the program has made, without a plan.
    ///
    /// # Errors
    /// If the kernel gives no memory.
    pub fn of(file: File) -> Result<Self> {
        let map = || -> io::Result<*mut u8> {
            if file.metadata()?.len() < TOTAL as u64 {
                file.set_len(TOTAL as u64)?;
            }
            // SAFETY: a new mapping where the kernel likes.
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

    /// What both sides read and write.
    pub fn control(&self) -> &Control {
        // SAFETY: mapped for good, aligned, and any bytes are atomic words.
        unsafe { &*self.base.cast::<Control>() }
    }

    /// Puts code into the area's cache; whether it fits.
    pub fn write_code(&self, area: usize, offset: u64, code: &[u8]) -> bool {
        let end = offset.checked_add(code.len() as u64);
        if area >= AREAS || end.is_none_or(|end| end > CACHE) {
            return false;
        }
        let at = BYTES + area * CACHE as usize + offset as usize;
        // SAFETY: within the mapping; nothing executes these bytes before it is told.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), self.base.add(at), code.len()) };
        true
    }

    /// The path by which the program can open it.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }
}
