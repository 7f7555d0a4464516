//! Leads kernel calls of the C library through hooks, including internal ones that no interposed
//! function sees: those of `malloc` when it returns memory, or of `fwrite` from a buffer of the
//! program's. Used by libraries inside the target whose remedies need it: remapped bytes, which the
//! kernel cannot reach at their old address, and isolated threads, which must know when the address
//! space changes.
//!
//! The plan comes from the tool (`sunder_rewrite::sites`, `sunder_wire::sites`). Here it is
//! compared with the loaded code and carried out completely or not at all: a jump replaces the
//! instructions around each `syscall`, and a trampoline runs copies of them.
//!
//! Nothing here allocates, panics or, after [`note_modules`], calls the C library. Other threads
//! must not run during [`install`].

#![cfg_attr(not(test), no_std)]

mod area;
mod code;
mod enter;
mod install;

pub use enter::{Before, Call, ENTRIES, Hooks, lead_to};
pub use install::{MOST_MODULES, Refusal, areas, install, note_modules, number_before, remember};
