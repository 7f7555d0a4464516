//! Debug information that is read before it is needed, in a thread of its own: with that of a
//! program's standard library it may take a tenth of a second, in which who asks must wait. Used by
//! [`crate::module`] for one module. What the questions are answered is not told here: asked again,
//! they are answered at once.

use std::thread::{Builder, JoinHandle};
use sunder_access::LinkAddress;

/// As large as a process's first stack usually is: who asks without a thread has that.
const STACK: usize = 8 << 20;

/// What will be asked about a module.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    /// Instructions whose objects will be asked for.
    pub(crate) accesses: Vec<LinkAddress>,
    /// Calls whose lines and results will be asked for.
    pub(crate) calls: Vec<LinkAddress>,
    /// Static data whose variables will be asked for.
    pub(crate) data: Vec<LinkAddress>,
    /// Whether the module is the program itself.
    pub(crate) executable: bool,
}

/// A reading that is under way.
pub(crate) struct Ahead<T>(JoinHandle<T>);

impl<T: Send + 'static> Ahead<T> {
    /// Begins to `read`; `None` if there can be no thread for it.
    pub(crate) fn begin(read: impl FnOnce() -> T + Send + 'static) -> Option<Self> {
        let builder = Builder::new().name("sunder-names".into());
        builder.stack_size(STACK).spawn(read).ok().map(Self)
    }

    /// Whether nobody has to wait for it.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_finished()
    }

    /// What was read, once it is over; `None` if the thread failed.
    pub(crate) fn end(self) -> Option<T> {
        self.0.join().ok()
    }
}
