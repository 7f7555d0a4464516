//! The creation of threads: the creating thread's stack frames at its call of `pthread_create`.
//! Variables that threads share through pointers are in frames that were live then, and debug
//! information locates them relative to the registers recorded here. The runtime writes a
//! record once, before the new thread appears among the threads; the tool reads it
//! (`creators`).

use crate::layout::{CREATIONS, MAX_THREADS, TOP, View};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The most frames that are recorded for one creation. It is enough for the libraries of C++
/// and Rust, which have up to ten frames of their own between the user's function and the call.
pub const CREATOR_FRAMES: usize = 15;

/// The frames of a thread's creation.
#[repr(C, align(64))]
pub(crate) struct CreationRecord {
    /// The creator's kernel thread id; 0 if it is not known.
    pub(crate) creator: AtomicU32,
    /// The number of valid frames.
    pub(crate) count: AtomicU32,
    /// Innermost first: return address, stack pointer, frame pointer.
    pub(crate) frames: [[AtomicU64; 3]; CREATOR_FRAMES],
}

const _: () = assert!(crate::stacks::END <= CREATIONS);
const _: () = assert!(CREATIONS + MAX_THREADS as usize * size_of::<CreationRecord>() <= TOP);

impl View {
    pub(crate) fn creation(&self, index: u32) -> Option<&CreationRecord> {
        if index == 0 || index >= MAX_THREADS {
            return None;
        }
        let at = CREATIONS + index as usize * size_of::<CreationRecord>();
        // SAFETY: the index is below the number of records, which lie in the
        // segment; they consist of atomics.
        Some(unsafe { self.at(at) })
    }

    /// Records that thread `creator` created the thread with `index`. Each frame is a return
    /// address, a stack pointer and a frame pointer, innermost frame first.
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

#[cfg(test)]
mod tests {
    use crate::creation::CREATOR_FRAMES;
    use crate::{Segment, SegmentOptions};
    use core::sync::atomic::Ordering;
    use sunder_access::{Address, CodeAddress, ThreadId};

    #[test]
    fn creations_are_read_back_for_known_threads_only() {
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
