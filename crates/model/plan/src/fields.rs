//! Advice for fields of one object that different threads use.

use crate::breaks::breaks;
use crate::called::called;
use crate::language::Language;
use crate::layout::{Layout, Part};
use crate::place;
use crate::truly_shared::is_lock;
use crate::words::{counted, list, quoted, short_list};
use std::collections::{BTreeMap, BTreeSet};
use sunder_findings::{Advice, Finding, Fix};

/// The threads that use a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// Several threads read it.
    Read,
    /// One thread owns it, by number.
    Owned(u32),
    /// One thread writes it, by number, and others read it.
    Published(u32),
    /// Several threads write it.
    Shared,
}

impl Group {
    fn of(part: &Part) -> Self {
        if let Some(owner) = part.owner().or_else(|| nearly_sole_owner(part)) {
            return Self::Owned(owner);
        }
        if !part.written() {
            return Self::Read;
        }
        let mut writers = part.word.threads.iter().filter(|t| t.stores() > 0);
        match (writers.next(), writers.next()) {
            (Some(one), None) => Self::Published(one.id),
            _ => Self::Shared,
        }
    }
}

/// The thread that makes all but one or two of few accesses, if the others only read: they look at
/// the field at the end.
fn nearly_sole_owner(part: &Part) -> Option<u32> {
    const FEW: u64 = 2;
    const ENOUGH: u64 = 4 * FEW;
    let most = part.word.threads.iter().max_by_key(|t| t.accesses())?;
    let others = part.word.threads.iter().filter(|t| t.id != most.id);
    let (read, stored) = others.fold((0u64, 0u64), |(read, stored), t| {
        (
            read.saturating_add(t.accesses()),
            stored.saturating_add(t.stores()),
        )
    });
    (most.accesses() >= ENOUGH && read <= FEW && stored == 0).then_some(most.id)
}

/// Advice for fields that belong to different threads; `None` if the fields have no names, or
/// if different threads do not have different fields.
pub(crate) fn advise(layout: &Layout) -> Option<Vec<Advice>> {
    let named = layout.parts.iter().any(|p| p.declared().is_some());
    let groups: BTreeSet<Group> = layout.parts.iter().map(Group::of).collect();
    if !named || groups.len() < 2 {
        return None;
    }
    if let Some(own) = neighbouring_elements(layout) {
        return Some(vec![own]);
    }
    lock_beside_data(layout)
        .or_else(|| one_writer(layout).map(|a| vec![a]))
        .or_else(|| Some(vec![separate(layout, &groups)]))
}

