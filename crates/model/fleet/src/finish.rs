//! From the tables to the summary.

use crate::builds::{lives, resolved};
use crate::gather::{Gather, Labels, NONE, Seen};
use crate::hosts::hosts;
use crate::objects::{Sums, families, row};
use crate::presence::{Presence, presence};
use crate::summary::{FLEET_SCHEMA, FLEET_VERSION, Fleet, FleetContainer, FleetHost, Reading};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeSet;
use sunder_findings::Answer;

/// Characters of a label that a watch sends.
const LONGEST_LABEL: usize = 160;
/// Less than this is an error of rounding.
const LEAST_SECONDS: f64 = 1e-6;

/// Sightings by object, build and machine.
type Sightings = FxHashMap<(u32, u32, u32), Seen>;

/// Seconds of an object on a machine.
struct Spent {
    object: u32,
    host: u32,
    build: u32,
    container: u32,
    program: u32,
    seconds: f64,
}

impl Gather {
    /// Sums up. `reading`: what the caller counted while it read.
    pub fn finish(mut self, reading: Reading) -> Fleet {
        self.reading = Reading {
            records: self.reading.records,
            left_out: self.reading.left_out,
            ..reading
        };
        sum_up(&self)
    }
}

fn sum_up(all: &Gather) -> Fleet {
    let seen = resolved(all);
    let lives = lives(all, &seen);
    let (spent, unnamed) = spent(all, &seen);
    let mut sums: Vec<Sums> = Vec::new();
    sums.resize_with(all.known.len(), Sums::default);
    for (&(object, build, host), &one) in &seen {
        sums[object as usize].seen.push((build, host, one));
    }
    for one in &spent {
        *sums[one.object as usize].lost.entry(one.build).or_default() += one.seconds;
    }
    for &(host, object, pid) in all.events.keys() {
        sums[object as usize].processes.insert((host, pid));
    }
    for key in all.costs.keys() {
        let host = all.of_watches[key.watch as usize].host;
        sums[key.object as usize].processes.insert((host, key.pid));
    }
    for ((host, object), is) in presence(all, &seen) {
        let sum = &mut sums[object as usize];
        match is {
            Presence::There => {
                sum.there_on.insert(host);
            }
            Presence::NotKnown => {
                sum.not_looked_at_on.insert(host);
            }
            Presence::Gone => {}
        }
    }
    let mut hosts = hosts(all);
    count_objects(&mut hosts, &sums);
    for one in &spent {
        hosts[one.host as usize].lost_seconds += one.seconds;
    }
    for (host, seconds) in unnamed.iter() {
        hosts[*host as usize].lost_seconds += seconds;
    }
    let families = families(all);
    let mut objects: Vec<_> = (0..all.known.len() as u32)
        .filter(|&object| !sums[object as usize].seen.is_empty())
        .map(|object| row(all, object, &sums[object as usize], &families, &lives))
        .collect();
    objects.sort_by(|a, b| {
        b.lost_seconds
            .total_cmp(&a.lost_seconds)
            .then(b.cost_percent.total_cmp(&a.cost_percent))
            .then_with(|| a.fingerprint.cmp(&b.fingerprint))
    });
    let unnamed: f64 = unnamed.iter().map(|(_, seconds)| seconds).sum();
    let containers = containers(all, &spent);
    hosts.sort_by(|a, b| {
        b.lost_seconds
            .total_cmp(&a.lost_seconds)
            .then_with(|| a.host.cmp(&b.host))
    });
    let has_looked = hosts.iter().any(FleetHost::has_looked);
    Fleet {
        schema: FLEET_SCHEMA,
        version: FLEET_VERSION,
        tool: env!("CARGO_PKG_VERSION"),
        answer: match objects.is_empty() {
            false => Answer::Found,
            true if unnamed > 0.0 => Answer::Found,
            true if has_looked => Answer::None,
            true => Answer::Inconclusive,
        },
        first_unix_ns: hosts.iter().map(|h| h.first_unix_ns).min().unwrap_or(0),
        last_unix_ns: hosts.iter().map(|h| h.last_unix_ns).max().unwrap_or(0),
        lost_seconds: objects.iter().map(|o| o.lost_seconds).sum::<f64>() + unnamed,
        unnamed_lost_seconds: unnamed,
        objects,
        hosts,
        containers,
        reading: all.reading.clone(),
    }
}

/// How many objects were seen, and are there, on each machine.
fn count_objects(hosts: &mut [FleetHost], sums: &[Sums]) {
    for sum in sums {
        let seen_on: FxHashSet<u32> = sum.seen.iter().map(|one| one.1).collect();
        for host in seen_on {
            hosts[host as usize].objects += 1;
        }
        for &host in &sum.there_on {
            hosts[host as usize].there += 1;
        }
    }
}

