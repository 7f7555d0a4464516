//! Works out from a saved result at which call sites `sunder run --fix` pads objects: for each heap
//! object that shares a line falsely, the place in the program that allocated it. If an allocation
//! wrapper called the allocator, the callers of the wrapper are part of the call site. Called by
//! `place`, and by `protect` for [`direct_call_site`]. Reads only the files that hold the wrappers.

use crate::unwind::{Rule, Unwinder};
use std::collections::BTreeSet;
use std::fmt::Write;
use sunder_findings::{Findings, Frame, LinkAddress, Object, ObjectKind, Sharing};

/// Most wrappers in a row that are looked through to find the program's own call.
const MOST_WRAPPERS: usize = 24;

/// The call sites of a result.
#[derive(Debug, Default)]
pub struct CallSites {
    /// One line for each call site, in the format of `crates/inside/heap/src/site.rs`.
    lines: BTreeSet<String>,
    /// Objects whose call site is unknown or not exact, one sentence each.
    pub left_out: Vec<String>,
}

impl CallSites {
    /// Whether there is no call site to pad.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The list in the format that the heap library reads.
    pub fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// Where the heap objects that share lines falsely were allocated.
pub fn call_sites(findings: &Findings) -> CallSites {
    let program = findings.program.path.as_deref();
    let mut unwinder = Unwinder::default();
    let mut found = CallSites::default();
    let shared = findings
        .findings
        .iter()
        .filter(|finding| finding.sharing != Sharing::True);
    for finding in shared {
        let objects = std::iter::once(&finding.object).chain(finding.neighbour.as_ref());
        for object in objects.filter(|object| object.kind == ObjectKind::Heap) {
            let return_addresses = return_addresses(object, program);
            if return_addresses.is_empty() {
                found.left_out.push(format!(
                    "finding {}: the call site of its heap object is not known, or was recorded \
                     by an older sunder",
                    finding.rank
                ));
            }
            // Our heap takes the place of the plain `operator new` only, so the return address that
            // it sees for that form is in the program. The other forms of `operator new` call an
            // allocation function themselves; then the heap sees a return address in the C++
            // library. Both call sites are listed.
            let skipped = return_addresses
                .first()
                .is_some_and(|place| place.is_operator_new);
            let skipped = usize::from(skipped);
            for from in 0..=skipped {
                let Some(rest) = return_addresses.get(from..).filter(|rest| !rest.is_empty())
                else {
                    continue;
                };
                match line(rest, &mut unwinder) {
                    Some(line) => {
                        found.lines.insert(line);
                    }
                    // The line for the call inside `operator new` is optional.
                    None if from < skipped => {}
                    None => {
                        let wrapper = &rest[0];
                        found.lines.insert(wrapper.text(None));
                        found.left_out.push(format!(
                            "finding {}: its heap object was allocated by {}, whose callers can't \
                             be told apart; whatever it allocates there is padded",
                            finding.rank, wrapper.function
                        ));
                    }
                }
            }
        }
    }
    found
}

/// The call by which the program itself allocated a heap object: file and return address in it.
/// `None` if the call is not known, or if a wrapper made it on the program's behalf.
pub fn direct_call_site<'a>(object: &'a Object, program: Option<&str>) -> Option<(&'a str, u64)> {
    let first = return_addresses(object, program).into_iter().next()?;
    (!first.is_wrapper && !first.is_operator_new).then_some((first.file, first.offset))
}

/// The return address of a call. Functions that are inlined there belong to it.
#[derive(Debug)]
struct ReturnAddress<'a> {
    offset: u64,
    file: &'a str,
    function: &'a str,
    /// Every function at this address allocates on behalf of its callers.
    is_wrapper: bool,
    is_operator_new: bool,
}

impl ReturnAddress<'_> {
    /// The place in the format that the heap library reads; `rule` says how to find its caller.
    fn text(&self, rule: Option<Rule>) -> String {
        let mut text = format!("{:#x}", self.offset);
        if let Some(rule) = rule {
            let base = if rule.from_frame_pointer { 'b' } else { 's' };
            // Writing to a `String` cannot fail.
            let _ = write!(text, ":{base}:{:x}:{:x}", rule.cfa, rule.saved);
        }
        format!("{text} {}", self.file)
    }
}

/// The return addresses on the call stack of an allocation, innermost first, up to the first one
/// that is not known.
fn return_addresses<'a>(object: &'a Object, program: Option<&str>) -> Vec<ReturnAddress<'a>> {
    let mut return_addresses: Vec<ReturnAddress<'a>> = Vec::new();
    for frame in &object.allocation {
        let (Some(LinkAddress(offset)), Some(file)) = (frame.offset, &frame.module) else {
            break;
        };
        // The list separates return_addresses by tabs and lines by newlines.
        if file.contains(['\n', '\t']) {
            break;
        }
        let wraps = is_wrapper(frame, program);
        match return_addresses.last_mut() {
            Some(last) if (last.offset, last.file) == (offset, file.as_str()) => {
                last.is_wrapper &= wraps;
                last.is_operator_new = false;
            }
            _ => return_addresses.push(ReturnAddress {
                offset,
                file,
                function: &frame.function,
                is_wrapper: wraps,
                is_operator_new: frame.function.starts_with("operator new"),
            }),
        }
    }
    return_addresses
}

