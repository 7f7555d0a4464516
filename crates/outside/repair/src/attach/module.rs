//! A module of a program with the patches that lead its kernel calls through hooks. Made by `plan`
//! and `own`.

use sunder_hooking::is_covered;
use sunder_wire::sites::Patch;

/// The name of the vDSO in the list of mappings.
pub const KERNELS: &str = "[vdso]";

/// A module whose kernel calls are led through hooks.
pub struct Module {
    /// The address at which the file's address 0 lies.
    pub base: u64,
    /// The places in its code that are overwritten.
    pub patches: Vec<Patch>,
    /// Addresses of its code that returns from signal handlers.
    pub restorers: Vec<u64>,
    /// Address of a `syscall` instruction that is followed by a return and that no patch changes.
    pub call: Option<u64>,
    /// Its path in the list of mappings.
    pub path: String,
    /// Start and end address of its code.
    pub code: (u64, u64),
}

impl Module {
    /// Whether it may be unloaded: it is not one of those that every program keeps to its end.
    pub fn may_go(&self) -> bool {
        !is_covered(&self.path) && self.path != KERNELS
    }
}
