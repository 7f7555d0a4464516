//! Why recording did not begin.

/// Why recording did not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// This process records or has recorded already.
    Twice,
    /// The file has contents: another process records into it.
    Taken,
    /// The file can't be opened or written; with the system's error number.
    File(u32),
    /// Not enough memory.
    Memory,
}
