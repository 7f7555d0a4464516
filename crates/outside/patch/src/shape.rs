//! What a finding says of the data's parts: which thread uses which element or member. From the
//! finding alone, without any source; the files that know a language turn it into changes.

use std::collections::{BTreeMap, BTreeSet};
use sunder_findings::{Finding, Sharing, Word};

/// The share of a word's accesses that makes a thread its owner; the main thread usually sets to
/// zero what workers use later. The same as in advice.
const OWNER_SHARE: f64 = 0.9;
/// The share of writes up to which a word counts as only read, for the same reason.
const RARE_WRITES: f64 = 0.02;

/// How the threads divide an object among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Two objects lie on one line.
    Neighbours,
    /// Each thread uses elements of its own of the array at `path`.
    Elements { path: Vec<String> },
    /// Each thread uses a run of elements, and runs meet inside lines.
    Slices,
    /// Different threads use different members of the record at `path`. Before each of `breaks`
    /// a line has to begin: the members are those behind which another thread's begin. `ends` are
    /// the first and the last member that the finding names, where the object goes on before and
    /// behind them on other lines.
    Members {
        path: Vec<String>,
        breaks: Vec<String>,
        ends: [Option<String>; 2],
    },
    /// Nothing that a layout could change, or nothing that has a name.
    Other(String),
}

/// A step from an object to a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Member(String),
    Element(u64),
}

/// The threads that use a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// Several threads read it.
    Read,
    /// One thread owns it.
    Owned(u32),
    /// Several threads use it, and some write.
    Shared,
}

struct Part {
    position: i64,
    steps: Vec<Step>,
    group: Group,
    written: bool,
}

impl Shape {
    pub(crate) fn of(finding: &Finding, line: u32) -> Self {
        if finding.sharing == Sharing::True {
            return Self::Other("the threads share the same bytes, which no layout changes".into());
        }
        if finding.neighbour.is_some() {
            return Self::Neighbours;
        }
        // Such as a member of a virtual base class, which may be used by any thread.
        let words = finding.lines.iter().flat_map(|l| &l.words);
        let mut fields = words.filter_map(|word| word.field.as_deref());
        if fields.any(|field| field.ends_with("<unknown>")) {
            return Self::Other("the finding does not name all members that threads use".into());
        }
        let parts = parts(finding, line);
        if parts.is_empty() {
            return Self::Other("the finding does not name the members that threads use".into());
        }
        let element = finding.object.element_size;
        match divide(parts, element, u64::from(line)) {
            Self::Members {
                path,
                breaks,
                ends: [first, last],
            } => {
                let (before, behind) = finding.lies_beyond(line);
                let ends = [first.filter(|_| before), last.filter(|_| behind)];
                Self::Members { path, breaks, ends }
            }
            other => other,
        }
    }
}

/// All members that the finding names: a type without one of them is another type.
pub(crate) fn members(finding: &Finding) -> BTreeSet<String> {
    let parts = parts(finding, 64);
    let names = parts.iter().flat_map(|part| &part.steps);
    names
        .filter_map(|step| match step {
            Step::Member(name) => Some(name.clone()),
            Step::Element(_) => None,
        })
        .collect()
}

fn parts(finding: &Finding, line: u32) -> Vec<Part> {
    let in_turn = finding.sharing == Sharing::False;
    let name = finding.object.name.as_deref().unwrap_or_default();
    let mut parts = Vec::new();
    for (i, l) in finding.lines.iter().enumerate() {
        let base = l.object_offset.unwrap_or(i as i64 * i64::from(line));
        for word in &l.words {
            let Some(steps) = word.field.as_deref().and_then(|f| steps(f, name)) else {
                continue;
            };
            parts.push(Part {
                position: base.saturating_add(i64::from(word.offset)),
                steps,
                group: group(word, in_turn),
                written: is_written(word),
            });
        }
    }
    parts.sort_by_key(|part| part.position);
    parts
}

