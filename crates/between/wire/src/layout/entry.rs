//! The shadow's record of one block of the heap, packed into a word, and the epochs that it counts
//! in. Used by the runtime at every allocation.

/// The most threads with an index of their own; index 0 means "not known".
pub const MAX_THREADS: u32 = 1 << 12;
/// The largest block that the shadow describes; larger blocks are in [`crate::large`].
pub const MAX_SMALL: u64 = (1 << 15) - 1;
/// The number of epochs (15 bits of a shadow entry).
pub const MAX_EPOCHS: u32 = 1 << 15;
/// The shadow's record of one block of at most [`MAX_SMALL`] bytes. It is a single word, so a
/// reader never sees half of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(pub u64);

/// The state in an [`Entry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// Never used.
    Empty,
    /// Allocated. The entry's epoch is that of the allocation.
    Live,
    /// Allocated and freed in the entry's epoch.
    FreedYoung,
    /// Freed in the entry's epoch, allocated in an earlier one.
    FreedOld,
}

impl Entry {
    const HALF: u32 = 2;
    const EPOCH: u32 = 3;
    const SIZE: u32 = 18;
    const THREAD: u32 = 33;
    const STACK: u32 = 45;
    const LIVE: u64 = 1;
    const FREED_YOUNG: u64 = 2;
    const FREED_OLD: u64 = 3;
    const STATE_MASK: u64 = 3;
    const EPOCH_MASK: u64 = (MAX_EPOCHS as u64 - 1) << Self::EPOCH;

    /// A live block at `address`. Size, epoch, thread and stack are cut to their widths;
    /// callers must pass values that fit.
    #[inline]
    pub const fn live(address: u64, size: u64, stack: u32, thread: u32, epoch: u32) -> Self {
        Self(
            Self::LIVE
                | (address >> 4 & 1) << Self::HALF
                | (epoch as u64 & (MAX_EPOCHS as u64 - 1)) << Self::EPOCH
                | (size & MAX_SMALL) << Self::SIZE
                | (thread as u64 & (MAX_THREADS as u64 - 1)) << Self::THREAD
                | (stack as u64) << Self::STACK,
        )
    }

    /// The part of a live entry that is the same for all blocks of a thread.
    pub const fn owner(thread: u32) -> u64 {
        Self::live(0, 0, 0, thread, 0).0
    }

    /// As [`Self::live`], from an [`Self::owner`] and a [`Control::hot`](super::Control::hot) word
    /// without [`HOT_WATCHED`]; `size` is at most [`MAX_SMALL`].
    #[inline]
    pub const fn of(owner: u64, hot: u64, address: u64, size: u64, stack: u32) -> Self {
        Self(
            owner
                | hot
                | (address >> (4 - Self::HALF) & 1 << Self::HALF)
                | size << Self::SIZE
                | (stack as u64) << Self::STACK,
        )
    }

    /// Whether it describes a live block.
    #[inline]
    pub const fn is_live(self) -> bool {
        self.0 & Self::STATE_MASK == Self::LIVE
    }

    /// The same block, freed in `epoch`.
    #[inline]
    #[must_use]
    pub const fn freed(self, epoch: u32) -> Self {
        let epoch = (epoch as u64 & (MAX_EPOCHS as u64 - 1)) << Self::EPOCH;
        let state = if self.0 & Self::EPOCH_MASK == epoch {
            Self::FREED_YOUNG
        } else {
            Self::FREED_OLD
        };
        Self(self.0 & !(Self::EPOCH_MASK | Self::STATE_MASK) | epoch | state)
    }

    /// As [`Self::freed`], with a [`Control::hot`](super::Control::hot) word without
    /// [`HOT_WATCHED`].
    #[inline]
    #[must_use]
    pub const fn freed_in(self, hot: u64) -> Self {
        let old = ((self.0 ^ hot) & Self::EPOCH_MASK != 0) as u64;
        let kept = self.0 & !(Self::EPOCH_MASK | Self::STATE_MASK);
        Self(kept | hot | Self::FREED_YOUNG | old)
    }

