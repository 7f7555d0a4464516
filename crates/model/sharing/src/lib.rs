//! The judge: from observed accesses to verdicts. It tells which lines are shared, by which
//! threads and bytes, falsely or truly, how often a line changes hands, and what that costs at
//! most. Called by the pipeline that holds an observer's stream. It is pure code: it reads no
//! clock, file or process, and does not know which observer saw an access.
//!
//! # Evidence
//!
//! Samples in time tell where a thread is, not what it does between two samples. So nothing is
//! concluded from a single coincidence, and rates are compared. Counting changes between
//! consecutive samples instead would miss nearly all of them (design, section 4.1).
//!
//! A *visit* is one sample that touches the line. Visits that follow each other without a long
//! pause form a *stretch* of at most 256 visits. The longest pause within a stretch is two
//! windows; for lines that are touched more rarely it is nine times their mean gap, up to 32
//! windows. A window holds [`SAMPLES_PER_WINDOW`] samples of a running thread and lasts at
//! least [`Config::window_ns`]. Within a stretch:
//!
//! - Two threads *meet* if neither left before the other came. If one did, the line was handed
//!   over: one thread initialised it, or phases followed one another. That is not sharing,
//!   however close in time. For the same reason, visits of a single thread at a stretch's
//!   beginning and end are cut off.
//! - They *conflict* if they meet, one of them writes, and they are not both on
//!   one and the same CPU (where that is known).
//! - A visit is *isolated* if the visits before and after it are by other threads, on other
//!   CPUs, and conflict with it. In random order a known number of visits would be isolated (a
//!   quarter of them for two equal threads); in phases of `r` visits it is about `(2/r)^2` of
//!   that number. The ratio of the number seen to the number in random order, summed over the
//!   line's life and at most 1, is the *interleaved share*. The number seen is the verdict's
//!   evidence, of which at least [`MIN_EVIDENCE`] is required.
//!
//! Exact streams have an order, so changes of thread are counted as they come. A change counts
//! if the new thread *returns*, after an absence of at most two windows, and one of the two
//! threads wrote during its stay. A burst is a short exact stream.
//!
//! # Cost
//!
//! The share of a thread's samples that touch a line bounds the share of its time that the line
//! can cost. A sample counts fully if one of its decoded accesses is to the line. Otherwise it
//! counts with the highest probability with which one of its undecoded instructions touches the
//! line; that is learned, per thread, from the samples that did decode the instruction. Where
//! execution bursts showed on which line an undecoded instruction works, and the sample more likely
//! touched it than not, the sample is a visit of the line with that share of its time.
//!
//! In a stretch, a thread loses at most the time that it spent on the line itself, and at most
//! the time that the threads in conflict with it spent there during its stay. So a reader that
//! never leaves a line loses little to a writer that rarely comes, and a short-lived thread
//! loses nothing to one that wrote before or after it. Only time counts in which another of the
//! line's threads was running, according to the samples of both: threads that take turns under
//! one lock pay one transfer a turn, however close the turns are.
//!
//! The sum over threads and stretches, times the interleaved share, is [`Verdict::cost_ns`].
//! Divided by the CPU time of the threads that took part it is [`Verdict::cost_share`]. The
//! number of interleavings is that time over the price of a transfer: as many as could have
//! happened. Streams without time have counts instead, and their cost follows from the counts.
//!
//! Where the model is weak:
//!
//! - A store waits in the store buffer, and the wait may show in a later block that does not
//!   touch the line. Then the bound is too low. Conversely, not all time in a block that
//!   touches the line is spent waiting. It is a bound: a loop of increments that the store
//!   buffer hides costs nothing.
//! - A writer whose stores drain after it has moved on disturbs a reader for longer than the
//!   writer spends on the line. Then the writer's time is too low a bound for the reader.
//! - The minimum of two noisy counts is low where the counts are equal: the bound comes out at
//!   0.93 of the truth (`tests/judge/simulation.rs` has the figures).
//! - Turns shorter than the sampling period look like a random order. Bursts show them: the
//!   share of the expected changes that they see bounds the interleaved share too. In that
//!   average the samples count as one burst that showed everything.
//! - A line that takes less than half a percent of each thread's time has gaps beyond the
//!   longest pause, and its cost is underestimated or missed. Many such lines near each other are
//!   a crowd (below); a few of them are far below any sensible threshold.
//!
//! # Crowds
//!
//! An array whose elements belong to threads in turn has hundreds of contended lines, each with a
//! handful of visits in a run. Lines with too few visits to be judged alone (fewer than some 64),
//! of which consecutive ones are at most a page apart and on which the same instructions do most, are
//! a *crowd* if there are eight of them or more. Their visits together are accounted for like
//! those of one line. The loss is multiplied by two further shares:
//!
//! - how *mixed* the threads are: of the consecutive visits of one line, the share that is by two
//!   threads, over the share to be expected if any thread were on any line. Lines of one thread
//!   with the same code count: so an array in which each thread has its own part costs nothing.
//! - what bursts on its lines showed. Only they tell lines that change hands all the time from
//!   those that change owner now and then, as under a dynamic schedule. So the lines of a crowd are
//!   suspects from the first, and they cost something together only if bursts confirmed three of
//!   them, and not as true sharing. A line that no burst watched has the kind of those watched.
//!
//! # False and true
//!
//! An interleaving is false if it would go away if the variables lay on lines of their own.
//! Footprints that overlap, directly or through others, are one variable. Per stretch, the
//! number of changes is estimated for the line as it is and for each variable alone, from
//! products of rates: among `n` accesses in random order, the number of conflicting pairs over
//! `n - 1`. The sum over the variables is the number of true changes, the rest of the line's
//! changes is false. So two fields that two threads both update are true sharing, although most
//! pairs of accesses are to different bytes: on separate lines they would change hands as
//! often.
//!
//! In bursts and exact streams both numbers are counted. That also shows what random order
//! cannot: a lock that one thread tries while another works on the data beside it.
//!
//! A verdict is [`Sharing::False`] if and only if no byte had two simultaneous
//! accessors of which one wrote; [`Sharing::True`] if less than [`MIXED_FROM`] of
//! its interleavings are false; [`Sharing::Mixed`] otherwise. A byte is shared if either
//! samples or bursts saw it shared.
//!
//! Which changes are false is estimated for each pair of threads. Samples do not know the order
//! of close accesses (of a thread that spins on a flag that it also stores, beside the index
//! that it waits for), so for pairs that bursts saw, the bursts' count holds. A burst is one
//! moment, in which one pair of many threads may have had the CPUs, so for other pairs the
//! samples' estimate holds.
//!
//! Near the limit, a count is taken at the lower end of its interval of two standard errors,
//! because traps add false changes, and the samples' estimate at the upper end: a line in doubt
//! is mixed and not confirmed, rather than not shown. Lines of one object that are in doubt are
//! decided together ([`joint_sharing`]).
//!
//! # Memory
//!
//! The judge keeps at most [`Config::max_lines`] lines (65,536) that were touched twice, and
//! another 65,536 single touches of 60 bytes. A line of one thread has at most 20 entries of 24
//! bytes plus those of one sample, and about 600 bytes besides. A shared line has at
//! most 576 entries (14 KiB), 256 threads, 1,024 footprints and 32 instructions. In practice
//! few lines are shared and the table stays below 50 MB. If it is full, the least important
//! quarter is dropped, contended lines last; [`Judge::counts`] tells how many. Threads are
//! never forgotten.
#![forbid(unsafe_code)]