/// The steps of a path such as `counters[3].hits`, behind the object's own name. `None` for
/// padding, and for bytes that may be of one member or another.
fn steps(field: &str, object: &str) -> Option<Vec<Step>> {
    if field.starts_with('+') || field.contains(['<', '{', '(']) && object.is_empty() {
        return None;
    }
    let leaf = object.rsplit("::").next().unwrap_or(object);
    let rest = [object, leaf]
        .into_iter()
        .filter(|name| !name.is_empty())
        .find_map(|name| {
            let rest = field.strip_prefix(name)?;
            (rest.is_empty() || rest.starts_with(['.', '['])).then_some(rest)
        })
        .unwrap_or(field);
    let mut steps = Vec::new();
    for piece in rest.replace('[', ".[").split('.') {
        match piece {
            // How libraries call what is inside their own types says nothing to the user.
            "" | "_M_elems" | "_M_impl" | "__elems_" => {}
            piece if piece.starts_with('[') => {
                let number = piece.strip_prefix('[')?.strip_suffix(']')?;
                steps.push(Step::Element(number.parse().ok()?));
            }
            piece if piece.contains(['<', '{', '(', '+', ' ']) => return None,
            piece => steps.push(Step::Member(piece.to_owned())),
        }
    }
    Some(steps)
}

fn is_written(word: &Word) -> bool {
    word.stores() as f64 > word.accesses() as f64 * RARE_WRITES
}

fn group(word: &Word, in_turn: bool) -> Group {
    let total = word.accesses() as f64;
    let owns = |n: u64| n > 0 && n as f64 >= total * OWNER_SHARE;
    if let Some(owner) = word.threads.iter().find(|t| owns(t.accesses())) {
        return Group::Owned(owner.id);
    }
    if !is_written(word) {
        return Group::Read;
    }
    // What one thread writes and others read lies well beside what else that thread uses.
    let mut writers = word.threads.iter().filter(|t| t.stores() > 0);
    if let (Some(writer), None) = (writers.next(), writers.next()) {
        return Group::Owned(writer.id);
    }
    // In a finding that is all false sharing, several writers came one after another: threads
    // that a program creates anew for each step.
    let busiest = word
        .threads
        .iter()
        .max_by_key(|t| (t.accesses(), std::cmp::Reverse(t.id)));
    match busiest {
        Some(thread) if in_turn => Group::Owned(thread.id),
        _ => Group::Shared,
    }
}

/// Goes down from the object to the level at which threads part.
fn divide(mut parts: Vec<Part>, element: Option<u64>, line: u64) -> Shape {
    let mut path = Vec::new();
    loop {
        let indexed = parts
            .iter()
            .filter(|part| matches!(part.steps.first(), Some(Step::Element(_))))
            .count();
        if indexed == parts.len() {
            if let Some(owners) = element_owners(&parts) {
                let small = element.is_none_or(|size| size < line);
                return if small && is_in_slices(&owners) {
                    Shape::Slices
                } else {
                    Shape::Elements { path }
                };
            }
        } else if indexed > 0 {
            return Shape::Other(
                "the finding mixes elements of an array with what lies beside them".into(),
            );
        }
        if parts.iter().any(|part| part.steps.is_empty()) {
            return Shape::Other(
                "threads use different bytes of one variable that has no members".into(),
            );
        }
        if indexed == 0 {
            let breaks = breaks_before(&parts);
            if !breaks.is_empty() {
                let member = |part: Option<&Part>| match part.map(|part| &part.steps[0]) {
                    Some(Step::Member(name)) => Some(name.clone()),
                    _ => None,
                };
                let ends = [member(parts.first()), member(parts.last())];
                return Shape::Members { path, breaks, ends };
            }
            let first = parts[0].steps[0].clone();
            if let Step::Member(name) = &first {
                path.push(name.clone());
            }
            if parts.iter().any(|part| part.steps[0] != first) {
                return Shape::Other(
                    "the same threads use all members that the finding names".into(),
                );
            }
        } else {
            // Elements are alike: what threads do in one of them says how to divide all.
            let inside = |part: &Part| match part.steps.get(1) {
                Some(Step::Member(name)) => Some(name.clone()),
                _ => None,
            };
            let mut breaks = BTreeMap::new();
            for at in element_numbers(&parts) {
                let of_one: Vec<Part> = parts
                    .iter()
                    .filter(|p| p.steps.first() == Some(&Step::Element(at)))
                    .filter(|p| inside(p).is_some())
                    .map(|p| Part {
                        position: p.position,
                        steps: p.steps[1..].to_vec(),
                        group: p.group,
                        written: p.written,
                    })
                    .collect();
                for name in breaks_before(&of_one) {
                    let position = of_one
                        .iter()
                        .find(|p| p.steps.first() == Some(&Step::Member(name.clone())))
                        .map_or(0, |p| p.position);
                    breaks.entry(name).or_insert(position);
                }
            }
            if !breaks.is_empty() {
                let breaks = breaks.into_keys().collect();
                let ends = [None, None];
                return Shape::Members { path, breaks, ends };
            }
        }
        for part in &mut parts {
            part.steps.remove(0);
        }
    }
}

