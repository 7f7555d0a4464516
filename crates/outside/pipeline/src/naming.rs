//! Turns the judge's addresses into names: the objects on a contended line, the fields of its
//! words, and the source lines that access them. It takes one line at a time; `assemble` joins
//! lines to findings.

mod ahead;
mod objects;
mod places;
mod spacing;

pub use ahead::read_ahead;
pub use objects::{
    LineObjects, ObjectKey, Part, TypedPointer, made_shared, objects_on_line, seen_by,
};
pub use places::Places;

use crate::process::Process;
use objects::is_block;
use sunder_access::{Address, Kind};
use sunder_findings as findings;
use sunder_objects::{CodeFrame, Names, ObjectName, is_c_library};
use sunder_sharing::{SiteUse, Verdict};

/// The most calls of lock functions that are kept for one line.
const MOST_LOCK_SITES: usize = 32;

/// How many lines of source are shown before and after one.
const LINES_AROUND: u32 = 2;

/// A contended line with its names.
pub struct NamedLine {
    /// The objects on it, the most written first.
    pub parts: Vec<Part>,
    /// The words, as the result shows them.
    pub words: Vec<findings::Word>,
    /// The instructions, as the result shows them.
    pub sites: Vec<findings::Site>,
    /// For each of the objects, the pointer or type through which it was accessed.
    pub seen_through: Vec<Option<TypedPointer>>,
}

/// Names the objects, words and instructions on the line of `verdict`. `places` is kept from line to
/// line.
pub fn name_line(process: &mut Process, places: &mut Places, verdict: &Verdict) -> NamedLine {
    let objects = objects_on_line(process, verdict);
    let seen = objects.seen_through(process, verdict);
    let LineObjects {
        parts,
        of_word,
        order,
    } = objects;
    let words = verdict
        .words
        .iter()
        .zip(&of_word)
        .map(|(word, &index)| {
            let at = verdict.line.offset(i64::from(word.offset));
            let address = process.origin(at, verdict.owner);
            let field = field(process, &parts[index].name, seen[index].as_ref(), address);
            findings::Word {
                offset: word.offset,
                size: word.size,
                field,
                threads: word
                    .threads
                    .iter()
                    .map(|u| findings::ThreadUse {
                        id: u.thread.0,
                        name: process.threads.label(u.thread).name,
                        process: None,
                        reads: u.reads,
                        writes: u.writes,
                        updates: u.updates,
                        atomics: u.atomics,
                    })
                    .collect(),
            }
        })
        .collect::<Vec<_>>();
    let mut sites: Vec<_> = verdict
        .sites
        .iter()
        .map(|site| name_site(&places.of(process, site.instruction).site, site, &words))
        .collect();
    let named = of_word.iter().map(|&i| (&parts[i].name, seen[i].as_ref()));
    sites.extend(lock_sites(process, places, verdict, &words, named));
    let seen_through = order.iter().map(|&i| seen[i].clone()).collect();
    NamedLine {
        parts: order.into_iter().map(|i| parts[i].clone()).collect(),
        words,
        sites,
        seen_through,
    }
}

/// The field at `address` of `object`, which was accessed through `seen`.
pub fn field(
    process: &mut Process,
    object: &ObjectName,
    seen: Option<&TypedPointer>,
    address: Address,
) -> Option<String> {
    let offset = object.offset_of(address)?;
    let Some(seen) = seen else {
        return process.names.field_at(object, offset);
    };
    if is_block(object) {
        let size = if seen.is_head {
            seen.size
        } else {
            object.size.unwrap_or(seen.size)
        };
        return process.names.field_path(seen.handle, size, offset);
    }
    let within = seen.spacing.within(offset)?;
    let path = process.names.field_path(seen.handle, seen.size, within)?;
    // An empty path stands for the whole of the type.
    Some(if path.is_empty() {
        seen.type_name.clone()
    } else {
        path
    })
}

