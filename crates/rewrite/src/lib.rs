//! x86-64 code in, x86-64 code out. Given the code of a function, the registers
//! at an instruction and where bytes of a page have moved to, makes a copy of the
//! innermost loop that uses the bytes at their new places, or says why not.
//!
//! Called by the tool, outside the target, while threads of the target wait. Pure:
//! reads no memory but what it is given, writes none, and never panics on code.
//!
//! Source: Bhatotia et al. call it "specialized code blocks" (Plastic, EuroSys
//! 2013, section 5.2); this form needs no guards (design, section 6.2).
#![no_std]

extern crate alloc;

pub mod sites;
