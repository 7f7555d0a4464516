//! Advice for sums that only one thread uses until the end: as a local variable they cost no
//! sharing at all. Called for arrays of elements of one thread each.

use crate::layout::Layout;
use crate::words::{quoted, short_list};
use sunder_findings::{AccessKind, Advice, Fix, file_name};

/// The advice; `None` where several threads use an element, or where the code that writes it is in
/// no loop: a local variable of a function that is called for each step saves nothing.
pub(crate) fn advise(layout: &Layout) -> Option<Advice> {
    let written: Vec<_> = layout.parts.iter().filter(|p| p.written()).collect();
    let private = written
        .iter()
        .all(|p| p.sole_owner().is_some() && !p.atomic());
    let site = layout
        .finding
        .sites
        .iter()
        .find(|s| matches!(s.kind, AccessKind::Update | AccessKind::Write))?;
    if !private || written.is_empty() || site.threads.len() < 2 {
        return None;
    }
    let fields = layout.fields(|p| p.written());
    let what = if fields.is_empty() {
        "the element".to_owned()
    } else {
        let quoted: Vec<String> = fields.iter().map(|f| quoted(f)).collect();
        short_list(&quoted, 5)
    };
    let at = match (&site.file, site.line) {
        (Some(file), Some(line)) => format!(" ({}:{line})", file_name(file)),
        _ => String::new(),
    };
    let when = match site.in_loop {
        Some(true) => "once after the loop",
        None => "once at its end",
        Some(false) => return None,
    };
    Some(Advice {
        fix: Fix::Hoist,
        text: format!(
            "Or keep {what} in local variables inside `{}`{at} and store them {when}, if no other \
             thread needs them before that.",
            site.function
        ),
        grows_by: Some(0),
    })
}
