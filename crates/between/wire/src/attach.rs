//! What the tool and the library that it puts into a running program agree on: the
//! library's functions, which the tool has stopped threads call, and what they get.
//! The program's own loader knows nothing of the library; see `docs/design/remap.md`.

/// The symbol of the library's [`Table`].
pub const TABLE: &str = "SUNDER_ATTACH";
/// The first eight bytes of the table.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SUNDATCH");
/// What functions of the library that stand for those of the C library have before
/// their names.
pub const PLAIN: &str = "sunder_plain_";
/// The function in place of all other imports: it ends the program.
pub const ABSENT: &str = "sunder_plain_absent";

/// Addresses of the library's functions: pointers there, numbers for the tool.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Table<T> {
    /// [`MAGIC`].
    pub magic: u64,
    /// Takes a [`Begin`], before hooks are written; 0 or an error number.
    pub lead: T,
    /// The same, when they are.
    pub begin: T,
    /// Gives the program's handlers of signals back.
    pub end: T,
    /// Moves the area with this number, if nothing is in the way: all other threads are
    /// stopped.
    pub apply: T,
    /// Puts back all bytes, for a reason.
    pub roll_back: T,
    /// Trampolines enter here in place of a call.
    pub instead: T,
    /// After one that failed.
    pub failed: T,
    /// Before one.
    pub before: T,
}

/// What the library begins with. All are addresses in the program.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Begin {
    /// The mapped [`crate::remap::Control`], with all code behind it.
    pub control: u64,
    /// A word that is 1 here and 0 in forked children.
    pub alive: u64,
    /// Stacks for signal handlers, each a start and a length.
    pub stacks: u64,
    /// How many there are.
    pub stack_count: u64,
}
