//! One row of the table of accesses: an access, or the part of one that lies in one line.

use sunder_access::Kind;

/// An access, as it is in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Its place in the order of the whole trace, from 0.
    pub ord: i64,
    /// Its time in that order, in nanoseconds.
    pub time: i64,
    /// The thread, by its index in the trace, from 1.
    pub thread: i32,
    /// The first accessed byte. Addresses of 2^63 and more are negative.
    pub address: i64,
    /// The accessed bytes, all in one line.
    pub size: i32,
    /// The [`RowKind`].
    pub kind: i32,
    /// 1 or 2 for the rest of an access that began in the line before (or the 512 bytes before, see
    /// [`crate::PIECE`]): the row with the `ord` before is its beginning. 2 if that began in a live
    /// heap block. Else 0.
    pub rest: i32,
    /// The address of the instruction.
    pub instruction: i64,
    /// The heap block that was live there, by its number in the table of blocks; 0: none.
    pub block: i64,
    /// The call stack that allocated it, by its number in the table of sites; 0: none or unknown.
    pub site: i32,
}

#[cfg(test)]
impl Row {
    /// A row in bucket 0 of one.
    pub fn example(ord: i64) -> Self {
        Self {
            ord,
            time: ord * 3,
            thread: 1,
            address: 0x1000 + ord % 7 * 8,
            size: 8,
            kind: 1,
            ..Self::default()
        }
    }
}

/// What an access does, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum RowKind {
    /// A plain load.
    Read = 0,
    /// A plain store.
    Write = 1,
    /// A load and a store by one instruction that is not locked.
    Update = 2,
    /// A locked instruction.
    Atomic = 3,
    /// An atomic load of the program, which is a load to the machine.
    AtomicRead = 4,
    /// An atomic store of the program, which is a store to the machine.
    AtomicWrite = 5,
}

impl RowKind {
    /// All kinds with their names.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Read, "read"),
        (Self::Write, "write"),
        (Self::Update, "update"),
        (Self::Atomic, "atomic"),
        (Self::AtomicRead, "atomic-read"),
        (Self::AtomicWrite, "atomic-write"),
    ];

    /// The kind of an access, which the program meant as an atomic operation if `atomic`.
    pub const fn of(kind: Kind, atomic: bool) -> Self {
        match (kind, atomic) {
            (Kind::Read, false) => Self::Read,
            (Kind::Read, true) => Self::AtomicRead,
            (Kind::Write, false) => Self::Write,
            (Kind::Write, true) => Self::AtomicWrite,
            (Kind::Update, _) => Self::Update,
            (Kind::Atomic, _) => Self::Atomic,
        }
    }

    /// What the access does to memory.
    pub const fn kind(self) -> Kind {
        match self {
            Self::Read | Self::AtomicRead => Kind::Read,
            Self::Write | Self::AtomicWrite => Kind::Write,
            Self::Update => Kind::Update,
            Self::Atomic => Kind::Atomic,
        }
    }
}

impl Row {
    /// Whether the whole access, of which this may be the rest, began in a live heap block.
    #[inline]
    pub const fn is_of_heap(&self) -> bool {
        match self.rest {
            0 => self.block != 0,
            rest => rest == 2,
        }
    }

    /// Its kind; `None` for a number that no exporter writes.
    #[inline]
    pub const fn row_kind(&self) -> Option<RowKind> {
        Some(match self.kind {
            0 => RowKind::Read,
            1 => RowKind::Write,
            2 => RowKind::Update,
            3 => RowKind::Atomic,
            4 => RowKind::AtomicRead,
            5 => RowKind::AtomicWrite,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_what_its_number_says() {
        for (kind, _) in RowKind::ALL {
            let row = Row {
                kind: kind as i32,
                ..Row::default()
            };
            assert_eq!(row.row_kind(), Some(kind));
        }
        for kind in [6, 8, -1] {
            let row = Row {
                kind,
                ..Row::default()
            };
            assert_eq!(row.row_kind(), None, "{kind}");
        }
    }
}
