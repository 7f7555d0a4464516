//! What happens to the tool in one run, and how it is drawn from a seed.

use crate::calls::{self, Calls};
use crate::random::Random;
use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

/// How the tool is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `kill -9`.
    Kill,
    /// `kill`.
    Terminate,
    /// Its terminal is closed, which is the program's too if the tool started it.
    ClosedTerminal,
}

impl Way {
    /// The signal that the tool gets.
    pub const fn signal(self) -> i32 {
        match self {
            Self::Kill => libc::SIGKILL,
            Self::Terminate => libc::SIGTERM,
            Self::ClosedTerminal => libc::SIGHUP,
        }
    }
}

/// What the tool, and the program that it starts, have too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// So many bytes of addresses.
    AddressSpace(u64),
    /// So many descriptors.
    Descriptors(u64),
    /// No byte is free where temporary files and the report go, nor in `/dev/shm`.
    FullDisk,
    /// Nothing can be written there.
    ReadOnly,
    /// `/proc` is empty.
    NoProc,
}

/// What happens to the tool in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// Nothing.
    None,
    /// It is ended so long after its start.
    After(Way, Duration),
    /// It gets the signal when one of its threads makes this call for the so-manyth time.
    AtCall(Way, String, u64),
    /// Its system calls fail: each with strace's words for how and when.
    Failing(Vec<(String, String)>),
    /// Something is short.
    Short(Shortage),
}

impl Mishap {
    /// Words before `sunder` that bring it about.
    pub fn words(&self) -> Vec<OsString> {
        match self {
            Self::AtCall(way, name, number) => calls::signalling(name, *number, way.signal()),
            Self::Failing(all) => calls::injecting(all),
            Self::None | Self::After(..) | Self::Short(_) => Vec::new(),
        }
    }

    /// How the tool is ended, if it is.
    pub const fn way(&self) -> Option<Way> {
        match self {
            Self::After(way, _) | Self::AtCall(way, ..) => Some(*way),
            Self::None | Self::Failing(_) | Self::Short(_) => None,
        }
    }
}

impl fmt::Display for Mishap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("nothing happens"),
            Self::After(way, time) => write!(f, "{way} after {} us", time.as_micros()),
            Self::AtCall(way, name, number) => write!(f, "{way} at {name} number {number}"),
            Self::Failing(all) => {
                f.write_str("failing:")?;
                all.iter()
                    .try_for_each(|(name, how)| write!(f, " {name}:{how}"))
            }
            Self::Short(shortage) => shortage.fmt(f),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "SIGKILL",
            Self::Terminate => "SIGTERM",
            Self::ClosedTerminal => "closed terminal",
        })
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressSpace(bytes) => write!(f, "address space of {bytes} bytes"),
            Self::Descriptors(count) => write!(f, "{count} descriptors"),
            Self::FullDisk => f.write_str("full disk"),
            Self::ReadOnly => f.write_str("read-only disk"),
            Self::NoProc => f.write_str("no /proc"),
        }
    }
}

/// The ends of a tool that usually lives so long and makes these calls.
#[derive(Clone, Debug)]
pub struct Kills {
    /// How long it lives if nothing happens.
    pub life: Duration,
    /// What it calls meanwhile.
    pub calls: Calls,
}

impl Kills {
    /// Half of the ends come at a random instant of the life, half at one of the calls. Half are
    /// `SIGKILL`.
    pub fn draw(&self, random: &mut Random) -> Mishap {
        let instant = random.below(2) == 0;
        let way = match random.below(4) {
            0 | 1 => Way::Kill,
            2 => Way::Terminate,
            _ => Way::ClosedTerminal,
        };
        let time = Duration::from_micros(random.below(self.life.as_micros() as u64));
        match self.calls.draw(random) {
            Some((name, number)) if !instant => {
                // A terminal is not closed by a system call of the tool.
                let way = match way {
                    Way::ClosedTerminal => Way::Kill,
                    way => way,
                };
                Mishap::AtCall(way, name, number)
            }
            _ => Mishap::After(way, time),
        }
    }
}

