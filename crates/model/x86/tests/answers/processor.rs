//! Tests the answers of [`sunder_x86::Manual`] against the processor: every form of instruction
//! in the programs and libraries of this machine is executed alone, on known registers and
//! memory, and what it read and wrote is compared with the answer.

mod check;
mod compare;
mod forms;
mod place;
mod sandbox;

/// Bytes that the quick test reads at each of its places in a file.
const SAMPLE: usize = 16 << 10;

#[test]
fn instructions_of_this_machine_do_what_the_answer_says() {
    check::all(&forms::of_machine(Some(SAMPLE)));
}

#[test]
#[ignore = "decodes all code of the machine, which takes minutes"]
fn all_instructions_of_this_machine_do_what_the_answer_says() {
    check::all(&forms::of_machine(None));
}
