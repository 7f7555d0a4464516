//! Tests of the programs with known sharing: the workloads of the table, and those of `scst/`. One
//! binary, so that it is linked once.

mod programs;
mod scst;
