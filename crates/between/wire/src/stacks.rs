//! Call stacks, each stored once: append-only records behind a hash index. The runtime adds
//! stacks, the tool reads them. A stack's number fits into a shadow entry.

use crate::layout::{STACK_INDEX, STACKS, TOP, View};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The most return addresses that are kept of one stack.
pub const MAX_FRAMES: usize = 32;

const BUCKETS: usize = 1 << 16;
/// Bytes of a unit. Stacks take whole units.
const UNIT: usize = 64;
/// The number of units. A stack's number is that of its first unit. Unit 0 is never used:
/// number 0 means "not known".
const UNITS: u32 = 1 << 19;
const HEAD_BYTES: usize = 16;
/// Offset after the last unit.
pub(crate) const END: usize = STACKS + UNITS as usize * UNIT;

const _: () = assert!(STACK_INDEX + BUCKETS * 4 <= STACKS);
const _: () = assert!(END <= TOP);

#[repr(C)]
struct Head {
    /// The next stack of the same bucket; 0 at the end.
    next: AtomicU32,
    hash: AtomicU32,
    len: AtomicU32,
    /// The smallest alignment that was requested for blocks with this stack, or 0 if none was.
    alignment: AtomicU32,
}

/// The hash under which a stack is stored.
fn hash(frames: &[u64]) -> u64 {
    let mut hash = frames.len() as u64;
    for &frame in frames {
        hash = (hash ^ frame).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    }
    hash
}

const fn units(frames: usize) -> u32 {
    (HEAD_BYTES + frames * 8).div_ceil(UNIT) as u32
}

impl View {
    fn bucket(&self, hash: u64) -> &AtomicU32 {
        let index = (hash >> 32) as usize & (BUCKETS - 1);
        // SAFETY: the index is below the number of buckets.
        unsafe { self.at(STACK_INDEX + index * 4) }
    }

    fn stack_head(&self, id: u32) -> Option<&Head> {
        if id == 0 || id >= UNITS {
            return None;
        }
        // SAFETY: the number is below the number of units.
        Some(unsafe { self.at(STACKS + id as usize * UNIT) })
    }

    fn stack_frames(&self, id: u32, len: usize) -> Option<&[AtomicU64]> {
        if id == 0 || len > MAX_FRAMES || id.checked_add(units(len))? > UNITS {
            return None;
        }
        let offset = STACKS + id as usize * UNIT + HEAD_BYTES;
        // SAFETY: all `len` words lie in units below the last; they are aligned
        // to 8 and are only ever used as atomics.
        Some(unsafe { core::slice::from_raw_parts(self.at(offset), len) })
    }

    fn stack_equals(&self, id: u32, hash: u32, frames: &[u64]) -> bool {
        let Some(head) = self.stack_head(id) else {
            return false;
        };
        head.hash.load(Ordering::Relaxed) == hash
            && head.len.load(Ordering::Relaxed) as usize == frames.len()
            && self.stack_frames(id, frames.len()).is_some_and(|kept| {
                kept.iter()
                    .zip(frames)
                    .all(|(a, b)| a.load(Ordering::Relaxed) == *b)
            })
    }

    /// The number of the stack with these return addresses, innermost first; `None` if the
    /// table is full or `frames` is longer than [`MAX_FRAMES`]. Neither allocates nor blocks.
    pub fn intern_stack(&self, frames: &[u64]) -> Option<u32> {
        if frames.len() > MAX_FRAMES {
            return None;
        }
        let wide = hash(frames);
        let bucket = self.bucket(wide);
        let short = wide as u32;
        let first = bucket.load(Ordering::Acquire);
        let mut id = first;
        // The bound keeps a damaged chain from holding the target for ever.
        for _ in 0..UNITS {
            let Some(head) = self.stack_head(id) else {
                break;
            };
            if self.stack_equals(id, short, frames) {
                return Some(id);
            }
            id = head.next.load(Ordering::Acquire);
        }
        let id = self.new_stack(frames, short)?;
        let head = self.stack_head(id)?;
        let mut old = first;
        loop {
            head.next.store(old, Ordering::Relaxed);
            match bucket.compare_exchange_weak(old, id, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return Some(id),
                // Another thread may have added the same stack just now. Two numbers for one stack
                // do no harm, so the bucket is not searched again.
                Err(now) => old = now,
            }
        }
    }

