//! A planned patch as it crosses to the target. Called by the tool when it writes
//! a plan for hooks, and by their tests; decides nothing.

use crate::sites::{Number, Patch, Want};
use sunder_wire::sites::{ANY_NUMBER, BEFORE, CALL, COPIED, Patch as Record, RETURNS};

impl From<&Patch> for Record {
    fn from(patch: &Patch) -> Self {
        let kind = match patch.want {
            Want::Call => CALL,
            Want::Before => BEFORE,
            Want::Nothing | Want::Result => 0,
        };
        let returns = if patch.returns { RETURNS } else { 0 };
        Self {
            entry: patch.entry,
            from: patch.from,
            number: match patch.number {
                Number::Always(number) => number.cast_signed(),
                Number::Any => ANY_NUMBER,
            },
            flags: kind | returns,
            head_len: patch.head.len() as u8,
            tail_len: patch.tail.len() as u8,
            reserved: 0,
            head: copied(&patch.head),
            tail: copied(&patch.tail),
        }
    }
}

/// A plan has at most [`COPIED`] bytes on each side of an entry.
fn copied(bytes: &[u8]) -> [u8; COPIED] {
    let mut all = [0; COPIED];
    for (to, from) in all.iter_mut().zip(bytes) {
        *to = *from;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn what_was_planned_crosses() {
        let patch = Patch {
            entry: 0x105,
            number: Number::Always(11),
            want: Want::Call,
            from: 0x100,
            length: 8,
            head: vec![0xb8, 11, 0, 0, 0],
            tail: vec![0xc3],
            returns: true,
        };
        let record = Record::from(&patch);
        assert_eq!(
            (record.entry, record.from, record.number),
            (0x105, 0x100, 11)
        );
        assert_eq!(record.flags, CALL | RETURNS);
        assert_eq!(record.head(), patch.head);
        assert_eq!(record.tail(), patch.tail);
        let other = Patch {
            number: Number::Any,
            want: Want::Result,
            returns: false,
            ..patch
        };
        let record = Record::from(&other);
        assert_eq!((record.number, record.flags), (ANY_NUMBER, 0));
    }
}
