//! The tool's side: reading how threads were created.

use crate::creation::CreationRecord;
use crate::layout::MAX_THREADS;
use crate::segment::Segment;
use core::sync::atomic::Ordering;
use sunder_access::{Address, CodeAddress, ThreadId};

/// A frame with its registers, while its call has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreatorFrame {
    /// The return address of its call.
    pub return_address: CodeAddress,
    /// The stack pointer at its call. The stack pointer of the next frame is this frame's
    /// canonical frame address.
    pub stack_pointer: Address,
    /// The frame pointer register, even if the function does not use it as such.
    pub frame_pointer: Address,
}

/// How a thread was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creation {
    /// The created thread.
    pub thread: ThreadId,
    /// The creating thread.
    pub creator: ThreadId,
    /// The creator's frames at its call, innermost first.
    pub frames: Vec<CreatorFrame>,
}

impl Segment {
    /// The recorded creations of threads, in the order in which they happened.
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
