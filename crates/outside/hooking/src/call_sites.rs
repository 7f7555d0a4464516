//! Works out from a saved result at which call sites `sunder run --fix` pads objects: for each heap
//! object that shares a line falsely, the place in the program that allocated it. If an allocation
//! wrapper called the allocator, the callers of the wrapper are part of the call site. Called by
//! `place`, by `cure` for [`Chains`], by `protect` for [`direct_call_site`], and by `repair` for
//! [`own_call_site`]. Reads only the files that hold the wrappers.

pub use crate::unwind::Rule;
use crate::unwind::Unwinder;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use sunder_findings::{Findings, Frame, LinkAddress, Object, ObjectKind, Sharing};
use sunder_observe::foreign::ForeignFiles;

/// Most wrappers in a row that are looked through to find the program's own call.
const MOST_WRAPPERS: usize = 24;

/// A call of an allocation function, or of a function that allocates for its callers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// The file that holds it.
    pub file: String,
    /// The return address, as an address in the file.
    pub offset: u64,
    /// How to find the caller of the function that makes the call; `None` in the last call of a chain.
    pub rule: Option<Rule>,
}

/// The calls through which a block is allocated, from the one of the allocation function to the first
/// one that is the program's own.
pub type Chain = Vec<Call>;

/// The chains by which heap objects are recognised.
#[derive(Debug)]
pub struct Chains {
    unwinder: Unwinder,
}

impl Default for Chains {
    /// Those of objects whose files we may open ourselves.
    fn default() -> Self {
        Self::in_files(Arc::new(ForeignFiles::ours()))
    }
}

/// Why a chain is not as good as it should be.
enum Doubt {
    /// Nothing is known of the call.
    Unknown,
    /// The callers of this function can't be told apart.
    Callers(String),
}

impl Chains {
    /// Those of objects whose wrappers are in these files.
    pub fn in_files(files: Arc<ForeignFiles>) -> Self {
        Self {
            unwinder: Unwinder::of(files),
        }
    }

    /// The chains by which an object of `program` may be allocated: a library that takes the place of
    /// `operator new` sees its call, and one that takes the place of `malloc` the call inside it. Empty
    /// if the call is not known, or if the callers of a wrapper can't be told apart.
    pub fn of(&mut self, object: &Object, program: Option<&str>) -> Vec<Chain> {
        match self.with_doubt(object, program) {
            (chains, None) => chains,
            (_, Some(_)) => Vec::new(),
        }
    }

    fn with_doubt(
        &mut self,
        object: &Object,
        program: Option<&str>,
    ) -> (Vec<Chain>, Option<Doubt>) {
        let return_addresses = return_addresses(object, program);
        let Some(first) = return_addresses.first() else {
            return (Vec::new(), Some(Doubt::Unknown));
        };
        let (mut chains, mut doubt) = (Vec::new(), None);
        // Our heap takes the place of the plain `operator new` only, so the return address that
        // it sees for that form is in the program. The other forms of `operator new` call an
        // allocation function themselves; then the heap sees a return address in the C++
        // library. Both call sites are listed.
        let skipped = usize::from(first.is_operator_new);
        for from in 0..=skipped {
            let Some(rest) = return_addresses.get(from..).filter(|rest| !rest.is_empty()) else {
                continue;
            };
            match chain(rest, &mut self.unwinder) {
                Some(chain) => chains.push(chain),
                // The one for the call inside `operator new` is optional.
                None if from < skipped => {}
                None => {
                    let wrapper = &rest[0];
                    chains.push(vec![wrapper.call(None)]);
                    doubt = Some(Doubt::Callers(wrapper.function.to_owned()));
                }
            }
        }
        (chains, doubt)
    }
}

/// The call sites of a result.
#[derive(Debug, Default)]
pub struct CallSites {
    /// Their chains.
    chains: BTreeSet<Chain>,
    /// Objects whose call site is unknown or not exact, one sentence each.
    pub left_out: Vec<String>,
}

impl CallSites {
    /// Whether there is no call site to pad.
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }

    /// The list in the format that the heap library reads (`crates/inside/heap/src/site.rs`): a line
    /// for each chain.
    pub fn text(&self) -> String {
        let line = |chain: &Chain| {
            let calls: Vec<String> = chain.iter().map(Call::text).collect();
            calls.join("\t") + "\n"
        };
        let lines: BTreeSet<String> = self.chains.iter().map(line).collect();
        lines.into_iter().collect()
    }
}

impl Call {
    /// The call in the format that the heap library reads.
    fn text(&self) -> String {
        let mut text = format!("{:#x}", self.offset);
        if let Some(rule) = self.rule {
            let base = if rule.from_frame_pointer { 'b' } else { 's' };
            // Writing to a `String` cannot fail.
            let _ = write!(text, ":{base}:{:x}:{:x}", rule.cfa, rule.saved);
        }
        format!("{text} {}", self.file)
    }
}

