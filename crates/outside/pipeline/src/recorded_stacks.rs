//! The stacks of a trace's threads, and the frames in which they created other threads: what
//! threads share of a stack lies in such a frame. Fed in the order of time by the passes that
//! name objects; read by `Process`.

use std::collections::{HashMap, VecDeque};
use sunder_access::{Address, ThreadId};
use sunder_objects::{StackFrame, ThreadStack};
use sunder_trace::read::{Event, What};

/// The most creations of one thread whose frames are kept. The frames of further ones are
/// alike.
const MOST_CREATIONS: usize = 256;

/// The stacks and creating frames of a trace.
#[derive(Debug, Default)]
pub struct RecordedStacks {
    stacks: Vec<ThreadStack>,
    frames: Vec<StackFrame>,
    /// By the creator's index: the frames of the creation that is being read, and those of
    /// threads that have not started yet.
    waiting: HashMap<u32, Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    creator: ThreadId,
    frames: Vec<StackFrame>,
    creations: VecDeque<Vec<StackFrame>>,
    count: usize,
}

impl RecordedStacks {
    /// Takes an event of the thread with the number `thread`. Events that do not concern stacks
    /// are ignored.
    pub fn take(&mut self, event: &Event, thread: ThreadId) {
        match event.what {
            What::Stack { span } => self.stacks.push(ThreadStack { thread, span }),
            What::Frame {
                stack_pointer,
                returns,
            } => {
                let waiting = self.waiting.entry(event.thread).or_default();
                waiting.creator = thread;
                if let Some(last) = waiting.frames.last_mut().filter(|_| stack_pointer.0 != 0) {
                    last.cfa = Some(stack_pointer);
                    // The caller's frame pointer, if there is one, is saved below the return
                    // address.
                    last.frame_pointer = Address(stack_pointer.0.wrapping_sub(16));
                }
                if returns.0 == 0 {
                    let frames = std::mem::take(&mut waiting.frames);
                    waiting.creations.push_back(frames);
                    return;
                }
                waiting.frames.push(StackFrame {
                    thread,
                    created: ThreadId::default(),
                    return_address: returns,
                    stack_pointer,
                    frame_pointer: Address(0),
                    cfa: None,
                });
            }
            What::ThreadStart { parent, .. } => {
                let Some(waiting) = self.waiting.get_mut(&parent) else {
                    return;
                };
                let Some(frames) = waiting.creations.pop_front() else {
                    return;
                };
                waiting.count += 1;
                if waiting.count <= MOST_CREATIONS {
                    let made = |frame| StackFrame {
                        created: thread,
                        ..frame
                    };
                    self.frames.extend(frames.into_iter().map(made));
                }
            }
            _ => {}
        }
    }

    /// The stacks.
    pub fn stacks(&self) -> &[ThreadStack] {
        &self.stacks
    }

    /// The stack frames that hold `address`.
    pub fn frames(&self, address: Address) -> impl Iterator<Item = StackFrame> {
        self.frames
            .iter()
            .filter(move |f| f.holds(address))
            .copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::{CodeAddress, Span, Time};

    fn event(thread: u32, what: What) -> Event {
        Event {
            ticks: 0,
            time: Time(0),
            thread,
            what,
        }
    }

    #[test]
    fn a_creation_has_the_frames_recorded_before_it() {
        let mut stacks = RecordedStacks::default();
        let frame = |stack_pointer, returns| What::Frame {
            stack_pointer: Address(stack_pointer),
            returns: CodeAddress(returns),
        };
        let span = Span::new(Address(0x1000), 0x9000);
        for what in [
            What::Stack { span },
            frame(0x8000, 0xa1),
            frame(0x8100, 0xb2),
            frame(0x8400, 0),
        ] {
            stacks.take(&event(1, what), ThreadId(71));
        }
        assert_eq!(stacks.frames(Address(0x8200)).count(), 0, "not created yet");
        let started = What::ThreadStart { parent: 1, tid: 72 };
        stacks.take(&event(2, started), ThreadId(72));
        let holds: Vec<_> = stacks.frames(Address(0x8200)).collect();
        assert_eq!(holds.len(), 1);
        let around = holds[0];
        assert_eq!(
            (around.thread, around.created),
            (ThreadId(71), ThreadId(72))
        );
        assert_eq!(around.return_address, CodeAddress(0xb2));
        assert_eq!(around.cfa, Some(Address(0x8400)));
        assert_eq!(stacks.stacks()[0].span, span);
    }
}
