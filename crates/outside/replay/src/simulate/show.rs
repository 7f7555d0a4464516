//! Converts the simulation's figures to the result's schema.

use super::layout::{Layout, page_for};
use super::machine::Machine;
use super::replay::Replayed;
use sunder_coherence::{CacheSize, Caches, Counts, Outcome, Protocol};
use sunder_findings as findings;

/// The counts of a whole replay. They are sums over granules, so those of parts of a trace add up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Accesses made.
    pub accesses: u64,
    /// Granules touched.
    pub granules: u64,
    /// The counts of each node.
    pub nodes: Vec<findings::Simulated>,
}

impl Tally {
    /// The counts of a replay.
    pub fn of(outcome: &Outcome) -> Self {
        Self {
            accesses: outcome.accesses(),
            granules: outcome.touched() as u64,
            nodes: outcome.nodes().iter().map(counts).collect(),
        }
    }
}

/// The machine and its totals.
pub fn simulation(machine: &Machine, tally: Tally, seconds: f64) -> findings::Simulation {
    let config = &machine.config;
    let totals = tally.nodes.iter().copied().reduce(|a, b| a + b);
    findings::Simulation {
        granule: config.granule,
        nodes: config.nodes,
        protocol: match config.protocol {
            Protocol::Msi => "MSI",
            Protocol::Mesif => "MESIF",
            _ => "MESI",
        }
        .into(),
        caches: caches(config.caches),
        accesses: tally.accesses,
        granules: tally.granules,
        seconds,
        totals: totals.unwrap_or_default(),
        by_node: tally.nodes,
        heap_only: machine.heap_only,
        placement: None,
    }
}

/// The placement of objects, if any was moved.
pub fn placement(
    machine: &Machine,
    layout: &Layout,
    replayed: &Replayed,
) -> Option<findings::Placement> {
    let (stats, figures) = replayed.placed.filter(|_| !layout.is_actual())?;
    Some(findings::Placement {
        policy: layout.policy_name().into(),
        changes: layout.changes.clone(),
        page: page_for(machine.config.granule),
        allocations: stats.allocations,
        requested_bytes: stats.pages.bytes,
        peak_bytes: stats.peak_bytes,
        buckets: stats.pages.buckets,
        pages: stats.pages.with_buckets,
        general_pages: stats.pages.general(),
        additional_pages: stats.pages.additional(),
        reached_pages: stats.reached_pages,
        grown_bytes: figures.grown,
        unplaced: figures.unplaced,
    })
}

fn caches(caches: Caches) -> String {
    match caches {
        Caches::Private { l1, l2 } => {
            let second = l2.map(|l2| format!(", {}", size(l2))).unwrap_or_default();
            format!("{}{second}", size(l1))
        }
        _ => "infinite".into(),
    }
}

fn size(cache: CacheSize) -> String {
    let bytes = match cache.bytes {
        b if b % (1 << 20) == 0 => format!("{} MiB", b >> 20),
        b if b % (1 << 10) == 0 => format!("{} KiB", b >> 10),
        b => format!("{b} bytes"),
    };
    format!("{bytes} in {} ways", cache.ways)
}

/// The counts of a node, a granule or the machine.
pub fn counts(of: &Counts) -> findings::Simulated {
    findings::Simulated {
        references: of.references,
        hits: of.hits(),
        cold: of.cold,
        replacement: of.replacement,
        true_sharing: of.true_sharing,
        false_sharing: of.false_sharing,
        upgrades: of.upgrades,
        invalidations: of.invalidations,
        hitm: of.hitm,
        forwards: of.forwards,
        write_backs: of.write_backs,
    }
}
