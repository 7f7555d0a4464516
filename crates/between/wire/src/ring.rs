//! A bounded ring of fixed-size records with many producers (threads of the
//! target, also in signal handlers) and one consumer (the tool).
//!
//! A producer takes a position by compare-and-swap, fills the slot and then publishes it. When
//! the ring is full, the record is dropped and the caller counts it. A producer that is stopped
//! between taking and publishing delays later records but cannot corrupt them. (D. Vyukov's
//! bounded queue, with one consumer.)

use crate::layout::{EVENTS, LARGE, SAMPLES, View};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering};

/// Slots of the ring of timer samples.
pub const SAMPLE_SLOTS: u64 = 16_384;
/// Words of a timer sample: time, thread | cpu << 32, period, ip, 16 registers.
pub const SAMPLE_WORDS: usize = 20;
/// Slots of the ring of heap events.
pub const EVENT_SLOTS: u64 = 65_536;
/// Words of a heap event: time, start, size, thread | kind << 32, stack.
pub const EVENT_WORDS: usize = 5;

/// The two positions, each on a line of its own.
#[repr(C, align(64))]
struct Ends {
    head: AtomicU64,
    _pad: [u64; 7],
    tail: AtomicU64,
}

/// One slot. `lap` tells whether the slot is free for a position or filled at it. A fresh file
/// is all zeroes, so laps count from 0 in every slot.
#[repr(C)]
struct Slot<const WORDS: usize> {
    lap: AtomicU64,
    words: [AtomicU64; WORDS],
}

const ENDS_BYTES: usize = 4096;
const _: () = assert!(
    SAMPLES + ENDS_BYTES + SAMPLE_SLOTS as usize * size_of::<Slot<SAMPLE_WORDS>>() <= EVENTS
);
const _: () =
    assert!(EVENTS + ENDS_BYTES + EVENT_SLOTS as usize * size_of::<Slot<EVENT_WORDS>>() <= LARGE);

/// A ring of `WORDS`-word records in shared memory.
#[derive(Clone, Copy)]
pub struct Ring<'a, const WORDS: usize> {
    /// The two positions; the slots begin [`ENDS_BYTES`] after them.
    start: *const u8,
    slots: u64,
    memory: PhantomData<&'a AtomicU64>,
}

/// Memory for a ring inside a shared structure. It must be zeroed at first.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Space<const N: usize>([AtomicU64; N]);

/// The number of words that a ring of `slots` records of `words` words needs.
pub const fn space_words(slots: u64, words: usize) -> usize {
    ENDS_BYTES / 8 + slots as usize * (words + 1)
}

impl<const N: usize> Space<N> {
    /// The ring in this memory. `WORDS` and `slots` must be the same at every call.
    pub const fn ring<const WORDS: usize>(&self, slots: u64) -> Ring<'_, WORDS> {
        assert!(space_words(slots, WORDS) <= N);
        Ring {
            start: (&raw const self.0).cast(),
            slots,
            memory: PhantomData,
        }
    }
}

impl View {
    /// The ring of timer samples.
    pub fn samples(&self) -> Ring<'_, SAMPLE_WORDS> {
        self.ring(SAMPLES, SAMPLE_SLOTS)
    }

    /// The ring of heap events.
    pub fn events(&self) -> Ring<'_, EVENT_WORDS> {
        self.ring(EVENTS, EVENT_SLOTS)
    }

    /// Only for the two regions above; the assertions ensure that they fit into the segment.
    fn ring<const WORDS: usize>(&self, offset: usize, slots: u64) -> Ring<'_, WORDS> {
        Ring {
            start: self.place(offset),
            slots,
            memory: PhantomData,
        }
    }
}

