//! Tests of the judge on streams of accesses whose right verdict is known. One binary, so that it is
//! linked once.

mod crowds;
mod diffs;
mod exact;
mod executions;
mod limits;
mod properties;
mod rules;
mod simulation;
mod stream;