/// What objects cost, and by machine what can't be given to one.
fn spent(all: &Gather, seen: &Sightings) -> (Vec<Spent>, Vec<(u32, f64)>) {
    let mut spent: Vec<Spent> = all
        .costs
        .iter()
        .map(|(key, cost)| {
            let host = all.of_watches[key.watch as usize].host;
            let event = all.events.get(&(host, key.object, key.pid));
            let build = match (cost.build, event) {
                (NONE, Some(&(.., build))) => build,
                (known, _) => known,
            };
            Spent {
                object: key.object,
                host,
                build,
                container: cost.container,
                program: cost.program,
                seconds: cost.lost_seconds,
            }
        })
        .collect();
    let mut unnamed = Vec::new();
    if !all.figures.is_empty() {
        let by_labels = Labelled::new(all, seen);
        for (&watch, figures) in &all.figures {
            by_labels.rest(all, watch, figures, &mut spent, &mut unnamed);
        }
    }
    // Sums of floating-point numbers depend on their order, and that of a table is not fixed.
    spent.sort_by(|a, b| {
        let key = |s: &Spent| (s.object, s.host, s.build, s.container);
        key(a).cmp(&key(b)).then(a.seconds.total_cmp(&b.seconds))
    });
    unnamed.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    (spent, unnamed)
}

/// Which object figures without a fingerprint mean.
struct Labelled {
    objects: FxHashMap<(String, String), Vec<u32>>,
    builds: FxHashMap<(u32, u32), Vec<u32>>,
    /// CPU seconds by watch and labels, as statuses told them.
    told: FxHashMap<(u32, Labels), f64>,
}

fn label(text: &str) -> String {
    text.chars().take(LONGEST_LABEL).collect()
}

impl Labelled {
    fn new(all: &Gather, seen: &Sightings) -> Self {
        let mut objects: FxHashMap<(String, String), Vec<u32>> = FxHashMap::default();
        for (object, known) in all.known.iter().enumerate() {
            let labels = (label(&known.program), label(&known.object));
            objects.entry(labels).or_default().push(object as u32);
        }
        let mut builds: FxHashMap<(u32, u32), Vec<u32>> = FxHashMap::default();
        for &(object, build, host) in seen.keys() {
            builds.entry((object, host)).or_default().push(build);
        }
        let mut told: FxHashMap<(u32, Labels), f64> = FxHashMap::default();
        let figured = all
            .costs
            .iter()
            .filter(|(key, _)| all.figures.contains_key(&key.watch));
        for (key, cost) in figured {
            let known = &all.known[key.object as usize];
            let name = |names: &crate::names::Names<String>, number| match number {
                NONE => String::new(),
                number => label(names.key(number)),
            };
            let labels = (
                name(&all.programs, cost.program),
                label(&known.object),
                name(&all.containers, cost.container),
            );
            *told.entry((key.watch, labels)).or_default() += cost.lost_seconds;
        }
        Self {
            objects,
            builds,
            told,
        }
    }

    /// Both statuses and figures tell at least what they have seen of a watch. So the larger of the two
    /// holds, and what the figures have beyond the statuses is added.
    fn rest(
        &self,
        all: &Gather,
        watch: u32,
        figures: &FxHashMap<Labels, f64>,
        spent: &mut Vec<Spent>,
        unnamed: &mut Vec<(u32, f64)>,
    ) {
        let host = all.of_watches[watch as usize].host;
        for (labels, &figure) in figures {
            let told = self
                .told
                .get(&(watch, labels.clone()))
                .copied()
                .unwrap_or(0.0);
            let seconds = figure - told;
            if seconds < LEAST_SECONDS {
                continue;
            }
            let (program, object, container) = labels;
            let candidates = self.objects.get(&(program.clone(), object.clone()));
            let candidates = candidates.map_or(&[][..], Vec::as_slice);
            // Of several with one description, that which was seen on this machine.
            let mut here = candidates
                .iter()
                .filter(|&&one| self.builds.contains_key(&(one, host)));
            let (Some(&object), None) = (here.next(), here.next()) else {
                unnamed.push((host, seconds));
                continue;
            };
            let build = match self.builds.get(&(object, host)).map(Vec::as_slice) {
                Some(&[one]) => one,
                _ => NONE,
            };
            spent.push(Spent {
                object,
                host,
                build,
                container: all.containers.known(container).unwrap_or(NONE),
                program: all.programs.known(program).unwrap_or(NONE),
                seconds,
            });
        }
    }
}

/// What a container has lost on a machine.
#[derive(Default)]
struct InContainer {
    seconds: f64,
    programs: BTreeSet<u32>,
    objects: BTreeSet<u32>,
}

fn containers(all: &Gather, spent: &[Spent]) -> Vec<FleetContainer> {
    let mut sums: FxHashMap<(u32, u32), InContainer> = FxHashMap::default();
    for one in spent.iter().filter(|one| one.container != NONE) {
        let sum = sums.entry((one.container, one.host)).or_default();
        sum.seconds += one.seconds;
        sum.programs.insert(one.program);
        sum.objects.insert(one.object);
    }
    let row = |((container, host), sum): ((u32, u32), InContainer)| FleetContainer {
        container: all.containers.key(container).clone(),
        host: all.hosts.key(host).clone(),
        programs: sum
            .programs
            .into_iter()
            .filter(|&program| program != NONE)
            .map(|program| all.programs.key(program).clone())
            .collect(),
        lost_seconds: sum.seconds,
        objects: sum.objects.len() as u64,
    };
    let mut rows: Vec<FleetContainer> = sums.into_iter().map(row).collect();
    rows.sort_by(|a, b| {
        b.lost_seconds
            .total_cmp(&a.lost_seconds)
            .then_with(|| (&a.container, &a.host).cmp(&(&b.container, &b.host)))
    });
    rows
}
