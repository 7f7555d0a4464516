//! Traces as Parquet tables that other engines read: the accesses cut into buckets by line, and the
//! threads, modules, heap blocks, call sites and synchronisation beside them. The coherence of
//! infinite caches is independent for each line, so each bucket can be replayed by itself.
//!
//! [`export`] writes a folder of tables, [`Rows`] reads the accesses of buckets back, also from files
//! that another engine wrote, and checks their order. [`About`] is what a bucket's replay has to know
//! of the whole trace. Called by the program and by replays. This crate must not know caches,
//! verdicts or names.

mod about;
mod beside;
mod bucket;
mod bucket_writer;
mod error;
mod export;
mod heap;
mod order;
mod read;
mod row;
mod schema;
mod table;

pub use about::{About, StackEvent, StackStep, TraceModule, TraceSegment, TraceThread};
pub use beside::{Allocation, Sites, read_blocks, read_sites};
pub use bucket::{Cut, MAX_BUCKETS, PIECE, bucket_of_folder};
pub use error::TableError;
pub use export::{Exported, Target, export};
pub use order::Order;
pub use read::{Disorder, Rows};
pub use row::{Row, RowKind};
pub use schema::describe;
