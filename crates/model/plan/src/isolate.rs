//! Which objects of a result each thread may have a private copy of while it computes, and why
//! other objects may not. Called by `sunder protect`. Pure.
//!
//! A thread with a private copy of a page delays its stores. That is only right for bytes that
//! one thread uses, so every word of a finding must have one owner.

use crate::layout::Layout;
use sunder_findings::{Finding, Findings, Object, ObjectKind, Sharing};

/// The objects of a result that can be isolated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Isolation<'a> {
    /// The objects, each with the rank of its finding.
    pub objects: Vec<(u32, &'a Object)>,
    /// The reasons for all others, one sentence each.
    pub left_out: Vec<String>,
}

/// The objects of `findings` that may be isolated. With `strict`, only objects of which no byte
/// was ever seen used by two threads. Otherwise other threads may touch a byte rarely, as the
/// thread that initialises an object or prints it at the end.
pub fn isolation(findings: &Findings, strict: bool) -> Isolation<'_> {
    let mut isolation = Isolation::default();
    for finding in &findings.findings {
        match cannot_be_isolated(finding, strict) {
            None => {
                let both = std::iter::once(&finding.object).chain(&finding.neighbour);
                isolation.objects.extend(both.map(|o| (finding.rank, o)));
            }
            Some(why) => isolation
                .left_out
                .push(format!("finding {}: {why}", finding.rank)),
        }
    }
    isolation
}

/// Why the objects of one finding may not be isolated in another run; `None` if they may. `strict` as
/// in [`isolation`].
fn cannot_be_isolated(finding: &Finding, strict: bool) -> Option<&'static str> {
    let mut objects = std::iter::once(&finding.object).chain(&finding.neighbour);
    if objects.any(|object| matches!(object.kind, ObjectKind::Mapping | ObjectKind::Stack)) {
        return Some("memory that the program maps, and stacks, are recognised only while it runs");
    }
    cannot_be_isolated_here(finding, strict)
}

/// Why the objects of one line of a program that still runs may not be isolated; `None` if they may.
/// `strict` as in [`isolation`].
pub fn cannot_be_isolated_here(finding: &Finding, strict: bool) -> Option<&'static str> {
    if finding.latent {
        return Some("it costs nothing here");
    }
    if finding.sharing != Sharing::False {
        return Some("threads use the same bytes");
    }
    if finding.processes.len() > 1 {
        return Some("several processes share it");
    }
    let objects = std::iter::once(&finding.object).chain(&finding.neighbour);
    for object in objects {
        match object.kind {
            ObjectKind::Global if object.name.is_some() => {}
            ObjectKind::Heap if !object.allocation.is_empty() => {}
            ObjectKind::Mapping | ObjectKind::Stack => {}
            ObjectKind::Global | ObjectKind::Heap => return Some("its object has no name"),
            _ => return Some("thread-local variables can't be isolated"),
        }
    }
    let layout = Layout::of(finding, 64);
    if layout.parts.iter().any(crate::layout::Part::atomic) {
        return Some("threads use atomic instructions on it");
    }
    let several = |part: &crate::layout::Part<'_>| {
        part.sole_owner().is_none() || strict && part.word.threads.len() > 1
    };
    if layout.parts.iter().any(several) {
        return Some("some of its bytes are used by several threads");
    }
    layout
        .parts
        .is_empty()
        .then_some("it is not known who uses which bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_findings::{Line, ThreadUse, Word};

    fn word(offset: u32, threads: &[(u32, u64)]) -> Word {
        Word {
            offset,
            size: 8,
            threads: threads
                .iter()
                .map(|(id, updates)| ThreadUse {
                    id: *id,
                    updates: *updates,
                    ..ThreadUse::default()
                })
                .collect(),
            ..Word::default()
        }
    }

    fn finding(words: Vec<Word>) -> Finding {
        Finding {
            rank: 1,
            object: Object {
                kind: ObjectKind::Global,
                name: Some("stats".into()),
                ..Object::default()
            },
            lines: vec![Line {
                words,
                ..Line::default()
            }],
            ..Finding::default()
        }
    }

    fn left_out(finding: Finding, strict: bool) -> Vec<String> {
        let findings = Findings {
            findings: vec![finding],
            ..Findings::default()
        };
        let isolation = isolation(&findings, strict);
        assert_eq!(isolation.objects.len() + isolation.left_out.len(), 1);
        isolation.left_out
    }

    #[test]
    fn elements_of_one_thread_each_are_isolated() {
        let own = finding(vec![word(0, &[(1, 90)]), word(8, &[(2, 80)])]);
        assert_eq!(left_out(own.clone(), true), Vec::<String>::new());
        let latent = Finding {
            latent: true,
            ..own
        };
        assert_eq!(left_out(latent, false).len(), 1);
    }

    #[test]
    fn bytes_of_two_threads_are_not_isolated() {
        let both = finding(vec![word(0, &[(1, 60), (2, 40)]), word(8, &[(2, 80)])]);
        let why = "finding 1: some of its bytes are used by several threads";
        assert_eq!(left_out(both, false), [why]);
        // Initialised by another thread: only `strict` refuses it.
        let set_up = finding(vec![word(0, &[(1, 99), (7, 1)]), word(8, &[(2, 80)])]);
        assert_eq!(left_out(set_up.clone(), false), Vec::<String>::new());
        assert_eq!(left_out(set_up, true), [why]);
    }

    #[test]
    fn atomics_and_unnamed_memory_are_not_isolated() {
        let mut atomic = finding(vec![word(0, &[(1, 90)]), word(8, &[(2, 80)])]);
        atomic.lines[0].words[0].threads[0].atomics = 1;
        assert_eq!(left_out(atomic, false).len(), 1);
        let mut local = finding(vec![word(0, &[(1, 90)]), word(8, &[(2, 80)])]);
        local.object.kind = ObjectKind::Tls;
        assert_eq!(left_out(local, false).len(), 1);
        for kind in [ObjectKind::Stack, ObjectKind::Mapping] {
            let mut passing = finding(vec![word(0, &[(1, 90)]), word(8, &[(2, 80)])]);
            passing.object.kind = kind;
            assert_eq!(cannot_be_isolated_here(&passing, false), None);
            assert_eq!(left_out(passing, false).len(), 1, "in another run");
        }
        assert_eq!(left_out(finding(vec![]), false).len(), 1);
    }
}
