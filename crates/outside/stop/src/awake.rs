//! Keeps Sunder from being stopped by the terminal (Ctrl-Z) while it holds threads of another
//! program, which would stay stopped as long as Sunder. Locked by [`World`](crate::World) and by
//! the handling of terminal signals in `live`. Must not change how signals are handled.

use std::sync::{Mutex, MutexGuard, PoisonError};

static AWAKE: Mutex<()> = Mutex::new(());

/// While the guard lives, signals of the terminal that `live` handles do not stop us: threads of a
/// program that we hold would stay stopped with us.
pub fn stay_awake() -> MutexGuard<'static, ()> {
    AWAKE.lock().unwrap_or_else(PoisonError::into_inner)
}
