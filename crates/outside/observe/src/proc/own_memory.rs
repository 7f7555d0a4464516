//! The memory of this process: what it has, and what it may still take. For work whose size a file
//! decides; it limits nothing itself.

use super::folder::Folder;
use super::meminfo::available_memory;
use super::own_limits::own_limit;
use std::fs;

/// How much memory this process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnMemory {
    /// Bytes that are in use.
    pub resident: u64,
    /// Bytes of address space, used or not.
    pub reserved: u64,
}

/// The memory that this process has now; `None` if the system does not say.
pub fn own_memory() -> Option<OwnMemory> {
    parse(&Folder::Own.text("statm").ok()?)
}

/// Bytes of address space that this process may have; `None` without a limit (`ulimit -v`).
pub fn own_address_space() -> Option<u64> {
    let (soft, _) = own_limit(libc::RLIMIT_AS)?;
    (soft != libc::RLIM_INFINITY).then_some(soft)
}

/// Bytes of memory that this process may still take: what the machine has, or what is left to its
/// control group, whichever is less; `None` if neither says.
pub fn memory_left() -> Option<u64> {
    let group = Folder::Own.text("cgroup").ok();
    let left = group.and_then(|text| group_left(&text));
    [available_memory(), left].into_iter().flatten().min()
}

fn parse(text: &str) -> Option<OwnMemory> {
    const PAGE: u64 = sunder_access::PAGE;
    let mut pages = text.split_whitespace().map(str::parse::<u64>);
    let reserved = pages.next()?.ok()?.checked_mul(PAGE)?;
    let resident = pages.next()?.ok()?.checked_mul(PAGE)?;
    Some(OwnMemory { resident, reserved })
}

/// What is left to the control group (version 2) that `text`, the file `cgroup`, names, and to those
/// around it.
fn group_left(text: &str) -> Option<u64> {
    let name = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mut folder = std::path::PathBuf::from("/sys/fs/cgroup").join(name);
    let mut least = None;
    while folder.starts_with("/sys/fs/cgroup") {
        let number = |file: &str| {
            let text = fs::read_to_string(folder.join(file)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        if let Some((most, used)) = number("memory.max").zip(number("memory.current")) {
            let left = most.saturating_sub(used);
            least = Some(least.map_or(left, |least: u64| least.min(left)));
        }
        folder.pop();
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_in_pages() {
        let known = OwnMemory {
            reserved: 100 << 12,
            resident: 7 << 12,
        };
        assert_eq!(parse("100 7 3 1 0 2 0\n"), Some(known));
        assert_eq!(parse("100\n"), None);
        assert!(own_memory().is_some_and(|own| own.resident <= own.reserved));
    }

    #[test]
    fn a_group_that_is_not_there_limits_nothing() {
        assert_eq!(group_left("0::/no/such/group/of/sunder\n").is_some(), {
            // Only the root's own limit can be there, and it has none.
            std::path::Path::new("/sys/fs/cgroup/memory.max").exists()
        });
        assert_eq!(group_left("4:memory:/old\n"), None);
    }
}