/// Advice for one field of several objects of a type, which lie side by side in memory whose blocks
/// are not known, so that no element has a number.
fn neighbouring_elements(layout: &Layout) -> Option<Advice> {
    let object = &layout.finding.object;
    let of = object.type_name.as_deref()?;
    let of = of
        .trim_start_matches("volatile ")
        .trim_start_matches("const ");
    let size = object.element_size?;
    // Allocators round sizes up, so the objects need not lie at multiples of their size.
    let apart = |a: &Part, b: &Part| {
        let same = a.word.field == b.word.field && a.declared().is_some_and(|f| !f.is_empty());
        let far = b.position > a.position && b.position.abs_diff(a.position) >= size;
        same && a.line == b.line && far && Group::of(a) != Group::of(b)
    };
    let parts = || layout.parts.iter().filter(|p| p.path.element.is_none());
    let found = parts().any(|a| parts().any(|b| apart(a, b)));
    let (language, line) = (layout.language, layout.line_size);
    let how = language.type_on_own_lines(of, line);
    found.then(|| Advice {
        fix: Fix::Align,
        text: format!(
            "Different threads use neighbouring objects of type `{of}` ({size} bytes each). Give \
             each lines of its own: {how}, and see to it that they are allocated at multiples of \
             {line} bytes."
        ),
        grows_by: None,
    })
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

/// The fields of a group with who uses them, as in a list; what is written now and then apart from what is not.
fn describe(layout: &Layout, group: Group) -> Vec<String> {
    let whose = match group {
        Group::Read => "read by several threads".to_owned(),
        Group::Owned(thread) => layout.thread(thread),
        Group::Published(thread) => {
            format!("written by {}, read by others", layout.thread(thread))
        }
        Group::Shared => "written by several threads".to_owned(),
    };
    let seldom = |p: &Part| group == Group::Read && p.word.stores() > 0;
    let told = |seldom_too: bool, more: &str| {
        let fields = members(layout, |p| Group::of(p) == group && seldom(p) == seldom_too);
        (!fields.is_empty()).then(|| format!("{} ({whose}{more})", short_list(&fields, 4)))
    };
    let told = [told(false, ""), told(true, ", seldom written")];
    told.into_iter().flatten().collect()
}

fn separate(layout: &Layout, groups: &BTreeSet<Group>) -> Advice {
    let described = groups.iter().flat_map(|&group| describe(layout, group));
    let described: Vec<String> = described.collect();
    // Parts without members are elements.
    let elements = layout
        .parts
        .iter()
        .all(|p| p.declared().is_some_and(|f| f.starts_with('[')));
    let what = if elements { "elements" } else { "fields" };
    let how = match apart(layout) {
        Some(how) => format!("Put them on different lines: {how}."),
        None if elements => format!(
            "Give each element lines of its own: {}.",
            layout.language.wrap_element(layout.line_size)
        ),
        None if meet_in_a_member(layout) => {
            "They meet inside one member, which no order of the members takes apart: give each \
                 thread a member of its own."
                .to_owned()
        }
        None => format!(
            "Keep what different threads use at least {} bytes apart, each on lines of its own.",
            layout.line_size
        ),
    };
    Advice {
        fix: Fix::Separate,
        text: format!(
            "Different threads use {what} of {}{}: {}. {how}{}",
            called(&layout.finding.object),
            layout.origin(),
            short_list(&described, 6),
            afterwards(layout)
        ),
        grows_by: growth(layout),
    }
}

/// Whether parts of different groups are known to lie in one member.
fn meet_in_a_member(layout: &Layout) -> bool {
    let parts = || layout.parts.iter().filter(|p| p.is_in_member(layout));
    let one =
        |a: &Part, b: &Part| Group::of(a) != Group::of(b) && a.member(layout) == b.member(layout);
    parts().any(|a| parts().any(|b| one(a, b)))
}

/// How to bring the fields of different threads onto different lines; `None` if they meet inside
/// one member, which has to be divided first.
fn apart(layout: &Layout) -> Option<String> {
    let groups = by_group(layout);
    let (language, line) = (layout.language, layout.line_size);
    // Rust places fields as it likes: what is wrapped is alone on its lines.
    if language == Language::Rust {
        let wrapped: Vec<String> = groups
            .iter()
            .skip(1)
            .map(|fields| match fields.as_slice() {
                [one] => one.clone(),
                several => format!("a struct of {}", list(several)),
            })
            .collect();
        return (!wrapped.is_empty()).then(|| language.before_members(&wrapped, line));
    }
    if in_order(layout) {
        let found = breaks(layout, |p| Some(Group::of(p)));
        return (!found.is_empty()).then(|| language.before_members(&found, line));
    }
    let order: Vec<String> = groups.iter().map(|fields| short_list(fields, 4)).collect();
    let first: Vec<String> = groups.iter().skip(1).map(|g| g[0].clone()).collect();
    (!first.is_empty()).then(|| {
        format!(
            "first bring the fields of each thread together ({}), then {}",
            order.join("; then "),
            language.before_members(&first, line)
        )
    })
}

/// The members of each group, the groups by their first member. A member that several groups use
/// counts for the first.
fn by_group(layout: &Layout) -> Vec<Vec<String>> {
    let mut seen = BTreeSet::new();
    let mut found: Vec<(Group, Vec<String>)> = Vec::new();
    for part in &layout.parts {
        let Some(member) = part.member(layout).filter(|m| seen.insert(m.clone())) else {
            continue;
        };
        let group = Group::of(part);
        match found.iter_mut().find(|(known, _)| *known == group) {
            Some((_, members)) => members.push(member),
            None => found.push((group, vec![member])),
        }
    }
    found.into_iter().map(|(_, members)| members).collect()
}

/// What makes the change hold for the object as a whole: what follows it must not move in, and it
/// must start a line.
fn afterwards(layout: &Layout) -> String {
    let object = &layout.finding.object;
    let end = match (is_array(layout), layout.language) {
        (false, _) => String::new(),
        // An aligned member makes the size a multiple of the alignment.
        (true, Language::C | Language::Cpp | Language::Rust) => {
            " Each element then fills whole lines, so the next one starts a new line.".to_owned()
        }
        (true, _) => format!(
            " Fill the last line of each element, too, or the next one moves in ({} bytes).",
            layout.line_size
        ),
    };
    let start = match layout.language {
        Language::Rust | Language::Go => String::new(),
        _ => place::allocation_too(
            layout,
            object
                .size
                .map(|s| s.saturating_add(growth(layout).unwrap_or(0))),
        ),
    };
    format!(
        "{end}{}{}{start}",
        members_with_elements(layout),
        keep_out(layout)
    )
}

/// Whether the object has members before and behind these, which are on other lines now and must not
/// come onto theirs. Rust's wrappers keep a field alone, whatever lies beside it; an array's elements
/// are all alike.
fn beyond(layout: &Layout) -> (bool, bool) {
    match layout.language == Language::Rust || is_array(layout) {
        true => (false, false),
        false => layout.finding.lies_beyond(layout.line_size),
    }
}

/// What to do about the members [`beyond`].
fn keep_out(layout: &Layout) -> &'static str {
    match beyond(layout) {
        (false, false) => "",
        (true, false) => {
            " Let the first of these fields begin a line, too: what lies before it is on other lines now."
        }
        (false, true) => {
            " Begin a line behind the last of these fields, too: what lies there is on other lines now."
        }
        (true, true) => {
            " Begin a line at the first and one behind the last of these fields, too: what lies before \
             and behind them is on other lines now."
        }
    }
}

