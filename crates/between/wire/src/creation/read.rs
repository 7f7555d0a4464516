//! What the tool reads of how threads came to be.

use super::CreationRecord;
use crate::layout::MAX_THREADS;
use crate::segment::Segment;
use core::sync::atomic::Ordering;
use sunder_access::{Address, CodeAddress, ThreadId};

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
