//! The one answer against the processor itself: every form of instruction that occurs in
//! the programs and libraries of this machine is executed alone, on registers and memory
//! that are known, and what was read and written is compared with the answer.

mod processor {
    pub mod check;
    pub mod compare;
    pub mod forms;
    pub mod place;
    pub mod sandbox;
}

use processor::{check, forms};

/// Bytes that the quick test looks at from each of a file's places.
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
