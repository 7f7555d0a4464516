//! The limits of a result that concern the processes that the program started, and their heaps.

use crate::kind::Chosen;
use crate::program::Linkage;
use crate::watching::Live;
use sunder_access::ProcessId;
use sunder_findings::Limit;
use sunder_wire::RuntimeStatus;
use sunder_wire::layout::Refusal;

/// The limit to report if the program has started processes (`any`) that were not fully
/// observed.
pub fn children_limit(
    any: bool,
    observer: Chosen,
    follow_children: bool,
    can_follow: bool,
) -> Option<Limit> {
    let limit = match (observer.name, follow_children) {
        (_, false) if !can_follow => Limit::ProcessesLeftOut,
        (_, false) => Limit::ProcessesNotFollowed,
        ("timer", true) => Limit::ProcessesWithoutTimer,
        _ => return None,
    };
    any.then_some(limit)
}

/// The limits for followed processes whose heap is not known.
pub fn heap_limits(live: &Live, root: ProcessId) -> Vec<Limit> {
    let mut limits = Vec::new();
    let without = live.session.without_heap(root);
    let named: Vec<_> = without.iter().take(MOST_NAMED).cloned().collect();
    if !named.is_empty() {
        let more = without.len() - named.len();
        limits.push(Limit::ProcessesWithoutHeap { named, more });
    }
    let registry = live.registry();
    let missed = registry.map_or(0, |r| r.missed());
    if missed > 0 {
        limits.push(Limit::ProcessesMissed(missed));
    }
    if registry.is_some_and(|r| r.foreign() > 0) {
        limits.push(Limit::ForeignProcesses);
    }
    limits
}

/// The limit for followed processes that have not ended with the program itself, as a server that becomes a
/// daemon.
pub fn going_on(live: &Live, root: ProcessId) -> Option<Limit> {
    let all = live.session.going_on(root);
    let named: Vec<_> = all.iter().take(MOST_NAMED).cloned().collect();
    let more = all.len() - named.len();
    (!named.is_empty()).then_some(Limit::ProcessesGoOn { named, more })
}

/// Processes that a limit names; a server may have hundreds.
const MOST_NAMED: usize = 4;

/// The limits for what the runtime library in the program could not do.
pub fn runtime_limits(status: &RuntimeStatus, linkage: Option<Linkage>) -> Vec<Limit> {
    let mut limits = Vec::new();
    if status.loaded.is_none() {
        let why = match linkage {
            Some(Linkage::Static) => "the program is statically linked",
            Some(Linkage::Privileged) => "the program has set-user-id or other privileges",
            _ => "the runtime library was not loaded",
        };
        limits.push(Limit::NoRuntime { why: why.into() });
    } else if let Some(refusal) = status.refusal {
        limits.push(Limit::NoRuntime {
            why: match refusal {
                Refusal::Valgrind => "the program ran under Valgrind".to_owned(),
                other => format!("the runtime library stayed passive ({other:?})"),
            },
        });
    }
    let mut count = |number: u64, limit: fn(u64) -> Limit| {
        if number > 0 {
            limits.push(limit(number));
        }
    };
    count(status.threads_dropped, Limit::ThreadsBeyondTable);
    count(status.blocks_dropped, Limit::BlocksBeyondTable);
    count(status.stacks_dropped, Limit::StacksBeyondTable);
    count(status.timers_refused, Limit::ThreadsWithoutTimer);
    // The signal is left to a program that confines itself, too.
    if status.confined {
        limits.push(Limit::Confined);
    } else if status.signal_taken {
        limits.push(Limit::SignalTaken);
    }
    limits
}
