//! A trace's events in either order, many accesses at once, for replays that cannot afford a call
//! for each access. The order is exactly that of [`super::Events`] and [`super::Parallel`]; tests
//! compare them.

mod parallel;
mod recorded;

use super::filter::{Filter, Kinds};
use super::piece::Piece;
use super::trace::Trace;
use parallel::InParallel;
use recorded::Recorded;

/// All accesses of a trace, and its events of some kinds. See the module's head.
#[derive(Debug)]
pub struct Pieces<'t>(Order<'t>);

#[derive(Debug)]
enum Order<'t> {
    Recorded(Recorded<'t>),
    Parallel(Box<InParallel<'t>>),
}

impl<'t> Pieces<'t> {
    /// All accesses, and the other events of `kinds`, in the recorded order.
    pub(super) fn recorded(trace: &'t Trace, kinds: Kinds) -> Self {
        Self(Order::Recorded(Recorded::new(trace, kinds)))
    }

    /// The same, as if each thread had a CPU of its own; locks are taken as recorded, or in the
    /// `canonical` order.
    pub(super) fn parallel(trace: &'t Trace, kinds: Kinds, canonical: bool) -> Self {
        let kinds = kinds.with(Kinds::ACCESSES);
        let filter = Filter {
            kinds,
            ..Filter::default()
        };
        Self(Order::Parallel(Box::new(InParallel::new(
            trace, filter, canonical,
        ))))
    }

    /// The next piece; `None` at the end.
    #[expect(clippy::should_implement_trait, reason = "it lends what it gives")]
    pub fn next(&mut self) -> Option<Piece<'_>> {
        match &mut self.0 {
            Order::Recorded(order) => order.next(),
            Order::Parallel(order) => order.next(),
        }
    }

    /// Blocks of the trace that could not be read so far.
    pub fn damaged_blocks(&self) -> u64 {
        match &self.0 {
            Order::Recorded(order) => order.damaged_blocks(),
            Order::Parallel(order) => order.damaged_blocks(),
        }
    }
}
