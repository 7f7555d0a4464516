//! A reader's right to end the reading of a trace. A few bytes of a file may stand for a great many
//! events, and what a caller makes of events may take any amount of memory, so only the caller can
//! tell when it is too much. Asked by all that decodes blocks; it knows nothing about traces.

use std::fmt;
use std::sync::OnceLock;

/// Asked before each block of events is decoded: a sentence that says why no more is to be read;
/// `None` to go on.
pub type Guard = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// A guard, and its refusal once it has refused.
#[derive(Default)]
pub(super) struct Guarded {
    guard: Option<Guard>,
    stopped: OnceLock<String>,
}

impl Guarded {
    /// Guarded by `guard`, which has not refused yet.
    pub(super) const fn by(guard: Guard) -> Self {
        Self {
            guard: Some(guard),
            stopped: OnceLock::new(),
        }
    }

    /// Whether the guard has never refused, asked now, too.
    pub(super) fn may_go_on(&self) -> bool {
        let Some(guard) = &self.guard else {
            return true;
        };
        if self.stopped.get().is_some() {
            return false;
        }
        match guard() {
            Some(why) => {
                self.stopped.get_or_init(|| why);
                false
            }
            None => true,
        }
    }

    /// The first refusal.
    pub(super) fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded")
            .field("stopped", &self.stopped)
            .finish_non_exhaustive()
    }
}
