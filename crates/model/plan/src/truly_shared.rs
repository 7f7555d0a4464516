//! Advice for bytes that several threads write. Padding does not help there, less sharing does.

use crate::layout::{Layout, Part};
use crate::words::{counted, quoted, short_list};
use std::collections::BTreeSet;
use sunder_findings::{Advice, Fix};

/// Advice for the truly shared bytes of a finding; empty if none are seen.
pub(crate) fn advise(layout: &Layout) -> Vec<Advice> {
    let those = |wanted: &dyn Fn(&Part) -> bool| -> Vec<&Part> {
        layout.parts.iter().filter(|p| wanted(p)).collect()
    };
    let mut shared = those(&|part| part.truly_shared());
    // The verdict is true sharing, but each word looks private. The verdict knows more than the
    // words (it is based on the order of accesses). So words that others use seldom count, and
    // without any of these all words.
    if shared.is_empty() {
        shared = those(&|part| part.written() && part.word.threads.len() > 1);
    }
    if shared.is_empty() {
        shared = those(&|_| true);
    }
    let names: BTreeSet<String> = shared.iter().map(|p| p.called(layout)).collect();
    let names: Vec<String> = names.into_iter().collect();
    let what = if names.is_empty() {
        quoted(layout.finding.object.short_name())
    } else {
        short_list(&names, 4)
    };
    let threads: BTreeSet<u32> = shared
        .iter()
        .flat_map(|p| &p.word.threads)
        .map(|t| t.id)
        .collect();
    let who = counted(threads.len(), "thread");
    let code = layout
        .busiest_site()
        .map(|s| format!(" (most often in {s})"))
        .unwrap_or_default();
    let (fix, how) = match Pattern::of(layout, &shared) {
        Pattern::Lock => (
            Fix::ShareLess,
            "Take the lock less often: shard it with its data, do more under one hold, or hold \
             it for less time",
        ),
        Pattern::Barrier => (
            Fix::ShareLess,
            "It is where threads wait for each other, so all must see it: wait less often, with \
             more work between two waits, or wait in groups",
        ),
        Pattern::References => (
            Fix::ShareLess,
            "It counts the owners of an object: hand on references or borrow instead of copying \
             the counted pointer, or give each thread one copy that it keeps",
        ),
        Pattern::Counter => (
            Fix::PerThread,
            "If it only counts, count in a variable per thread, each on a line of its own, and \
             add them up when someone reads, or add in batches; else take several at once",
        ),
        Pattern::Flag => (
            Fix::ShareLess,
            "One thread writes and the others look: look less often, keep a copy per thread that \
             is refreshed now and then, or let readers sleep until there is news",
        ),
        Pattern::Other => (
            Fix::ShareLess,
            match names.len() {
                0 | 1 => {
                    "Let fewer threads write it: a copy per thread, batches, or a split by key"
                }
                _ => "Let fewer threads write them: a copy per thread, batches, or a split by key",
            },
        ),
    };
    vec![Advice {
        fix,
        text: format!("{what}: the same bytes are used by {who}{code}. {how}."),
        grows_by: match fix {
            Fix::PerThread => {
                Some((threads.len() as u64).saturating_mul(u64::from(layout.line_size)))
            }
            _ => None,
        },
    }]
}

enum Pattern {
    Lock,
    Barrier,
    References,
    Counter,
    Flag,
    Other,
}

impl Pattern {
    fn of(layout: &Layout, shared: &[&Part]) -> Self {
        let uses = || shared.iter().flat_map(|p| &p.word.threads);
        let writers: BTreeSet<u32> = uses().filter(|t| t.stores() > 0).map(|t| t.id).collect();
        let (updates, rest) = uses().fold((0, 0), |(u, r), t| {
            (
                u64::saturating_add(u, t.updates),
                u64::saturating_add(r, t.reads.saturating_add(t.writes)),
            )
        });
        if shared.iter().any(|p| is_lock(layout, p)) {
            Self::Lock
        } else if is_barrier(layout) {
            Self::Barrier
        } else if shared.iter().any(|p| counts_owners(p)) {
            Self::References
        } else if writers.len() == 1 {
            Self::Flag
        } else if updates > rest && !exchanges(layout) {
            Self::Counter
        } else {
            Self::Other
        }
    }
}

