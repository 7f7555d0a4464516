//! What the simulated misses of a finding cost. The trace has no time of its own, so costs are
//! modelled.

use super::machine::LARGEST_LINE;
use sunder_access::ThreadId;
use sunder_findings as findings;
use sunder_findings::{Sharing, Simulated};
use sunder_observe::machine::TYPICAL_TRANSFER_NS;
use sunder_sharing::MIXED_FROM;

/// Nanoseconds of a reference that needs no other node, with the instructions around it: three
/// instructions at 3 GHz. A trace has no time of its own (recording slows a program down, and
/// unevenly), so costs are modelled.
const REFERENCE_NS: f64 = 1.0;

/// Nanoseconds of a miss on a page: the fault and the calls that change the page's protection
/// (6 us, design 4.4), and 4096 bytes over a network of 10 Gbit/s and back.
const PAGE_TRANSFER_NS: f64 = 20_000.0;

/// Nanoseconds of a miss on a machine with granules of `bytes` bytes.
const fn miss_ns(bytes: u64) -> f64 {
    if bytes > LARGEST_LINE {
        PAGE_TRANSFER_NS
    } else {
        TYPICAL_TRANSFER_NS
    }
}

const fn misses(of: &Simulated) -> u64 {
    of.cold + of.replacement + of.true_sharing + of.false_sharing
}

/// What the price of a miss depends on.
pub struct Prices<'a> {
    /// Bytes of a granule.
    pub granule: u64,
    /// The counts of each node.
    pub nodes: &'a [Simulated],
    /// The node of each thread.
    pub threads: Vec<(ThreadId, u32)>,
}

/// Computes what the misses of a finding cost the threads that took part, and of which kind the
/// misses were.
pub fn price(finding: &mut findings::Finding, prices: &Prices<'_>) {
    let Some(counts) = finding.simulated else {
        return;
    };
    let moves = (counts.true_sharing + counts.false_sharing) as f64;
    let users = |thread: &&(ThreadId, u32)| {
        let words = finding.lines.iter().flat_map(|line| &line.words);
        let mut threads = words.flat_map(|word| &word.threads).map(|user| user.id);
        match &finding.on_pages {
            Some(pages) => pages.threads.iter().any(|user| user.id == thread.0.0),
            None => threads.any(|user| user == thread.0.0),
        }
    };
    let miss_ns = miss_ns(prices.granule);
    let threads = prices.threads.iter().filter(users);
    let mut nodes: Vec<u32> = threads.map(|(_, node)| *node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let spent: f64 = nodes
        .iter()
        .filter_map(|node| prices.nodes.get(*node as usize))
        .map(|of| of.references as f64 * REFERENCE_NS + misses(of) as f64 * miss_ns)
        .sum();
    if spent > 0.0 {
        finding.cost_percent = (moves * miss_ns / spent * 100.0).min(100.0);
    }
    if moves > 0.0 {
        finding.false_share = counts.false_sharing as f64 / moves;
        finding.sharing = match finding.false_share {
            share if share < MIXED_FROM => Sharing::True,
            share if share > 1.0 - MIXED_FROM => Sharing::False,
            _ => Sharing::Mixed,
        };
    }
}
