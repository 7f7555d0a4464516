//! Builds of one program: which belong together, in which order they appeared, and what each of them
//! changed.

use crate::gather::{Gather, NONE, Seen};
use crate::summary::Step;
use rustc_hash::FxHashMap;

/// So many looks that do not show an object say that it is not there; as for the watch itself, one alone
/// may be chance.
pub(crate) const LEAST_LOOKS: u64 = 2;
/// From this factor on, and from so many points of percent, a cost has changed: the watch's own bounds.
const FACTOR: f64 = 2.0;
const LEAST_CHANGE: f64 = 2.0;
/// So many hexadecimal digits in a row, with a decimal one among them, may be a hash.
const LEAST_OF_HASH: usize = 7;

/// A path without what differs between releases: numbers, and parts that look like hashes. Files of one
/// program have the same.
pub fn family(path: &str) -> String {
    let is_hash = |part: &str| {
        part.len() >= LEAST_OF_HASH
            && part.bytes().all(|b| b.is_ascii_hexdigit())
            && part.bytes().any(|b| b.is_ascii_digit())
    };
    let mut out = String::new();
    let mut rest = path;
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric())
            .unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        if is_hash(part) {
            out.push('#');
        } else {
            let mut digits = false;
            for c in part.chars() {
                if !c.is_ascii_digit() {
                    out.push(c);
                } else if !digits {
                    out.push('#');
                }
                digits = c.is_ascii_digit();
            }
        }
        let mut others = after.chars();
        if let Some(other) = others.next() {
            out.push(other);
        }
        rest = others.as_str();
    }
    out
}

/// When a build was seen, whether or not anything was found in it.
#[derive(Clone, Debug, Default)]
pub struct Life {
    /// When it was seen first, by machine.
    pub first_on: FxHashMap<u32, u64>,
    pub first_unix_ns: u64,
    pub last_unix_ns: u64,
    pub looks: u64,
}

impl Life {
    fn add(&mut self, host: u32, first: u64, last: u64) {
        if self.first_on.is_empty() {
            (self.first_unix_ns, self.last_unix_ns) = (first, last);
        }
        let on_host = self.first_on.entry(host).or_insert(first);
        *on_host = first.min(*on_host);
        self.first_unix_ns = self.first_unix_ns.min(first);
        self.last_unix_ns = self.last_unix_ns.max(last);
    }
}

/// The life of each build.
pub fn lives(all: &Gather, seen: &FxHashMap<(u32, u32, u32), Seen>) -> Vec<Life> {
    let mut lives = vec![Life::default(); all.builds.len()];
    for (&(build, watch), looks) in &all.looks {
        if let Some(life) = lives.get_mut(build as usize) {
            let host = all.of_watches[watch as usize].host;
            life.add(host, looks.first_unix_ns, looks.last_unix_ns);
            life.looks = life.looks.saturating_add(looks.looks);
        }
    }
    for (&(_, build, host), seen) in seen {
        if let Some(life) = lives.get_mut(build as usize) {
            life.add(host, seen.first_unix_ns, seen.last_unix_ns);
        }
    }
    lives
}

/// Sightings with the builds that the status alone did not tell: those of the records of findings.
pub fn resolved(all: &Gather) -> FxHashMap<(u32, u32, u32), Seen> {
    let mut seen = all.seen.clone();
    let unknown: Vec<_> = seen.keys().filter(|key| key.1 == NONE).copied().collect();
    if unknown.is_empty() {
        return seen;
    }
    let mut known: FxHashMap<(u32, u32), Option<u32>> = FxHashMap::default();
    for &(object, build, host) in seen.keys().filter(|key| key.1 != NONE) {
        let of = known.entry((object, host)).or_insert(Some(build));
        // Of two it can't be told which.
        *of = of.filter(|&one| one == build);
    }
    for key in unknown {
        let (object, _, host) = key;
        let Some(&Some(build)) = known.get(&(object, host)) else {
            continue;
        };
        if let (Some(told), Some(of)) = (seen.remove(&key), seen.get_mut(&(object, build, host))) {
            if told.last_unix_ns >= of.last_unix_ns {
                of.cost_percent = told.cost_percent;
            }
            of.first_unix_ns = of.first_unix_ns.min(told.first_unix_ns);
            of.last_unix_ns = of.last_unix_ns.max(told.last_unix_ns);
        }
    }
    seen
}

