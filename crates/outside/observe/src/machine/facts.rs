//! The facts of the machine: CPUs, coherency line, model, kernel.
//!
//! Read once at start. They come from sysfs and procfs below two directories, which tests replace;
//! only the affinity mask comes from a system call, the quota from control groups, and the `cpuid`
//! fallbacks from the CPU.

use super::quota::quota;
use std::fs;
use std::path::{Path, PathBuf};
use sunder_access::{Granule, ProcessId};

/// One logical CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The kernel's number.
    pub number: u32,
    /// Package and core; two CPUs with the same pair are hyperthreads of one core and share its
    /// caches. `None` if the kernel does not say.
    pub core: Option<(u32, u32)>,
}

/// What this machine is.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The unit of coherence between its CPUs.
    pub line: Granule,
    /// The CPUs that are online.
    pub online: Vec<Cpu>,
    /// Those of them that this process may run on.
    pub allowed: Vec<Cpu>,
    /// The CPU's name as its maker writes it; empty if unknown.
    pub cpu_model: String,
    /// The kernel's release, as `uname -r`; empty if unknown.
    pub kernel: String,
    /// Whether a hypervisor announces itself.
    pub hypervisor: bool,
    /// How much time control groups grant this process, in CPUs: 0.5 is half of the time of one.
    /// `None` without a quota, or if it can't be read.
    pub quota: Option<f64>,
}

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";

/// The kernel's description of its CPUs.
const CPUS: &str = "/sys/devices/system/cpu";

impl Machine {
    /// Reads the facts of this machine. Never fails: a fact that cannot be read has the value that
    /// its field's description names.
    pub fn read() -> Self {
        let affinity = affinity();
        let mut machine = Self::read_from(Path::new(CPUS), Path::new("/proc"), affinity.as_deref());
        machine.quota = quota(Path::new("/proc/self/cgroup"), Path::new(GROUPS));
        machine
    }

    /// As [`read`](Self::read), with the quota of another process.
    pub fn read_beside(process: ProcessId) -> Self {
        let groups = format!("/proc/{process}/cgroup");
        Self {
            quota: quota(Path::new(&groups), Path::new(GROUPS)),
            ..Self::read()
        }
    }

    /// As [`read`](Self::read), from the given copies of
    /// `/sys/devices/system/cpu` and `/proc`. `affinity` is the list of the
    /// CPUs that this process may use; `None` if unknown, then all are taken.
    pub fn read_from(cpus: &Path, proc: &Path, affinity: Option<&[u32]>) -> Self {
        let online = described(cpus);
        let allowed = match affinity {
            Some(mask) => online
                .iter()
                .copied()
                .filter(|cpu| mask.contains(&cpu.number))
                .collect(),
            None => online.clone(),
        };
        let info = fs::read_to_string(proc.join("cpuinfo")).unwrap_or_default();
        Self {
            line: coherency_line(cpus).unwrap_or_else(cpuid_line),
            cpu_model: cpuinfo_field(&info, "model name")
                .unwrap_or_default()
                .into(),
            hypervisor: cpuinfo_field(&info, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            kernel: trimmed(proc.join("sys/kernel/osrelease")).unwrap_or_default(),
            quota: None,
            online,
            allowed,
        }
    }
}

fn trimmed(path: PathBuf) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number(path: PathBuf) -> Option<u32> {
    trimmed(path)?.parse().ok()
}

/// The kernel's numbers of the CPUs that are online.
pub(crate) fn online_cpus() -> Vec<u32> {
    numbers_of_online(Path::new(CPUS))
}

fn numbers_of_online(root: &Path) -> Vec<u32> {
    parse_cpu_list(&trimmed(root.join("online")).unwrap_or_default())
}

fn described(root: &Path) -> Vec<Cpu> {
    numbers_of_online(root)
        .into_iter()
        .map(|number| Cpu {
            number,
            core: core_of(root, number),
        })
        .collect()
}

fn core_of(root: &Path, cpu: u32) -> Option<(u32, u32)> {
    let topology = root.join(format!("cpu{cpu}/topology"));
    Some((
        number(topology.join("physical_package_id"))?,
        number(topology.join("core_id"))?,
    ))
}

/// Parses the kernel's list format, `0-3,8,10-11`. Malformed parts are left out: the list decides
/// only which CPUs are measured.
pub(crate) fn parse_cpu_list(list: &str) -> Vec<u32> {
    /// No kernel has more CPUs; a longer range is an error and not worth the memory.
    const MAX_CPUS: u32 = 8192;
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse::<u32>()) {
            cpus.extend(first..=last.min(first.saturating_add(MAX_CPUS)));
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

/// The line size of the first cache of CPU 0 that has one. CPUs with different kinds of cores share
/// one coherency line size, too.
fn coherency_line(root: &Path) -> Option<Granule> {
    (0..4).find_map(|index| {
        let file = root.join(format!("cpu0/cache/index{index}/coherency_line_size"));
        Granule::new(number(file)?.into()).ok()
    })
}

/// The line that `clflush` flushes (CPUID leaf 1, EBX bits 15 to 8, in units of 8 bytes; Intel SDM
/// volume 2A). Hypervisors that hide the caches from sysfs still show this size.
fn cpuid_line() -> Granule {
    #[cfg(target_arch = "x86_64")]
    {
        let leaf = core::arch::x86_64::__cpuid(1);
        let bytes = u64::from(leaf.ebx >> 8 & 0xff) * 8;
        Granule::new(bytes).unwrap_or(Granule::LINE)
    }
    #[cfg(not(target_arch = "x86_64"))]
    Granule::LINE
}

fn cpuinfo_field<'a>(info: &'a str, field: &str) -> Option<&'a str> {
    info.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == field).then(|| value.trim())
    })
}

