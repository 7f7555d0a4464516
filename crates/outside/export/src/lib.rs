//! Hands the records of a watched machine to systems that operators already run: as a page that
//! Prometheus reads, as a file for its node exporter, as a profile for `pprof`, or by OTLP to collectors.
//!
//! Called by the program `sunder`, in a process without rights over others. It knows records only, and
//! must not look at a process; a system that is slow or gone must not hold up whoever hands records over.
#![forbid(unsafe_code)]

mod figures;
mod files;
mod metrics;
mod otlp;
mod page;
mod pprof;
mod profile;
mod sender;
mod serve;
mod spool;
mod textfile;

pub use figures::{Figure, Kind, figures};
pub use files::{Place, is_of_another};
pub use metrics::{Metrics, Sink};
pub use otlp::{Ended, Otlp, Signal, Target};
pub use page::page;
pub use pprof::write_pprof;
pub use profile::Profile;
pub use sender::{Answer, Left, Sender};
pub use serve::Server;
pub use spool::Spool;
pub use textfile::write_page;
