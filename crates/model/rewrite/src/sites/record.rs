//! Converts a planned patch to the record that the target reads. Called by the tool when it
//! writes a plan for hooks, and by tests of hooks; it decides nothing.

use super::elsewhere::Elsewhere;
use super::numbers::Number;
use super::patch::{Patch, Want};
use sunder_x86::patch::{
    ANY_NUMBER, BEFORE, CALL, COPIED, DISTANCES, GUARDED, IN_REGISTER, Patch as Record, RETURNS,
    RUN,
};

impl From<&Patch> for Record {
    fn from(patch: &Patch) -> Self {
        let kind = match patch.want {
            Want::Call => CALL,
            Want::Before => BEFORE,
            Want::Nothing | Want::Result => 0,
        };
        let returns = if patch.returns { RETURNS } else { 0 };
        let guarded = if patch.guarded { GUARDED } else { 0 };
        let nothing = Elsewhere::default();
        let elsewhere = patch.elsewhere.as_ref().unwrap_or(&nothing);
        let (run, distances) = run(elsewhere, patch.entry);
        Self {
            entry: patch.entry,
            from: patch.from,
            number: match patch.number {
                Number::Always(number) => number.cast_signed(),
                Number::In(register) => IN_REGISTER + i32::from(register),
                Number::Any => ANY_NUMBER,
            },
            flags: kind | returns | guarded,
            head_len: patch.head.len() as u8,
            tail_len: patch.tail.len() as u8,
            reserved: 0,
            head: copied(&patch.head),
            tail: copied(&patch.tail),
            run,
            run_len: elsewhere.bytes.len() as u8,
            distances,
        }
    }
}

/// The trampoline's replacement code. Its distances are relative to the entry, since the code's
/// address is not known yet; [`RUN`] stands for none.
fn run(elsewhere: &Elsewhere, entry: u64) -> ([u8; RUN], [u8; DISTANCES]) {
    let mut all: [u8; RUN] = copied(&elsewhere.bytes);
    let mut places = [RUN as u8; DISTANCES];
    for (place, distance) in places.iter_mut().zip(&elsewhere.distances) {
        *place = distance.at as u8;
        // All code of a module lies within 2 GiB.
        let to = distance.to.wrapping_sub(entry) as u32;
        for (byte, value) in all.iter_mut().skip(distance.at).zip(to.to_le_bytes()) {
            *byte = value;
        }
    }
    (all, places)
}

/// The bytes, padded with zeroes. A plan has at most [`COPIED`] bytes on each side of an entry,
/// and [`RUN`] bytes of replacement code.
fn copied<const N: usize>(bytes: &[u8]) -> [u8; N] {
    const _: () = assert!(COPIED < RUN);
    let mut all = [0; N];
    for (to, from) in all.iter_mut().zip(bytes) {
        *to = *from;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sites::Distance;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn a_planned_patch_converts_to_the_shared_record() {
        let patch = Patch {
            entry: 0x105,
            number: Number::Always(11),
            want: Want::Call,
            from: 0x100,
            length: 8,
            head: vec![0xb8, 11, 0, 0, 0],
            tail: vec![0xc3],
            elsewhere: None,
            returns: true,
            guarded: false,
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
        let in_r13 = Patch {
            number: Number::In(13),
            ..other
        };
        let record = Record::from(&in_r13);
        assert_eq!((record.number, record.register()), (-19, Some(13)));
        assert_eq!(record.run(), None);
        let branches = Patch {
            elsewhere: Some(Elsewhere {
                bytes: vec![0x0f, 0x85, 0, 0, 0, 0],
                distances: vec![Distance { at: 2, to: 0x100 }],
                ends: false,
            }),
            ..in_r13
        };
        let record = Record::from(&branches);
        // From the entry at 0x105.
        let run = [0x0f, 0x85, 0xfb, 0xff, 0xff, 0xff];
        assert_eq!(record.run(), Some(&run[..]));
        assert_eq!(record.distances().collect::<Vec<_>>(), [2]);
    }
}
