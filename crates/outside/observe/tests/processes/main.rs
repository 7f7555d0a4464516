//! Observing real processes. The tests of `launch` are a program of their own: there, no other test
//! may fork a child that holds a file open for writing.

mod first_thread;
mod live;
mod perf;
mod slots;
mod support;
mod watch;
