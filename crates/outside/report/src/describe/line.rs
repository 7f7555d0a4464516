//! The lines, words and instructions of a finding.

use crate::clean::clean;
use sunder_findings::{AccessKind, Finding, Findings, LatentOn, Line, Site, ThreadUse, Word};

/// What a thread does to a word, the strongest kind first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Touch {
    Read,
    Write,
    Atomic,
}

impl Touch {
    pub(crate) fn of(thread: &ThreadUse) -> Option<Self> {
        if thread.atomics > 0 {
            Some(Self::Atomic)
        } else if thread.stores() > 0 {
            Some(Self::Write)
        } else if thread.reads > 0 {
            Some(Self::Read)
        } else {
            None
        }
    }

    /// The verb for a sentence.
    pub(crate) const fn verb(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Atomic => "updates atomically",
        }
    }

    /// The class in the style sheet.
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Atomic => "atomic",
        }
    }

    pub(crate) const fn letter(self) -> char {
        match self {
            Self::Read => 'r',
            Self::Write => 'W',
            Self::Atomic => 'A',
        }
    }
}

/// The verb for what an instruction does.
pub(crate) const fn access_kind(kind: AccessKind) -> &'static str {
    match kind {
        AccessKind::Read => "read",
        AccessKind::Write => "write",
        AccessKind::Update => "update",
        AccessKind::Atomic => "atomic",
    }
}

/// The line number of a site, or its address if there is none. A function with an offset
/// already has a position, which is the same in every run.
pub(crate) fn site_place(site: &Site) -> String {
    match site.line {
        Some(line) => line.to_string(),
        None if site.function.contains("+0x") => String::new(),
        None => site.address.to_string(),
    }
}

/// The position of a line in its object, if it is known.
pub(crate) fn line_position(line: &Line) -> Option<String> {
    Some(match line.object_offset? {
        0 => "start of the object".to_owned(),
        offset if offset > 0 => format!("byte {offset} of the object"),
        offset => format!("the object starts at its byte {}", offset.unsigned_abs()),
    })
}

/// A word's field and bytes.
pub(crate) fn word_name(word: &Word) -> String {
    let last = word.offset.saturating_add(word.size.max(1) - 1);
    match &word.field {
        Some(field) => format!("{} (bytes {}-{last})", clean(field), word.offset),
        None => format!("bytes {}-{last}", word.offset),
    }
}

/// The number of bytes of a line to draw: the machine's line size, or the one with which a
/// latent finding would happen; more if a word lies beyond it.
pub(crate) fn drawn_line_size(all: &Findings, finding: &Finding) -> u32 {
    let nominal = match finding.latent_on {
        Some(LatentOn::LineSize(bytes)) => bytes,
        _ => all.machine.line_size,
    };
    let touched = finding
        .lines
        .iter()
        .flat_map(|l| &l.words)
        .map(|w| w.offset.saturating_add(w.size))
        .max()
        .unwrap_or(0);
    let needed = touched.clamp(8, 256).next_power_of_two();
    nominal.clamp(8, 256).max(needed)
}