/// The line for an object that was allocated through these return_addresses: the wrappers, then the first
/// place that is the program's own. `None` if the caller of a wrapper's frame can't be found.
fn line(return_addresses: &[ReturnAddress<'_>], unwinder: &mut Unwinder) -> Option<String> {
    let own = return_addresses.iter().position(|place| !place.is_wrapper);
    let last = own.unwrap_or(return_addresses.len() - 1).min(MOST_WRAPPERS);
    let mut line = String::new();
    for wrapper in return_addresses.get(..last)? {
        let rule = unwinder.rule(wrapper.file, wrapper.offset)?;
        line.push_str(&wrapper.text(Some(rule)));
        line.push('\t');
    }
    line.push_str(&return_addresses.get(last)?.text(None));
    Some(line)
}

/// Whether a function allocates on its caller's behalf: functions of a language's library,
/// functions of other files than the program, and functions that are named like an allocator. A
/// function that is taken for a wrapper by mistake does no harm: its callers are told apart all the
/// same.
fn is_wrapper(frame: &Frame, program: Option<&str>) -> bool {
    const LIBRARIES: [&str; 9] = [
        "operator new",
        "std::",
        "__gnu_cxx::",
        "core::",
        "alloc::",
        "<core::",
        "<alloc::",
        "<std::",
        "__r",
    ];
    const FOLDERS: [&str; 3] = ["/usr/include/", "/usr/lib/", "/rustc/"];
    let file = frame.file.as_deref().unwrap_or_default();
    let elsewhere = match (program, frame.module.as_deref()) {
        (Some(program), Some(module)) => program != module,
        _ => false,
    };
    elsewhere
        || LIBRARIES.iter().any(|l| frame.function.starts_with(l))
        || FOLDERS.iter().any(|f| file.starts_with(f))
        || is_named_so(&frame.function)
}

/// Whether a function has a name that allocation wrappers have: `xmalloc`, `g_strdup`,
/// `MemoryPool::allocate`.
fn is_named_so(function: &str) -> bool {
    let plain = function.split(['<', '(', '+']).next().unwrap_or_default();
    let name = plain.rsplit("::").next().unwrap_or_default();
    let name = name.to_ascii_lowercase();
    ["alloc", "strdup", "strndup", "memdup", "g_new"]
        .iter()
        .any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_findings::{Finding, Program};

    const PROGRAM: &str = "/usr/bin/server";

    fn frame(function: &str, offset: Option<&str>) -> Frame {
        Frame {
            function: function.into(),
            module: Some(PROGRAM.into()),
            offset: offset.map(|text| text.parse().expect("an address")),
            ..Frame::default()
        }
    }

    fn heap(allocation: Vec<Frame>) -> Object {
        Object {
            kind: ObjectKind::Heap,
            allocation,
            ..Object::default()
        }
    }

    fn result(findings: Vec<Finding>) -> Findings {
        Findings {
            program: Program {
                path: Some(PROGRAM.into()),
                ..Program::default()
            },
            findings,
            ..Findings::default()
        }
    }

    #[test]
    fn call_sites_are_those_of_the_programs_own_calls() {
        let list = call_sites(&result(vec![
            Finding {
                object: heap(vec![
                    frame("operator new", Some("0xa95")),
                    frame("make", Some("0x1234")),
                    frame("main", Some("0x1300")),
                ]),
                neighbour: Some(heap(vec![frame("main", Some("0x1310"))])),
                ..Finding::default()
            },
            Finding {
                sharing: Sharing::True,
                object: heap(vec![frame("other", Some("0x99"))]),
                ..Finding::default()
            },
        ]));
        assert_eq!(
            list.text(),
            "0x1234 /usr/bin/server\n0x1310 /usr/bin/server\n"
        );
        assert!(list.left_out.is_empty());
    }

    #[test]
    fn wrapper_without_a_known_frame_is_the_call_site() {
        let list = call_sites(&result(vec![Finding {
            rank: 2,
            object: heap(vec![
                frame("xmalloc", Some("0x10")),
                frame("main", Some("0x20")),
            ]),
            ..Finding::default()
        }]));
        assert_eq!(list.text(), "0x10 /usr/bin/server\n");
        assert!(list.left_out[0].starts_with("finding 2") && list.left_out[0].contains("xmalloc"));
    }

    #[test]
    fn result_without_offsets_is_reported_as_unusable() {
        let list = call_sites(&result(vec![Finding {
            rank: 3,
            object: heap(vec![frame("main", None)]),
            ..Finding::default()
        }]));
        assert!(list.is_empty());
        assert!(list.left_out[0].starts_with("finding 3"));
    }

    #[test]
    fn wrappers_are_known_by_name_by_library_and_by_file() {
        let is = |function: &str| is_wrapper(&frame(function, None), Some(PROGRAM));
        for wrapper in [
            "xmalloc",
            "g_strdup",
            "Pool::allocate<int>",
            "std::vector<int>::push_back",
            "alloc::alloc::exchange_malloc",
            "__rust_alloc",
            "operator new[]",
        ] {
            assert!(is(wrapper), "{wrapper}");
        }
        for own in ["main", "make_node", "Server::accept", "Map<alloc>::find"] {
            assert!(!is(own), "{own}");
        }
        let foreign = Frame {
            module: Some("/usr/lib/libglib-2.0.so.0".into()),
            ..frame("anything", None)
        };
        assert!(is_wrapper(&foreign, Some(PROGRAM)));
        // A function that is inlined into a wrapper's call has the same return address.
        let object = heap(vec![
            frame("core::ptr::write", Some("0x10")),
            frame("main", Some("0x10")),
            frame("std::rt", Some("0x30")),
        ]);
        let return_addresses = return_addresses(&object, Some(PROGRAM));
        let shown: Vec<_> = return_addresses
            .iter()
            .map(|p| (p.offset, p.is_wrapper))
            .collect();
        assert_eq!(shown, [(0x10, false), (0x30, true)]);
    }
}
