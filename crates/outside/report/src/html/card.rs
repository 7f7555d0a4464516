//! One finding, prepared for the template.

use super::code::{CodeTable, code};
use super::heatmap::Map;
use super::place::Place;
use super::timeline::Timeline;
use crate::clean::clean;
use crate::describe;
use crate::figures::{counted, grouped, short};
use crate::on_pages::{self, PageRun};
use sunder_findings::{
    Advice, Finding, Findings, Line, Object, Sharing, Standing, file_name, fingerprint,
};

/// The number of maps that are shown, and of all maps with the folded ones. Further ones are
/// counted.
const SHOWN_MAPS: usize = 2;
const MOST_MAPS: usize = 24;
/// So many findings are unfolded when the page opens. More make a page that nobody reads to its end.
const OPEN: usize = 12;

pub(super) struct Card {
    pub(super) rank: u32,
    /// The finding's identity across runs; a link with it leads to the finding in later reports, too.
    pub(super) fingerprint: String,
    /// Whether the card is unfolded when the page opens.
    pub(super) open: bool,
    /// What the filter can ask for and this finding has; see [`super::facets`].
    pub(super) facets: String,
    pub(super) class: &'static str,
    pub(super) kind: &'static str,
    pub(super) minor: bool,
    pub(super) latent: bool,
    pub(super) subject: String,
    pub(super) place: Place,
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
    pub(super) elsewhere: Vec<String>,
    pub(super) maps: Vec<Map>,
    pub(super) folded_maps: Vec<Map>,
    pub(super) folded_text: String,
    pub(super) left_out: Option<String>,
    pub(super) pages: Vec<PageTable>,
    pub(super) advice: Vec<AdviceView>,
    /// The finding and its advice as Markdown, for the clipboard.
    pub(super) copy: String,
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

pub(super) struct Stack {
    pub(super) title: String,
    pub(super) frames: Vec<FrameView>,
}

pub(super) struct FrameView {
    pub(super) function: String,
    pub(super) place: Place,
    pub(super) inlined: bool,
    pub(super) library: bool,
}

impl Card {
    /// `at` is the finding's place in the result, from 0; `facets` are the finding's.
    pub(super) fn new(all: &Findings, at: usize, facets: String, threshold: f64) -> Self {
        let finding = &all.findings[at];
        let standing = finding.standing(threshold);
        let threads = describe::threads_of(finding);
        let on_pages = finding.on_pages.is_some();
        let mut maps = match on_pages {
            true => Vec::new(),
            false => Map::of_finding(all, at, finding, MOST_MAPS),
        };
        let folded_maps = maps.split_off(SHOWN_MAPS.min(maps.len()));
        let left = match on_pages {
            true => 0,
            false => finding.all_lines().saturating_sub(MOST_MAPS),
        };
        Self {
            rank: finding.rank,
            fingerprint: fingerprint(finding),
            open: at < OPEN,
            facets,
            class: class(finding),
            kind: describe::kind(finding),
            minor: standing == Standing::BelowThreshold,
            latent: finding.latent,
            subject: clean(&finding.subject()),
            place: Place::of(finding.place().as_ref()),
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
            elsewhere: describe::elsewhere(finding),
            folded_text: counted(folded_maps.len(), "more line"),
            maps,
            folded_maps,
            left_out: (left > 0).then(|| format!("{} not drawn.", counted(left, "more line"))),
            advice: finding.advice.iter().map(AdviceView::new).collect(),
            copy: copy(finding),
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

/// A finding as Markdown: what, where, what it costs, and what to do.
fn copy(finding: &Finding) -> String {
    let place = finding
        .place()
        .map(|p| format!(" ({})", describe::place(&p)));
    let mut text = format!(
        "**{}: `{}`**{}: {}.\n",
        describe::kind(finding),
        clean(&finding.subject()).replace('`', "'"),
        place.unwrap_or_default(),
        describe::cost(finding),
    );
    for advice in &finding.advice {
        let growth = advice.grows_by.filter(|&b| b > 0);
        let growth = growth.map(|b| format!(" (+{} bytes)", grouped(b)));
        let growth = growth.unwrap_or_default();
        text.push_str(&format!("\n- {}{growth}", clean(&advice.text)));
    }
    text
}

impl AdviceView {
    fn new(advice: &Advice) -> Self {
        Self {
            parts: parts(&advice.text),
            growth: advice.grows_by.filter(|&b| b > 0).map(grouped),
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
                let text = match (&frame.file, frame.line) {
                    (Some(file), Some(line)) => format!("{}:{line}", clean(file)),
                    (Some(file), None) => clean(file),
                    _ => clean(file_name(frame.module.as_deref().unwrap_or_default())),
                };
                let place = Place::new(text, frame.file.as_deref(), frame.line);
                FrameView {
                    function: clean(&frame.function),
                    place,
                    inlined: frame.inlined,
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
