//! A call of a lock function, as it is found in the program's code.

use sunder_access::{Address, CodeAddress};

/// A call of a lock function on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockCall {
    /// The call instruction.
    pub code: CodeAddress,
    /// The function that it calls, as people write it.
    pub callee: String,
}

/// A call of a lock function, and its argument.
#[derive(Clone, Debug)]
pub(super) struct FoundCall {
    pub(super) call: LockCall,
    /// The start of a variable with static storage, or else the name and size of the record that
    /// a pointer leads to.
    pub(super) object: LockedObject,
    /// The lock's offset in the object, up to multiples of `modulo` if that is not 0.
    pub(super) offset: u64,
    pub(super) modulo: u64,
    /// Size of the lock in bytes.
    pub(super) size: u64,
}

/// The object that holds a lock.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LockedObject {
    Static(Address),
    Record(String, u64),
    /// An object of a library's type, through the variable of this name.
    Named(String, String, u64),
}
