//! One finding, prepared for the template.

use super::heatmap::Map;
use super::timeline::Timeline;
use crate::clean::clean;
use crate::describe;
use crate::figures::{counted, grouped, percent, short};
use crate::on_pages::{self, PageRun};
use std::collections::BTreeMap;
use sunder_findings::{
    Advice, Finding, Findings, Line, Object, Sharing, Site, Standing, file_name,
};

/// The number of maps that are shown, and of all maps with the folded ones. Further ones are
/// counted.
const SHOWN_MAPS: usize = 2;
const MOST_MAPS: usize = 24;

pub(super) struct Card {
    pub(super) rank: u32,
    pub(super) class: &'static str,
    pub(super) kind: &'static str,
    pub(super) minor: bool,
    pub(super) latent: bool,
    pub(super) subject: String,
    pub(super) place: String,
    pub(super) threads: usize,
    pub(super) threads_text: String,
    pub(super) rate: f64,
    pub(super) rate_text: String,
    pub(super) cost: String,
    /// The cost of the false part of mixed sharing.
    pub(super) cost_note: Option<String>,
    pub(super) cost_key: f64,
    /// Length of the cost's bar in percent.
    pub(super) bar: String,
    pub(super) origins: Vec<String>,
    pub(super) evidence: String,
    /// The pages of which threads had private copies, a sentence each.
    pub(super) private_pages: Vec<String>,
    /// The line sizes and starts with which the object would be shared.
    pub(super) elsewhere: Option<String>,
    pub(super) maps: Vec<Map>,
    pub(super) folded_maps: Vec<Map>,
    pub(super) folded_text: String,
    pub(super) left_out: Option<String>,
    pub(super) pages: Vec<PageTable>,
    pub(super) advice: Vec<AdviceView>,
    pub(super) code: Vec<CodeTable>,
    pub(super) stacks: Vec<Stack>,
    pub(super) timeline: Option<Timeline>,
}

/// The objects on one page.
pub(super) struct PageTable {
    pub(super) title: String,
    pub(super) runs: Vec<PageRun>,
}

/// The most pages that are shown. A row of a table is a range of bytes.
const MOST_PAGES: usize = 4;

fn page_tables(finding: &Finding) -> Vec<PageTable> {
    if finding.on_pages.is_none() {
        return Vec::new();
    }
    let table = |line: &Line| PageTable {
        title: format!("Page {}", line.address),
        runs: on_pages::runs(line),
    };
    finding.lines.iter().take(MOST_PAGES).map(table).collect()
}

pub(super) struct AdviceView {
    pub(super) parts: Vec<Part>,
    pub(super) growth: Option<String>,
}

/// A part of a sentence. Text in backquotes is code.
pub(super) struct Part {
    pub(super) code: bool,
    pub(super) text: String,
}

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
    pub(super) at: String,
    pub(super) kind: &'static str,
    pub(super) share: String,
    pub(super) threads: String,
    pub(super) source: String,
}

pub(super) struct Stack {
    pub(super) title: String,
    pub(super) frames: Vec<FrameView>,
}

pub(super) struct FrameView {
    pub(super) function: String,
    pub(super) place: String,
    pub(super) library: bool,
}

impl Card {
    pub(super) fn new(all: &Findings, finding: &Finding, threshold: f64) -> Self {
        let standing = finding.standing(threshold);
        let threads = describe::threads_of(finding);
        let on_pages = finding.on_pages.is_some();
        let mut maps = match on_pages {
            true => Vec::new(),
            false => Map::of_finding(all, finding, MOST_MAPS),
        };
        let folded_maps = maps.split_off(SHOWN_MAPS.min(maps.len()));
        let left = match on_pages {
            true => 0,
            false => finding.lines.len().saturating_sub(MOST_MAPS),
        };
        Self {
            rank: finding.rank,
            class: class(finding),
            kind: describe::kind(finding),
            minor: matches!(standing, Standing::BelowThreshold | Standing::TrueSharing),
            latent: finding.latent,
            subject: clean(&finding.subject()),
            place: finding
                .place()
                .map(|p| describe::place(&p))
                .unwrap_or_default(),
            threads,
            threads_text: counted(threads, "thread"),
            rate: finite(finding.interleavings_per_second),
            rate_text: short(finding.interleavings_per_second),
            cost: describe::whole_cost(finding),
            cost_note: match describe::gain(finding) {
                Some(gain) => Some(format!("a fix saves {gain}")),
                None => describe::false_part(finding),
            },
            cost_key: if finding.latent {
                -1.0
            } else {
                finite(finding.cost_percent)
            },
            bar: bar(finding),
            origins: origins(finding),
            evidence: evidence(all, finding),
            private_pages: private_pages(finding),
            pages: page_tables(finding),
            elsewhere: describe::predicted(finding),
            folded_text: counted(folded_maps.len(), "more line"),
            maps,
            folded_maps,
            left_out: (left > 0).then(|| format!("{} not drawn.", counted(left, "more line"))),
            advice: finding.advice.iter().map(AdviceView::new).collect(),
            code: code(&finding.sites),
            stacks: stacks(finding),
            timeline: Timeline::new(&finding.timeline, all.run.seconds),
        }
    }
}

