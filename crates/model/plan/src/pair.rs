//! Advice for two objects on one line.

use crate::called::called;
use crate::layout::{Layout, Part};
use crate::words::{capital, quoted, short_list};
use crate::{array, fields, own_lines, place};
use std::collections::BTreeSet;
use sunder_findings::{Advice, Finding, Fix, LatentOn, Object, ObjectKind, file_name};

/// Advice for two neighbours; `None` if the finding has only one object, or nothing is known of either.
pub(crate) fn advise(layout: &Layout) -> Option<Vec<Advice>> {
    let first = &layout.finding.object;
    let second = layout.finding.neighbour.as_ref()?;
    let is_unknown = |o: &&Object| o.kind == ObjectKind::Unknown && o.name.is_none();
    if [first, second].iter().all(is_unknown) {
        return None;
    }
    let both_heap = [first, second].iter().all(|o| o.kind == ObjectKind::Heap);
    let mut all = if both_heap {
        vec![
            allocate(layout, first, second),
            pools(layout, first, second),
        ]
    } else {
        vec![align(layout, first, second)]
    };
    let inside = [first, second].into_iter();
    let mut inside: Vec<Advice> = inside.filter_map(|object| within(layout, object)).collect();
    // Blocks of one kind are changed alike.
    inside.dedup_by(|one, other| one.text == other.text);
    all.splice(1..1, inside);
    Some(all)
}

/// Advice for one of the two whose own parts different threads use. They would still meet if the two
/// objects were apart.
fn within(layout: &Layout, object: &Object) -> Option<Advice> {
    let finding = layout.finding;
    let size = object.size?;
    if object.address.0 == 0 || finding.object.address.0 == 0 {
        return None;
    }
    let shift = object.address.0.wrapping_sub(finding.object.address.0) as i64;
    let mut own = Finding {
        object: object.clone(),
        neighbour: None,
        ..finding.clone()
    };
    for line in &mut own.lines {
        let base = line.object_offset?.checked_sub(shift)?;
        line.object_offset = Some(base);
        line.words.retain(|word| {
            let at = base.checked_add(i64::from(word.offset));
            at.and_then(|at| u64::try_from(at).ok())
                .is_some_and(|at| at < size)
        });
    }
    let own = Layout::of(&own, layout.line_size);
    let owners: BTreeSet<u32> = own.parts.iter().filter_map(Part::sole_owner).collect();
    if owners.len() < 2 || !own.parts.iter().any(Part::written) {
        return None;
    }
    let mut advice = array::advise(&own).or_else(|| fields::advise(&own))?;
    let mut first = (!advice.is_empty()).then(|| advice.swap_remove(0))?;
    first.text = format!(
        "That is not enough, as different threads use parts of {} itself. {}",
        called(object),
        first.text
    );
    Some(first)
}

fn grown(layout: &Layout, object: &Object) -> Option<u64> {
    object.size.map(|s| layout.whole_lines(s).saturating_sub(s))
}

fn growth(layout: &Layout, first: &Object, second: &Object) -> Option<u64> {
    Some(grown(layout, first)?.saturating_add(grown(layout, second)?))
}

fn at(object: &Object) -> String {
    object.place().map_or_else(String::new, |p| match p.line {
        Some(line) => format!("{}:{line}", file_name(&p.file)),
        None => file_name(&p.file).to_owned(),
    })
}

fn block(object: &Object) -> String {
    let size = object
        .size
        .map(|s| format!(" of {s} bytes"))
        .unwrap_or_default();
    match (&object.name, &object.type_name) {
        (None, None) => format!("a block{size}"),
        _ => format!("{}{size}", quoted(object.short_name())),
    }
}

fn allocate(layout: &Layout, first: &Object, second: &Object) -> Advice {
    let line = layout.line_size;
    let rounded = first.size.map(|s| layout.whole_lines(s));
    let how = own_lines::how(layout.language, first, line, rounded);
    let (one, two) = (at(first), at(second));
    let text = if !one.is_empty() && one == two {
        // One line of source may have several calls, each with a block of its own.
        let (a, b) = (block(first), block(second));
        let what = if a == b { a } else { format!("{a} and {b}") };
        format!(
            "Blocks that are allocated at {one} for different threads ({what}) come to lie on \
             one line. Allocate them there {how}, each in lines of its own.",
        )
    } else {
        let place = |p: &str| {
            if p.is_empty() {
                String::new()
            } else {
                format!(" (allocated at {p})")
            }
        };
        let size = second.size.map(|s| layout.whole_lines(s));
        let other = own_lines::how(layout.language, second, line, size);
        let each = match how == other {
            true => format!("Allocate both {how}"),
            false => format!("Allocate the first {how}, and the second {other}"),
        };
        format!(
            "{}{} and {}{} are two blocks on one line. {each}, each in lines of its own.",
            block(first),
            place(&one),
            block(second),
            place(&two),
        )
    };
    Advice {
        fix: Fix::Allocate,
        text,
        grows_by: growth(layout, first, second),
    }
}

fn pools(layout: &Layout, first: &Object, second: &Object) -> Advice {
    let by_whom = match (&first.thread, &second.thread) {
        (Some(a), Some(b)) if a.id == b.id => format!(
            "Thread {} allocates both: let each thread allocate what it uses, or",
            a.id
        ),
        _ => "Or".to_owned(),
    };
    Advice {
        fix: Fix::PerThread,
        text: format!(
            "{by_whom} take small blocks from a pool per thread whose chunks are multiples of {} \
             bytes (an allocator with thread caches does so for most sizes).",
            layout.line_size
        ),
        grows_by: None,
    }
}

/// The names of further variables on the line, by position.
fn others(layout: &Layout, known: [&Object; 2]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let start = layout.finding.object.address.0;
    if start == 0 || known.iter().any(|object| object.address.0 == 0) {
        return names;
    }
    for part in &layout.parts {
        let at = start.wrapping_add(part.position as u64);
        let holds = |object: &&&Object| {
            let offset = at.wrapping_sub(object.address.0);
            object.size.is_some_and(|size| offset < size)
        };
        let name = part.word.field.as_deref().unwrap_or_default();
        let name = name.split(['.', '[']).next().unwrap_or_default();
        let is_name = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
        let name = quoted(name);
        if known.iter().find(holds).is_none() && is_name && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Advice if at least one of the two is a variable.
fn align(layout: &Layout, first: &Object, second: &Object) -> Advice {
    let each = |object: &Object| {
        let place = at(object);
        let place = if place.is_empty() {
            String::new()
        } else {
            format!(" ({place})")
        };
        place::start_on_a_line(layout, object, &place).1
    };
    let lie = match layout.finding.latent_on {
        Some(LatentOn::LineSize(_)) => "would be neighbours on one such line",
        _ => "are neighbours on one line",
    };
    let others = others(layout, [first, second]);
    let others = match others.len() {
        0 => String::new(),
        1 => format!(
            " {} lies there, too, and must leave the line as well.",
            others[0]
        ),
        _ => format!(
            " {} lie there, too, and must leave the line as well.",
            short_list(&others, 4)
        ),
    };
    let text = format!(
        "{} and {} {lie}, and different threads use them: {}, and {}. Both must also fill their \
         last line, or what comes next moves in.{others}",
        called(first),
        called(second),
        each(first),
        each(second)
    );
    Advice {
        fix: Fix::Align,
        text: capital(&text),
        grows_by: growth(layout, first, second),
    }
}
