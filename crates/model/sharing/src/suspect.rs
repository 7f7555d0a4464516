//! Chooses the lines and words that get hardware watchpoints: the step of the funnel from
//! "which lines" to "which bytes, how interleaved" (design section 4). Called by the judge.

use crate::line::Line;
use crate::verdict::Verdict;
use sunder_access::{Address, ByteMask, ThreadId, Time};

/// The number of debug registers of an x86-64 thread, each of which watches 8 aligned bytes.
pub const WATCHED_WORDS: usize = 4;

/// After this many bursts that showed interleaving, a line whose kind is still in doubt gets no
/// more: its false share is close to the limit, and further bursts only show other moments.
const MOST_BURSTS: u32 = 12;

/// A line worth a watch burst.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspect {
    /// The line's first byte.
    pub line: Address,
    /// When the present owner of this memory first touched the line, as far as is known.
    pub since: Time,
    /// The words to watch, at most [`WATCHED_WORDS`]: the hottest word of each
    /// of the first threads first, then the hottest of those that no burst has
    /// watched yet, then of the rest.
    pub words: Vec<Address>,
    /// The threads to watch, the busiest first. If there are more than words that can be watched,
    /// those that ran last come first: with more threads than CPUs, the others wait for their turn.
    pub threads: Vec<ThreadId>,
    /// Upper bound of the line's cost, in ns of CPU time.
    pub cost_ns: f64,
    /// That bound as a share (0 to 1) of these threads' CPU time.
    pub cost_share: f64,
    /// Whether bursts have confirmed the sharing. More bursts are then only wanted to tell its
    /// kind.
    pub confirmed: bool,
    /// Bursts so far that showed interleaving.
    pub loud_bursts: u32,
    /// Bursts so far that showed none.
    pub quiet_bursts: u32,
}

/// The suspect for a line with this verdict. `None` if the line is confirmed and its kind is
/// beyond doubt, or after [`MOST_BURSTS`]. `ran` tells when a thread was last seen.
pub(crate) fn suspect(
    line: &Line,
    verdict: &Verdict,
    ran: impl Fn(ThreadId) -> Time,
) -> Option<Suspect> {
    let settled = verdict.falsely.is_clear() || line.bursts.loud >= MOST_BURSTS;
    if verdict.confirmed && settled {
        return None;
    }
    let mut threads: Vec<ThreadId> = verdict.threads.iter().map(|t| t.thread).collect();
    if threads.len() > WATCHED_WORDS {
        threads.sort_by_key(|&thread| std::cmp::Reverse(ran(thread)));
    }
    Some(Suspect {
        line: verdict.line,
        since: verdict.first,
        words: words(verdict, &threads, line.bursts.watched),
        threads,
        cost_ns: verdict.cost_ns,
        cost_share: verdict.cost_share,
        confirmed: verdict.confirmed,
        loud_bursts: line.bursts.loud,
        quiet_bursts: line.bursts.quiet,
    })
}

fn words(verdict: &Verdict, threads: &[ThreadId], watched: ByteMask) -> Vec<Address> {
    // Heat by aligned word and thread; a write weighs no more than a read.
    let mut heat: Vec<(u32, ThreadId, u64)> = Vec::new();
    for word in &verdict.words {
        let aligned = word.offset / 8 * 8;
        for t in &word.threads {
            let count = t.reads + t.writes + t.updates;
            match heat.iter_mut().find(|h| h.0 == aligned && h.1 == t.thread) {
                Some(h) => h.2 += count,
                None => heat.push((aligned, t.thread, count)),
            }
        }
    }
    heat.sort_by_key(|h| std::cmp::Reverse(h.2));
    let first_of_each = threads
        .iter()
        .filter_map(|t| heat.iter().find(|h| h.1 == *t));
    let unwatched = |h: &&(u32, ThreadId, u64)| !watched.overlaps(ByteMask::range(h.0.into(), 8));
    let fresh = heat.iter().filter(unwatched);
    let mut chosen: Vec<u32> = Vec::new();
    for (word, _, _) in first_of_each.chain(fresh).chain(&heat) {
        if chosen.len() < WATCHED_WORDS && !chosen.contains(word) {
            chosen.push(*word);
        }
    }
    chosen
        .iter()
        .map(|&w| verdict.line.offset(w.into()))
        .collect()
}
