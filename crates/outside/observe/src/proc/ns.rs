//! `ns/user`: the user namespace of a process. In one of its own, a user has many numbers of users.

use super::folder::Folder;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use sunder_access::ProcessId;

/// Asks for the namespace around one (`ioctl_ns(2)`; `libc` does not have it).
pub const NS_GET_PARENT: libc::c_ulong = 0xb702;
/// Asks for the user who made one.
pub const NS_GET_OWNER_UID: libc::c_ulong = 0xb704;
/// The deepest that the kernel nests them.
const DEEPEST: usize = 33;

/// The user who made the outermost user namespace that the process is in and we are not; `None` if it is in
/// ours, or that can't be known.
pub fn maker_of_users(process: ProcessId) -> Option<u32> {
    let own = identity(&File::open(Folder::Own.path("ns/user")).ok()?)?;
    let mut inner = File::open(Folder::Process(process).path("ns/user")).ok()?;
    if identity(&inner)? == own {
        return None;
    }
    for _ in 0..DEEPEST {
        // Refused where it is none of ours.
        let outer = parent(&inner).ok()?;
        if identity(&outer)? == own {
            return maker(&inner);
        }
        inner = outer;
    }
    None
}

/// What tells a namespace from others.
fn identity(namespace: &File) -> Option<(u64, u64)> {
    let of = namespace.metadata().ok()?;
    Some((of.dev(), of.ino()))
}

fn parent(namespace: &File) -> io::Result<File> {
    // SAFETY: the request takes no argument; a number of at least 0 is a new descriptor, which is ours.
    let parent = unsafe {
        match libc::ioctl(namespace.as_raw_fd(), NS_GET_PARENT) {
            descriptor if descriptor >= 0 => OwnedFd::from_raw_fd(descriptor),
            _ => return Err(io::Error::last_os_error()),
        }
    };
    Ok(parent.into())
}

fn maker(namespace: &File) -> Option<u32> {
    let mut user: libc::uid_t = 0;
    // SAFETY: the request writes the number of a user.
    let told = unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_OWNER_UID, &raw mut user) };
    (told == 0).then_some(user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    #[test]
    fn a_namespace_of_users_is_its_makers() {
        let own = ProcessId(std::process::id());
        assert_eq!(maker_of_users(own), None);
        assert_eq!(maker_of_users(ProcessId(1 << 23)), None);
        let mut command = Command::new("sleep");
        command.arg("60");
        // SAFETY: runs in the child alone, which has one thread, and allocates nothing.
        unsafe {
            command.pre_exec(|| match libc::unshare(libc::CLONE_NEWUSER) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
        let Ok(mut child) = command.spawn() else {
            println!("SKIP: no namespace of users can be made here");
            return;
        };
        let maker = maker_of_users(ProcessId(child.id()));
        child.kill().expect("it sleeps");
        child.wait().expect("a child");
        // SAFETY: takes and changes nothing.
        assert_eq!(maker, Some(unsafe { libc::geteuid() }));
    }
}
