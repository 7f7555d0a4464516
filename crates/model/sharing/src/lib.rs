//! The judge: from observed accesses to verdicts. Which lines are shared, by
//! which threads and bytes, falsely or truly, how often they change hands, and
//! what that costs at most. Called by whoever holds an observer's stream; pure
//! code, which reads no clock, file or process, and does not know who observed.
//!
//! # Evidence
//!
//! Samples in time tell where a thread is, not what it does between. So nothing
//! is concluded from a single coincidence, and rates are compared instead of
//! counting changes between consecutive samples, which misses nearly all of them
//! (design, section 4.1).
//!
//! A *visit* is one sample that touches the line. Visits that follow each other
//! without a long pause form a *stretch* of at most 256. The pause allowed is two
//! windows (a window holds [`SAMPLES_PER_WINDOW`] samples of a running thread, at
//! least [`Config::window_ns`]) or, for lines that are touched more rarely, nine
//! times their mean gap, up to 32 windows. Within a stretch:
//!
//! - Two threads *meet* if neither left before the other came. If one did, the
//!   line was handed over: initialisation by the creating thread, phases one
//!   after another. That is not sharing, however close in time. What one thread
//!   does alone at a stretch's beginning and end is cut off for the same reason.
//! - They *conflict* if they meet, one of them writes, and they are not both on
//!   one and the same CPU (where that is known).
//! - A visit is *isolated* if the visits before and after it are other threads',
//!   on other CPUs, and conflict with it. In random order a known number of
//!   visits would be isolated (half of a half for two equal threads); in phases
//!   of `r` visits about `(2/r)^2` of these are. The ratio of what was seen to
//!   what random order gives, summed over the line's life and at most 1, is the
//!   *interleaved share*. The number seen is the verdict's evidence, of which
//!   [`MIN_EVIDENCE`] are asked.
//!
//! Exact streams have an order, so changes of thread are counted as they come.
//! A change counts if the thread *returns*, after an absence of at most two
//! windows, and either stay wrote. A burst is a short exact stream.
//!
//! # Cost
//!
//! The share of a thread's samples that touch a line bounds the share of its time
//! that the line can cost. A sample counts fully if one of its decoded accesses
//! is to the line; otherwise by the highest probability with which one of its
//! undecoded instructions, in this thread, touches the line, as learned from the
//! samples that did decode it. In a stretch, thread `t` loses at most the lesser
//! of its own time on the line and that which the threads that conflict with it
//! spent there while `t` was about: a reader that never leaves a line loses little
//! to a writer that rarely comes, and a thread that lives briefly nothing to one
//! that wrote before or after. Only time counts in which another of the line's
//! threads ran too, going by the samples of both: what threads do in turns, under
//! one lock, costs them one transfer a turn, however close the turns are.
//! The sum over threads and stretches, times the interleaved share, is
//! [`Verdict::cost_ns`]; over the CPU time of the threads that took part it is
//! [`Verdict::cost_share`]. Interleavings are that time over the price of a
//! transfer: as many as could have happened. Streams without time have counts
//! instead, and cost what the counts cost.
//!
//! Where the model is weak:
//!
//! - A store waits in the store buffer, and the wait may show in a later block
//!   that does not touch the line. Then the bound is too low. The other way
//!   round, time in a block that touches the line is not all waiting: it is a
//!   bound, and a loop of increments that the store buffer hides costs nothing.
//! - A writer whose stores drain after it has moved on disturbs a reader for
//!   longer than the writer spends on the line. Then the lesser of the two is
//!   too low a bound for the reader.
//! - The lesser of two noisy counts is low where they are equal: the bound comes
//!   out at 0.93 of the truth (`tests/simulation.rs` has the figures).
//! - Turns shorter than the sampling period look like a random order. Bursts
//!   tell: the share of the expected changes that they show bounds the
//!   interleaved share too, with the samples' word counted as one burst.
//! - A line that takes below half a percent of each thread's time has gaps beyond
//!   the longest pause, and its cost is underestimated or missed. It is far below
//!   any sensible threshold alone; costs and evidence of the lines of one object
//!   add up, so sum them before judging an object of very many lines.
//!
//! # False and true
//!
//! An interleaving is false if it would go away if the variables lay on lines of
//! their own. Footprints that overlap, directly or through others, are one
//! variable. Per stretch, the number of changes is estimated for the line as it
//! is, and for each variable alone, from products of rates: among `n` accesses in
//! random order, conflicting pairs over `n - 1`. What the sum over the variables
//! leaves of the line's changes is true, the rest false. So two fields that two
//! threads both update are true sharing although most pairs of accesses are to
//! different bytes: apart, they would change hands as often. In bursts and exact
//! streams both numbers are counted, which also tells what random order cannot: a
//! lock that one thread tries while another works on the data beside it.
//!
//! A verdict is [`Sharing::False`] if and only if no byte had two simultaneous
//! accessors of which one wrote; [`Sharing::True`] if less than [`MIXED_FROM`] of
//! its interleavings are false; [`Sharing::Mixed`] otherwise. Bytes that
//! either samples or bursts saw shared are shared. Which changes are false is asked
//! for each pair of threads: samples do not know the order of close accesses (a
//! thread that spins on a flag that it also stores, beside the index that it waits
//! for), so for the pairs that bursts saw, what the bursts counted holds; a burst is
//! one moment, in which one pair of many threads may have had the CPUs, so for the
//! others the samples' estimate does. Near the limit, a count is taken at the lower
//! end of its interval of two standard errors, because traps add false changes, and
//! the samples' estimate at the upper end: a line in doubt is mixed and not
//! confirmed rather than not shown. Lines of one object that are in doubt are decided
//! together ([`joint_sharing`]).
//!
//! # Memory
//!
//! At most [`Config::max_lines`] lines (65,536) that were touched twice, and
//! another 65,536 single touches of 60 bytes. A line of one thread has at most 16
//! entries of 24 bytes pending plus those of one sample, and about 600 bytes
//! besides; a shared one 512 entries (12 KiB), 256 threads, 1,024 footprints, 32
//! instructions. In practice few lines are shared and the table stays below
//! 50 MB. If it is full, the quarter that matters least goes, contended lines
//! last; [`Judge::counts`] says so. Threads are never forgotten.
#![forbid(unsafe_code)]

mod activity;
mod burst;
mod bytes;
mod config;
mod false_share;
mod footprint;
mod hash;
mod input;
mod judge;
mod latent;
mod line;
mod near;
mod once;
mod pairs;
mod running;
mod smaller;
mod stretch;
mod suspect;
mod tally;
mod touch;
mod used;
mod verdict;

pub use activity::Timeline;
pub use bytes::ByteState;
pub use config::{CONFIRMING_CHANGES, Config, Error, MIN_EVIDENCE, MIXED_FROM, SAMPLES_PER_WINDOW};
pub use false_share::joint_sharing;
pub use input::{Burst, Sample};
pub use judge::{Counts, Judge, ThreadTime};
pub use latent::{Latent, LatentAlignment, LatentWord};
pub use suspect::{Suspect, WATCHED_WORDS};
pub use verdict::{Confidence, Sharing, SiteUse, ThreadCost, ThreadUse, Verdict, WordUse};
