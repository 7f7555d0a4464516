//! The rights that a process has over files, and taking them, for the length of one call or for
//! good. Called by [`super::ForeignFiles`] alone; it must not change the rights of any thread but
//! the calling one.

use crate::proc::{Fields, Folder};
use rustix::process::{DumpableBehavior, Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::io;

/// The capabilities that let a process open files in spite of their owners and modes
/// (`capabilities(7)`).
const OVER_FILES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER);

/// The capabilities that let a user observe processes of others.
const OVER_PROCESSES: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::PERFMON);

/// Who a process is when it opens a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rights {
    user: u32,
    group: u32,
    /// Sorted.
    groups: Vec<u32>,
    /// Of [`OVER_FILES`], those that are in effect.
    capabilities: CapabilitySet,
}

impl Rights {
    /// What `status` says of a process. Capabilities that it has over its own user namespace say
    /// nothing about the files outside of that, so they count only if `same_namespace`.
    pub fn of(status: &Fields, same_namespace: bool) -> Option<Self> {
        let file_system = |name: &str| status.get(name).split_whitespace().nth(3)?.parse().ok();
        let groups = status.get("Groups").split_whitespace();
        let mut groups: Vec<u32> = groups.map(str::parse).collect::<Result<_, _>>().ok()?;
        groups.sort_unstable();
        let effective = CapabilitySet::from_bits_retain(status.bits("CapEff")?);
        Some(Self {
            user: file_system("Uid")?,
            group: file_system("Gid")?,
            groups,
            capabilities: if same_namespace {
                effective & OVER_FILES
            } else {
                CapabilitySet::empty()
            },
        })
    }

    /// Whether they are those of `user`.
    pub const fn are_of(&self, user: u32) -> bool {
        self.user == user
    }

    /// Those of the calling thread.
    pub fn own() -> Option<Self> {
        Self::of(&Fields::read(Folder::OwnThread).ok()?, true)
    }

    /// Whether this process may open more than a user who is not root, or may see processes of
    /// other users.
    pub fn are_privileged() -> bool {
        let privileges = OVER_FILES | OVER_PROCESSES;
        rustix::process::geteuid().is_root()
            || Self::own().is_none_or(|own| own.user == 0)
            || rustix::thread::capabilities(None).map_or(true, |own| {
                (own.permitted | own.effective).intersects(privileges)
            })
    }

    /// Whether a process with these rights may read every file that we may read.
    pub fn include_ours(&self) -> bool {
        let Some(own) = Self::own() else {
            return false;
        };
        let is_in = |group: &u32| *group == self.group || self.groups.contains(group);
        let like_ours = self.user == own.user
            && own.groups.iter().chain([&own.group]).all(is_in)
            && self.capabilities.contains(own.capabilities);
        like_ours || self.capabilities.contains(CapabilitySet::DAC_OVERRIDE)
    }

    /// Runs `act` with these rights and no others, and takes back our own. `None` if these rights
    /// can't be taken: then `act` has not run.
    pub fn run<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        if Self::own().as_ref() == Some(self) {
            return Some(act());
        }
        let _own = OwnRights::give_up_for(self).ok()?;
        Some(act())
    }

    /// Takes these rights for the calling thread, and the threads that it starts. Of the
    /// capabilities only these rights' own are left and, as far as we had them, those in `besides`.
    /// Our real and effective user stay, so that processes of the other user get no rights over us;
    /// a filter of system calls has to keep the thread from going back.
    ///
    /// # Errors
    /// `PermissionDenied` if these rights can't be taken. Then nothing has changed.
    pub fn take_for_good(&self, besides: CapabilitySet) -> io::Result<()> {
        // An error drops `own`, which takes back what was given up.
        let own = OwnRights::now()?;
        own.take_groups_of(self)?;
        // SAFETY: these calls take a number each, and change only the calling thread.
        unsafe {
            libc::setfsgid(self.group);
            libc::setfsuid(self.user);
        }
        let left = own.capabilities.permitted & (self.capabilities | besides);
        let sets = CapabilitySets {
            effective: left,
            permitted: left,
            inheritable: CapabilitySet::empty(),
        };
        // The two calls above don't tell whether they did anything.
        let now = Self::own().map(|now| (now.user, now.group));
        if now != Some((self.user, self.group)) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        rustix::thread::set_capabilities(None, sets)?;
        own.keep_descriptors_readable();
        std::mem::forget(own);
        Ok(())
    }
}

