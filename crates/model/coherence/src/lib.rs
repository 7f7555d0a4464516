//! The coherence model: it replays a stream of accesses on a machine whose nodes keep private
//! copies of granules, and tells of every miss why it happened. Called with a complete trace by
//! the simulation. It is pure code, which reads no clock, file or process, and knows nothing
//! about objects and threads: it returns the caller's tags.
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
//! - A store to a pending word counts as a use, like a load: the two nodes do communicate
//!   through that word, and moving it apart would not help.
//! - The paper has infinite caches. With finite caches the way in which the copy was lost
//!   decides: a copy that was replaced would be missed whatever others wrote, so the miss is a
//!   replacement miss, which is essential and brings all pending values.
//! - Words are [`Config::word`] bytes: single bytes in lines up to 64 bytes. Bytes
//!   of one word count as one variable, so a coarse word hides false sharing.
//!
//! The older definition by Eggers and Jeremiassen ("Eliminating false sharing", ICPP 1991)
//! looks only at the missing access: the miss is false if the words that *this* access touches
//! were not written by others since the copy was invalidated. By that definition a miss is
//! false even if a later access of the same lifetime needs the new values, and the order of the
//! program's loads decides. It costs nothing, so it is counted as well, in
//! [`Counts::false_by_first_access`]. Torrellas, Lam and Hennessy (IEEE ToC 1994) ask whether
//! this node touched the missing access's word before (if not, the miss is cold) and whether
//! another node wrote it since. That needs a history of touched words for each node and is not
//! offered.
//!
//! # Machines
//!
//! [`Protocol`] tells how copies are kept coherent, [`Caches`] whether they are lost for lack
//! of room. [`Config::dsm`] is the page-based machine of SCSTallocator (section 4.1): 16 nodes,
//! pages of 4096 bytes, sequential consistency by replication and invalidation. Accesses take
//! effect in the order in which they are given.
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
