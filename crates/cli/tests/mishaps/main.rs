//! Mishaps of the tool and of the program: the tool is killed or fails at any instant, and programs
//! crash under it. The long form of the first is `sunder-eval kills` and `sunder-eval faults`.

#[path = "../support/mod.rs"]
mod support;

mod crashes;
mod of_the_tool;
