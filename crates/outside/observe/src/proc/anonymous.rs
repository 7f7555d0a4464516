//! `maps` of all processes: which of them have the same anonymous shared memory (`mmap` with
//! `MAP_SHARED | MAP_ANONYMOUS`). Such memory has no name, so a process gets it from its parent by
//! `fork` and in no other way.

use super::folder::{Folder, read};
use super::maps::parse_mapping;
use super::stat::start_ticks;
use super::{living_number, status};
use crate::ObserveError;
use std::collections::HashSet;
use std::fs;
use std::ptr::null_mut;
use std::sync::LazyLock;
use sunder_access::{Address, Mapping, ProcessId};

/// The path and the device of anonymous shared memory: those of a page of ours. `None` if the kernel
/// gives us no page, or tells nothing of it.
static KIND: LazyLock<Option<(String, String)>> = LazyLock::new(|| {
    let bytes = 1;
    // SAFETY: maps new memory at an address that the kernel chooses.
    let page = unsafe {
        libc::mmap(
            null_mut(),
            bytes,
            libc::PROT_READ,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return None;
    }
    let text = Folder::Own.text("maps");
    // SAFETY: the page was mapped above, and nothing uses it.
    unsafe { libc::munmap(page, bytes) };
    let (device, mapping) = text
        .ok()?
        .lines()
        .filter_map(with_device)
        .find(|(_, mapping)| mapping.span.contains(Address(page as u64)))?;
    Some((mapping.path, device))
});

/// A line of `maps`: the device, and the rest.
fn with_device(line: &str) -> Option<(String, Mapping)> {
    let device = line.split(' ').nth(3)?;
    Some((device.to_owned(), parse_mapping(line)?))
}

/// Whether this is anonymous shared memory, as far as its path tells.
pub fn is_anonymous_shared(mapping: &Mapping) -> bool {
    let known = KIND.as_ref();
    mapping.shared && known.is_some_and(|(path, _)| *path == mapping.path)
}

/// Anonymous shared memory of a process, and the processes that are known not to have it.
#[derive(Debug)]
pub struct AnonymousShared {
    process: ProcessId,
    inode: u64,
    /// Processes that began before this, in clock ticks since the machine's start, can't have it.
    since: u64,
    without: HashSet<ProcessId>,
}

impl AnonymousShared {
    /// The memory at this address of a process; `None` if it is none of this kind.
    ///
    /// # Errors
    /// If what is mapped in the process can't be read.
    pub fn at(process: ProcessId, address: Address) -> Result<Option<Self>, ObserveError> {
        let text = maps_of(process)?;
        let found = text
            .lines()
            .filter_map(with_device)
            .find(|(_, mapping)| mapping.span.contains(address));
        let Some((device, mapping)) = found.filter(|(_, m)| is_anonymous_shared(m)) else {
            return Ok(None);
        };
        if KIND.as_ref().is_none_or(|(_, known)| *known != device) {
            return Ok(None);
        }
        // What we start executes a program, and keeps no memory of ours.
        let is_ours = status(process)?.parent.0 == std::process::id();
        let since = if is_ours {
            start_ticks(process).unwrap_or(0)
        } else {
            0
        };
        Ok(Some(Self {
            process,
            inode: mapping.inode,
            since,
            without: HashSet::new(),
        }))
    }

    /// Whether this mapping is a part of the memory.
    pub fn is_in(&self, mapping: &Mapping) -> bool {
        is_anonymous_shared(mapping) && mapping.inode == self.inode
    }

    /// Looks at all processes at which it has not looked before. A process that is known not to have
    /// the memory does not get it: it would be another one.
    ///
    /// # Errors
    /// Says why another process may have it.
    pub fn is_of_one_process(&mut self) -> Result<(), String> {
        let listed = fs::read_dir("/proc").map_err(|e| format!("/proc can't be read: {e}"))?;
        let mut listed: Vec<ProcessId> = listed
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(ProcessId))
            .collect();
        if !listed.contains(&ProcessId(1)) {
            return Err("other processes may share its memory: not all can be seen".into());
        }
        // Who has it is a child as a rule, and among the newest.
        listed.sort_unstable_by_key(|process| std::cmp::Reverse(process.0));
        for other in listed {
            if other == self.process || self.without.contains(&other) {
                continue;
            }
            if self.may_have(other) {
                return Err(format!("process {other} may share its memory"));
            }
            self.without.insert(other);
        }
        Ok(())
    }

    fn may_have(&self, other: ProcessId) -> bool {
        match maps_of(other) {
            Ok(text) => lines_of(&text)
                .filter_map(parse_mapping)
                .any(|mapping| self.is_in(&mapping)),
            Err(ObserveError::NoSuchProcess(_)) => false,
            // It is another user's.
            Err(_) => start_ticks(other).is_none_or(|began| began >= self.since),
        }
    }
}

