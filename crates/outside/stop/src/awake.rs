//! Keeps Sunder itself from being stopped by the terminal (Ctrl-Z) in the moments in which it
//! holds threads of another program, which would stay stopped with it. Taken by `World`, and by
//! whoever handles the terminal's signals. It must not change how signals are handled.

use std::sync::{Mutex, MutexGuard, PoisonError};

static AWAKE: Mutex<()> = Mutex::new(());

/// While the guard lives the terminal's stops do not stop us, where they are held at all: threads
/// of a program that we have stopped would stay so.
pub fn stay_awake() -> MutexGuard<'static, ()> {
    AWAKE.lock().unwrap_or_else(PoisonError::into_inner)
}