mod activity;
mod answers;
mod apart;
mod burst;
mod bytes;
mod config;
mod crowd;
mod executed;
mod false_share;
mod footprint;
mod hash;
mod input;
mod joint;
mod judge;
mod latent;
mod line;
mod near;
mod nearby;
mod once;
mod pairs;
mod room;
mod running;
mod runs;
mod saved;
mod scale;
mod site;
mod smaller;
mod stretch;
mod suspect;
mod tally;
mod threads;
mod touch;
mod used;
mod verdict;

pub use activity::Timeline;
pub use bytes::ByteState;
pub use config::{CONFIRMING_CHANGES, Config, Error, MIN_EVIDENCE, MIXED_FROM, SAMPLES_PER_WINDOW};
pub use false_share::Sharing;
pub use input::{Burst, Execution, Sample, Ways};
pub use joint::{joint_doubt, joint_sharing, jointly_confirmed};
pub use judge::{Counts, Judge};
pub use latent::{Latent, LatentAlignment, LatentWord};
pub use runs::PageRuns;
pub use saved::{Saved, SavedVerdict};
pub use suspect::{Suspect, WATCHED_WORDS};
pub use threads::ThreadTime;
pub use verdict::{Confidence, SiteUse, ThreadCost, ThreadUse, Verdict, WordUse};