/// Our own rights, given up for others; dropping it takes them back.
struct OwnRights {
    user: Uid,
    group: Gid,
    groups: Vec<Gid>,
    capabilities: CapabilitySets,
    dumpable: Option<DumpableBehavior>,
}

impl OwnRights {
    fn now() -> io::Result<Self> {
        Ok(Self {
            user: rustix::process::geteuid(),
            group: rustix::process::getegid(),
            groups: rustix::process::getgroups()?,
            capabilities: rustix::thread::capabilities(None)?,
            dumpable: rustix::process::dumpable_behavior().ok(),
        })
    }

    fn give_up_for(other: &Rights) -> io::Result<Self> {
        // An error drops `own`, which takes back what was given up.
        let own = Self::now()?;
        own.take_groups_of(other)?;
        rustix::thread::set_thread_res_gid(None, Gid::from_raw(other.group), None)?;
        rustix::thread::set_thread_res_uid(None, Uid::from_raw(other.user), None)?;
        let mut capabilities = own.capabilities;
        capabilities.effective = capabilities.permitted & other.capabilities;
        rustix::thread::set_capabilities(None, capabilities)?;
        Ok(own)
    }
}

impl OwnRights {
    fn take_groups_of(&self, other: &Rights) -> io::Result<()> {
        // Some containers take the right to change groups away from their root.
        if self.sorted_groups() == other.groups {
            return Ok(());
        }
        let groups: Vec<Gid> = other.groups.iter().map(|&g| Gid::from_raw(g)).collect();
        Ok(rustix::thread::set_thread_groups(&groups)?)
    }

    /// Takes back what the kernel takes away with a change of user: that our own descriptors can be
    /// opened by `/proc`.
    fn keep_descriptors_readable(&self) {
        if let Some(before) = self.dumpable {
            let _ = rustix::process::set_dumpable_behavior(before);
        }
    }

    fn sorted_groups(&self) -> Vec<u32> {
        let mut groups: Vec<u32> = self.groups.iter().map(|group| group.as_raw()).collect();
        groups.sort_unstable();
        groups
    }
}

impl Drop for OwnRights {
    fn drop(&mut self) {
        // None of these can fail: what is permitted to us, and our real and saved user and group,
        // have not changed. If one did, we would go on with fewer rights, never with more.
        let _ = rustix::thread::set_capabilities(None, self.capabilities);
        let _ = rustix::thread::set_thread_res_uid(None, self.user, None);
        let _ = rustix::thread::set_thread_res_gid(None, self.group, None);
        let _ = rustix::thread::set_thread_groups(&self.groups);
        // The kernel has changed what is in effect together with the user.
        let _ = rustix::thread::set_capabilities(None, self.capabilities);
        self.keep_descriptors_readable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: &str = "Uid:\t1\t2\t3\t65534\nGid:\t1\t2\t3\t65533\nGroups:\t40 7 \n\
                          CapEff:\t0000000000000022\n";

    #[test]
    fn rights_are_those_over_files() {
        let status = Fields::from(NOBODY.to_owned());
        let inside = Rights::of(&status, true).expect("all fields are there");
        assert_eq!((inside.user, inside.group), (65534, 65533));
        assert_eq!(inside.groups, [7, 40]);
        // Bit 1 is CAP_DAC_OVERRIDE; bit 5, CAP_KILL, is no right over files.
        assert_eq!(inside.capabilities, CapabilitySet::DAC_OVERRIDE);
        let outside = Rights::of(&status, false).expect("all fields are there");
        assert!(outside.capabilities.is_empty());
        assert_eq!(Rights::of(&Fields::default(), true), None);
    }

    #[test]
    fn with_our_own_rights_nothing_changes() {
        let own = Rights::own().expect("our own status is readable");
        assert_eq!(own.run(Rights::own), Some(Some(own.clone())));
    }

    #[test]
    fn another_users_rights_are_taken_for_one_call_or_refused() {
        let own = Rights::own().expect("our own status is readable");
        let status = Fields::from(NOBODY.to_owned());
        let other = Rights::of(&status, false).expect("all fields are there");
        let ran = other.run(Rights::own);
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(ran, is_root.then_some(Some(other)), "only root may");
        assert_eq!(Rights::own(), Some(own), "our own rights are back");
    }
}
