//! Where runs may leave files behind. With the right to mount, the calling thread and all that it
//! starts get temporary folders of their own, so that whatever lies there afterwards is of the runs.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The temporary folders of the runs of one thread.
#[derive(Debug)]
pub struct Places {
    /// The folder of the runs' own files, which is removed with this value.
    own: PathBuf,
    /// Folders in which nothing may be left.
    watched: Vec<PathBuf>,
    /// The folder for temporary files, if it is not the usual one.
    temporary: Option<PathBuf>,
}

impl Places {
    /// Makes the folders. Without the right to mount, only a folder for temporary files is watched.
    ///
    /// # Errors
    /// If a folder can't be made.
    pub fn new() -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let hidden = std::env::current_exe()?.starts_with("/tmp");
        let private = !hidden && own_mounts().is_ok();
        let name = format!(
            "sunder-mishaps-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Relaxed)
        );
        let own = std::env::temp_dir().join(name);
        fs::create_dir_all(&own)?;
        if private {
            let watched = vec!["/tmp".into(), "/dev/shm".into()];
            return Ok(Self {
                own,
                watched,
                temporary: None,
            });
        }
        println!("SKIP: /dev/shm is not watched: no right to mount a private one");
        let temporary = own.join("temporary");
        fs::create_dir_all(&temporary)?;
        Ok(Self {
            own,
            watched: vec![temporary.clone()],
            temporary: Some(temporary),
        })
    }

    /// A folder for the caller's files.
    pub fn own(&self) -> &Path {
        &self.own
    }

    /// What `TMPDIR` has to be for the runs, if anything.
    pub fn temporary(&self) -> Option<&Path> {
        self.temporary.as_deref()
    }

    /// The files that were left behind since the last call; they are removed.
    pub fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for entry in self
            .watched
            .iter()
            .flat_map(fs::read_dir)
            .flatten()
            .flatten()
        {
            let path = entry.path();
            if path == self.own {
                continue;
            }
            left.push(path.display().to_string());
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
        }
        left
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.own);
    }
}

/// Gives the calling thread private, empty `/tmp` and `/dev/shm`.
fn own_mounts() -> io::Result<()> {
    // SAFETY: takes an integer; this thread alone gets other mounts.
    done(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    stay_here()?;
    mount_memory("/tmp", "mode=1777")?;
    mount_memory("/dev/shm", "mode=1777")
}

/// Makes mounts of this thread from now on invisible to others.
///
/// # Errors
/// Without the right to mount.
pub fn stay_here() -> io::Result<()> {
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: the strings are constants, the rest may be null.
    done(unsafe {
        libc::mount(
            std::ptr::null(),
            c"/".as_ptr(),
            std::ptr::null(),
            flags,
            std::ptr::null(),
        )
    })
}

/// An empty file system in memory over the folder `at`.
fn mount_memory(at: &str, options: &str) -> io::Result<()> {
    let at = CString::new(at)?;
    let options = CString::new(options)?;
    // SAFETY: all strings live until the call returns.
    done(unsafe {
        libc::mount(
            c"tmpfs".as_ptr(),
            at.as_ptr(),
            c"tmpfs".as_ptr(),
            0,
            options.as_ptr().cast(),
        )
    })
}

/// The error of a call that failed.
pub fn done(result: i32) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
