//! Tests of copies of code: as text, and by executing them. One binary, so that it is linked once.

mod assumed;
mod calls;
mod differential;
mod far;
mod restores;
mod strings;
mod support;
mod tables;
