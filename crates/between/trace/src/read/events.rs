//! The events of all threads merged by time. One block of each living thread is
//! in memory; a thread's first block is read when its time has come.

use super::lane::may_hold;
use super::{Filter, Trace};
use crate::codec::decode::Decoder;
use crate::slot::{Slot, Sync, access_kind, alignment, tag};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use sunder_access::{Access, Address, CodeAddress, Provenance, Span, ThreadId, Time};

/// Something that a thread did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// When, in ticks of the recorder's clock: the order of the events.
    pub ticks: u64,
    /// When.
    pub time: Time,
    /// The thread, by its index in the trace.
    pub thread: u32,
    /// What.
    pub what: What,
}

/// See [`Event::what`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// A memory access.
    Access {
        /// It. The thread is [`super::Thread::id`].
        access: Access,
        /// Whether it was an atomic operation of the program. Atomic loads and
        /// stores are reads and writes to the machine.
        atomic: bool,
    },
    /// An allocation.
    Allocate {
        /// Its first byte.
        address: Address,
        /// The bytes asked for.
        size: u64,
        /// For [`Trace::stack`].
        stack: u32,
        /// The alignment asked for, a power of two: 1 if none was; `None` if the
        /// recorder did not tell.
        align: Option<u64>,
    },
    /// A free.
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
    /// Where the thread's stack lies.
    Stack {
        /// All of it.
        span: Span,
    },
    /// A frame of the thread that waits in the thread creation that follows; they come the
    /// innermost first.
    Frame {
        /// The stack pointer at the frame's call.
        stack_pointer: Address,
        /// Where the call returns to; 0 for the last of the list, which is no frame: its
        /// stack pointer is that of the one around the others, or 0.
        returns: CodeAddress,
    },
    /// The thread's last event.
    ThreadEnd,
    /// Synchronisation.
    Sync {
        /// What was done.
        kind: Sync,
        /// The object's address.
        object: Address,
    },
    /// A mark that the program set.
    Mark(u64),
}

/// One thread's place in its blocks.
#[derive(Debug)]
struct Head {
    /// Position in `Trace::threads`.
    thread: usize,
    index: u32,
    id: ThreadId,
    /// The block after the one that is being read.
    next_block: usize,
    decoder: Option<Decoder>,
    /// The slot that comes next, with its ticks.
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
    /// The threads but the current one, by when they come next.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// The thread whose slots come now, and until when.
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

    /// How many blocks were found damaged so far; what they held is missing, or
    /// the rest of it.
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
                // Few blocks hold anything but accesses.
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

/// The access that a slot is, by this thread at this time; none if it is none.
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

/// Size, call stack and code of an allocation whose address comes next.
pub(super) type Announced = (u64, u32, u8);

/// What a slot that is no access tells, with those before it; `size` is kept between
/// them. None if nothing yet, or nothing that this version knows.
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
        // Of a later version.
        _ => return None,
    })
}
