//! The payload of a block of call stacks.

use crate::fields::{Fields, Parse};

/// Writes a call stack to the front of `to`: its number and its return addresses, the
/// innermost first. How many bytes that took; `None` if there is no room.
pub fn write_stack(to: &mut [u8], id: u32, frames: &[u64]) -> Option<usize> {
    let mut fields = Fields::new(to);
    fields.u32(id);
    fields.u32(frames.len() as u32);
    for &frame in frames {
        fields.u64(frame);
    }
    fields.written().map(<[u8]>::len)
}

/// The stacks of a block.
pub(crate) fn parse_stacks(payload: &[u8], count: u32) -> Option<Vec<(u32, Vec<u64>)>> {
    let mut fields = Parse(payload);
    let mut all = Vec::new();
    for _ in 0..count {
        let id = fields.u32()?;
        let mut frames = Vec::new();
        for _ in 0..fields.u32()? {
            frames.push(fields.u64()?);
        }
        all.push((id, frames));
    }
    Some(all)
}
