//! Findings that a process of their own names, since debug information may take much memory; and what it
//! answers.

use crate::answers::Answers;
use crate::aside::Aside;
use crate::look::Look;
use std::sync::Arc;
use sunder_findings::Origin;
use sunder_objects::Memory;

/// Findings of a look that are being named.
pub struct Naming {
    pub origin: Origin,
    pub aside: Aside,
    /// Whether the process has ended meanwhile.
    pub over: bool,
}

/// What a process answers that names: the length of the findings, the findings, and what it learned.
pub struct Named;

impl Named {
    /// Names what the look has found: the answer.
    pub fn by(look: Look, answers: Option<&Answers>) -> Vec<u8> {
        let known = answers.map(Answers::read);
        let memory = known.clone().map(|known| known as Arc<dyn Memory>);
        let findings = look.finish(memory).to_json().unwrap_or_default();
        let mut answer = (findings.len() as u64).to_le_bytes().to_vec();
        answer.extend_from_slice(findings.as_bytes());
        if let Some(known) = known {
            answer.extend(known.learned());
        }
        answer
    }

    /// Findings and what was learned; nothing of an answer that was cut short.
    pub fn parts(answer: &[u8]) -> (&[u8], &[u8]) {
        let parts = answer.split_first_chunk().and_then(|(length, rest)| {
            let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
            rest.split_at_checked(length)
        });
        parts.unwrap_or_default()
    }
}
