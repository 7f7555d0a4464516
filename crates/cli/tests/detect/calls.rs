//! Objects on the heap: told apart by the calls that allocate them, also where these are on one line,
//! and named by types alone where nobody recorded the heap.

use crate::support::c_program;
use crate::support::targets::{found, side_by_side};
use std::path::Path;
use sunder_findings::Finding;

/// The first finding of the program that is not latent.
fn first_finding(program: &Path) -> Result<Finding, String> {
    let first = found(program)?.into_iter().next();
    Ok(first.ok_or("nothing was found")?)
}

#[test]
fn two_allocations_on_one_line_are_two_objects() {
    let Some(program) = c_program("two_calls", &["-g", "-O1", "-pthread"]) else {
        return;
    };
    side_by_side("two calls", || {
        let finding = first_finding(&program)?;
        let other = finding.neighbour.as_ref().ok_or("there is one object")?;
        let mut names = [finding.object.name.as_deref(), other.name.as_deref()];
        names.sort_unstable();
        assert_eq!(names, [Some("first"), Some("second")]);
        let calls = [&finding.object, other].map(|o| o.allocation[0].offset);
        assert_ne!(calls[0], calls[1]);
        Ok(())
    });
}

#[test]
fn types_name_a_heap_that_nobody_recorded() {
    let Some(program) = c_program("static_heap", &["-static"]) else {
        return;
    };
    side_by_side("static heap", || {
        let finding = first_finding(&program)?;
        let of = finding.object.type_name.as_deref().unwrap_or_default();
        assert!(of.ends_with("struct tally"), "{finding:?}");
        let words = finding.lines.iter().flat_map(|l| &l.words);
        for word in words.filter(|w| w.stores() > 0) {
            assert_eq!(word.field.as_deref(), Some(".kept"));
        }
        let advice = &finding.advice[0].text;
        assert!(
            advice.contains("first member of `struct tally`"),
            "{advice}"
        );
        Ok(())
    });
}
