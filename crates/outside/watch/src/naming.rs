//! Findings that a process of their own names, since debug information may take much memory; and what it
//! answers.

use crate::answers::Answers;
use crate::aside::{Aside, Extent};
use crate::look::Look;
use crate::owner::Owner;
use std::collections::HashSet;
use std::sync::Arc;
use sunder_findings::Origin;
use sunder_objects::Memory;

/// Findings of a look that are being named.
pub struct Naming {
    pub origin: Origin,
    /// Who pays for it.
    pub owner: Owner,
    pub aside: Aside,
    /// CPU seconds that the owner was told of.
    pub told_seconds: f64,
    /// Whether the process has ended meanwhile.
    pub over: bool,
}

impl Naming {
    /// CPU seconds that it has taken and the owner was not told of.
    pub fn took(&mut self) -> f64 {
        let all = self.aside.cpu_seconds().max(self.told_seconds);
        all - std::mem::replace(&mut self.told_seconds, all)
    }
}

/// The answer of a process that names findings, in its parts.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Named<'a> {
    /// Whether debug information was read.
    pub whole: bool,
    /// As JSON.
    pub findings: &'a [u8],
    /// Answers of debug information that are new.
    pub learned: &'a [u8],
}

impl<'a> Named<'a> {
    /// Names what the look has found: the answer.
    pub fn by(look: Look, answers: Option<&Answers>, extent: Extent) -> Vec<u8> {
        let known = answers.map(Answers::read);
        let memory = known.clone().map(|known| known as Arc<dyn Memory>);
        let findings = look.finish(memory, extent).to_json().unwrap_or_default();
        let mut answer = vec![u8::from(extent == Extent::Whole)];
        answer.extend((findings.len() as u64).to_le_bytes());
        answer.extend_from_slice(findings.as_bytes());
        if let Some(known) = known {
            answer.extend(known.learned());
        }
        answer
    }

    /// The parts of an answer; nothing of one that was cut short.
    pub fn parts(answer: &'a [u8]) -> Self {
        let parts = || {
            let (&[whole], rest) = answer.split_first_chunk()?;
            let (&length, rest) = rest.split_first_chunk()?;
            let length = usize::try_from(u64::from_le_bytes(length)).ok()?;
            let (findings, learned) = rest.split_at_checked(length)?;
            Some(Self {
                whole: whole == 1,
                findings,
                learned,
            })
        };
        parts().unwrap_or_default()
    }
}

/// Builds whose debug information took too much time or memory. It is not read again: every process of such a
/// build would cost as much.
#[derive(Debug, Default)]
pub struct Heavy(HashSet<(Option<String>, Option<String>)>);

/// The most builds that are remembered. Of further ones debug information is read.
const MOST_HEAVY: usize = 1024;

impl Heavy {
    /// How much is to be done to name what was found in such a process.
    pub fn extent(&self, origin: &Origin) -> Extent {
        if self.0.contains(&build(origin)) {
            Extent::Least
        } else {
            Extent::Whole
        }
    }

    /// Its debug information took too much.
    pub fn add(&mut self, origin: &Origin) {
        if self.0.len() < MOST_HEAVY {
            self.0.insert(build(origin));
        }
    }
}

fn build(origin: &Origin) -> (Option<String>, Option<String>) {
    (origin.path.clone(), origin.build_id.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_was_cut_short_says_nothing() {
        let mut answer = vec![1];
        answer.extend(2u64.to_le_bytes());
        answer.extend(b"{}learned");
        let whole = Named {
            whole: true,
            findings: b"{}",
            learned: b"learned",
        };
        assert_eq!(Named::parts(&answer), whole);
        for cut in 0..11 {
            assert_eq!(Named::parts(&answer[..cut]), Named::default(), "{cut}");
        }
        assert_eq!(Named::parts(&answer[..11]).learned, b"");
    }

    #[test]
    fn debug_information_that_took_too_much_is_not_read_again() {
        let mut heavy = Heavy::default();
        let of = |path: &str, build: &str| Origin {
            path: Some(path.into()),
            build_id: Some(build.into()),
            ..Origin::default()
        };
        heavy.add(&of("/opt/server", "1"));
        assert_eq!(heavy.extent(&of("/opt/server", "1")), Extent::Least);
        assert_eq!(heavy.extent(&of("/opt/server", "2")), Extent::Whole);
        assert_eq!(heavy.extent(&of("/opt/other", "1")), Extent::Whole);
    }
}
