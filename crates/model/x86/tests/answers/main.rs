//! Tests of the answers: against known cases, and against the processor. One binary, so that it is
//! linked once.

mod differences;
mod processor;
