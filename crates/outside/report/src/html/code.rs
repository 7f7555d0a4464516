//! The code that touches a finding's object, in its source, prepared for the template.

use super::place::Place;
use crate::clean::clean;
use crate::describe;
use crate::figures::{counted, percent};
use crate::on_pages;
use std::collections::BTreeMap;
use sunder_findings::Site;

/// Code under one heading.
pub(super) struct CodeTable {
    pub(super) title: &'static str,
    pub(super) functions: Vec<Function>,
}

pub(super) struct Function {
    pub(super) function: String,
    pub(super) file: String,
    pub(super) rows: Vec<Instruction>,
}

/// A row of the table of code: an instruction, or a source line near one.
pub(super) struct Instruction {
    pub(super) context: bool,
    pub(super) at: Place,
    pub(super) kind: &'static str,
    pub(super) share: String,
    pub(super) threads: String,
    pub(super) source: String,
}

/// The tables of sampled code and of code that calls lock functions.
pub(super) fn code(sites: &[Site]) -> Vec<CodeTable> {
    let (calls, sampled): (Vec<&Site>, Vec<&Site>) = sites.iter().partition(|s| s.calls.is_some());
    [
        ("Code that touches it", sampled),
        ("Lock calls (found in the code, not sampled)", calls),
    ]
    .into_iter()
    .filter(|(_, sites)| !sites.is_empty())
    .map(|(title, sites)| CodeTable {
        title,
        functions: functions(&sites),
    })
    .collect()
}

/// Sites by function, the busiest first, with the source around them.
fn functions(sites: &[&Site]) -> Vec<Function> {
    let total = sites
        .iter()
        .fold(0_u64, |sum, s| sum.saturating_add(s.accesses));
    let mut groups: Vec<((&str, &str), Vec<&Site>)> = Vec::new();
    for &site in sites {
        let file = site.file.as_deref().or(site.module.as_deref());
        let key = (site.function.as_str(), file.unwrap_or_default());
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(site),
            None => groups.push((key, vec![site])),
        }
    }
    groups
        .into_iter()
        .map(|((function, file), group)| Function {
            function: clean(function),
            file: clean(file),
            rows: rows(&group, file, total),
        })
        .collect()
}

/// The rows of one function: source lines by number if they are known, then the instructions
/// without a source line.
fn rows(sites: &[&Site], file: &str, total: u64) -> Vec<Instruction> {
    let source: BTreeMap<u32, String> = sites
        .iter()
        .flat_map(|s| &s.excerpt)
        .map(|l| (l.line, l.text.replace('\t', "        ")))
        .collect();
    let indent = |text: &String| text.len() - text.trim_start().len();
    let written = source.values().filter(|t| !t.trim().is_empty());
    let common = written.map(indent).min().unwrap_or(0);
    let at = |line: u32| Place::new(line.to_string(), Some(file), Some(line));
    let mut rows = Vec::new();
    let mut before: Option<u32> = None;
    for (&line, text) in &source {
        if before.is_some_and(|b| b.saturating_add(1) < line) {
            rows.push(Instruction::context(Place::of(None), "\u{22ee}"));
        }
        before = Some(line);
        let text = text.get(common..).unwrap_or_default();
        let here: Vec<&&Site> = sites.iter().filter(|s| s.line == Some(line)).collect();
        if here.is_empty() {
            rows.push(Instruction::context(at(line), text));
        }
        for site in here {
            rows.push(Instruction {
                source: clean(text),
                ..Instruction::new(site, total)
            });
        }
    }
    let shown = |s: &Site| s.line.is_some_and(|l| source.contains_key(&l));
    rows.extend(
        sites
            .iter()
            .filter(|s| !shown(s))
            .map(|s| Instruction::new(s, total)),
    );
    rows
}

impl Instruction {
    /// A source line without an instruction that touches the object.
    fn context(at: Place, text: &str) -> Self {
        Self {
            context: true,
            at,
            kind: "",
            share: String::new(),
            threads: String::new(),
            source: clean(text),
        }
    }

    fn new(site: &Site, total: u64) -> Self {
        let fields = || site.fields.join(", ");
        Self {
            context: false,
            at: Place::new(describe::site_place(site), site.file.as_deref(), site.line),
            kind: match site.calls {
                Some(_) => "calls",
                None => describe::access_kind(site.kind),
            },
            share: match site.calls {
                Some(_) => String::new(),
                None => percent(site.accesses as f64 * 100.0 / total.max(1) as f64),
            },
            threads: match (&site.calls, on_pages::misses(site)) {
                (Some(callee), _) => clean(callee),
                (None, Some(misses)) => misses,
                (None, None) => counted(site.threads.len(), "thread"),
            },
            source: clean(site.source.clone().unwrap_or_else(fields).trim()),
        }
    }
}