fn element_numbers(parts: &[Part]) -> BTreeSet<u64> {
    parts
        .iter()
        .filter_map(|part| match part.steps.first() {
            Some(Step::Element(number)) => Some(*number),
            _ => None,
        })
        .collect()
}

/// The owner of each element, if none has two and at least two threads own one.
fn element_owners(parts: &[Part]) -> Option<BTreeMap<u64, u32>> {
    let mut owners = BTreeMap::new();
    for part in parts {
        let Some(Step::Element(at)) = part.steps.first() else {
            return None;
        };
        match part.group {
            Group::Owned(owner) => {
                if *owners.entry(*at).or_insert(owner) != owner {
                    return None;
                }
            }
            Group::Shared => return None,
            Group::Read => {}
        }
    }
    let threads: BTreeSet<u32> = owners.values().copied().collect();
    (threads.len() >= 2).then_some(owners)
}

/// Whether threads own runs of elements rather than one each.
fn is_in_slices(owners: &BTreeMap<u64, u32>) -> bool {
    let threads: BTreeSet<u32> = owners.values().copied().collect();
    let mut order: Vec<u32> = owners.values().copied().collect();
    order.dedup();
    owners.len() > threads.len() && order.len() == threads.len()
}

/// The members before which a line has to begin: each that another group uses than the member
/// before it. So a break lies behind the last member of one thread, in front of the next one's.
fn breaks_before(parts: &[Part]) -> Vec<String> {
    let mut of_members: Vec<(&str, BTreeSet<Group>, bool)> = Vec::new();
    for part in parts {
        let Some(Step::Member(name)) = part.steps.first() else {
            continue;
        };
        match of_members.last_mut() {
            Some((last, groups, written)) if *last == name => {
                groups.insert(part.group);
                *written |= part.written;
            }
            _ => of_members.push((name, BTreeSet::from([part.group]), part.written)),
        }
    }
    // All threads use a lock and the data that it guards; those that wait take the line away.
    let is_lock = |name: &str| {
        let name = name.to_ascii_lowercase();
        ["lock", "mutex", "mtx", "futex"]
            .iter()
            .any(|l| name.contains(l))
    };
    if let [(lock, ..), (next, .., true), ..] = of_members[..]
        && is_lock(lock)
        && !is_lock(next)
        && of_members[0].1.contains(&Group::Shared)
    {
        return vec![next.to_owned()];
    }
    let all: BTreeSet<Group> = of_members.iter().flat_map(|m| m.1.clone()).collect();
    if all.len() < 2 || !of_members.iter().any(|m| m.2) {
        return Vec::new();
    }
    let mut breaks = Vec::new();
    for pair in of_members.windows(2) {
        let [(_, before, a), (name, after, b)] = pair else {
            continue;
        };
        // Beside each other, data that are only read disturb nobody.
        if before != after && (*a || *b) && !breaks.contains(&(*name).to_owned()) {
            breaks.push((*name).to_owned());
        }
    }
    breaks
}

#[cfg(test)]
mod tests;
