//! A program that confines itself: from then on no thread is registered, no timer runs, no memory is
//! mapped, and nothing is passed on. Clocks are still read where the C library needs no system call for
//! that.
//!
//! Contexts: all; [`close`] runs before the filter is installed.

use sunder_guest::confinement::{Calls, Confinement};

static CONFINEMENT: Confinement = Confinement::new();

/// Whether the program has confined itself.
pub fn is_confined() -> bool {
    CONFINEMENT.is_closed()
}

/// As [`Confinement::begin`].
pub fn calls() -> Option<Calls> {
    CONFINEMENT.begin()
}

/// As [`Confinement::close`].
#[cfg(not(test))]
pub fn close() {
    CONFINEMENT.close();
}
