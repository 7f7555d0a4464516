//! Puts a finished copy of code into the program: its bytes, where its threads go on if they are stopped in
//! it, and the entries by which other threads come to it. Only one thread at a time may do that.

use super::Shared;
use super::area::MovedArea;
use std::sync::atomic::Ordering;
use sunder_access::CodeAddress;
use sunder_pipeline::CopiedCode;
use sunder_rewrite::{Block, Condition};
use sunder_wire::remap::{CONDITIONS, Control, ENTRIES, RESUMES, STACK, bucket};

impl Shared {
    /// Writes a copy into the program; gives its address there, and the copy for those who see threads in
    /// it. `None` if there is no room.
    pub fn publish(
        &self,
        number: usize,
        area: &mut MovedArea,
        block: &Block,
        once: bool,
    ) -> Option<(u64, Option<CopiedCode>)> {
        let control = self.file.control();
        let offset = area.used;
        if !self.file.write_code(number, offset, &block.bytes) {
            return None;
        }
        let shared = control.areas.get(number)?;
        let first = shared.resume_count.load(Ordering::Relaxed) as usize;
        if first + block.resume.len() > RESUMES {
            return None;
        }
        for (place, resume) in shared.resumes[first..].iter().zip(&block.resume) {
            // Offsets of code have 32 bits.
            let at = offset as u32 + resume.offset;
            place.offset.store(at, Ordering::Relaxed);
            place.pushed.store(resume.pushed.into(), Ordering::Relaxed);
            let saved = resume.saved.map_or(0, |register| 1 + u32::from(register.0));
            place.saved.store(saved, Ordering::Relaxed);
            place.original.store(resume.original.0, Ordering::Relaxed);
            let shifts = [
                (&place.destination, resume.shift.destination),
                (&place.source, resume.shift.source),
                (&place.count, resume.shift.count),
            ];
            for (place, shift) in shifts {
                place.store(shift as u32, Ordering::Relaxed);
            }
        }
        let count = (first + block.resume.len()) as u32;
        shared.resume_count.store(count, Ordering::Release);
        area.used = (offset + block.bytes.len() as u64).next_multiple_of(64);
        area.blocks += 1;
        // A copy of a single instruction gets no entry from other code: it is no loop.
        let entries = block.entries.iter().filter(|_| !once);
        for entry in entries {
            let target = area.at + offset + u64::from(entry.offset);
            publish_entry(control, number, block.is_loop, target, entry);
        }
        let at = area.at + offset;
        Some((at, copied(block, at)))
    }
}

/// A copy that lies at `at`, for those who see threads in it.
pub fn copied(block: &Block, at: u64) -> Option<CopiedCode> {
    let place = |offset: u32| CodeAddress(at + u64::from(offset));
    let first = block.resume.first()?.offset;
    let entries = block.entries.iter().map(|entry| entry.offset);
    let instructions = block.resume.iter();
    Some(CopiedCode {
        start: place(first),
        bytes: block.bytes.get(first as usize..)?.to_vec(),
        entries: entries.chain([block.entry]).map(place).collect(),
        originals: instructions
            .map(|one| (place(one.offset), one.original))
            .collect(),
    })
}

/// Tells the program about an entry into a copy. If there is no room it is left out, and the next
/// thread asks again.
fn publish_entry(
    control: &Control,
    area: usize,
    is_loop: bool,
    target: u64,
    entry: &sunder_rewrite::Entry,
) {
    let place = control.entry_count.load(Ordering::Relaxed);
    let Some(to) = control.entries.get(place as usize) else {
        return;
    };
    if entry.conditions.len() > CONDITIONS || place as usize >= ENTRIES {
        return;
    }
    to.original.store(entry.original.0, Ordering::Relaxed);
    to.target.store(target, Ordering::Relaxed);
    to.area.store(area as u32, Ordering::Relaxed);
    to.alone.store(u32::from(!is_loop), Ordering::Relaxed);
    let count = entry.conditions.len() as u32;
    to.count.store(count, Ordering::Relaxed);
    for (slot, condition) in to.conditions.iter().zip(&entry.conditions) {
        let (what, low, high, step) = match *condition {
            Condition::Register(register, low, high) => (u64::from(register.0), low, high, 1),
            Condition::Steps(register, low, high, step) => (u64::from(register.0), low, high, step),
            Condition::Stack(offset, value) => ((offset << 8) as u64 | STACK, value, value, 1),
        };
        slot.what.store(what, Ordering::Relaxed);
        slot.low.store(low, Ordering::Relaxed);
        slot.high.store(high, Ordering::Relaxed);
        slot.step.store(step, Ordering::Relaxed);
    }
    let head = &control.buckets[bucket(entry.original.0)];
    to.next
        .store(head.load(Ordering::Relaxed), Ordering::Relaxed);
    control.entry_count.store(place + 1, Ordering::Relaxed);
    head.store(place + 1, Ordering::Release);
}
