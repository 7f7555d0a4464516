//! What the page's filter offers: kinds of objects, functions, threads and verdicts, each with
//! the number of findings that have it. A finding carries numbers instead of names, so names from
//! other people's programs can't break the filter.

use crate::clean::clean;
use crate::describe::{self, thread_label};
use std::collections::{BTreeMap, BTreeSet};
use sunder_findings::{Finding, Findings};

/// One list of the filter.
pub(super) struct Facet {
    /// Names the list in the page's markup.
    pub(super) id: &'static str,
    pub(super) label: &'static str,
    pub(super) choices: Vec<Choice>,
}

pub(super) struct Choice {
    /// What a finding that has it carries, such as `thread-3`.
    pub(super) key: String,
    pub(super) label: String,
    /// The number of findings that have it.
    pub(super) findings: usize,
}

/// The lists with at least two choices, and each finding's keys with spaces between them.
pub(super) fn facets(all: &Findings) -> (Vec<Facet>, Vec<String>) {
    let mut keys = vec![String::new(); all.findings.len()];
    let mut lists = Vec::new();
    for (id, label, names) in [
        ("kind", "Object kind", kinds as fn(&Finding) -> Vec<String>),
        ("function", "Function", functions),
        ("thread", "Thread", threads),
        ("verdict", "Verdict", verdicts),
    ] {
        let mut having: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        for (at, finding) in all.findings.iter().enumerate() {
            for name in names(finding) {
                having.entry(name).or_default().insert(at);
            }
        }
        if having.len() < 2 {
            continue;
        }
        let mut ordered: Vec<_> = having.into_iter().collect();
        // The sort is stable: equal counts stay in the order of their names.
        ordered.sort_by_key(|(_, findings)| std::cmp::Reverse(findings.len()));
        let choice = |(number, (label, findings)): (usize, (String, BTreeSet<usize>))| {
            let key = format!("{id}-{number}");
            for &at in &findings {
                keys[at].push_str(&key);
                keys[at].push(' ');
            }
            Choice {
                key,
                label,
                findings: findings.len(),
            }
        };
        lists.push(Facet {
            id,
            label,
            choices: ordered.into_iter().enumerate().map(choice).collect(),
        });
    }
    (lists, keys)
}

fn kinds(finding: &Finding) -> Vec<String> {
    let objects = std::iter::once(&finding.object).chain(&finding.neighbour);
    objects.map(|o| o.kind.words().to_owned()).collect()
}

fn functions(finding: &Finding) -> Vec<String> {
    finding.sites.iter().map(|s| clean(&s.function)).collect()
}

fn threads(finding: &Finding) -> Vec<String> {
    let words = finding.lines.iter().flat_map(|l| &l.words);
    let uses = words.flat_map(|w| &w.threads);
    uses.map(|t| thread_label(t.id, t.name.as_deref()))
        .collect()
}

fn verdicts(finding: &Finding) -> Vec<String> {
    let sure = match (finding.latent, finding.confirmed) {
        (true, _) => "predicted",
        (false, true) => "confirmed",
        (false, false) => "not confirmed",
    };
    vec![describe::kind(finding).to_owned(), sure.to_owned()]
}