    /// A block with stack `id` was requested at a multiple of `alignment`.
    pub fn note_alignment(&self, id: u32, alignment: usize) {
        let Some(head) = self.stack_head(id) else {
            return;
        };
        let new = u32::try_from(alignment).unwrap_or(u32::MAX);
        let known = head.alignment.load(Ordering::Relaxed);
        if known == 0 || new < known {
            head.alignment.store(new, Ordering::Relaxed);
        }
    }

    /// The alignment that was requested for all blocks with stack `id`; 1 if none was.
    #[cfg(feature = "tool")]
    pub fn alignment_of_stack(&self, id: u32) -> u64 {
        let head = self.stack_head(id);
        head.map_or(1, |head| {
            head.alignment.load(Ordering::Relaxed).max(1).into()
        })
    }

    fn new_stack(&self, frames: &[u64], hash: u32) -> Option<u32> {
        let need = units(frames.len());
        let cursor = &self.status().stack_units;
        let id = cursor
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.max(1).checked_add(need).filter(|&end| end <= UNITS)
            })
            .ok()?
            .max(1);
        let head = self.stack_head(id)?;
        head.hash.store(hash, Ordering::Relaxed);
        head.len.store(frames.len() as u32, Ordering::Relaxed);
        head.alignment.store(0, Ordering::Relaxed);
        for (to, from) in self.stack_frames(id, frames.len())?.iter().zip(frames) {
            to.store(*from, Ordering::Relaxed);
        }
        Some(id)
    }

    /// The return addresses of stack `id`, innermost first; empty if there is no such stack.
    #[cfg(feature = "tool")]
    pub fn stack(&self, id: u32) -> Vec<u64> {
        let len = self
            .stack_head(id)
            .map_or(0, |head| head.len.load(Ordering::Acquire) as usize);
        self.stack_frames(id, len)
            .unwrap_or_default()
            .iter()
            .map(|frame| frame.load(Ordering::Relaxed))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Segment, SegmentOptions};

    #[test]
    fn equal_call_stacks_get_one_number_and_are_read_back() {
        let segment = Segment::create(&SegmentOptions::default()).expect("memory file");
        let view = segment.view();
        let mut all = Vec::new();
        for len in 0..=super::MAX_FRAMES as u64 {
            for seed in 0..50 {
                let frames: Vec<u64> = (0..len).map(|i| 0x40_0000 + seed * 64 + i).collect();
                all.push(frames);
            }
        }
        let ids: Vec<_> = all.iter().map(|f| view.intern_stack(f)).collect();
        for (frames, id) in all.iter().zip(&ids) {
            assert_eq!(view.intern_stack(frames), *id);
            assert_eq!(&view.stack(id.expect("room")), frames);
        }
        assert!(view.intern_stack(&[1; super::MAX_FRAMES + 1]).is_none());
    }

    #[test]
    fn unknown_stack_numbers_give_an_empty_stack() {
        let segment = Segment::create(&SegmentOptions::default()).expect("memory file");
        for id in [0, 1, super::UNITS - 1, super::UNITS, u32::MAX] {
            assert!(segment.view().stack(id).is_empty());
        }
    }

    #[test]
    fn a_full_stack_table_is_reported() {
        let segment = Segment::create(&SegmentOptions::default()).expect("memory file");
        let view = segment.view();
        view.status()
            .stack_units
            .store(super::UNITS - 1, std::sync::atomic::Ordering::Relaxed);
        assert!(view.intern_stack(&[1; 32]).is_none());
        let last = view.intern_stack(&[1, 2]).expect("one unit is left");
        assert_eq!(view.stack(last), [1, 2]);
        assert!(view.intern_stack(&[3]).is_none());
    }
}
