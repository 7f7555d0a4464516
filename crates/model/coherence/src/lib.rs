//! The coherence model: replays a stream of accesses on a machine whose nodes
//! keep private copies of granules, and says of every miss why it happened.
//! Called by whoever holds a complete trace; pure code, which reads no clock,
//! file or process. It does not know what an object or a thread is: it hands
//! back the caller's tags.
//!
//! # Essential and useless misses
//!
//! Misses are classified by Dubois, Skeppstedt, Ricciulli, Ramamurthy and
//! Stenström, "The detection and elimination of useless misses in
//! multiprocessors" (ISCA 1993). The *lifetime* of a granule in a node's cache
//! begins with a miss and ends when the copy is invalidated, replaced, or the
//! trace ends. A miss is
//!
//! - *cold* if the node never held the granule before;
//! - a *replacement* miss if the node's last copy was lost to make room;
//! - *true sharing* if the last copy was invalidated and, during the lifetime
//!   that the miss begins, the node touches a word that another node wrote since
//!   the node's last essential miss on the granule;
//! - *false sharing* if the last copy was invalidated and no such word is touched
//!   before the copy is lost again.
//!
//! The first three are *essential*: without them the node would compute with
//! wrong values. The last is *useless*. So a miss is classified at the end of its
//! lifetime, not when it happens, and what other nodes wrote stays pending
//! across useless misses: the values only arrive with an essential one.
//!
//! Three decisions of ours:
//!
//! - A store to a pending word counts as use, like a load: the two nodes do
//!   communicate through that word, and moving it apart would not help.
//! - The paper has infinite caches. With finite ones the loss decides: a copy that
//!   was replaced would have been missed whoever wrote meanwhile, so the miss is a
//!   replacement miss, which is essential and brings all pending values.
//! - Words are [`Config::word`] bytes: single bytes in lines up to 64 bytes. Bytes
//!   of one word count as one variable, so a coarse word hides false sharing.
//!
//! Eggers' and Jeremiassen's older definition ("Eliminating false sharing", ICPP
//! 1991) looks at the missing access alone: false if the words that *it* touches
//! were not written by others since the copy was invalidated. It calls a miss
//! false although a later access of the same lifetime needs the new values, and
//! true or false by the order of the program's loads. It costs nothing, so it is
//! counted beside the other, in [`Counts::false_by_first_access`]. Torrellas,
//! Lam and Hennessy (IEEE ToC 1994) ask whether the missing access's word was touched by
//! this node before (if not, the miss is cold) and whether another wrote it
//! since; that needs a history of touched words for each node and is not offered.
//!
//! # Machines
//!
//! [`Protocol`] says how copies are kept, [`Caches`] whether they are lost for want
//! of room. [`Config::dsm`] is the page-based machine of SCSTallocator (section
//! 4.1): 16 nodes, pages of 4096 bytes, sequential consistency by replication and
//! invalidation. Accesses take effect in the order in which they are given.
//!
//! ```
//! use sunder_coherence::{Address, Config, Kind, Simulator};
//! # fn main() -> Result<(), sunder_coherence::Error> {
//! let mut simulator = Simulator::new(Config::cache_line(2))?;
//! for _ in 0..10 {
//!     simulator.access(0, Address(0x1000), 8, Kind::Write, ())?;
//!     simulator.access(1, Address(0x1008), 8, Kind::Write, ())?;
//! }
//! let result = simulator.finish();
//! assert_eq!(result.totals().cold, 2);
//! assert_eq!(result.totals().false_sharing, 18);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod cache;
mod config;
mod counts;
mod history;
mod line;
mod lookup;
mod observer;
mod outcome;
mod places;
mod simulator;
mod transition;

pub use config::{CacheSize, Caches, Config, Error, MAX_CACHE_GRANULES, MAX_NODES, Protocol};
pub use counts::{Counts, Faults};
pub use observer::{End, Invalidation, Miss, MissKind, Observer, Source, Upgrade};
pub use outcome::{LineCounts, Outcome};
pub use simulator::Simulator;
pub use sunder_access::{Address, Kind};