/// The site with counts and fields, which is at `place`.
fn name_site(place: &findings::Site, site: &SiteUse, words: &[findings::Word]) -> findings::Site {
    let mut fields: Vec<String> = words
        .iter()
        .filter(|w| (w.offset..w.offset + w.size).any(|byte| site.bytes.contains(u64::from(byte))))
        .filter_map(|w| w.field.clone())
        .filter(|f| !f.is_empty())
        .collect();
    fields.dedup();
    findings::Site {
        kind: match site.kind {
            Kind::Read => findings::AccessKind::Read,
            Kind::Write => findings::AccessKind::Write,
            Kind::Update => findings::AccessKind::Update,
            Kind::Atomic => findings::AccessKind::Atomic,
        },
        threads: site.threads.iter().map(|t| t.0).collect(),
        accesses: site.count,
        fields,
        ..place.clone()
    }
}

/// The calls of lock functions, in the program's code, on the words of this line. Where all
/// samples are inside such a function, the call is what a user can read. `objects` has, for
/// each word, its object and the type through which it was accessed.
fn lock_sites<'a>(
    process: &mut Process,
    places: &mut Places,
    verdict: &Verdict,
    words: &[findings::Word],
    objects: impl Iterator<Item = (&'a ObjectName, Option<&'a TypedPointer>)>,
) -> Vec<findings::Site> {
    let mut sites: Vec<findings::Site> = Vec::new();
    let in_library: Vec<&SiteUse> = verdict
        .sites
        .iter()
        .filter(|site| places.of(process, site.instruction).is_in_library)
        .collect();
    for (word, (object, seen)) in words.iter().zip(objects) {
        let bytes = word.offset..word.offset + word.size;
        let touched = |site: &&SiteUse| bytes.clone().any(|b| site.bytes.contains(u64::from(b)));
        let at = verdict.line.offset(i64::from(word.offset));
        let address = process.origin(at, verdict.owner);
        let Some(offset) = object.offset_of(address) else {
            continue;
        };
        if !in_library.iter().any(touched) {
            continue;
        }
        let seen =
            seen.and_then(|seen| Some((seen.handle, seen.spacing.phase(offset, seen.size)?)));
        for call in process.names.lock_calls_on(object, seen, offset) {
            if sites.len() >= MOST_LOCK_SITES {
                return sites;
            }
            let place = places.of(process, call.code);
            let known = |s: &findings::Site| {
                let at = &place.site;
                s.function == at.function && s.file == at.file && s.line == at.line
            };
            if place.is_in_library || sites.iter().any(known) {
                continue;
            }
            sites.push(findings::Site {
                kind: findings::AccessKind::Atomic,
                calls: Some(call.callee),
                fields: word.field.clone().into_iter().collect(),
                in_loop: None,
                ..place.site.clone()
            });
        }
    }
    sites
}

/// A site that has a place in the code and no counts.
pub fn at_frame(names: &Names, frame: &CodeFrame) -> findings::Site {
    let at = frame.file.as_deref().zip(frame.line);
    let lines = at.map(|(file, line)| names.source_around(file, line, LINES_AROUND));
    let excerpt: Vec<findings::SourceLine> = lines
        .into_iter()
        .flatten()
        .map(|(line, text)| findings::SourceLine { line, text })
        .collect();
    let own = excerpt.iter().find(|l| Some(l.line) == frame.line);
    findings::Site {
        source: own.map(|l| l.text.trim().to_owned()),
        excerpt,
        function: frame.function.clone(),
        file: frame.file.clone(),
        line: frame.line,
        module: frame.module.clone(),
        ..findings::Site::default()
    }
}

/// The innermost frame of the user's code: a line of `<atomic>` or of Rust's `core` does not
/// tell a user where to look. If all frames are in libraries, the innermost.
pub fn user_frame(frames: &[CodeFrame]) -> &CodeFrame {
    frames
        .iter()
        .find(|f| !is_library_frame(f))
        .unwrap_or_else(|| &frames[0])
}

fn is_library_frame(frame: &CodeFrame) -> bool {
    let function = frame.function.as_str();
    let file = frame.file.as_deref().unwrap_or("");
    ["std::", "__gnu_cxx::", "core::", "alloc::", "boost::"]
        .iter()
        .any(|p| function.starts_with(p))
        || file.starts_with("/usr/include/")
        || file.starts_with("/rustc/")
        || file.contains("/rustlib/src/")
        || frame.module.as_deref().is_some_and(is_c_library)
}
