//! Finds a file by a path that an observed program names. Called by [`super::ForeignFiles`] alone;
//! it must not open a file for reading, and must not take rights.
//!
//! A path is followed part by part. So nothing below `/proc` and its like is passed or found:
//! `/proc/self` would be this process and not the program, and the links there lead to what a process
//! has open, whatever the rights of the one that follows them. `openat2` can refuse such links, but
//! old kernels and the filters of some containers don't have it; and a filter can't look at its flags,
//! so that whoever may call it may also open files for writing.

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, fstatfs, openat, readlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// A folder that is only passed.
pub const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Links that are followed in one path, as the kernel does (`MAXSYMLINKS`).
const MOST_LINKS: u32 = 40;

/// Whose files may be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Those that the calling thread may reach.
    Threads,
    /// Those that every user may reach and read, by the modes on the whole way.
    Everybodys,
}

/// Finds what is at `path` below the folder `root`, or ours. A path can't leave that folder.
///
/// # Errors
/// If it is not there, may not be reached, or is no file that is stored.
pub fn find(root: Option<&OwnedFd>, path: &Path, reach: Reach) -> io::Result<OwnedFd> {
    if !path.is_absolute() {
        // It is not known relative to which folder: not to ours.
        return Err(io::Error::other("not an absolute path"));
    }
    let top = match root {
        Some(root) => root.try_clone()?,
        None => openat(CWD, "/", FOLDER, Mode::empty())?,
    };
    let mut at = top.try_clone()?;
    let mut left = parts(path);
    let mut links = 0;
    reach.passes(&at)?;
    while let Some(name) = left.pop() {
        if name == ".." && identity(&at)? == identity(&top)? {
            continue;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = openat(&at, &name, flags, Mode::empty())?;
        is_stored(&found)?;
        match kind(&found)? {
            FileType::Symlink => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Errno::LOOP.into());
                }
                let target = readlinkat(&found, "", Vec::new())?;
                let target = Path::new(OsStr::from_bytes(target.as_bytes()));
                if target.is_absolute() {
                    at = top.try_clone()?;
                }
                left.extend(parts(target));
            }
            FileType::Directory => {
                reach.passes(&found)?;
                at = found;
            }
            _ => at = found,
        }
    }
    reach.reads(&at)?;
    Ok(at)
}

/// The names in a path, the last first.
fn parts(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        _ => None,
    });
    names.rev().collect()
}

impl Reach {
    /// Fails if users may be kept from going through this folder.
    fn passes(self, folder: &OwnedFd) -> io::Result<()> {
        self.has(folder, Mode::XUSR | Mode::XGRP | Mode::XOTH)
    }

    /// Fails if users may be kept from reading this file.
    fn reads(self, file: &OwnedFd) -> io::Result<()> {
        self.has(file, Mode::RUSR | Mode::RGRP | Mode::ROTH)
    }

    /// The owner and the group count too: a file that others may read can be forbidden to them.
    fn has(self, file: &OwnedFd, all: Mode) -> io::Result<()> {
        if self == Self::Threads {
            return Ok(());
        }
        let mode = Mode::from_raw_mode(fstat(file)?.st_mode);
        // Whatever the modes there say, its maker alone may look into such a file system.
        let is_ones_own = fstatfs(file)?.f_type == FUSE_SUPER_MAGIC;
        if mode.contains(all) && !is_ones_own {
            return Ok(());
        }
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// `linux/magic.h`; `libc` does not have it for glibc.
const FUSE_SUPER_MAGIC: i64 = 0x6573_5546;

/// File systems whose files are made up by the kernel while they are read, and tell of whoever reads
/// them, or of the machine.
const MADE_UP: [i64; 8] = [
    libc::PROC_SUPER_MAGIC,
    libc::SYSFS_MAGIC,
    libc::DEBUGFS_MAGIC,
    libc::TRACEFS_MAGIC,
    libc::SECURITYFS_MAGIC,
    libc::CGROUP_SUPER_MAGIC,
    libc::CGROUP2_SUPER_MAGIC,
    libc::BPF_FS_MAGIC,
];

/// Fails for files of `/proc` and its like.
pub fn is_stored(file: &OwnedFd) -> io::Result<()> {
    if MADE_UP.contains(&fstatfs(file)?.f_type) {
        return Err(io::Error::other("not a file that is stored"));
    }
    Ok(())
}

/// The kind of what was found.
pub fn kind(file: impl AsFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(fstat(file)?.st_mode))
}

/// The device and inode of what was found, which no other file has while it is open.
pub fn identity(file: impl AsFd) -> io::Result<(u64, u64)> {
    let found = fstat(file)?;
    Ok((found.st_dev, found.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
    }

    #[test]
    fn links_are_followed_as_by_the_kernel() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("below")).expect("made");
        std::fs::write(path("file"), "text").expect("written");
        symlink("../file", path("below/relative")).expect("made");
        symlink(path("below"), path("absolute")).expect("made");
        symlink("loop", path("loop")).expect("made");
        let inode = std::fs::metadata(path("file")).expect("there").ino();
        for name in [
            "file",
            "below/relative",
            "absolute/relative",
            "absolute/../file",
            "below/.././file",
        ] {
            let found = find(None, &path(name), Reach::Threads).expect(name);
            assert_eq!(identity(&found).expect("open").1, inode, "{name}");
        }
        for name in ["none", "file/none", "loop"] {
            let error = find(None, &path(name), Reach::Threads).expect_err(name);
            let kernels = std::fs::metadata(path(name)).expect_err(name);
            assert_eq!(error.raw_os_error(), kernels.raw_os_error(), "{name}");
        }
    }

    #[test]
    fn no_path_leaves_its_root() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("root");
        std::fs::create_dir(&root).expect("made");
        std::fs::write(folder.path().join("outside"), "text").expect("written");
        std::fs::write(root.join("inside"), "text").expect("written");
        symlink("/inside", root.join("absolute")).expect("made");
        symlink("../outside", root.join("up")).expect("made");
        symlink(folder.path().join("outside"), root.join("out")).expect("made");
        let root = openat(CWD, &root, FOLDER, Mode::empty()).expect("there");
        let find = |path: &str| find(Some(&root), Path::new(path), Reach::Threads);
        for path in ["/inside", "/absolute", "/../../inside"] {
            find(path).expect(path);
        }
        for path in ["/up", "/out", "/../outside"] {
            find(path).expect_err(path);
        }
    }

    #[test]
    fn what_is_everybodys_can_be_reached_by_everybody() {
        let folder = tempfile::tempdir().expect("a folder");
        let below = folder.path().join("below");
        let file = below.join("file");
        std::fs::create_dir(&below).expect("made");
        std::fs::write(&file, "text").expect("written");
        let found = |on_the_way: u32, mode: u32| {
            set_mode(&file, mode);
            set_mode(&below, on_the_way);
            set_mode(folder.path(), 0o755);
            let found = find(None, &file, Reach::Everybodys);
            set_mode(&below, 0o755);
            found.map(|_| ()).map_err(|error| error.kind())
        };
        let denied = Err(io::ErrorKind::PermissionDenied);
        assert_eq!(found(0o755, 0o644), Ok(()));
        assert_eq!(found(0o711, 0o644), Ok(()));
        assert_eq!(found(0o755, 0o640), denied);
        assert_eq!(found(0o750, 0o644), denied);
        // Whoever is of the group may not read it.
        assert_eq!(found(0o755, 0o604), denied);
    }
}
