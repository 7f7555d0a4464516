//! Advice for objects that share pages of a shared memory. What is on one page depends on where
//! the allocator puts objects, not on the words of a line.

use crate::words::quoted;
use sunder_findings::{Advice, Finding, Fix, Object, ObjectKind, OnPages, Sharing, file_name};

/// The advice for `finding`, whose objects share the pages in `on`. Never empty.
pub(crate) fn advise(finding: &Finding, on: &OnPages) -> Vec<Advice> {
    let page = on.page;
    let mut all = match (&finding.neighbour, finding.sharing) {
        (_, Sharing::True) => Vec::new(),
        (Some(second), _) => apart(&finding.object, second, page),
        (None, _) => alone(&finding.object, page),
    };
    if finding.sharing != Sharing::False {
        all.push(Advice {
            fix: Fix::ShareLess,
            text: format!(
                "Several threads use {} for its values, which no placement mends: write it less \
                 often, or let each thread collect its own and combine them at the end.",
                called(&finding.object)
            ),
            grows_by: None,
        });
    }
    all
}

/// Advice for two objects.
fn apart(first: &Object, second: &Object, page: u64) -> Vec<Advice> {
    let heap = |object: &Object| object.kind == ObjectKind::Heap && !object.allocation.is_empty();
    if heap(first) && heap(second) && first.allocation_site() == second.allocation_site() {
        // One call site allocates for both, so a pool for each call site would not separate
        // them.
        return vec![Advice {
            fix: Fix::Allocate,
            text: format!(
                "Blocks that {} allocates for different callers lie on one page. Let each caller \
                 bring memory of its own, or allocate them there in whole pages of {page} bytes.",
                at(first).unwrap_or_else(|| "one place".to_owned())
            ),
            grows_by: None,
        }];
    }
    if heap(first) && heap(second) {
        let how = match (first.size, second.size) {
            (Some(a), Some(b)) if a != b => {
                "their sizes differ too, so pages for one size each (`--placement sized`) part \
                 them as well"
            }
            _ => "pages for one size each would not part them",
        };
        return vec![Advice {
            fix: Fix::Allocate,
            text: format!(
                "Keep {} and {} on different pages: allocate each from a pool of its own, as \
                 `sunder simulate --granule {page} --placement call-site` does; {how}.",
                called(first),
                called(second)
            ),
            grows_by: Some(page),
        }];
    }
    // An object that is not a heap block can be aligned to a page.
    let still = if heap(first) { second } else { first };
    match still.kind {
        ObjectKind::Global | ObjectKind::Tls => vec![Advice {
            fix: Fix::Align,
            text: format!(
                "Give {} pages of its own: align it to {page} bytes and pad it to a multiple.",
                called(still)
            ),
            grows_by: still
                .size
                .map(|size| size.next_multiple_of(page).saturating_sub(size)),
        }],
        _ => vec![Advice {
            fix: Fix::Separate,
            text: format!(
                "Keep {} and {} on different pages.",
                called(first),
                called(second)
            ),
            grows_by: None,
        }],
    }
}

/// Advice for one object, or for blocks of one call site.
fn alone(object: &Object, page: u64) -> Vec<Advice> {
    let (fix, text) = match (object.kind, object.blocks) {
        (ObjectKind::Heap, Some(_)) => (
            Fix::PerThread,
            format!(
                "Different threads use {}, which lie on one page. Put those of one thread \
                 together: let the thread that uses a block allocate it, from pages of its own \
                 (`sunder simulate --granule {page} --placement hoard` tells what that saves if it \
                 does).",
                called(object)
            ),
        ),
        (ObjectKind::Stack, _) if object.declared.is_none() => (
            Fix::Separate,
            format!(
                "Other threads use what lies on the {}. The C library does so when threads start \
                 and end, as it keeps their descriptors there; what the program shares belongs in \
                 memory of its own.",
                object.short_name()
            ),
        ),
        (ObjectKind::Unknown | ObjectKind::Mapping, _) => (
            Fix::Separate,
            format!(
                "Threads use different parts of {} on one page. No allocation and no symbol tells \
                 what it is; the code that touches it does. Lay it out so that each thread's part \
                 is whole pages of {page} bytes.",
                called(object)
            ),
        ),
        _ => (
            Fix::Separate,
            format!(
                "Threads use different parts of {} on one page: lay it out so that each thread's \
                 part is whole pages of {page} bytes, or divide the work by pages.",
                called(object)
            ),
        ),
    };
    vec![Advice {
        fix,
        text,
        grows_by: None,
    }]
}

