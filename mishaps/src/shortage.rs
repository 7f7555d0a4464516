//! Makes something short for a process, between `fork` and `exec`.

use crate::mishap::Shortage;
use crate::places::{done, stay_here};
use std::ffi::CString;
use std::io;

/// Makes something short for this process, between `fork` and `exec`.
pub fn suffer(shortage: Shortage, scarce: &CString) -> io::Result<()> {
    let limit = |what, to| {
        let limit = libc::rlimit {
            rlim_cur: to,
            rlim_max: to,
        };
        // SAFETY: `limit` is valid.
        done(unsafe { libc::setrlimit(what, &raw const limit) })
    };
    let mount = |at: &std::ffi::CStr, flags: libc::c_ulong| {
        let (kind, options) = (c"tmpfs".as_ptr(), c"size=4k".as_ptr());
        // SAFETY: all strings are terminated.
        done(unsafe { libc::mount(kind, at.as_ptr(), kind, flags, options.cast()) })
    };
    match shortage {
        Shortage::AddressSpace(bytes) => limit(libc::RLIMIT_AS, bytes),
        Shortage::Descriptors(count) => limit(libc::RLIMIT_NOFILE, count),
        Shortage::NoProc | Shortage::FullDisk | Shortage::ReadOnly => {
            // SAFETY: takes an integer.
            done(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
            stay_here()?;
            if shortage == Shortage::NoProc {
                return mount(c"/proc", libc::MS_RDONLY);
            }
            let read_only = shortage == Shortage::ReadOnly;
            let flags = if read_only { libc::MS_RDONLY } else { 0 };
            mount(c"/dev/shm", flags)?;
            mount(scarce, flags)?;
            if !read_only {
                fill(c"/dev/shm")?;
                fill(scarce)?;
            }
            Ok(())
        }
    }
}

/// Takes the last byte of a file system.
fn fill(folder: &std::ffi::CStr) -> io::Result<()> {
    let flags = libc::O_TMPFILE | libc::O_WRONLY;
    // SAFETY: the path is terminated. The descriptor is left open and holds the space: it is
    // inherited by the tool, as descriptors are.
    unsafe {
        let file = libc::open(folder.as_ptr(), flags, 0o600);
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        let page = [1u8; 4096];
        while libc::write(file, page.as_ptr().cast(), page.len()) > 0 {}
    }
    Ok(())
}