/// The CPUs of this process's affinity mask, which already excludes those that cpusets forbid.
fn affinity() -> Option<Vec<u32>> {
    // 64 words of 64 bits hold 4,096 CPUs. If the kernel has more, it returns EINVAL, and all
    // online CPUs are taken as allowed.
    let mut words = [0u64; 64];
    // SAFETY: the kernel writes at most the given number of bytes to `words`,
    // which is an array of that size.
    let written = unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            0,
            size_of_val(&words),
            words.as_mut_ptr(),
        )
    };
    (written > 0).then(|| {
        (0..words.len() as u32 * 64)
            .filter(|&cpu| words[cpu as usize / 64] >> (cpu % 64) & 1 == 1)
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, file: &str, text: &str) {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn facts_come_from_the_given_folders() {
        let dir = tempfile::tempdir().unwrap();
        let (cpus, proc) = (dir.path().join("cpu"), dir.path().join("proc"));
        write(&cpus, "online", "0-2\n");
        for (cpu, core) in [(0, 0), (1, 0), (2, 1)] {
            write(
                &cpus,
                &format!("cpu{cpu}/topology/physical_package_id"),
                "0\n",
            );
            write(
                &cpus,
                &format!("cpu{cpu}/topology/core_id"),
                &format!("{core}\n"),
            );
        }
        write(&cpus, "cpu0/cache/index0/coherency_line_size", "128\n");
        write(
            &proc,
            "cpuinfo",
            "processor\t: 0\nmodel name\t: Made Up 9000\nflags\t\t: fpu vme hypervisor sse\n",
        );
        write(&proc, "sys/kernel/osrelease", "6.1.0-13-amd64\n");

        let machine = Machine::read_from(&cpus, &proc, Some(&[1, 2, 7]));
        assert_eq!(machine.line.bytes(), 128);
        assert_eq!(machine.cpu_model, "Made Up 9000");
        assert_eq!(machine.kernel, "6.1.0-13-amd64");
        assert!(machine.hypervisor);
        assert_eq!(machine.online.len(), 3);
        assert_eq!(
            machine.allowed,
            [
                Cpu {
                    number: 1,
                    core: Some((0, 0))
                },
                Cpu {
                    number: 2,
                    core: Some((0, 1))
                },
            ]
        );
    }

    #[test]
    fn unknown_machine_has_the_usual_line_size() {
        let nowhere = Path::new("/nonexistent");
        let machine = Machine::read_from(nowhere, nowhere, None);
        assert!(machine.line.bytes() >= 32);
        assert!(machine.online.is_empty() && machine.allowed.is_empty());
        assert!(!machine.hypervisor && machine.cpu_model.is_empty());
    }

    #[test]
    fn a_flag_that_only_contains_the_word_is_no_hypervisor() {
        assert_eq!(
            cpuinfo_field("flags : a hypervisor2 b", "flags"),
            Some("a hypervisor2 b")
        );
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "cpuinfo", "flags : a hypervisor2 b\n");
        assert!(!Machine::read_from(Path::new("/nonexistent"), dir.path(), None).hypervisor);
    }

    #[test]
    fn cpu_lists_are_read_and_garbage_is_left_out() {
        assert_eq!(parse_cpu_list("0-2,8,10-11"), [0, 1, 2, 8, 10, 11]);
        assert_eq!(parse_cpu_list(""), []);
        assert_eq!(parse_cpu_list("x,3-,2-1,5"), [5]);
        assert!(parse_cpu_list("0-4294967295").len() < 10_000);
    }

    #[test]
    fn this_machine_lets_us_run_somewhere() {
        let machine = Machine::read();
        assert!(!machine.allowed.is_empty());
        assert!(
            machine
                .allowed
                .iter()
                .all(|cpu| machine.online.contains(cpu))
        );
    }
}
