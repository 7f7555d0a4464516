//! The sentences of a result that say what could not be seen of the program's processes and
//! heaps, and why.

use crate::choice::Chosen;
use crate::program::{self, Linkage};
use crate::watching::Live;
use sunder_access::ProcessId;
use sunder_wire::RuntimeStatus;

/// The program started processes that nobody looked at, and no option would change that.
pub const LEFT_OUT: &str = "The program started other processes, which were not looked at.";

/// What to say of processes that the program started.
pub fn children_limit(
    any: bool,
    observer: Chosen,
    follow_children: bool,
    can_follow: bool,
) -> Option<String> {
    let text = match (observer.name, follow_children) {
        (_, false) if !can_follow => LEFT_OUT,
        (_, false) => {
            "The program started other processes, which were not looked at; --follow-children \
             follows them."
        }
        ("timer", true) => {
            "Processes that did not load the runtime library, such as statically linked programs, \
             were not seen by the timer observer."
        }
        _ => return None,
    };
    any.then(|| text.to_owned())
}

/// What is not known of the heaps of followed processes.
pub fn heap_limits(live: &Live, root: ProcessId) -> Vec<String> {
    let mut limits = Vec::new();
    let without = live.session.without_heap(root);
    let shown: Vec<_> = without.iter().take(MOST_NAMED).cloned().collect();
    match (without.len(), without.len() - shown.len()) {
        (0, _) => {}
        (1, _) => limits.push(format!(
            "Heap objects of process {} have no names and call stacks: it ran without the runtime \
             library.",
            shown.join(", ")
        )),
        (_, 0) => limits.push(format!(
            "Heap objects of the processes {} have no names and call stacks: they ran without the \
             runtime library.",
            shown.join(", ")
        )),
        (_, more) => limits.push(format!(
            "Heap objects of the processes {} and {more} more have no names and call stacks: they \
             ran without the runtime library.",
            shown.join(", ")
        )),
    }
    let registry = live.registry();
    let missed = registry.map_or(0, |r| r.missed());
    if missed > 0 {
        limits.push(format!(
            "{missed} processes came faster than segments could be made for them; their heap \
             objects have no names."
        ));
    }
    if registry.is_some_and(|r| r.foreign() > 0) {
        limits.push(
            "Heap objects of processes in another process namespace have no names: their numbers \
             are not known there."
                .into(),
        );
    }
    limits
}

/// Processes that a limit names; a server may have hundreds.
const MOST_NAMED: usize = 4;

/// What the runtime could not do, for the report.
pub fn runtime_limits(status: &RuntimeStatus, path: Option<&std::path::Path>) -> Vec<String> {
    let mut limits = Vec::new();
    if status.loaded.is_none() {
        let why = match path.map(program::linkage) {
            Some(Linkage::Static) => "the program is statically linked",
            Some(Linkage::Privileged) => "the program has set-user-id or other privileges",
            _ => "the runtime library was not loaded",
        };
        limits.push(format!(
            "Heap objects have no names and call stacks: {why}."
        ));
    } else if let Some(refusal) = status.refusal {
        limits.push(format!(
            "Heap objects have no names and call stacks: the runtime library stayed passive ({refusal:?})."
        ));
    }
    let mut count = |number: u64, what: &str| {
        if number > 0 {
            limits.push(format!("{number} {what}"));
        }
    };
    count(
        status.threads_dropped,
        "threads were beyond the table of threads.",
    );
    count(
        status.blocks_dropped,
        "heap blocks were beyond the table of blocks and have no names.",
    );
    count(
        status.stacks_dropped,
        "allocations were beyond the table of call stacks.",
    );
    count(
        status.timers_refused,
        "threads got no timer and gave no samples.",
    );
    if status.signal_taken {
        limits.push(
            "The program took the signal of the timer observer; sampling stopped there.".into(),
        );
    }
    limits
}
