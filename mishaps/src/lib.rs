//! What may happen to the tool while it watches a program: it is killed, its terminal is closed, its
//! system calls fail, memory, descriptors or files run out. This library makes that happen to one
//! run of `sunder`, and judges whether the program did what it does natively and whether anything
//! was left behind. Used by the tests of the command line in a short form and by `sunder-eval` in
//! the long one; it must know the tool by its command line alone.
//!
//! Everything is drawn from a seed, so that a run can be made again.

mod attached;
mod calls;
mod group;
mod judge;
mod mishap;
mod mode;
mod places;
mod prepared;
mod random;
mod scene;
mod shell;
mod shortage;
mod subject;
mod terminal;
mod watch;

pub use calls::Calls;
pub use group::{end, processes};
pub use judge::Verdict;
pub use mishap::{Kills, Mishap, Shortage, Way};
pub use mode::{MODES, Mode};
pub use places::Places;
pub use prepared::{Kind, Prepared, Run};
pub use scene::{Outcome, Program};
pub use subject::Subject;