/// The text of `maps`, also where the process's first thread has ended.
fn maps_of(process: ProcessId) -> Result<String, ObserveError> {
    let mut text = read(process, "maps")?;
    if text.is_empty() {
        text = read(living_number(process), "maps")?;
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The lines of `maps` that tell of anonymous shared memory. Machines have thousands of processes
/// with hundreds of mappings each, so the others are not parsed.
fn lines_of(maps: &str) -> impl Iterator<Item = &str> {
    let path = KIND.as_ref().map(|(path, _)| path.as_str());
    maps.lines()
        .filter(move |line| path.is_some_and(|path| line.ends_with(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of anonymous shared memory.
    struct Page(*mut libc::c_void);

    const BYTES: usize = 4096;

    impl Page {
        fn map(flags: i32) -> Self {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: maps new memory at an address that the kernel chooses.
            let page = unsafe { libc::mmap(null_mut(), BYTES, rights, flags, -1, 0) };
            assert_ne!(page, libc::MAP_FAILED);
            Self(page)
        }

        fn described(&self) -> Option<AnonymousShared> {
            let own = ProcessId(std::process::id());
            AnonymousShared::at(own, Address(self.0 as u64)).expect("our own maps")
        }
    }

    impl Drop for Page {
        fn drop(&mut self) {
            // SAFETY: the page was mapped by `map`, and nothing refers to it.
            unsafe { libc::munmap(self.0, BYTES) };
        }
    }

    #[test]
    fn a_child_of_fork_shares_the_memory_until_it_ends() {
        let page = Page::map(libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let mut shared = page.described().expect("it is of that kind");
        // As if it had been started by us: there may be processes that may not be looked at.
        shared.since = start_ticks(shared.process).expect("we live");
        assert_eq!(shared.is_of_one_process(), Ok(()));
        // SAFETY: the child only waits, and makes no call that is not async-signal-safe.
        let child = unsafe { libc::fork() };
        if child == 0 {
            loop {
                // SAFETY: takes nothing.
                unsafe { libc::pause() };
            }
        }
        let told = shared.is_of_one_process();
        // SAFETY: the child is ours and was not waited for; the status may be null.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, null_mut(), 0);
        }
        let why = format!("process {child} may share its memory");
        assert_eq!(told, Err(why), "the same look sees a process that is new");
        assert_eq!(shared.is_of_one_process(), Ok(()));
    }

    #[test]
    fn other_memory_is_of_another_kind() {
        let private = Page::map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        assert!(private.described().is_none());
        // SAFETY: the name is terminated.
        let fd = unsafe { libc::memfd_create(c"dev/zero".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: maps new memory; the descriptor is ours.
        let page = unsafe {
            libc::ftruncate(fd, BYTES as i64);
            let page = libc::mmap(null_mut(), BYTES, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
            libc::close(fd);
            page
        };
        assert!(Page(page).described().is_none(), "a file has other ways");
    }
}
