//! The two programs that are made from one source.

/// One of the two programs that are made from one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variant {
    /// As it was written: with the sharing that the workload is about.
    Shared,
    /// Without that sharing.
    Fixed,
}

impl Variant {
    /// Both, the shared one first.
    pub const ALL: [Self; 2] = [Self::Shared, Self::Fixed];

    /// `shared` or `fixed`, as in the table and in file names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Fixed => "fixed",
        }
    }
}
