//! Opens the files that an observed program names: those that it has mapped, their debug
//! information, their sources.
//!
//! Called by whatever reads such a file. A program may name any file, also one that it may not
//! read itself, or one whose opening waits or does something. So a file is looked up in the
//! program's own file system, opened with the program's rights and not with ours, and only if it
//! is a regular file. This module must not read files, and must not follow a path in any other
//! way.

mod find;
mod made;
mod rights;

use crate::proc::{self, Fields};
use find::{FOLDER, Reach, find, identity, is_stored, kind};
pub use made::{memory_file, seal};
use rights::Rights;
use rustix::fs::{CWD, Dir, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use sunder_access::{Mapping, ProcessId};

/// The most different rights of one process that are remembered. A process with more of them names
/// no files any more.
const MOST_RIGHTS: usize = 8;

/// The kernel tells when a process began in steps of this size, and a file's time in smaller ones.
const CLOCK_STEP: Duration = Duration::from_millis(10);

/// The files of a process, also after its end.
#[derive(Debug)]
pub struct ForeignFiles {
    /// Its root folder, unless that is ours.
    root: Option<Arc<OwnedFd>>,
    /// Its working folder when it was looked at first, as a path below its root folder. `None` if
    /// that is not known: the kernel gives paths below our root folder.
    working: Option<PathBuf>,
    /// When the process began, if that is known.
    started: Option<SystemTime>,
    /// Whether they are opened with our own rights.
    are_ours: bool,
    known: Mutex<Known>,
}

/// What is known of the process itself.
#[derive(Debug, Default)]
struct Known {
    /// Its folder in `/proc`, which another process of the same number does not get; `None` if it
    /// has ended.
    folder: Option<OwnedFd>,
    /// All rights that it has been seen to have. A file is only opened if each of them suffices: a
    /// program that has named a file and then gains rights did not have them for that name, and one
    /// that has given up rights has them no longer.
    rights: Vec<Rights>,
}

impl ForeignFiles {
    /// Those of a living process.
    pub fn of(process: ProcessId) -> Self {
        let folder = format!("/proc/{}", proc::living_number(process));
        let started = proc::started(process);
        let process = openat(CWD, &folder, FOLDER, Mode::empty()).ok();
        let within = |name: &str| openat(process.as_ref()?, name, FOLDER, Mode::empty()).ok();
        let (theirs, ours) = (within("root"), openat(CWD, "/", FOLDER, Mode::empty()).ok());
        let of = |folder: &Option<OwnedFd>| identity(folder.as_ref()?).ok();
        let shares_mounts = || shares(process.as_ref()?, "mnt");
        // The same folder may have other file systems mounted below it.
        let same = of(&theirs) == of(&ours) && shares_mounts().is_some();
        let link = || readlinkat(process.as_ref()?, "cwd", Vec::new()).ok();
        let working = link().filter(|_| same);
        let files = Self {
            root: theirs.filter(|_| !same).map(Arc::new),
            working: working.map(|path| OsStr::from_bytes(path.as_bytes()).into()),
            started,
            are_ours: false,
            known: Mutex::new(Known {
                folder: process,
                rights: Vec::new(),
            }),
        };
        drop(files.notice_rights());
        files
    }

    /// Those that every one of some processes may open, by the paths of the first.
    pub fn of_all<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut all = all.into_iter().peekable();
        let root = all.peek().and_then(|first| first.root.clone());
        let working = all.peek().and_then(|first| first.working.clone());
        let mut known = Known::default();
        for each in all {
            for seen in &each.notice_rights().rights {
                if !known.rights.contains(seen) {
                    known.rights.push(seen.clone());
                }
            }
        }
        Self {
            root,
            working,
            started: None,
            are_ours: false,
            known: Mutex::new(known),
        }
    }

    /// These; or if the process had gone before it was looked at, those of `other`, which started
    /// it or was observed before it.
    #[must_use]
    pub fn or_those_of(self, other: Option<&Self>) -> Self {
        let was_seen = !self.notice_rights().rights.is_empty();
        match other {
            Some(other) if !was_seen => Self::of_all([other]),
            _ => self,
        }
    }

    /// The files that this process sees, opened with its own rights.
    pub fn ours() -> Self {
        Self {
            root: None,
            working: None,
            started: None,
            are_ours: true,
            known: Mutex::new(Known {
                folder: None,
                rights: Rights::own().into_iter().collect(),
            }),
        }
    }

    /// Takes the process's rights over files for the calling thread and the threads that it starts,
    /// for good, and gives up all capabilities but these and those in `besides`. Returns whether
    /// that was possible. `None` if there was nothing to give up: we have no privileges, or the
    /// process has the same rights.
    pub fn take_rights_for_good(&self, besides: CapabilitySet) -> Option<bool> {
        let theirs = self.notice_rights().rights.last().cloned();
        if !Rights::are_privileged() || theirs == Rights::own() {
            return None;
        }
        Some(theirs.is_some_and(|rights| rights.take_for_good(besides).is_ok()))
    }

    /// Whether the process has not gone yet.
    pub fn is_alive(&self) -> bool {
        self.known().status().is_some()
    }

    /// Closes the process's folder if it has ended: its rights are known, and where many processes
    /// are observed, descriptors are few.
    pub fn release_if_ended(&self) {
        let mut known = self.notice_rights();
        if known
            .status()
            .is_none_or(|status| !status.is_of_the_living())
        {
            known.folder = None;
        }
    }

    /// Opens a regular file by a path of the process. Never waits for a writer.
    ///
    /// # Errors
    /// If the process could not open it, or it is no regular file that is stored.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        self.with_its_rights(|reach| reopen(&self.find(path, reach)?))
    }

    /// Whether `file` belongs to the user that the process was seen to be. Anybody may leave a file
    /// in a common folder under a name that says it is of this process.
    pub fn are_owned(&self, file: &File) -> bool {
        let owner = file.metadata().map(|m| m.uid());
        owner.is_ok_and(|owner| self.known().rights.iter().any(|r| r.are_of(owner)))
    }

    /// Whether `file` was written after the process had begun. An earlier process of the same number
    /// may have left a file under a name that is made of that number.
    pub fn are_as_young(&self, file: &File) -> bool {
        let written = file.metadata().and_then(|m| m.modified());
        let began = self.started.and_then(|at| at.checked_sub(CLOCK_STEP));
        written.is_ok_and(|written| began.is_some_and(|began| written >= began))
    }

    /// Opens a source file by the name that debug information has for it. Build tools that want equal
    /// results everywhere write names relative to the folder of the build, some of them below
    /// `/proc/self/cwd`; such a program is started there to be debugged. So these are looked up in the
    /// working folder that the process had at first.
    ///
    /// # Errors
    /// As [`Self::open`], or if the name is relative and that folder is not known.
    pub fn open_source(&self, name: &Path) -> io::Result<File> {
        let relative = name.strip_prefix("/proc/self/cwd").unwrap_or(name);
        match &self.working {
            Some(working) if relative.is_relative() => self.open(&working.join(relative)),
            _ => self.open(name),
        }
    }

    /// The first names in a folder of the process, `most` at most, with `.` and `..`.
    ///
    /// # Errors
    /// If the process could not read it.
    pub fn names_in(&self, folder: &Path, most: usize) -> io::Result<Vec<OsString>> {
        let folder = self.with_its_rights(|reach| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let found = self.find(folder, reach)?;
            Ok(File::from(openat(found, ".", flags, Mode::empty())?))
        })?;
        let entries = Dir::read_from(&folder)?;
        entries
            .take(most)
            .map(|entry| Ok(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned()))
            .collect()
    }

    /// The file of a mapping by its path, or by the kernel's link to it where the process may
    /// execute the file and not read it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn mapped(&self, mapping: &Mapping) -> io::Result<File> {
        let by_path = self.open(Path::new(&mapping.path));
        by_path.or_else(|error| self.linked(mapping).map_err(|_| error))
    }

    /// The file of a mapping, by the kernel's link to it. The process has the file mapped, so
    /// opening it gives away nothing; the kernel wants privileges for it.
    ///
    /// # Errors
    /// `NotFound` if the process or the mapping is gone, others if the kernel refuses it.
    pub fn linked(&self, mapping: &Mapping) -> io::Result<File> {
        let (start, end) = (mapping.span.start.0, mapping.span.end().0);
        self.link(&format!("map_files/{start:x}-{end:x}"))
    }

    /// The program's own file, which the process executes.
    ///
    /// # Errors
    /// As [`Self::linked`].
    pub fn executable(&self) -> io::Result<File> {
        self.link("exe")
    }

    /// The file behind one of the kernel's own links to what a process uses.
    fn link(&self, name: &str) -> io::Result<File> {
        let known = self.known();
        let process = known.folder.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match openat(process, name, flags, Mode::empty()) {
            Ok(found) => reopen(&found),
            Err(Errno::SRCH) => Err(io::ErrorKind::NotFound.into()),
            Err(error) => Err(error.into()),
        }
    }

    fn find(&self, path: &Path, reach: Reach) -> io::Result<OwnedFd> {
        // Otherwise an absolute link in its file system would lead into ours.
        find(self.root.as_deref(), path, reach)
    }

    /// Opens a file with each of the rights that the process has been seen to have. The program may
    /// change the meaning of a path in between, so it has to be the same file each time.
    fn with_its_rights(&self, open: impl Fn(Reach) -> io::Result<File>) -> io::Result<File> {
        // Without privileges we can open nothing that our user may not open.
        if self.are_ours || !Rights::are_privileged() {
            return open(Reach::Threads);
        }
        let rights = &self.notice_rights().rights;
        if rights.len() > MOST_RIGHTS {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut first = None;
        for each in rights.iter() {
            let opened = match each.run(|| open(Reach::Threads)) {
                Some(opened) => opened?,
                None if each.include_ours() => open(Reach::Threads)?,
                None => open(Reach::Everybodys)?,
            };
            let found = identity(&opened)?;
            let (_, known) = first.get_or_insert((opened, found));
            if *known != found {
                return Err(io::Error::other("another file was put in its place"));
            }
        }
        let first = first.ok_or(io::ErrorKind::PermissionDenied)?;
        Ok(first.0)
    }

    /// Adds the rights that it has now to what is known, which is returned.
    fn notice_rights(&self) -> MutexGuard<'_, Known> {
        let mut known = self.known();
        if let Some(now) = known.rights_now()
            && known.rights.len() <= MOST_RIGHTS
            && !known.rights.contains(&now)
        {
            known.rights.push(now);
        }
        known
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// The rights that the process has now; `None` if it is gone.
    fn rights_now(&self) -> Option<Rights> {
        let is_of_ours = || shares(self.folder.as_ref()?, "user");
        // A process may go into a namespace of its own, where it gets all capabilities, while its
        // status is read.
        let before = is_of_ours();
        let status = self.status()?;
        Rights::of(&status, before.is_some() && is_of_ours().is_some())
    }

    /// The process's `status`; `None` if it is gone.
    fn status(&self) -> Option<Fields> {
        let (folder, flags) = (self.folder.as_ref()?, OFlags::CLOEXEC);
        let file = openat(folder, "status", flags, Mode::empty()).ok()?;
        let mut text = Vec::new();
        File::from(file).read_to_end(&mut text).ok()?;
        Some(Fields::from(String::from_utf8_lossy(&text).into_owned()))
    }
}

/// Whether the process with this folder has our own namespace of this kind; `None` if not, or if
/// that can't be told.
fn shares(process: &OwnedFd, namespace: &str) -> Option<()> {
    let name = format!("ns/{namespace}");
    let theirs = readlinkat(process, &name, Vec::new()).ok()?;
    let ours = readlinkat(CWD, format!("/proc/self/{name}"), Vec::new()).ok()?;
    (theirs == ours).then_some(())
}

/// Opens for reading what was only found so far, if it is a regular file. Opening anything else may
/// wait, or do something.
fn reopen(found: &OwnedFd) -> io::Result<File> {
    if !kind(found)?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    is_stored(found)?;
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(File::from(openat(CWD, path, flags, Mode::empty())?))
}

#[cfg(test)]
mod tests;
