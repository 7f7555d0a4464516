//! The events of all threads, merged by time. One block of each living thread is in memory; a
//! thread's first block is read when the merge reaches its time.

use super::lane::may_hold;
use super::{Filter, Trace};
use crate::codec::decode::Decoder;
use crate::slot::{Slot, Sync, access_kind, alignment, tag};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use sunder_access::{Access, Address, CodeAddress, Provenance, Span, ThreadId, Time};

/// One event of a thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// The time in ticks of the recorder's clock, which orders the events.
    pub ticks: u64,
    /// The same as a time.
    pub time: Time,
    /// The thread, by its index in the trace.
    pub thread: u32,
    /// The event itself.
    pub what: What,
}

/// See [`Event::what`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// A memory access.
    Access {
        /// The access; its thread is [`super::Thread::id`].
        access: Access,
        /// Whether it was an atomic operation of the program. Atomic loads and
        /// stores are reads and writes to the machine.
        atomic: bool,
    },
    /// A heap block was allocated.
    Allocate {
        /// Its first byte.
        address: Address,
        /// The requested bytes.
        size: u64,
        /// The number of its call stack, for [`Trace::stack`].
        stack: u32,
        /// The requested alignment, a power of two: 1 if none was; `None` if the recorder did not
        /// know it.
        align: Option<u64>,
    },
    /// A heap block was freed.
    Free {
        /// Its first byte.
        address: Address,
    },
    /// The thread's first event.
    ThreadStart {
        /// The index of its creator; 0: unknown.
        parent: u32,
        /// The kernel's number.
        tid: u32,
    },
    /// The location of the thread's stack.
    Stack {
        /// The addresses of the whole stack.
        span: Span,
    },
    /// A stack frame of the thread that waits in the following thread creation. The frames come
    /// innermost first.
    Frame {
        /// The stack pointer at the frame's call.
        stack_pointer: Address,
        /// The return address of the call. 0 ends the list: that element is no frame, and its stack
        /// pointer is that of the next outer frame, or 0.
        returns: CodeAddress,
    },
    /// The thread's last event.
    ThreadEnd,
    /// Synchronisation.
    Sync {
        /// The action on the object.
        kind: Sync,
        /// The object's address.
        object: Address,
    },
    /// A mark that the program set.
    Mark(u64),
}

/// One thread's position in its blocks.
#[derive(Debug)]
struct Head {
    /// Index in `Trace::threads`.
    thread: usize,
    index: u32,
    id: ThreadId,
    /// Index of the block after the current one.
    next_block: usize,
    decoder: Option<Decoder>,
    /// The next slot, with its ticks.
    next: Option<(u64, Slot)>,
    /// Size, call stack and code of the allocation that follows.
    size: Option<Announced>,
}

/// The events of a trace, in the order of time. See [`Trace::events`].
#[derive(Debug)]
pub struct Events<'t> {
    trace: &'t Trace,
    filter: Filter,
    heads: Vec<Head>,
    /// All threads but the current one, by the time of their next slot.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// The current thread, and the time until which its slots come next.
    current: Option<usize>,
    until: (u64, usize),
    damaged: u64,
}

impl<'t> Events<'t> {
    pub(super) fn new(trace: &'t Trace, filter: Filter) -> Self {
        let mut heads = Vec::new();
        let mut waiting = BinaryHeap::new();
        for (thread, known) in trace.threads.iter().enumerate() {
            let Some(first) = known.blocks.first() else {
                continue;
            };
            if filter.wants_thread(known.index) {
                waiting.push(Reverse((first.header.first, heads.len())));
                heads.push(Head {
                    thread,
                    index: known.index,
                    id: known.id,
                    next_block: 0,
                    decoder: None,
                    next: None,
                    size: None,
                });
            }
        }
        Self {
            trace,
            filter,
            heads,
            waiting,
            current: None,
            until: (0, 0),
            damaged: 0,
        }
    }

    /// How many blocks were found damaged so far; all or the rest of their events are missing.
    pub const fn damaged_blocks(&self) -> u64 {
        self.damaged
    }

    /// Moves a thread to its next slot; false at its end.
    #[inline]
    fn advance(&mut self, head: usize) -> bool {
        let at = &mut self.heads[head];
        if let Some(decoder) = &mut at.decoder {
            at.next = decoder.next_slot();
            if at.next.is_some() {
                return true;
            }
        }
        self.next_block(head)
    }

