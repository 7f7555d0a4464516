//! Advice for fields of one object that different threads use.

use crate::layout::{Layout, Part};
use crate::truly_shared::is_lock;
use crate::words::{counted, quoted, short_list};
use std::collections::BTreeSet;
use sunder_findings::{Advice, Finding, Fix};

/// The threads that use a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// Several threads read it.
    Read,
    /// One thread owns it, by number.
    Owned(u32),
    /// Several threads use it, and some write.
    Shared,
}

impl Group {
    fn of(part: &Part) -> Self {
        match part.owner() {
            Some(owner) => Self::Owned(owner),
            None if part.written() => Self::Shared,
            None => Self::Read,
        }
    }
}

/// Advice for fields that belong to different threads; `None` if the fields have no names, or
/// if different threads do not have different fields.
pub(crate) fn advise(layout: &Layout) -> Option<Vec<Advice>> {
    let named = layout.parts.iter().any(|p| p.declared().is_some());
    let groups: BTreeSet<Group> = layout.parts.iter().map(Group::of).collect();
    if !named || groups.len() < 2 {
        return None;
    }
    lock_beside_data(layout)
        .or_else(|| one_writer(layout).map(|a| vec![a]))
        .or_else(|| Some(vec![separate(layout, &groups)]))
}

/// The names of the fields that `pick` selects, by position.
fn members(layout: &Layout, pick: impl Fn(&Part) -> bool) -> Vec<String> {
    let mut seen = BTreeSet::new();
    layout
        .parts
        .iter()
        .filter(|p| pick(p))
        .map(|p| p.called(layout))
        .filter(|name| seen.insert(name.clone()))
        .collect()
}

fn separate(layout: &Layout, groups: &BTreeSet<Group>) -> Advice {
    let described: Vec<String> = groups
        .iter()
        .map(|&group| {
            let fields = short_list(&members(layout, |p| Group::of(p) == group), 4);
            match group {
                Group::Read => format!("{fields} (read by several threads)"),
                Group::Owned(thread) => format!("{fields} ({})", layout.thread(thread)),
                Group::Shared => format!("{fields} (written by several threads)"),
            }
        })
        .collect();
    let breaks: Vec<String> = first_fields(layout)
        .into_iter()
        .skip(1)
        .map(|f| layout.language.before_field(leaf(&f), layout.line_size))
        .collect();
    let regroup = if in_order(layout) {
        ""
    } else {
        "first bring the fields of each thread together, then "
    };
    Advice {
        fix: Fix::Separate,
        text: format!(
            "Different threads use fields of {}{}: {}. Put them on different lines: {regroup}{}.",
            quoted(layout.finding.object.short_name()),
            layout.origin(),
            short_list(&described, 6),
            short_list(&breaks, 4),
        ),
        grows_by: growth(layout),
    }
}

/// For one thread that writes beside fields that the others only read (which SHERIFF could not
/// see, section 4.8).
fn one_writer(layout: &Layout) -> Option<Advice> {
    let writers: BTreeSet<u32> = layout
        .parts
        .iter()
        .filter(|p| p.written())
        .map(Part::owner)
        .collect::<Option<_>>()?;
    let [writer] = writers.into_iter().collect::<Vec<_>>()[..] else {
        return None;
    };
    let theirs = members(layout, |p| p.written());
    let read = members(layout, |p| !p.written() && p.owner() != Some(writer));
    if read.is_empty() {
        return None;
    }
    let readers: BTreeSet<u32> = layout
        .parts
        .iter()
        .filter(|p| !p.written())
        .flat_map(|p| &p.word.threads)
        .map(|t| t.id)
        .filter(|&t| t != writer)
        .collect();
    let first = layout.parts.iter().find(|p| p.written())?;
    let name = first.declared()?;
    Some(Advice {
        fix: Fix::Separate,
        text: format!(
            "Only {} writes {}, but each write takes the line away from {} that read {}. Move {} \
             off the readers' line{}: {}; or group the fields that are mostly read, away from it.",
            layout.thread(writer),
            short_list(&theirs, 4),
            counted(readers.len(), "thread"),
            short_list(&read, 4),
            if theirs.len() == 1 { "it" } else { "them" },
            layout.origin(),
            layout.language.before_field(leaf(name), layout.line_size),
        ),
        grows_by: growth(layout),
    })
}

