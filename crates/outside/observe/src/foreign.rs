//! Opens the files that an observed program names: those that it has mapped, their debug
//! information, their sources.
//!
//! Called by whatever reads such a file. A program may name any file, also one that it may not
//! read itself, or one whose opening waits or does something. So a file is looked up in the
//! program's own file system, opened with the program's rights and not with ours, and only if it
//! is a regular file. This module must not read files, and must not follow a path in any other
//! way.

mod made;
mod rights;

use crate::proc::{self, Fields};
pub use made::{memory_file, seal};
use rights::Rights;
use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use sunder_access::{Mapping, ProcessId};

/// The most different rights of one process that are remembered. A process with more of them names
/// no files any more.
const MOST_RIGHTS: usize = 8;

/// The files of a process, also after its end.
#[derive(Debug)]
pub struct ForeignFiles {
    /// Its root folder, unless that is ours.
    root: Option<Arc<OwnedFd>>,
    same_namespace: bool,
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
        let process = openat(CWD, &folder, FOLDER, Mode::empty()).ok();
        let within = |name: &str| openat(process.as_ref()?, name, FOLDER, Mode::empty()).ok();
        let (theirs, ours) = (within("root"), openat(CWD, "/", FOLDER, Mode::empty()).ok());
        let shares = |namespace: &str| {
            let of = |folder: &str| std::fs::read_link(format!("{folder}/ns/{namespace}")).ok();
            let theirs = of(&folder);
            theirs.is_some() && theirs == of("/proc/self")
        };
        // The same folder may have other file systems mounted below it.
        let same = identity(theirs.as_ref()) == identity(ours.as_ref()) && shares("mnt");
        let files = Self {
            root: theirs.filter(|_| !same).map(Arc::new),
            same_namespace: shares("user"),
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
            same_namespace: true,
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
            same_namespace: true,
            are_ours: true,
            known: Mutex::new(Known {
                folder: None,
                rights: Rights::own().into_iter().collect(),
            }),
        }
    }

    /// Takes the process's rights over files for the calling thread and the threads that it starts,
    /// for good, and gives up all capabilities but these and those in `besides`. Returns whether
    /// that was possible; not so if its memory could then no longer be read, as of a program that
    /// hides its own. `None` if there was nothing to give up: we have no privileges, or the process has
    /// the same rights.
    pub fn take_rights_for_good(&self, besides: CapabilitySet) -> Option<bool> {
        let known = self.notice_rights();
        let theirs = known.rights.last().cloned();
        if !Rights::are_privileged() || theirs == Rights::own() {
            return None;
        }
        let reads_memory = || {
            let (folder, flags) = (known.folder.as_ref()?, OFlags::CLOEXEC);
            openat(folder, "mem", flags, Mode::empty()).ok()
        };
        let take = |rights: Rights| rights.take_for_good(besides, || reads_memory().is_some());
        Some(theirs.is_some_and(|rights| take(rights).is_ok()))
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
    /// If the process could not open it, or it is no regular file.
    pub fn open(&self, path: &Path) -> io::Result<File> {
        self.with_its_rights(|| reopen(&self.find(path, OFlags::PATH)?))
    }

    /// The first names in a folder of the process, `most` at most, with `.` and `..`.
    ///
    /// # Errors
    /// If the process could not read it.
    pub fn names_in(&self, folder: &Path, most: usize) -> io::Result<Vec<OsString>> {
        let folder = self.with_its_rights(|| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            self.find(folder, flags).map(File::from)
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

    fn find(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY;
        let Some(root) = &self.root else {
            return Ok(openat(CWD, path, flags, Mode::empty())?);
        };
        // Otherwise an absolute link in its file system would lead into ours.
        let within = ResolveFlags::IN_ROOT;
        Ok(openat2(root, path, flags, Mode::empty(), within)?)
    }

    fn with_its_rights<T>(&self, act: impl Fn() -> io::Result<T>) -> io::Result<T> {
        // Without privileges we can open nothing that our user may not open.
        if self.are_ours || !Rights::are_privileged() {
            return act();
        }
        let rights = &self.notice_rights().rights;
        if rights.len() > MOST_RIGHTS {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let mut done = Err(io::ErrorKind::PermissionDenied.into());
        for each in rights.iter() {
            done = Ok(each.run(&act)?);
        }
        done
    }

    /// Adds the rights that it has now to what is known, which is returned.
    fn notice_rights(&self) -> MutexGuard<'_, Known> {
        let mut known = self.known();
        let now = known
            .status()
            .and_then(|status| Rights::of(&status, self.same_namespace));
        if let Some(now) = now
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
    /// The process's `status`; `None` if it is gone.
    fn status(&self) -> Option<Fields> {
        let (folder, flags) = (self.folder.as_ref()?, OFlags::CLOEXEC);
        let file = openat(folder, "status", flags, Mode::empty()).ok()?;
        let mut text = Vec::new();
        File::from(file).read_to_end(&mut text).ok()?;
        Some(Fields::from(String::from_utf8_lossy(&text).into_owned()))
    }
}

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

fn identity(folder: Option<&OwnedFd>) -> Option<(u64, u64)> {
    let found = rustix::fs::fstat(folder?.as_fd()).ok()?;
    Some((found.st_dev, found.st_ino))
}

/// Opens for reading what was only found so far, if it is a regular file. Opening anything else may
/// wait, or do something.
fn reopen(found: &OwnedFd) -> io::Result<File> {
    let about = rustix::fs::fstat(found)?;
    if !rustix::fs::FileType::from_raw_mode(about.st_mode).is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    Ok(File::from(openat(CWD, path, flags, Mode::empty())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FileType;
    use std::io::ErrorKind;
    use std::process::{Child, Command, Stdio};
    use sunder_access::Mappings;

    fn own() -> ProcessId {
        ProcessId(std::process::id())
    }

    /// A process that waits until it is killed.
    fn waiting(command: &mut Command) -> Child {
        let none = Stdio::null;
        command
            .stdin(Stdio::piped())
            .stdout(none())
            .stderr(none())
            .spawn()
            .expect("it starts")
    }

    #[test]
    fn only_regular_files_are_opened_and_nothing_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("fifo");
        let (kind, mode) = (FileType::Fifo, Mode::from_raw_mode(0o666));
        rustix::fs::mknodat(CWD, &fifo, kind, mode, 0).expect("a pipe");
        let plain = folder.path().join("plain");
        std::fs::write(&plain, "text").expect("written");
        for files in [ForeignFiles::ours(), ForeignFiles::of(own())] {
            // Without the check, opening the pipe would wait for a writer for ever.
            assert!(files.open(&fifo).is_err());
            assert!(files.open(Path::new("/dev/tty")).is_err());
            assert!(files.open(folder.path()).is_err());
            let mut text = String::new();
            let mut file = files.open(&plain).expect("it is a regular file");
            file.read_to_string(&mut text).expect("readable");
            assert_eq!(text, "text");
            let mut names = files.names_in(folder.path(), 100).expect("readable");
            names.retain(|name| name != "." && name != "..");
            names.sort();
            assert_eq!(names, ["fifo", "plain"]);
        }
    }

    #[test]
    fn a_file_that_only_root_may_read_is_not_opened_for_another_user() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP: only root can run a program as another user");
            return;
        }
        use std::os::unix::fs::PermissionsExt;
        use std::os::unix::process::CommandExt;
        let folder = tempfile::tempdir().expect("a folder");
        let may_enter = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), may_enter).expect("ours");
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "secret").expect("written");
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("ours");
        let open = folder.path().join("open");
        std::fs::write(&open, "open").expect("written");
        let mut child = waiting(Command::new("cat").uid(65534).gid(65534));
        let files = ForeignFiles::of(ProcessId(child.id()));
        let refused = files.open(&secret).expect_err("nobody may not read it");
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        files.open(&open).expect("everybody may read it");
        files.release_if_ended();
        assert!(files.is_alive(), "what has not ended is kept");
        child.kill().expect("it lives");
        child.wait().expect("it is ours");
        files.release_if_ended();
        assert!(!files.is_alive());
        // What it was is known after its end, also if its number is another process's.
        let refused = files.open(&secret).expect_err("nobody may not read it");
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        files.open(&open).expect("everybody may read it");
        ForeignFiles::ours().open(&secret).expect("we may");
        ForeignFiles::of(own())
            .open(&secret)
            .expect("and so may our own program");
        let like_ours = ForeignFiles::of_all([&ForeignFiles::ours()]);
        like_ours
            .open(&secret)
            .expect("so may whoever has our rights");
        let both = [&ForeignFiles::of(own()), &files];
        let refused = ForeignFiles::of_all(both).open(&secret);
        assert!(refused.is_err(), "not all of them may");
    }

    #[test]
    fn of_a_process_that_has_gone_nothing_is_known_and_another_stands_in() {
        let mut child = waiting(Command::new("true").env_clear());
        let gone = ProcessId(child.id());
        child.wait().expect("it is ours");
        let file = tempfile::NamedTempFile::new().expect("a file");
        let alone = ForeignFiles::of(gone);
        assert!(!alone.is_alive());
        let privileged = Rights::are_privileged();
        assert_eq!(alone.open(file.path()).is_err(), privileged);
        let own = ForeignFiles::of(own());
        let like_ours = ForeignFiles::of(gone).or_those_of(Some(&own));
        like_ours.open(file.path()).expect("we may");
    }

    #[test]
    fn mapped_files_and_the_program_itself_are_found() {
        let files = ForeignFiles::of(own());
        let all: Mappings = proc::mappings(own()).expect("readable");
        let code = all.iter().find(|m| m.is_file() && m.execute);
        let code = code.expect("a program has code");
        use std::os::unix::fs::MetadataExt;
        let inode = |file: File| file.metadata().expect("open").ino();
        let program = std::env::current_exe()
            .expect("known")
            .metadata()
            .expect("there")
            .ino();
        assert_eq!(inode(files.executable().expect("it is ours")), program);
        let mapped = files.mapped(code).expect("it is ours");
        assert!(mapped.metadata().expect("open").is_file());
    }
}
