//! Where threads were made: the creating thread's frames at its call of
//! `pthread_create`. Variables that threads share through pointers live in
//! frames that were live then, and debug information places them relative to
//! the registers kept here. The runtime writes a record once, before the new
//! thread appears among the threads; the tool reads.

use crate::layout::{CREATIONS, MAX_THREADS, TOP, View};
use crate::segment::Segment;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sunder_access::{Address, CodeAddress, ThreadId};

/// Frames kept of one creation: enough for the libraries of C++ and Rust, which
/// put up to ten of their own between the user's function and the call.
pub const CREATOR_FRAMES: usize = 15;

/// The frames of a thread's creation.
#[repr(C, align(64))]
struct CreationRecord {
    /// The creator's kernel number; 0 if it is not known.
    creator: AtomicU32,
    /// How many of the frames are valid.
    count: AtomicU32,
    /// Innermost first: return address, stack pointer, frame pointer.
    frames: [[AtomicU64; 3]; CREATOR_FRAMES],
}

const _: () = assert!(crate::stacks::END <= CREATIONS);
const _: () = assert!(CREATIONS + MAX_THREADS as usize * size_of::<CreationRecord>() <= TOP);

/// A frame and its registers while it waits for the call to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreatorFrame {
    /// Where its call returns to.
    pub return_address: CodeAddress,
    /// The stack pointer at its call. That of the next frame is this one's
    /// canonical frame address.
    pub stack_pointer: Address,
    /// The frame pointer register, whether or not the function uses it as such.
    pub frame_pointer: Address,
}

/// How a thread came to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creation {
    /// The thread that was made.
    pub thread: ThreadId,
    /// The thread that made it.
    pub creator: ThreadId,
    /// The creator's frames at that moment, innermost first.
    pub frames: Vec<CreatorFrame>,
}

impl View {
    fn creation(&self, index: u32) -> Option<&CreationRecord> {
        if index == 0 || index >= MAX_THREADS {
            return None;
        }
        let at = CREATIONS + index as usize * size_of::<CreationRecord>();
        // SAFETY: the index is below the number of records, which lie in the
        // segment; they consist of atomics.
        Some(unsafe { self.at(at) })
    }

    /// Records that `creator` made the thread with `index`, in frames of return
    /// address, stack pointer and frame pointer.
    pub fn set_creation(&self, index: u32, creator: u32, frames: &[[u64; 3]]) {
        let Some(record) = self.creation(index) else {
            return;
        };
        for (kept, frame) in record.frames.iter().zip(frames) {
            for (to, from) in kept.iter().zip(frame) {
                to.store(*from, Ordering::Relaxed);
            }
        }
        let count = frames.len().min(CREATOR_FRAMES) as u32;
        record.count.store(count, Ordering::Relaxed);
        record.creator.store(creator, Ordering::Release);
    }
}

impl Segment {
    /// How the threads came to be that others made, as far as it is known; in
    /// the order in which they did.
    pub fn creations(&self) -> Vec<Creation> {
        let view = self.view();
        let seen = view.status().threads.load(Ordering::Acquire);
        (1..MAX_THREADS.min(seen.saturating_add(1)))
            .filter_map(|index| {
                let thread = view.threads().get(index as usize)?;
                let thread = thread.tid.load(Ordering::Acquire);
                let record = view.creation(index)?;
                let creator = record.creator.load(Ordering::Acquire);
                (thread != 0 && creator != 0).then(|| Creation {
                    thread: ThreadId(thread),
                    creator: ThreadId(creator),
                    frames: record.read(),
                })
            })
            .collect()
    }
}

impl CreationRecord {
    fn read(&self) -> Vec<CreatorFrame> {
        let count = self.count.load(Ordering::Relaxed) as usize;
        self.frames
            .iter()
            .take(count)
            .map(|frame| {
                let [address, sp, bp] = frame.each_ref().map(|w| w.load(Ordering::Relaxed));
                CreatorFrame {
                    return_address: CodeAddress(address),
                    stack_pointer: Address(sp),
                    frame_pointer: Address(bp),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::creation::CREATOR_FRAMES;
    use crate::{Segment, SegmentOptions};
    use core::sync::atomic::Ordering;
    use sunder_access::{Address, CodeAddress, ThreadId};

    #[test]
    fn creations_come_back_whole_and_only_of_threads_that_are_there() {
        let segment = Segment::create(&SegmentOptions::default()).expect("memory file");
        let view = segment.view();
        view.status().threads.store(3, Ordering::Relaxed);
        view.threads()[2].tid.store(22, Ordering::Relaxed);
        view.threads()[3].tid.store(33, Ordering::Relaxed);
        let many: Vec<[u64; 3]> = (0..CREATOR_FRAMES as u64 + 3)
            .map(|i| [i, 100 + i, 200 + i])
            .collect();
        view.set_creation(0, 9, &many);
        view.set_creation(1, 9, &many);
        view.set_creation(2, 11, &many);
        view.set_creation(crate::layout::MAX_THREADS, 9, &many);
        // The first thread and those made in other ways have no record.
        let found = segment.creations();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].thread, found[0].creator),
            (ThreadId(22), ThreadId(11))
        );
        assert_eq!(found[0].frames.len(), CREATOR_FRAMES);
        let last = found[0].frames[CREATOR_FRAMES - 1];
        assert_eq!(last.return_address, CodeAddress(14));
        assert_eq!(last.stack_pointer, Address(114));
        assert_eq!(last.frame_pointer, Address(214));
    }
}