/// Where the object was allocated or declared: a source line, else a function.
fn at(object: &Object) -> Option<String> {
    if let Some(place) = object.place() {
        return Some(match place.line {
            Some(line) => format!("{}:{line}", file_name(&place.file)),
            None => file_name(&place.file).to_owned(),
        });
    }
    let site = object.allocation_site()?;
    Some(quoted(&site.function))
}

fn called(object: &Object) -> String {
    let name = object.name.as_ref().or(object.type_name.as_ref());
    let allocated = object.kind == ObjectKind::Heap && !object.allocation.is_empty();
    let what = match (name, object.size) {
        (Some(name), _) => quoted(name),
        (None, Some(size)) if allocated => format!("the blocks of {size} bytes"),
        (None, None) if allocated => "what is".to_owned(),
        (None, _) => object.subject(),
    };
    match at(object).filter(|_| allocated) {
        Some(at) => format!("{what} allocated at {at}"),
        None => what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_findings::Frame;

    fn block(size: u64, file: &str) -> Object {
        Object {
            kind: ObjectKind::Heap,
            size: Some(size),
            allocation: vec![Frame {
                function: "make".into(),
                file: Some(file.into()),
                line: Some(7),
                ..Frame::default()
            }],
            ..Object::default()
        }
    }

    fn on_a_page(object: Object, neighbour: Option<Object>, sharing: Sharing) -> Vec<Advice> {
        let finding = Finding {
            object,
            neighbour,
            sharing,
            on_pages: Some(OnPages {
                page: 4096,
                pages: 1,
                ..OnPages::default()
            }),
            ..Finding::default()
        };
        crate::advise(&finding, 4096)
    }

    #[test]
    fn two_call_sites_get_pages_of_their_own() {
        let advice = on_a_page(block(8, "a.c"), Some(block(24, "b.c")), Sharing::False);
        let [one] = &advice[..] else {
            panic!("{advice:?}");
        };
        assert!(
            one.text.contains("a.c:7") && one.text.contains("b.c:7"),
            "{}",
            one.text
        );
        assert!(one.text.contains("--placement call-site"), "{}", one.text);
        // Equation (5): a bucket costs at most one page.
        assert_eq!(one.grows_by, Some(4096));
    }

    #[test]
    fn a_global_is_aligned_to_pages_and_grows_to_whole_ones() {
        let global = Object {
            kind: ObjectKind::Global,
            name: Some("table".into()),
            size: Some(5000),
            ..Object::default()
        };
        let advice = on_a_page(block(8, "a.c"), Some(global), Sharing::False);
        assert_eq!(
            (advice[0].fix, advice[0].grows_by),
            (Fix::Align, Some(8192 - 5000))
        );
    }

    #[test]
    fn no_layout_is_advised_for_a_whole_stack() {
        let stack = Object {
            kind: ObjectKind::Stack,
            name: Some("stack of thread 7".into()),
            ..Object::default()
        };
        let advice = on_a_page(stack, None, Sharing::False);
        assert!(
            advice[0].text.contains("on the stack of thread 7"),
            "{}",
            advice[0].text
        );
        assert!(
            !advice[0].text.contains("whole pages"),
            "{}",
            advice[0].text
        );
    }

    #[test]
    fn truly_shared_objects_are_not_moved_between_pages() {
        let advice = on_a_page(block(8, "a.c"), None, Sharing::True);
        assert_eq!(
            advice.iter().map(|a| a.fix).collect::<Vec<_>>(),
            [Fix::ShareLess]
        );
    }
}