/// Whether the code that touches the object most compares and exchanges: it takes something, and counts
/// nothing.
fn exchanges(layout: &Layout) -> bool {
    let busiest = layout.finding.sites.iter().max_by_key(|s| s.accesses);
    let names = ["compare_exchange", "cmpxchg", "compare_and_swap"];
    busiest.is_some_and(|site| names.iter().any(|name| site.function.contains(name)))
}

/// Whether a word looks like a lock, by its field, the object's name and type, or the functions
/// that touch it. It is a guess by names, because C has no types for locks.
pub(crate) fn is_lock(layout: &Layout, part: &Part) -> bool {
    let object = &layout.finding.object;
    let field = part.word.field.as_deref().unwrap_or_default();
    let whole = object.size.is_some_and(|s| s <= 64) && layout.parts.len() == 1;
    let of_object = [object.name.as_deref(), object.type_name.as_deref()]
        .into_iter()
        .flatten()
        .filter(|_| whole || field.is_empty());
    let functions = layout
        .finding
        .sites
        .iter()
        .filter(|s| !field.is_empty() && s.fields.iter().any(|f| f == field))
        .map(|s| s.function.as_str());
    // A word without a name that only the C library's lock functions touch.
    let by_code = field.is_empty()
        && !layout.finding.sites.is_empty()
        && layout
            .finding
            .sites
            .iter()
            .all(|s| s.calls.is_some() || locks(&s.function));
    by_code
        || std::iter::once(field)
            .chain(of_object)
            .chain(functions)
            .any(names_a_lock)
}

/// Whether the bytes look like a barrier's, by the object's name and type or all functions that
/// touch it. As for locks, no type tells in C.
fn is_barrier(layout: &Layout) -> bool {
    let object = &layout.finding.object;
    // A word of its own: `pthread_barrier_t`, `std::barrier<>`, `startBarrier`; not `barrier_hits`,
    // which counts something.
    let names = |name: &str| {
        let name = name.split(['<', ' ']).next().unwrap_or(name).to_lowercase();
        name.ends_with("barrier") || name.ends_with("barrier_t") || name.ends_with("barrier_wait")
    };
    let sites = &layout.finding.sites;
    [object.name.as_deref(), object.type_name.as_deref()]
        .into_iter()
        .flatten()
        .any(names)
        || !sites.is_empty() && sites.iter().all(|s| names(&s.function))
}

/// Whether the word is a count of owners, as naming calls it.
fn counts_owners(part: &Part) -> bool {
    let field = part.word.field.as_deref().unwrap_or_default();
    ["(use count)", "(weak count)", "(strong count)"]
        .iter()
        .any(|count| field.ends_with(count))
}

/// Whether the function is one of the C library's that acquire or release a lock.
fn locks(function: &str) -> bool {
    let name = function.trim_start_matches('_');
    let name = name.strip_prefix("GI_").unwrap_or(name);
    let name = name.trim_start_matches('_');
    ["pthread_mutex_", "pthread_spin_", "pthread_rwlock_", "lll_"]
        .iter()
        .any(|start| name.starts_with(start))
}

pub(crate) fn names_a_lock(name: &str) -> bool {
    let name = name
        .to_lowercase()
        .replace("lockfree", "")
        .replace("lock_free", "");
    ["mutex", "mtx", "spin", "semaphore", "futex", "latch"]
        .iter()
        .any(|l| name.contains(l))
        // `lock`, but not `block` or `clock`.
        || name.match_indices("lock").any(|(i, _)| {
            !name[..i].ends_with(['b', 'c']) || name[..i].ends_with("_c")
        })
}

#[cfg(test)]
mod tests {
    use super::names_a_lock;

    #[test]
    fn blocks_and_clocks_are_no_locks() {
        for lock in [
            "q.lock",
            "rwlock",
            "spin",
            "Mutex<u64>",
            "head_lock",
            "unlock",
        ] {
            assert!(names_a_lock(lock), "{lock}");
        }
        for other in [
            "block",
            "clock",
            "blocks_done",
            "hits",
            "boost::lockfree::queue<long>::push",
            "lock_free_list",
            "",
        ] {
            assert!(!names_a_lock(other), "{other}");
        }
    }
}
