//! The interface between the tool and the library that it injects into a running program: the
//! library's functions, which the tool makes stopped threads call, and their arguments. The
//! program's own dynamic linker does not know the library; see `docs/design/remap.md`.

/// The symbol of the library's [`Table`].
pub const TABLE: &str = "SUNDER_ATTACH";
/// The first eight bytes of the table.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SUNDATCH");
/// The prefix of the library's functions that replace functions of the C library.
pub const PLAIN: &str = "sunder_plain_";
/// The function that replaces all other imports: it ends the program.
pub const ABSENT: &str = "sunder_plain_absent";

/// Addresses of the library's functions. `T` is a pointer in the library and a number in the
/// tool.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Table<T> {
    /// [`MAGIC`].
    pub magic: u64,
    /// Takes a [`Begin`], before hooks are written; returns 0 or an error number.
    pub lead: T,
    /// Takes the same [`Begin`], after hooks are written; returns 0 or an error number.
    pub begin: T,
    /// Restores the program's signal handlers.
    pub end: T,
    /// Moves the area with the given number, if nothing prevents it. All other threads must be
    /// stopped.
    pub apply: T,
    /// Puts all bytes back; the argument is the reason.
    pub roll_back: T,
    /// Called by trampolines in place of a kernel call.
    pub instead: T,
    /// Called by trampolines after a kernel call that failed.
    pub failed: T,
    /// Called by trampolines before a kernel call.
    pub before: T,
    /// Where a thread waits that is kept off its stack ([`crate::parked`]): the address behind the
    /// instruction of a kernel call.
    pub parked: T,
}

/// The argument of [`Table::lead`] and [`Table::begin`]. All fields are addresses in the
/// program.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Begin {
    /// The mapped [`crate::remap::Control`], with the code that follows it in the file.
    pub control: u64,
    /// A word that is 1 in this process and 0 in forked children.
    pub alive: u64,
    /// The stacks for signal handlers, each with start and length.
    pub stacks: u64,
    /// The number of stacks.
    pub stack_count: u64,
}
