//! x86-64 code in, x86-64 code out. Given the code of a function, the registers
//! at an instruction and where bytes of a page have moved to, makes a copy of the
//! loop around the instruction that uses the bytes at their new places, or says
//! why not.
//!
//! Called by the tool, outside the target, while threads of the target wait. Pure:
//! reads no memory but what it is given, writes none, and never panics on code.
//!
//! How, after Plastic (EuroSys 2013, sections 5.1 and 5.2) and the design's section
//! 6.2:
//!
//! - The page that the bytes left is protected, so an operand that was forgotten
//!   faults; leaving an operand as it is can cost time but not the result.
//! - A copy is *specialised*: facts about registers that hold in the whole loop
//!   ([`facts`]) are taken from the thread that faulted, and every entry into the
//!   copy demands them again ([`Condition`]). An operand whose address follows from
//!   facts gets another displacement and nothing else.
//! - An operand whose address varies gets a guard: registers compared with bounds,
//!   no scratch register, and only where flags are dead ([`live`]). If the guard
//!   fails, the unchanged instruction runs.
//! - Functions that a loop calls are copied into it, and a leaf function without a loop
//!   into its caller's. Their returns look at the return address, unless no store in
//!   between can have reached it ([`returns`]). Where a call goes through a pointer, the
//!   copy compares that with what it held ([`calls`]).
//! - Variables of a frame that nobody else can reach are followed like registers
//!   ([`slots`]).
//! - An instruction without a usable loop is copied alone.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod bounds;
mod branches;
mod calls;
mod effects;
mod elsewhere;
mod emit;
mod facts;
mod flow;
mod frame;
mod layout;
mod live;
mod numbers;
mod operand;
mod ordering;
mod plan;
mod reach;
mod record;
mod registers;
mod request;
mod returns;
pub mod sites;
mod slots;
mod speculate;
mod table;
mod values;
mod varies;

pub use calls::{Called, call_targets, is_harmless, is_linker_stub, more_targets, without_hooks};
pub use frame::return_slot;
pub use ordering::{Function, closed_points, ordering_pages};
pub use registers::{Register, Registers};
pub use request::{
    Block, Code, Condition, Entry, Frame, Memory, MovedPage, Refusal, Request, Resume, Rule, Seen,
};

/// Makes a copy of the code around the instruction that faulted.
///
/// # Errors
/// If the instruction can't be made to use the bytes' new place.
pub fn specialise(request: &Request<'_>) -> Result<Block, Refusal> {
    let chosen = plan::choose(request, false)?;
    match emit::emit(request, &chosen) {
        // Something else in the loop does not reach its place from there.
        Err(Refusal::Encode(_)) if chosen.is_loop => {
            emit::emit(request, &plan::choose(request, true)?)
        }
        done => done,
    }
}

/// Makes a copy of the instruction that faulted and nothing else, which takes far less
/// time.
///
/// # Errors
/// As [`specialise`].
pub fn specialise_alone(request: &Request<'_>) -> Result<Block, Refusal> {
    emit::emit(request, &plan::choose(request, true)?)
}