/// For a lock on the line of the data that it guards. Whether that is right depends on how
/// often threads wait for it.
pub(crate) fn lock_beside_data(layout: &Layout) -> Option<Vec<Advice>> {
    let lock = layout
        .parts
        .iter()
        .find(|p| p.truly_shared() && is_lock(layout, p))?;
    let guarded = members(layout, |p| !is_lock(layout, p) && p.written());
    if guarded.is_empty() {
        return None;
    }
    let name = lock.called(layout);
    let first = layout
        .parts
        .iter()
        .find(|p| !is_lock(layout, p) && p.written())?;
    let how = first.declared().map_or_else(
        || {
            format!(
                "let the data start a new line of {} bytes",
                layout.line_size
            )
        },
        |f| layout.language.before_field(leaf(f), layout.line_size),
    );
    Some(vec![Advice {
        fix: Fix::Separate,
        text: format!(
            "{name} of `{}`{} lies on the line of {}. That is right while threads seldom wait for it: one \
             transfer brings lock and data. Here {}: {how}, so that waiting threads do not take \
             the line from the one that holds the lock.",
            layout.finding.object.short_name(),
            layout.origin(),
            short_list(&guarded, 4),
            waiting(layout.finding),
        ),
        grows_by: growth(layout),
    }])
}

fn waiting(finding: &Finding) -> String {
    let rate = finding.interleavings_per_second.max(0.0);
    let rate = if rate >= 1e6 {
        format!("{:.1} million", rate / 1e6)
    } else if rate >= 1e4 {
        format!("{:.0} thousand", rate / 1e3)
    } else {
        format!("{rate:.0}")
    };
    format!("the line changes hands {rate} times a second, so if they do wait, separate them")
}

/// The last component of a path, which is the name in the declaration.
fn leaf(field: &str) -> &str {
    field.rsplit('.').next().unwrap_or(field)
}

/// The first field of each group, by position.
fn first_fields(layout: &Layout) -> Vec<String> {
    let mut seen = BTreeSet::new();
    layout
        .parts
        .iter()
        .filter(|p| seen.insert(Group::of(p)))
        .filter_map(|p| p.declared().map(ToOwned::to_owned))
        .collect()
}

/// Whether the fields of each group lie together.
fn in_order(layout: &Layout) -> bool {
    let mut order: Vec<Group> = layout.parts.iter().map(Group::of).collect();
    let distinct = order.iter().collect::<BTreeSet<_>>().len();
    order.dedup();
    order.len() == distinct
}

/// An estimate of the bytes by which the object grows if each group gets whole lines. Bytes
/// that no thread was seen to use count for the group before them.
fn growth(layout: &Layout) -> Option<u64> {
    let size = layout.finding.object.size?;
    let mut extents: Vec<(Group, u64)> = Vec::new();
    for (i, part) in layout.parts.iter().enumerate() {
        let start = if i == 0 {
            0
        } else {
            u64::try_from(part.position).ok()?
        };
        let end = layout
            .parts
            .get(i + 1)
            .map_or(Some(size), |next| u64::try_from(next.position).ok())?;
        let group = Group::of(part);
        let extent = end.saturating_sub(start);
        match extents.iter_mut().find(|(g, _)| *g == group) {
            Some((_, sum)) => *sum = sum.saturating_add(extent),
            None => extents.push((group, extent)),
        }
    }
    let grown = extents.iter().fold(0_u64, |sum, &(_, e)| {
        sum.saturating_add(layout.whole_lines(e))
    });
    Some(grown.saturating_sub(size))
}
