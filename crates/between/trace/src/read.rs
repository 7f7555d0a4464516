//! The reading side: opens a trace, reads the header of every block once, and returns the events of
//! all threads in the order of time, with memory for one block of each living thread. Trusts
//! nothing in the file.
//!
//! Called by the program and by replays. Damaged parts are left out and counted; [`Summary`] and
//! [`Events::damaged_blocks`] report them.

mod barriers;
mod blocks;
mod bounds;
mod conditions;
mod event;
mod events;
mod filter;
mod guard;
mod index;
mod lane;
mod locks;
mod parallel;
mod piece;
mod pieces;
mod releases;
mod trace;
mod waits;

pub use blocks::Blocks;
pub use bounds::memory_for;
pub use event::{Event, What};
pub use events::Events;
pub use filter::{Filter, Kinds};
pub use guard::Guard;
pub use index::Summary;
pub use parallel::Parallel;
pub use piece::{LanePart, Piece, Touch, Turns};
pub use pieces::Pieces;
pub use trace::{Thread, Trace};

impl Trace {
    /// The events that pass `filter`, in the order of time. Several of these iterators may be in
    /// use at the same time.
    pub fn events(&self, filter: Filter) -> Events<'_> {
        Events::new(self, filter)
    }

    /// The events that pass `filter`, as if each thread had a CPU of its own and all ran at one
    /// speed. See [`Parallel`].
    pub fn events_in_parallel(&self, filter: Filter) -> Parallel<'_> {
        Parallel::new(self, filter, false)
    }

    /// The same, but who gets a lock is decided by this order and not by the recording: who asks
    /// first in its own time. So two recordings of threads that do the same have the same order.
    pub fn events_in_canonical_order(&self, filter: Filter) -> Parallel<'_> {
        Parallel::new(self, filter, true)
    }

    /// All accesses and the other events of `kinds`, in the order of [`Trace::events`], many at
    /// once.
    pub fn pieces(&self, kinds: Kinds) -> Pieces<'_> {
        Pieces::recorded(self, kinds)
    }

    /// The same in the order of [`Trace::events_in_parallel`].
    pub fn pieces_in_parallel(&self, kinds: Kinds) -> Pieces<'_> {
        Pieces::parallel(self, kinds, false)
    }

    /// The same in the order of [`Trace::events_in_canonical_order`].
    pub fn pieces_in_canonical_order(&self, kinds: Kinds) -> Pieces<'_> {
        Pieces::parallel(self, kinds, true)
    }
}