/// Whether the object itself is an array, and not only one of its members.
fn is_array(layout: &Layout) -> bool {
    layout.parts.iter().any(|part| is_element(layout, part))
}

/// Whether it lies in an element of the object itself.
fn is_element(layout: &Layout, part: &Part) -> bool {
    let array = part.path.array;
    let of_object = array.is_empty() || layout.finding.object.name.as_deref() == Some(array);
    part.path.element.is_some() && of_object
}

/// What is to be done with members that are arrays of which different threads use elements. No order of
/// the members takes these apart.
fn members_with_elements(layout: &Layout) -> String {
    let mut owners: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    let of_member = |p: &&Part| p.path.element.is_some() && !is_element(layout, p);
    for part in layout
        .parts
        .iter()
        .filter(of_member)
        .filter(|p| p.written())
    {
        owners
            .entry(part.path.array)
            .or_default()
            .extend(part.owner());
    }
    let shared = owners.into_iter().filter(|(_, threads)| threads.len() > 1);
    let shared: Vec<String> = shared.map(|(array, _)| quoted(array)).collect();
    if shared.is_empty() {
        return String::new();
    }
    format!(
        " Different threads use elements of {}, too: give each element lines of its own ({} bytes).",
        list(&shared),
        layout.line_size
    )
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
    // What only the writer reads may lie on either side.
    let mut found = breaks(layout, |p| {
        (p.written() || p.owner() != Some(writer)).then(|| p.written())
    });
    if layout.language == Language::Rust {
        found = theirs_alone(layout);
    }
    if found.is_empty() {
        return None;
    }
    Some(Advice {
        fix: Fix::Separate,
        text: format!(
            "Only {} writes {}, but each write takes the line away from {} that {} {}. Move {} \
             off the readers' line{}: {}; or group the fields that are mostly read, away from it.{}",
            layout.thread(writer),
            short_list(&theirs, 4),
            counted(readers.len(), "thread"),
            if readers.len() == 1 { "reads" } else { "read" },
            short_list(&read, 4),
            if theirs.len() == 1 { "it" } else { "them" },
            layout.origin(),
            layout.language.before_members(&found, layout.line_size),
            afterwards(layout)
        ),
        grows_by: growth(layout),
    })
}

