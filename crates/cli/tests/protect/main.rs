//! `sunder protect`: threads that compute in memory of their own.

#[path = "../support/mod.rs"]
mod support;

mod kinds;
mod native;
mod transparent;
mod workloads;
