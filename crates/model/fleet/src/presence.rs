//! Whether an object is still there on a machine, is gone, or nobody has looked since. A watch lists what is
//! there; the next one begins knowing nothing, and may look at other processes only.

use crate::builds::LEAST_LOOKS;
use crate::gather::{Gather, NONE, Seen};
use rustc_hash::FxHashMap;

/// What the records of a machine say of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// As the machine told last.
    There,
    /// A record says so, the watch that had listed it lists it no longer, or a later watch has looked at
    /// its program without seeing it.
    Gone,
    /// The watch that saw it has ended, and nobody has looked at its program since.
    NotKnown,
}

/// What is known of an object on a machine.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    is_there: bool,
    /// Whether the watch that told the machine's last list had it in one of its lists.
    was_listed: bool,
    /// The last record of it: when, and whether it is there.
    event: (u64, bool),
    /// When it was seen last.
    seen_unix_ns: u64,
    /// When the last watch began to look at its program that looked often enough.
    looked_unix_ns: u64,
}

/// The presence of each object on each machine that has seen it, by machine and object. `seen` are the
/// sightings by object, build and machine.
pub fn presence(
    all: &Gather,
    seen: &FxHashMap<(u32, u32, u32), Seen>,
) -> FxHashMap<(u32, u32), Presence> {
    let (lists, looks) = (last_lists(all), last_looks(all));
    let mut known: FxHashMap<(u32, u32), Known> = FxHashMap::default();
    for (&(object, build, host), seen) in seen {
        let one = known.entry((host, object)).or_default();
        one.seen_unix_ns = one.seen_unix_ns.max(seen.last_unix_ns);
        let program = (build != NONE).then(|| all.paths[build as usize].as_str());
        let looked = program.and_then(|program| looks.get(&(program, host)));
        one.looked_unix_ns = one.looked_unix_ns.max(looked.copied().unwrap_or(0));
    }
    for (key, cost) in &all.costs {
        let host = all.of_watches[key.watch as usize].host;
        let listed = lists.get(&host).copied().unwrap_or_default();
        let event = all.events.get(&(host, key.object, key.pid));
        let is_gone = event.is_some_and(|&(told, there, _)| told > listed.0 && !there);
        let one = known.entry((host, key.object)).or_default();
        one.was_listed |= key.watch == listed.1;
        one.is_there |= (cost.listed_unix_ns, key.watch) == listed && !is_gone;
    }
    for (&(host, object, _), &(told, is_there, _)) in &all.events {
        let listed = lists.get(&host).map_or(0, |list| list.0);
        let one = known.entry((host, object)).or_default();
        one.is_there |= is_there && told > listed;
        one.event = one.event.max((told, is_there));
    }
    let told = |(&(host, object), one): (&(u32, u32), &Known)| {
        let is_told = one.event.0 >= one.seen_unix_ns && one.event.0 > 0 && !one.event.1;
        let is = if one.is_there {
            Presence::There
        } else if one.was_listed || is_told || one.looked_unix_ns > one.seen_unix_ns {
            Presence::Gone
        } else {
            Presence::NotKnown
        };
        ((host, object), is)
    };
    known.iter().map(told).collect()
}

/// By machine: when the last status with a list was told, and by which watch.
fn last_lists(all: &Gather) -> FxHashMap<u32, (u64, u32)> {
    let mut lists: FxHashMap<u32, (u64, u32)> = FxHashMap::default();
    for (number, watch) in all.of_watches.iter().enumerate() {
        let list = lists.entry(watch.host).or_default();
        *list = (*list).max((watch.listed_unix_ns, number as u32));
    }
    lists
}

/// By program and machine: when the last watch began to look at it that has looked often enough to have
/// seen what is there.
fn last_looks(all: &Gather) -> FxHashMap<(&str, u32), u64> {
    let mut found: FxHashMap<(&str, u32), u64> = FxHashMap::default();
    for (&(build, watch), looks) in &all.looks {
        let (Some(path), Some(of)) = (
            all.paths.get(build as usize),
            all.of_watches.get(watch as usize),
        ) else {
            continue;
        };
        if looks.looks >= LEAST_LOOKS {
            let first = found.entry((path.as_str(), of.host)).or_default();
            *first = (*first).max(looks.first_unix_ns);
        }
    }
    found
}
