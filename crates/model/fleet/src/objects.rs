//! One object over all machines and builds.

use crate::builds::{Life, family, sort, steps};
use crate::gather::{Build, Gather, NONE, Seen};
use crate::summary::{BuildCost, FleetObject};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;

/// The most builds of an object that are listed: the last ones.
const MOST_BUILDS: usize = 40;

/// What is known of all objects, by object.
#[derive(Debug, Default)]
pub struct Sums {
    /// CPU seconds by build, or [`NONE`].
    pub lost: FxHashMap<u32, f64>,
    /// The machines on which it is there.
    pub there_on: FxHashSet<u32>,
    /// Those on which nobody has looked since it was seen.
    pub not_looked_at_on: FxHashSet<u32>,
    /// Machines and processes.
    pub processes: FxHashSet<(u32, u32)>,
    /// Builds and machines.
    pub seen: Vec<(u32, u32, Seen)>,
}

/// Builds by family.
pub type Families = FxHashMap<String, Vec<u32>>;

/// All builds by family; those of no object too.
pub fn families(all: &Gather) -> Families {
    let mut families = Families::default();
    for (build, path) in all.paths.iter().enumerate() {
        families.entry(family(path)).or_default().push(build as u32);
    }
    families
}

/// The object's row.
pub fn row(
    all: &Gather,
    object: u32,
    sums: &Sums,
    families: &Families,
    lives: &[Life],
) -> FleetObject {
    let known = &all.known[object as usize];
    let own: BTreeSet<u32> = sums
        .seen
        .iter()
        .map(|&(build, ..)| build)
        .filter(|&build| build != NONE)
        .collect();
    let (builds, more_builds) = builds(all, &own, sums, families, lives);
    let mut programs: BTreeSet<String> = own
        .iter()
        .map(|&build| sunder_findings::file_name(&all.paths[build as usize]).to_owned())
        .collect();
    if programs.is_empty() {
        programs.insert(known.program.clone());
    }
    let mut last_of_hosts: FxHashMap<u32, (u64, f64)> = FxHashMap::default();
    for (_, host, seen) in &sums.seen {
        let last = last_of_hosts.entry(*host).or_default();
        if seen.last_unix_ns >= last.0 {
            *last = (seen.last_unix_ns, seen.cost_percent);
        }
    }
    let costs: Vec<f64> = last_of_hosts.values().map(|last| last.1).collect();
    FleetObject {
        fingerprint: known.fingerprint.clone(),
        object: known.object.clone(),
        sharing: known.sharing,
        place: known.place.clone(),
        advice: known.advice.clone(),
        programs: programs.into_iter().collect(),
        lost_seconds: sums.lost.values().sum(),
        highest_percent: costs.iter().copied().fold(0.0, f64::max),
        cost_percent: middle(costs).unwrap_or(0.0),
        hosts: last_of_hosts.len() as u64,
        there_on: sums.there_on.len() as u64,
        not_looked_at_on: sums.not_looked_at_on.len() as u64,
        processes: sums.processes.len() as u64,
        first_unix_ns: sums
            .seen
            .iter()
            .map(|s| s.2.first_unix_ns)
            .min()
            .unwrap_or(0),
        last_unix_ns: sums
            .seen
            .iter()
            .map(|s| s.2.last_unix_ns)
            .max()
            .unwrap_or(0),
        builds,
        more_builds,
    }
}

/// The builds of the object's programs, in their order, and how many are left out.
fn builds(
    all: &Gather,
    own: &BTreeSet<u32>,
    sums: &Sums,
    families: &Families,
    lives: &[Life],
) -> (Vec<BuildCost>, u64) {
    let of_families: BTreeSet<String> = own
        .iter()
        .map(|&build| family(&all.paths[build as usize]))
        .collect();
    let mut builds: Vec<u32> = of_families
        .iter()
        .filter_map(|family| families.get(family))
        .flatten()
        .copied()
        .filter(|&build| !lives[build as usize].first_on.is_empty())
        .collect();
    // Very many are a build for each machine or each process: comparing all pairs would not end.
    let most = MOST_BUILDS * 4;
    let mut more = 0;
    if builds.len() > most {
        builds.sort_by_key(|&build| lives[build as usize].first_unix_ns);
        more += (builds.len() - most) as u64;
        builds.drain(..builds.len() - most);
    }
    sort(&mut builds, lives);
    let costs: Vec<(Option<f64>, u64)> = builds
        .iter()
        .map(|&build| {
            let of_build = sums.seen.iter().filter(|(one, ..)| *one == build);
            let costs = of_build.map(|(.., seen)| seen.cost_percent).collect();
            (middle(costs), lives[build as usize].looks)
        })
        .collect();
    let mut rows: Vec<BuildCost> = builds
        .iter()
        .zip(&costs)
        .zip(steps(&costs))
        .map(|((&build, &(cost_percent, looks)), step)| {
            let life = &lives[build as usize];
            BuildCost {
                build_id: match all.builds.key(build) {
                    Build::Id(id) => Some(id.clone()),
                    Build::Path(_) => None,
                },
                version: all.versions.get(&build).map(|(_, version)| version.clone()),
                path: all.paths[build as usize].clone(),
                hosts: life.first_on.len() as u64,
                looks,
                first_unix_ns: life.first_unix_ns,
                last_unix_ns: life.last_unix_ns,
                cost_percent,
                lost_seconds: sums.lost.get(&build).copied().unwrap_or(0.0),
                step,
            }
        })
        .collect();
    let left_out = rows.len().saturating_sub(MOST_BUILDS);
    rows.drain(..left_out);
    (rows, more + left_out as u64)
}

/// The middle one of some figures; of an even number the lower one of the two.
fn middle(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let at = figures.len().checked_sub(1)? / 2;
    figures.get(at).copied()
}
