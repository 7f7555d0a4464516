//! Hands the records of a watched machine to systems that operators already run: as a page that
//! Prometheus reads, or as a file for its node exporter.
//!
//! Called by the program `sunder`, in a process without rights over others. It knows records only, and
//! must not look at a process; a system that is slow or gone must not hold up whoever hands records over.
#![forbid(unsafe_code)]

mod figures;
mod metrics;
mod otlp;
mod page;
mod sender;
mod serve;
mod spool;
mod textfile;

pub use figures::{Figure, Kind, figures};
pub use metrics::Metrics;
pub use otlp::{Otlp, Signal, Target};
pub use page::page;
pub use sender::{Answer, Sender};
pub use serve::Server;
pub use spool::Spool;
pub use textfile::write_page;
