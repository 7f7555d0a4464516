//! Landlock: from now on files can only be read, and made in one folder at most. What is open already stays as
//! it was opened.

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use std::path::Path;

/// The newest version of Landlock whose rules are asked for; an older kernel keeps those that it
/// knows.
const NEWEST: ABI = ABI::V6;

/// Forbids this thread, and those that it starts, to change or execute a file, to connect, and to
/// signal other processes; but files may be made below `folder`. Returns whether files are kept.
pub fn only_read(folder: Option<&Path>) -> bool {
    restrict(folder).is_ok_and(|status| status != RulesetStatus::NotEnforced)
}

fn restrict(folder: Option<&Path>) -> Result<RulesetStatus, landlock::RulesetError> {
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    if let Ok(root) = PathFd::new("/") {
        rules = rules.add_rule(PathBeneath::new(root, reading))?;
    }
    if let Some(folder) = folder
        && let Ok(folder) = PathFd::new(folder)
    {
        let making = AccessFs::MakeReg | AccessFs::WriteFile;
        rules = rules.add_rule(PathBeneath::new(folder, making))?;
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// Whether the kernel has Landlock.
pub fn is_possible() -> bool {
    const VERSION: u32 = 1;
    let nothing: *const libc::c_void = std::ptr::null();
    // SAFETY: with this flag the call takes no attributes and only returns a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, 0_usize, VERSION) };
    version > 0
}