/// Sorts builds by when they appeared. Which of two came first, the machines say that had both, each by
/// its own clock; the majority counts. Only where no machine had both, the clocks of several are compared.
pub fn sort(builds: &mut [u32], lives: &[Life]) {
    let count = builds.len();
    let life = |at: usize| &lives[builds[at] as usize];
    let mut wins = vec![0_i64; count];
    for one in 0..count {
        for other in one + 1..count {
            let mut earlier = 0_i64;
            for (host, first) in &life(one).first_on {
                if let Some(second) = life(other).first_on.get(host) {
                    earlier += match first.cmp(second) {
                        std::cmp::Ordering::Less => 1,
                        std::cmp::Ordering::Equal => 0,
                        std::cmp::Ordering::Greater => -1,
                    };
                }
            }
            if earlier == 0 {
                let (first, second) = (life(one).first_unix_ns, life(other).first_unix_ns);
                earlier = if first <= second { 1 } else { -1 };
            }
            wins[if earlier > 0 { one } else { other }] += 1;
        }
    }
    let mut order: Vec<(i64, u64, u32)> = (0..count)
        .map(|at| (-wins[at], life(at).first_unix_ns, builds[at]))
        .collect();
    order.sort_unstable();
    for (place, (_, _, build)) in builds.iter_mut().zip(order) {
        *place = build;
    }
}

/// What each of some builds, in their order, changed: from the cost in each, if the object was seen, and
/// the number of looks.
pub fn steps(builds: &[(Option<f64>, u64)]) -> Vec<Step> {
    /// What is known of the builds before.
    #[derive(Clone, Copy)]
    enum Before {
        Nothing,
        NeverSeen,
        Costs(f64),
        GoneAgain,
    }
    let mut before = Before::Nothing;
    let step = |&(cost, looks): &(Option<f64>, u64)| {
        let (step, now) = match (before, cost) {
            (_, None) if looks < LEAST_LOOKS => (Step::Unknown, before),
            (Before::Nothing, Some(now)) => (Step::First, Before::Costs(now)),
            (Before::Nothing | Before::NeverSeen, None) => (Step::NotYet, Before::NeverSeen),
            (Before::NeverSeen | Before::GoneAgain, Some(now)) => {
                (Step::Brought, Before::Costs(now))
            }
            (Before::Costs(_), None) => (Step::Mended, Before::GoneAgain),
            (Before::GoneAgain, None) => (Step::StillAbsent, Before::GoneAgain),
            (Before::Costs(old), Some(now)) => (changed(old, now), Before::Costs(now)),
        };
        before = now;
        step
    };
    builds.iter().map(step).collect()
}

fn changed(old: f64, new: f64) -> Step {
    let factor = old.max(new) / old.min(new).max(f64::MIN_POSITIVE);
    if factor < FACTOR || (old - new).abs() < LEAST_CHANGE {
        Step::Same
    } else if new > old {
        Step::Grew
    } else {
        Step::Shrank
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_releases_are_one_family_and_other_programs_are_not() {
        assert_eq!(
            family("/srv/app-1.12.3/server"),
            family("/srv/app-2.0.0/server")
        );
        assert_eq!(
            family("/opt/8c1f09ab2d/bin/server"),
            family("/opt/77d0e1f3aa/bin/server")
        );
        assert_eq!(family("/srv/app-1.2/server"), "/srv/app-#.#/server");
        assert_ne!(family("/srv/one/server"), family("/srv/two/server"));
        assert_ne!(family("/srv/a/deadbeef/x"), family("/srv/a/facade/x"));
    }

    #[test]
    fn each_build_is_compared_with_the_last_one_that_says_something() {
        use Step::{Brought, First, Grew, Mended, NotYet, Same, Shrank, StillAbsent, Unknown};
        let (none, few) = ((None, 9), (None, 1));
        let at = |percent| (Some(percent), 9);
        assert_eq!(
            steps(&[at(10.0), at(19.0), at(40.0), at(5.0)]),
            [First, Same, Grew, Shrank]
        );
        assert_eq!(
            steps(&[none, few, at(3.0), none, none]),
            [NotYet, Unknown, Brought, Mended, StillAbsent]
        );
        // One look does not show that it is gone.
        assert_eq!(
            steps(&[at(4.0), few, at(4.5), none, at(4.0)]),
            [First, Unknown, Same, Mended, Brought]
        );
        // A factor of two, and less than two points.
        assert_eq!(steps(&[at(1.0), at(2.5)]), [First, Same]);
    }

    #[test]
    fn a_machine_that_had_both_builds_knows_their_order_whatever_its_clock_says() {
        let life = |on: &[(u32, u64)]| {
            let mut life = Life::default();
            on.iter()
                .for_each(|&(host, first)| life.add(host, first, first));
            life
        };
        // Machine 2 is a year behind: by its clock the new build came before the old one elsewhere.
        let lives = [
            life(&[(1, 1_050), (2, 90)]),
            life(&[(1, 1_000), (2, 50)]),
            life(&[(3, 60)]),
        ];
        let mut builds = [0, 1];
        sort(&mut builds, &lives);
        assert_eq!(builds, [1, 0]);
        // No machine had both: times decide.
        let mut builds = [0, 2];
        sort(&mut builds, &lives);
        assert_eq!(builds, [2, 0]);
    }
}
