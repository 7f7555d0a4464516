//! What is read from the code of a program before a remedy changes anything of it: the kernel
//! calls of its modules and whether all of them can be led through hooks ([`Calls`]), the plan
//! of these hooks ([`Plan`]), and the call sites behind the allocator's wrappers.
//!
//! Used by `protect`, `repair` and `place`. It reads files and stopped memory; it must not change
//! a program, nor stop it.

pub mod call_sites;
mod calls;
mod hooks;
mod unwind;

pub use calls::{Calls, Own, code, is_covered};
pub use hooks::{CHANGES, Placed, Plan, RESTORES, base, is_inside, plan, restorers};
