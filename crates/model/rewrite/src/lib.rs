//! Makes copies of x86-64 code that find moved bytes. The input is the code of a function, the
//! registers at an instruction, and the new places of the bytes of a page. The output is a copy
//! of the loop around the instruction that uses the bytes at their new places, or the reason
//! why there is none.
//!
//! Called by the tool, outside the target, while threads of the target wait. Pure: it reads no
//! memory but its arguments, writes none, and never panics on any code. [`sites`] plans, for
//! the same tool, where kernel calls can be hooked.
//!
//! How it works, after Plastic (EuroSys 2013, sections 5.1 and 5.2) and the design's section
//! 6.2:
//!
//! - The page that the bytes left is protected, so an operand that was overlooked faults. An
//!   operand that stays as it is costs time, but does not change the result.
//! - A copy is *specialised*. Facts about registers that hold in the whole loop ([`facts`]) are
//!   taken from the thread that faulted, and each entry into the copy demands them again
//!   ([`Condition`]). An operand whose address follows from facts gets another displacement and
//!   nothing else.
//! - An operand whose address varies gets a guard: it compares registers with bounds, needs no
//!   scratch register, and is only placed where the flags are dead ([`live`]). If the guard
//!   fails, the unchanged instruction runs.
//! - Functions that a loop calls are copied into it, and a leaf function without a loop is
//!   copied into its caller's loop. Their returns compare the return address, unless no store in
//!   between can have changed it ([`returns`]). Where a call goes through a pointer, the copy
//!   compares the pointer with the functions that it was seen to lead to ([`calls`]).
//! - Ways through such functions that cost facts are left out where that leaves fewer guards
//!   ([`restores`]).
//! - Variables of a frame whose address no other code has are followed like registers
//!   ([`slots`]).
//! - String instructions are executed with the distance added to their address registers
//!   ([`strings`]).
//! - An instruction without a usable loop is copied alone.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bounds;
mod calls;
mod choose;
mod effects;
mod emit;
mod facts;
mod flow;
mod frame;
mod function;
mod index;
mod kernel;
mod layout;
mod live;
mod nodes;
mod operand;
mod ordering;
mod plan;
mod pointers;
mod reach;
mod registers;
mod request;
mod restores;
mod returns;
mod scaled;
pub mod sites;
mod slots;
mod speculate;
mod strings;
mod table;
mod values;
mod varies;
mod version;
mod waiting;

use choose::Chosen;
use sunder_access::CodeAddress;

pub use calls::{Called, call_targets, is_linker_stub, more_targets};
pub use frame::return_slot;
pub use function::Function;
pub use kernel::{is_harmless, without_hooks};
pub use ordering::{OrderingCode, closed_points, waiting_pages};
pub use registers::{Register, Registers};
pub use request::{
    Block, Code, Condition, Entry, Frame, Memory, Met, MovedPage, Refusal, Request, Resume, Rule,
    Seen, Shift,
};
pub use waiting::Loop;

/// Which code is copied and how, without the place of the copy: to decide that takes nearly all of the
/// time, so several can be made at once, and get their places in turn.
#[derive(Debug)]
pub struct Draft<'a> {
    request: Request<'a>,
    chosen: Chosen,
}

impl<'a> Draft<'a> {
    /// Of the code around the instruction that faulted.
    ///
    /// # Errors
    /// If the instruction can't be made to use the bytes at their new places.
    pub fn of(request: &Request<'a>) -> Result<Self, Refusal> {
        Self::chosen(request, false)
    }

    /// Of the instruction that faulted and nothing else, which takes much less time.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn alone(request: &Request<'a>) -> Result<Self, Refusal> {
        Self::chosen(request, true)
    }

    fn chosen(request: &Request<'a>, only_alone: bool) -> Result<Self, Refusal> {
        let chosen = choose::choose(request, only_alone)?;
        let request = *request;
        Ok(Self { request, chosen })
    }

    /// The copy for the place `at`, which is near [`Request::near`].
    ///
    /// # Errors
    /// As [`Self::of`].
    pub fn block(&self, at: CodeAddress) -> Result<Block, Refusal> {
        let request = &self.request;
        match emit::emit(request, &self.chosen, at) {
            // Another instruction of the loop can't reach its operand or target from there.
            Err(Refusal::Encode(_)) if self.chosen.is_loop => {
                emit::emit(request, &choose::choose(request, true)?, at)
            }
            done => done,
        }
    }
}

/// Makes a copy of the code around the instruction that faulted, which will lie at
/// [`Request::near`].
///
/// # Errors
/// If the instruction can't be made to use the bytes at their new places.
pub fn specialise(request: &Request<'_>) -> Result<Block, Refusal> {
    Draft::of(request)?.block(request.near)
}

/// Makes a copy of the instruction that faulted and nothing else.
///
/// # Errors
/// As [`specialise`].
pub fn specialise_alone(request: &Request<'_>) -> Result<Block, Refusal> {
    Draft::alone(request)?.block(request.near)
}