/// The members that are written.
fn theirs_alone(layout: &Layout) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let written = layout.parts.iter().filter(|p| p.written());
    written
        .filter_map(|p| p.member(layout))
        .filter(|m| seen.insert(m.clone()))
        .collect()
}

/// For a lock on the line of the data that it guards. Whether that is right depends on how
/// often threads wait for it.
pub(crate) fn lock_beside_data(layout: &Layout) -> Option<Vec<Advice>> {
    let lock = layout
        .parts
        .iter()
        .find(|p| p.truly_shared() && is_lock(layout, p))?;
    let beside = |p: &Part| p.line == lock.line && !is_lock(layout, p) && p.written();
    let guarded = members(layout, beside);
    if guarded.is_empty() {
        return None;
    }
    let name = lock.called(layout);
    let class = |p: &Part| (is_lock(layout, p) || p.written()).then(|| is_lock(layout, p));
    let found = match layout.language {
        Language::Rust => Vec::from_iter(lock.member(layout)),
        _ => breaks(layout, class),
    };
    let how = if found.is_empty() {
        format!(
            "let the data start a new line of {} bytes",
            layout.line_size
        )
    } else {
        layout.language.before_members(&found, layout.line_size)
    };
    Some(vec![Advice {
        fix: Fix::Separate,
        text: format!(
            "{name} of {}{} lies on the line of {}. That is right while threads seldom wait for it: one \
             transfer brings lock and data. Here {}: {how}, so that waiting threads do not take \
             the line from the one that holds the lock.",
            called(&layout.finding.object),
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

/// Whether the fields of each group lie together.
fn in_order(layout: &Layout) -> bool {
    let mut order: Vec<Group> = layout.parts.iter().map(Group::of).collect();
    let distinct = order.iter().collect::<BTreeSet<_>>().len();
    order.dedup();
    order.len() == distinct
}

/// An estimate of the bytes by which the object grows if each group gets whole lines, in each element
/// if it is an array. Bytes that no thread was seen to use count for the group before them.
fn growth(layout: &Layout) -> Option<u64> {
    let size = layout.finding.object.size?;
    // The fields' places do not tell what elements of a member take.
    if !members_with_elements(layout).is_empty() {
        return None;
    }
    let each = match is_array(layout) {
        true => layout.element_size()?,
        false => size,
    };
    let mut places: Vec<(u64, Group)> = Vec::new();
    for part in &layout.parts {
        let at = u64::try_from(part.position).ok()? % each.max(1);
        if !places.iter().any(|(known, _)| *known == at) {
            places.push((at, Group::of(part)));
        }
    }
    places.sort_unstable();
    let mut extents: Vec<(Group, u64)> = Vec::new();
    for (i, &(at, group)) in places.iter().enumerate() {
        let start = if i == 0 { 0 } else { at };
        let end = places.get(i + 1).map_or(each, |next| next.0);
        let extent = end.saturating_sub(start);
        match extents.iter_mut().find(|(g, _)| *g == group) {
            Some((_, sum)) => *sum = sum.saturating_add(extent),
            None => extents.push((group, extent)),
        }
    }
    let grown = extents.iter().fold(0_u64, |sum, &(_, e)| {
        sum.saturating_add(layout.whole_lines(e))
    });
    let elements = size / each.max(1);
    // Each further line that begins takes less than a line more.
    let (before, behind) = beyond(layout);
    let more = u64::from(layout.line_size) * (u64::from(before) + u64::from(behind));
    let grown = grown.saturating_sub(each).saturating_mul(elements);
    Some(grown.saturating_add(more))
}