fn evidence(all: &Findings, finding: &Finding) -> String {
    let mut told = describe::evidence(all, finding);
    for cause in on_pages::causes(finding) {
        told.push_str(". ");
        told.push_str(cause.trim_end_matches('.'));
    }
    told
}

fn private_pages(finding: &Finding) -> Vec<String> {
    let pages = finding.private_pages.iter().take(MOST_PAGES);
    pages.map(describe::private_page).collect()
}

fn class(finding: &Finding) -> &'static str {
    match (finding.latent, finding.sharing) {
        (true, _) => "latent",
        (false, Sharing::False) => "false",
        (false, Sharing::True) => "true",
        (false, Sharing::Mixed) => "mixed",
    }
}

fn finite(number: f64) -> f64 {
    if number.is_finite() { number } else { 0.0 }
}

fn bar(finding: &Finding) -> String {
    if finding.latent {
        return "0".to_owned();
    }
    format!("{:.1}", finite(finding.cost_percent).clamp(0.0, 100.0))
}

fn origins(finding: &Finding) -> Vec<String> {
    match &finding.neighbour {
        None => vec![describe::origin(&finding.object)],
        Some(other) => vec![
            format!("first: {}", describe::origin(&finding.object)),
            format!("second: {}", describe::origin(other)),
        ],
    }
}

/// `text`, split at its backquotes.
pub(super) fn parts(text: &str) -> Vec<Part> {
    clean(text)
        .split('`')
        .enumerate()
        .map(|(i, part)| Part {
            code: i % 2 == 1,
            text: part.to_owned(),
        })
        .filter(|p| !p.text.is_empty())
        .collect()
}

impl AdviceView {
    fn new(advice: &Advice) -> Self {
        Self {
            parts: parts(&advice.text),
            growth: advice.grows_by.filter(|&b| b > 0).map(grouped),
        }
    }
}

/// The tables of sampled code and of code that calls lock functions.
fn code(sites: &[Site]) -> Vec<CodeTable> {
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
            rows: rows(&group, total),
        })
        .collect()
}

/// The rows of one function: source lines by number if they are known, then the instructions
/// without a source line.
fn rows(sites: &[&Site], total: u64) -> Vec<Instruction> {
    let source: BTreeMap<u32, String> = sites
        .iter()
        .flat_map(|s| &s.excerpt)
        .map(|l| (l.line, l.text.replace('\t', "        ")))
        .collect();
    let indent = |text: &String| text.len() - text.trim_start().len();
    let written = source.values().filter(|t| !t.trim().is_empty());
    let common = written.map(indent).min().unwrap_or(0);
    let mut rows = Vec::new();
    let mut before: Option<u32> = None;
    for (&line, text) in &source {
        if before.is_some_and(|b| b.saturating_add(1) < line) {
            rows.push(Instruction::context(String::new(), "\u{22ee}"));
        }
        before = Some(line);
        let text = text.get(common..).unwrap_or_default();
        let here: Vec<&&Site> = sites.iter().filter(|s| s.line == Some(line)).collect();
        if here.is_empty() {
            rows.push(Instruction::context(line.to_string(), text));
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
    fn context(at: String, text: &str) -> Self {
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
            at: describe::site_place(site),
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

fn stacks(finding: &Finding) -> Vec<Stack> {
    let own = ("Allocated by", &finding.object);
    let other = finding
        .neighbour
        .as_ref()
        .filter(|o| o.allocation != finding.object.allocation)
        .map(|o| ("The neighbour was allocated by", o));
    std::iter::once(own)
        .chain(other)
        .filter(|(_, object)| !object.allocation.is_empty())
        .map(|(title, object)| Stack::new(title, object))
        .collect()
}

impl Stack {
    fn new(title: &str, object: &Object) -> Self {
        let frames = object
            .allocation
            .iter()
            .map(|frame| {
                let place = match (&frame.file, frame.line) {
                    (Some(file), Some(line)) => format!("{}:{line}", clean(file)),
                    (Some(file), None) => clean(file),
                    _ => clean(file_name(frame.module.as_deref().unwrap_or_default())),
                };
                let inlined = if frame.inlined { " (inlined)" } else { "" };
                FrameView {
                    function: clean(&frame.function),
                    place: format!("{place}{inlined}"),
                    library: frame.is_library(),
                }
            })
            .collect();
        Self {
            title: title.to_owned(),
            frames,
        }
    }
}