/// Where the heap objects that share lines falsely were allocated.
pub fn call_sites(findings: &Findings) -> CallSites {
    let program = findings.program.path.as_deref();
    let mut all = Chains::default();
    let mut found = CallSites::default();
    let shared = findings
        .findings
        .iter()
        .filter(|finding| finding.sharing != Sharing::True);
    for finding in shared {
        let objects = std::iter::once(&finding.object).chain(finding.neighbour.as_ref());
        for object in objects.filter(|object| object.kind == ObjectKind::Heap) {
            let (chains, doubt) = all.with_doubt(object, program);
            found.chains.extend(chains);
            let rank = finding.rank;
            found.left_out.extend(doubt.map(|doubt| match doubt {
                Doubt::Unknown => format!(
                    "finding {rank}: the call site of its heap object is not known, or was recorded \
                     by an older sunder"
                ),
                Doubt::Callers(wrapper) => format!(
                    "finding {rank}: its heap object was allocated by {wrapper}, whose callers can't \
                     be told apart; whatever it allocates there is padded"
                ),
            }));
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

/// The same, where `operator new` may have been called in place of `malloc`: then that call. A library that
/// takes the place of `malloc` alone does not see it.
pub fn own_call_site<'a>(object: &'a Object, program: Option<&str>) -> Option<(&'a str, u64)> {
    let mut calls = return_addresses(object, program).into_iter();
    // `operator new[]` calls `operator new`.
    let own = calls.find(|call| !call.is_operator_new)?;
    (!own.is_wrapper).then_some((own.file, own.offset))
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
    /// The call; `rule` says how to find its caller.
    fn call(&self, rule: Option<Rule>) -> Call {
        Call {
            file: self.file.to_owned(),
            offset: self.offset,
            rule,
        }
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

/// The chain of an object that was allocated through these return addresses: the wrappers, then the
/// first place that is the program's own. `None` if the caller of a wrapper's frame can't be found.
fn chain(return_addresses: &[ReturnAddress<'_>], unwinder: &mut Unwinder) -> Option<Chain> {
    let own = return_addresses.iter().position(|place| !place.is_wrapper);
    let last = own.unwrap_or(return_addresses.len() - 1).min(MOST_WRAPPERS);
    let mut chain = Vec::new();
    for wrapper in return_addresses.get(..last)? {
        let rule = unwinder.rule(wrapper.file, wrapper.offset)?;
        chain.push(wrapper.call(Some(rule)));
    }
    chain.push(return_addresses.get(last)?.call(None));
    Some(chain)
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

    /// Who asks for chains alone is not told what they leave open.
    #[test]
    fn chains_that_are_not_exact_are_none() {
        let mut chains = Chains::default();
        let wrapped = heap(vec![
            frame("xmalloc", Some("0x10")),
            frame("main", Some("0x20")),
        ]);
        assert!(chains.of(&wrapped, Some(PROGRAM)).is_empty());
        let own = heap(vec![frame("main", Some("0x20"))]);
        let call = Call {
            file: PROGRAM.into(),
            offset: 0x20,
            rule: None,
        };
        assert_eq!(chains.of(&own, Some(PROGRAM)), [vec![call]]);
        assert!(chains.of(&heap(Vec::new()), Some(PROGRAM)).is_empty());
    }

    /// The C++ library's `operator new` calls `malloc` on behalf of the program.
    #[test]
    fn the_own_call_of_what_new_allocates_is_that_of_new() {
        let library = |function: &str, offset| Frame {
            module: Some("/usr/lib/libstdc++.so.6".into()),
            ..frame(function, offset)
        };
        let array = library("operator new[](unsigned long)", Some("0xb0"));
        let plain = library("operator new(unsigned long)", Some("0xa0"));
        let main = frame("main", Some("0x20"));
        let call = Some((PROGRAM, 0x20));
        let of = |frames: &[&Frame]| {
            let object = heap(frames.iter().map(|&f| f.clone()).collect());
            let own = own_call_site(&object, Some(PROGRAM));
            let own = own.map(|(file, offset)| (file.to_owned(), offset));
            let direct = direct_call_site(&object, Some(PROGRAM));
            (own, direct.map(|(file, offset)| (file.to_owned(), offset)))
        };
        let call = call.map(|(file, offset)| (file.to_owned(), offset));
        assert_eq!(of(&[&main]), (call.clone(), call.clone()));
        assert_eq!(of(&[&plain, &main]), (call.clone(), None));
        assert_eq!(of(&[&plain, &array, &main]), (call, None));
        let wrapper = frame("make_pool_alloc", Some("0x30"));
        assert_eq!(of(&[&plain, &wrapper, &main]), (None, None));
        assert_eq!(of(&[&plain]), (None, None));
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
