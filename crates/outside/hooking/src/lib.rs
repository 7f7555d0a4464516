//! Reads what a remedy must know of a program's code before it changes the program: which modules
//! make kernel calls, and whether hooks see all of them ([`Calls`]); the plan of these hooks
//! ([`Plan`]); and the call sites behind allocation wrappers ([`call_sites`]).
//!
//! Used by `protect`, `repair` and `place`. It reads files, and mappings that its callers pass; it
//! must not change a program or stop it.

pub mod call_sites;
mod calls;
mod hooks;
mod unwind;

pub use calls::{Calls, Own, code, is_covered};
pub use hooks::{
    CHANGES, OPENS, Placed, Plan, RESTORES, are_apart, base, guards_work, is_inside,
    may_go_without_hook, plan, restorers,
};