    /// The same block, with the epoch of `older` as that of its allocation.
    #[inline]
    #[must_use]
    pub const fn with_allocation_epoch(self, older: Self) -> Self {
        Self(self.0 & !Self::EPOCH_MASK | older.0 & Self::EPOCH_MASK)
    }

    /// Its state.
    pub const fn state(self) -> EntryState {
        match self.0 & Self::STATE_MASK {
            Self::LIVE => EntryState::Live,
            Self::FREED_YOUNG => EntryState::FreedYoung,
            Self::FREED_OLD => EntryState::FreedOld,
            _ => EntryState::Empty,
        }
    }

    /// Offset of the block from the start of its 32-byte granule.
    pub const fn offset(self) -> u64 {
        (self.0 >> Self::HALF & 1) << 4
    }

    /// Bytes that were asked for.
    pub const fn size(self) -> u64 {
        self.0 >> Self::SIZE & MAX_SMALL
    }

    /// The epoch of the allocation if the block is live, else of the free.
    pub const fn epoch(self) -> u32 {
        (self.0 >> Self::EPOCH) as u32 & (MAX_EPOCHS - 1)
    }

    /// Index of the allocating thread.
    pub const fn thread(self) -> u32 {
        (self.0 >> Self::THREAD) as u32 & (MAX_THREADS - 1)
    }

    /// The number of the call stack (see [`crate::stacks`]); 0 if not known.
    pub const fn stack(self) -> u32 {
        (self.0 >> Self::STACK) as u32
    }
}

/// The bit of [`Control::hot`](super::Control::hot) that is set while lines are watched.
pub const HOT_WATCHED: u64 = 1 << 63;
/// The amount by which [`Control::hot`](super::Control::hot) grows from one epoch to the next.
pub const HOT_NEXT_EPOCH: u64 = 1 << Entry::EPOCH;

/// The epoch in [`Control::hot`](super::Control::hot).
#[inline]
pub const fn hot_epoch(hot: u64) -> u32 {
    (hot >> Entry::EPOCH) as u32 & (MAX_EPOCHS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_keeps_all_fields_at_their_limits() {
        for (address, size, stack, thread, epoch) in [
            (0x7fff_ffff_fff0, MAX_SMALL, (1 << 19) - 1, 4095, 32767),
            (0x1000, 0, 0, 0, 0),
            (0x1010, 24, 1, 1, 1),
        ] {
            let e = Entry::live(address, size, stack, thread, epoch);
            assert_eq!(e.state(), EntryState::Live);
            assert_eq!(e.offset(), address & 16);
            assert_eq!(
                (e.size(), e.stack(), e.thread(), e.epoch()),
                (size, stack, thread, epoch)
            );
        }
    }

    #[test]
    fn the_two_ways_to_make_an_entry_agree() {
        for (address, size, stack, thread, epoch) in [
            (0x7f12_3456_7890, 1000, 77, 4095, 32767),
            (0x1000, 0, 0, 1, 0),
        ] {
            let hot = u64::from(epoch) * HOT_NEXT_EPOCH;
            assert_eq!(hot_epoch(hot | HOT_WATCHED), epoch);
            for born in [epoch, 5] {
                let entry = Entry::live(address, size, stack, thread, born);
                assert_eq!(entry.freed_in(hot), entry.freed(epoch));
            }
            assert_eq!(
                Entry::of(Entry::owner(thread), hot, address, size, stack),
                Entry::live(address, size, stack, thread, epoch)
            );
        }
    }

    #[test]
    fn a_freed_entry_distinguishes_blocks_of_the_same_epoch() {
        let e = Entry::live(0x1010, 40, 7, 3, 5);
        let young = e.freed(5);
        let old = e.freed(6);
        assert_eq!(young.state(), EntryState::FreedYoung);
        assert_eq!((old.state(), old.epoch()), (EntryState::FreedOld, 6));
        assert_eq!(
            (old.size(), old.stack(), old.thread(), old.offset()),
            (40, 7, 3, 16)
        );
        assert!(!old.is_live());
    }
}
