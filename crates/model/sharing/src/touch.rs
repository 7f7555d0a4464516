//! One touch of a line by a thread, and the compact form in which touches of a complete stream
//! are queued. Used by [`crate::line`] and [`crate::once`]; it knows nothing of lines.

use crate::footprint::Footprint;
use crate::stretch::{ANY_CPU, Class};
use sunder_access::{CodeAddress, Kind, ThreadId};

/// One touch of a line, as the judge passes it to the line's record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub time: u64,
    pub thread: ThreadId,
    pub footprint: Footprint,
    pub instruction: CodeAddress,
    pub class: Class,
    pub spent_ns: f32,
    pub count: u32,
    /// Whether it is the sample's first on this line.
    pub opens_visit: bool,
    pub cpu: u16,
}

/// A touch of a complete stream in compact form, while it is queued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedTouch {
    time: u64,
    instruction: CodeAddress,
    thread: ThreadId,
    start: u8,
    len: u8,
    kind: Kind,
}

impl QueuedTouch {
    pub const NONE: Self = Self {
        time: 0,
        instruction: CodeAddress(0),
        thread: ThreadId(0),
        start: 0,
        len: 0,
        kind: Kind::Read,
    };

    /// The compact form of `touch`; `None` if the touch has properties that the form cannot
    /// hold.
    #[inline]
    pub fn of(touch: &Touch) -> Option<Self> {
        let plain = touch.class == Class::Exact
            && touch.opens_visit
            && touch.count == 1
            && touch.spent_ns == 0.0
            && touch.cpu == ANY_CPU;
        let Footprint { start, len, kind } = touch.footprint;
        Some(Self {
            time: touch.time,
            instruction: touch.instruction,
            thread: touch.thread,
            start: u8::try_from(start).ok()?,
            len: u8::try_from(len).ok()?,
            kind,
        })
        .filter(|_| plain)
    }

    #[inline]
    pub const fn touch(&self) -> Touch {
        Touch {
            time: self.time,
            thread: self.thread,
            footprint: Footprint {
                start: self.start as u16,
                len: self.len as u16,
                kind: self.kind,
            },
            instruction: self.instruction,
            class: Class::Exact,
            spent_ns: 0.0,
            count: 1,
            opens_visit: true,
            cpu: ANY_CPU,
        }
    }
}
