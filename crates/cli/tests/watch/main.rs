//! `sunder watch`: every process of a machine.

#[path = "../support/mod.rs"]
mod support;

mod always;
mod cached;
mod changing;
mod collector;
mod contrib;
mod fleet;
mod once;
mod otlp;
mod otlp_collector;
mod otlp_failures;
mod otlp_tls;
mod pprof;
mod prometheus;
mod receiver;
mod records;
mod sending;
