//! `sunder watch`: every process of a machine.

#[path = "../support/mod.rs"]
mod support;

mod always;
mod contrib;
mod once;
mod otlp;
mod prometheus;
mod records;