impl<'a, const WORDS: usize> Ring<'a, WORDS> {
    fn ends(&self) -> &'a Ends {
        // SAFETY: the ring was made over memory of this size, which outlives the ring and is
        // only ever used as atomics.
        unsafe { &*self.start.cast() }
    }

    fn slot(&self, position: u64) -> &'a Slot<WORDS> {
        let index = (position % self.slots) as usize;
        // SAFETY: as above; the index is below the number of slots.
        unsafe {
            &*self
                .start
                .add(ENDS_BYTES + index * size_of::<Slot<WORDS>>())
                .cast()
        }
    }

    /// The lap value for "free for `position`": twice the number of completed rounds of the
    /// ring. The value for "filled at `position`" is one more.
    const fn free(&self, position: u64) -> u64 {
        position / self.slots * 2
    }

    /// Adds a record; `false` if the ring is full. Async-signal-safe.
    pub fn push(&self, record: &[u64; WORDS]) -> bool {
        let head = &self.ends().head;
        let mut position = head.load(Ordering::Relaxed);
        // A failed round means that another producer has advanced, so the loop ends. The bound
        // only protects against a segment that another program has overwritten.
        for _ in 0..10_000 {
            let slot = self.slot(position);
            let lap = slot.lap.load(Ordering::Acquire);
            let free = self.free(position);
            if lap == free {
                match head.compare_exchange_weak(
                    position,
                    position + 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => {
                        for (to, from) in slot.words.iter().zip(record) {
                            to.store(*from, Ordering::Relaxed);
                        }
                        slot.lap.store(free + 1, Ordering::Release);
                        return true;
                    }
                    Err(now) => position = now,
                }
            } else if lap < free {
                return false;
            } else {
                position = head.load(Ordering::Relaxed);
            }
        }
        false
    }

    /// Takes the oldest record. Only one consumer may call this.
    pub fn pop(&self) -> Option<[u64; WORDS]> {
        let tail = &self.ends().tail;
        let position = tail.load(Ordering::Relaxed);
        let slot = self.slot(position);
        let free = self.free(position);
        if slot.lap.load(Ordering::Acquire) != free.wrapping_add(1) {
            return None;
        }
        let mut record = [0; WORDS];
        for (to, from) in record.iter_mut().zip(&slot.words) {
            *to = from.load(Ordering::Relaxed);
        }
        slot.lap.store(free.wrapping_add(2), Ordering::Release);
        tail.store(position.wrapping_add(1), Ordering::Relaxed);
        Some(record)
    }
}

impl<const WORDS: usize> Ring<'_, WORDS> {
    /// Takes the records that are there, oldest first. Ends after as many as the ring has room for:
    /// a hostile program could make records appear for ever.
    pub fn drain(&self) -> impl Iterator<Item = [u64; WORDS]> + '_ {
        (0..self.slots).map_while(|_| self.pop())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Segment, SegmentOptions};

    #[test]
    fn a_full_ring_drops_and_a_drained_one_goes_on() {
        let segment = Segment::create(&SegmentOptions::default()).expect("memory file");
        let ring = segment.view().samples();
        for i in 0..super::SAMPLE_SLOTS {
            assert!(ring.push(&[i; 20]));
        }
        assert!(!ring.push(&[0; 20]));
        assert_eq!(ring.pop(), Some([0; 20]));
        assert!(ring.push(&[7; 20]));
        assert!(!ring.push(&[8; 20]));
        let rest: Vec<u64> = std::iter::from_fn(|| ring.pop()).map(|r| r[0]).collect();
        let wanted: Vec<u64> = (1..super::SAMPLE_SLOTS).chain([7]).collect();
        assert_eq!(rest, wanted);
    }

    /// The target can write to the ends of the ring at any time.
    #[test]
    fn a_ring_whose_end_is_turned_back_for_ever_is_left() {
        use std::sync::atomic::Ordering::Relaxed;
        let segment = Segment::create(&SegmentOptions::default()).expect("memory file");
        let ring = segment.view().samples();
        for position in [0, 5, u64::MAX - 1, u64::MAX] {
            let mut taken = 0;
            // Each record seems to be there, because its slot says so.
            let turned = || {
                ring.ends().tail.store(position, Relaxed);
                let filled = ring.free(position).wrapping_add(1);
                ring.slot(position).lap.store(filled, Relaxed);
            };
            turned();
            for _ in ring.drain() {
                taken += 1;
                turned();
            }
            assert_eq!(taken, super::SAMPLE_SLOTS);
        }
    }

    #[test]
    fn nothing_is_lost_or_torn_with_four_producers() {
        let segment = Segment::create(&SegmentOptions::default()).expect("memory file");
        let view = segment.view();
        let mut seen = [0u64; 4];
        std::thread::scope(|s| {
            for t in 0..4u64 {
                s.spawn(move || {
                    for i in 0..20_000 {
                        while !view.events().push(&[t, i, i, i, i]) {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            while seen.iter().sum::<u64>() < 80_000 {
                if let Some([t, a, b, c, d]) = view.events().pop() {
                    assert!(a == b && b == c && c == d);
                    assert_eq!(a, seen[t as usize], "in order for each producer");
                    seen[t as usize] += 1;
                }
            }
        });
        assert!(view.events().pop().is_none());
    }
}
