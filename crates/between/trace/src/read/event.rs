//! An event of a trace, and how it is made from slots. Used by all readers; it must not know
//! threads or blocks.

use crate::slot::{Slot, Sync, access_kind, alignment, tag};
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
        /// The number of its call stack, for [`super::Trace::stack`].
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

/// The access in a slot of this thread at this time; `None` for other slots.
#[inline]
pub(super) fn access_event(slot: Slot, thread: ThreadId, time: Time) -> Option<What> {
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

/// The event that a slot other than an access completes; `announced` keeps the slot before it.
/// `None` if the event is not complete yet, or of a kind that this version does not know.
pub(super) fn other_event(slot: Slot, announced: &mut Option<Announced>) -> Option<What> {
    let (code, payload) = (slot.key.code(), slot.key.payload());
    let address = Address(slot.value);
    Some(match slot.key.tag() {
        tag::SIZE => {
            *announced = Some((slot.value, payload as u32, code));
            return None;
        }
        tag::ALLOCATE => {
            let (size, stack, code) = announced.take()?;
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