    fn next_block(&mut self, head: usize) -> bool {
        let at = &mut self.heads[head];
        let blocks = &self.trace.threads[at.thread].blocks;
        loop {
            if at.decoder.take().is_some_and(|d| d.is_damaged()) {
                self.damaged += 1;
            }
            let Some(block) = blocks.get(at.next_block) else {
                at.next = None;
                return false;
            };
            at.next_block += 1;
            let payload = self.trace.payload(block);
            at.decoder = payload.and_then(|p| Decoder::new(&block.header, p));
            if at
                .decoder
                .as_ref()
                .is_some_and(|d| !may_hold(d, self.filter.kinds))
            {
                // Most blocks hold only accesses, so many blocks are skipped here.
                at.decoder = None;
                continue;
            }
            match &mut at.decoder {
                Some(decoder) => {
                    at.next = decoder.next_slot();
                    if at.next.is_some() {
                        return true;
                    }
                }
                None => self.damaged += 1,
            }
        }
    }

    /// The next slot of all threads.
    #[inline]
    fn next_slot(&mut self) -> Option<(usize, u64, Slot)> {
        loop {
            if let Some(head) = self.current
                && let Some((ticks, slot)) = self.heads[head].next
            {
                if (ticks, head) <= self.until {
                    if !self.advance(head) {
                        self.current = None;
                    }
                    return Some((head, ticks, slot));
                }
                self.waiting.push(Reverse((ticks, head)));
            }
            let Reverse((_, head)) = self.waiting.pop()?;
            let ready = self.heads[head].next.is_some() || self.advance(head);
            self.current = ready.then_some(head);
            let next = self.waiting.peek();
            self.until = next.map_or((u64::MAX, usize::MAX), |Reverse(next)| *next);
        }
    }

    #[inline]
    fn event(&mut self, head: usize, ticks: u64, slot: Slot) -> Option<Event> {
        let at = &mut self.heads[head];
        let time = self.trace.scale.time(ticks);
        let what = match access_of(slot, at.id, time) {
            Some(access) => access,
            None => what_of(slot, &mut at.size)?,
        };
        Some(Event {
            ticks,
            time,
            thread: at.index,
            what,
        })
    }
}

impl Iterator for Events<'_> {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        loop {
            let (head, ticks, slot) = self.next_slot()?;
            if let Some(event) = self.event(head, ticks, slot)
                && self.filter.wants(&event.what)
            {
                return Some(event);
            }
        }
    }
}

/// The access in a slot of this thread at this time; `None` for other slots.
#[inline]
pub(super) fn access_of(slot: Slot, thread: ThreadId, time: Time) -> Option<What> {
    let (kind, atomic) = access_kind(slot.key.tag())?;
    Some(What::Access {
        access: Access {
            time,
            thread,
            instruction: CodeAddress(slot.key.payload()),
            address: Address(slot.value),
            width: slot.key.code().clamp(1, 64),
            kind,
            provenance: Provenance::Traced,
            weight: 1.0,
        },
        atomic,
    })
}

/// Size, call stack and code of an allocation; the next slot has its address.
pub(super) type Announced = (u64, u32, u8);

/// The event that a slot other than an access completes; `size` keeps the slot before it. `None` if
/// the event is not complete yet, or of a kind that this version does not know.
pub(super) fn what_of(slot: Slot, size: &mut Option<Announced>) -> Option<What> {
    let (code, payload) = (slot.key.code(), slot.key.payload());
    let address = Address(slot.value);
    Some(match slot.key.tag() {
        tag::SIZE => {
            *size = Some((slot.value, payload as u32, code));
            return None;
        }
        tag::ALLOCATE => {
            let (size, stack, code) = size.take()?;
            What::Allocate {
                address,
                size,
                stack,
                align: alignment(code),
            }
        }
        tag::FREE => What::Free { address },
        tag::THREAD_START => What::ThreadStart {
            parent: slot.value as u32,
            tid: payload as u32,
        },
        tag::STACK => What::Stack {
            span: Span::new(address, payload),
        },
        tag::FRAME => What::Frame {
            stack_pointer: address,
            returns: CodeAddress(payload),
        },
        tag::THREAD_END => What::ThreadEnd,
        tag::SYNC => What::Sync {
            kind: Sync::from_code(code)?,
            object: address,
        },
        tag::MARK => What::Mark(slot.value),
        // A tag of a later version.
        _ => return None,
    })
}