/// System calls that may fail, with errors that Linux documents for them. Others can't fail, or a
/// failure that is only made up would leave something undone that Linux does (`close`, `munmap`).
const ERRORS: &[(&str, &[&str])] = &[
    ("access", &["EACCES", "ENOENT"]),
    ("clone", &["EAGAIN", "ENOMEM"]),
    ("clone3", &["EAGAIN", "ENOMEM"]),
    ("connect", &["ECONNREFUSED"]),
    ("dup", &["EMFILE"]),
    ("dup3", &["EMFILE"]),
    ("eventfd2", &["EMFILE", "ENOMEM"]),
    ("fallocate", &["ENOSPC"]),
    ("flock", &["ENOLCK"]),
    ("fork", &["EAGAIN", "ENOMEM"]),
    ("fstat", &["ENOMEM"]),
    ("ftruncate", &["EIO"]),
    ("getcwd", &["ENOENT"]),
    ("getdents64", &["ENOENT", "EIO"]),
    ("getrandom", &["EINTR", "ENOSYS"]),
    ("ioctl", &["EINVAL", "ENOMEM"]),
    ("lseek", &["EINVAL"]),
    ("madvise", &["ENOMEM"]),
    ("memfd_create", &["ENOMEM", "EMFILE"]),
    ("mkdir", &["ENOSPC", "EACCES"]),
    ("mmap", &["ENOMEM"]),
    ("mprotect", &["ENOMEM"]),
    ("newfstatat", &["EACCES", "ENOMEM"]),
    (
        "openat",
        &["EMFILE", "ENFILE", "ENOMEM", "EACCES", "ENOENT"],
    ),
    ("perf_event_open", &["EACCES", "EMFILE", "ENOMEM", "EBUSY"]),
    ("pidfd_getfd", &["EPERM", "EMFILE"]),
    ("pidfd_open", &["EMFILE", "ENOMEM"]),
    ("pipe2", &["EMFILE", "ENFILE"]),
    ("poll", &["EINTR", "ENOMEM"]),
    ("ppoll", &["EINTR", "ENOMEM"]),
    ("pread64", &["EIO", "EINTR"]),
    ("prlimit64", &["EPERM"]),
    ("process_vm_readv", &["EPERM", "ESRCH", "EFAULT"]),
    ("process_vm_writev", &["EPERM", "ESRCH", "EFAULT"]),
    ("ptrace", &["EPERM", "ESRCH", "EIO"]),
    ("pwrite64", &["EIO", "ENOSPC"]),
    ("read", &["EIO", "EINTR"]),
    ("readlink", &["EACCES", "ENOENT", "ENOMEM"]),
    ("rename", &["ENOSPC", "EACCES"]),
    ("sched_getaffinity", &["EINVAL"]),
    ("sched_setaffinity", &["EPERM", "EINVAL"]),
    ("setpriority", &["EACCES"]),
    ("socket", &["EMFILE", "EACCES"]),
    ("statx", &["EACCES", "ENOMEM", "ENOENT"]),
    ("timer_create", &["EAGAIN"]),
    ("unlink", &["EACCES"]),
    ("wait4", &["EINTR"]),
    ("waitid", &["EINTR"]),
    ("write", &["ENOSPC", "EIO", "EPIPE", "EINTR"]),
    ("writev", &["ENOSPC", "EIO", "EPIPE"]),
];

/// A call in a hundred fails, where all do.
const EVERY: u64 = 100;

/// Failures of a tool that makes these calls.
#[derive(Clone, Debug)]
pub struct Faults {
    /// What it calls.
    pub calls: Calls,
}

impl Faults {
    /// In half of the runs one call fails once, in the other half each hundredth call of every
    /// kind.
    pub fn draw(&self, random: &mut Random) -> Mishap {
        let errors = |name: &str| ERRORS.iter().find(|row| row.0 == name).map(|row| row.1);
        if random.below(2) == 0 {
            let all = self.calls.names().filter_map(|name| {
                let error = random.one_of(errors(name)?);
                let first = 1 + random.below(EVERY);
                Some((
                    name.to_owned(),
                    format!("error={error}:when={first}+{EVERY}"),
                ))
            });
            return Mishap::Failing(all.collect());
        }
        for _ in 0..1000 {
            if let Some((name, number)) = self.calls.draw(random)
                && let Some(errors) = errors(&name)
            {
                let error = random.one_of(errors);
                return Mishap::Failing(vec![(name, format!("error={error}:when={number}"))]);
            }
        }
        Mishap::None
    }

    /// Something that is short.
    pub fn shortage(random: &mut Random) -> Shortage {
        const MIB: u64 = 1 << 20;
        match random.below(8) {
            0..3 => Shortage::AddressSpace(MIB * (48 + random.below(400))),
            3 | 4 => Shortage::Descriptors(4 + random.below(40)),
            5 => Shortage::FullDisk,
            6 => Shortage::ReadOnly,
            _ => Shortage::NoProc,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "1 read(0) = 0\n1 close(0) = 0\n1 ptrace(1) = 0\n";

    #[test]
    fn a_seed_always_draws_the_same() {
        let calls = Calls::read(LIST);
        let life = Duration::from_millis(3);
        let kills = Kills { life, calls };
        for seed in 0..50 {
            let draw = || kills.draw(&mut Random::new(seed));
            assert_eq!(draw(), draw());
            if let Mishap::After(_, time) = draw() {
                assert!(time < life);
            }
        }
    }

    #[test]
    fn only_calls_that_may_fail_do() {
        let faults = Faults {
            calls: Calls::read(LIST),
        };
        for seed in 0..50 {
            let Mishap::Failing(all) = faults.draw(&mut Random::new(seed)) else {
                panic!("no failure was drawn");
            };
            let right = |(name, how): &(String, String)| {
                ["read", "ptrace"].contains(&name.as_str()) && how.starts_with("error=E")
            };
            assert!(!all.is_empty() && all.iter().all(right), "{all:?}");
        }
    }

    #[test]
    fn the_table_of_errors_is_sorted() {
        assert!(ERRORS.is_sorted_by_key(|row| row.0));
    }
}
