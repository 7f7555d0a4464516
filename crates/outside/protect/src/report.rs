//! What `protect` reports at the end: a line for people, and JSON for tools. The figures come from
//! the control file; this module must not decide anything.

use crate::ledger::Ledger;
use crate::upkeep::Spent;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::Relaxed;
use sunder_access::{Address, Span};
use sunder_findings::{PrivatePage, Progress};
use sunder_gain::gained::told;
use sunder_live::{LEFT_ALONE, counted};
use sunder_plan::progress::WORTH_KEEPING;
use sunder_wire::isolation::{BESIDE, COSTLY, Control, LEFT_OUT, closed, why};
use sunder_wire::tracking::page;

/// An object that was isolated because it was seen falsely shared, or two objects that share a
/// line.
#[derive(Clone, Debug, PartialEq)]
pub struct Isolated {
    /// Its name, as in findings.
    pub name: String,
    /// Its bytes: of two objects those of each, and of an object in parts those of each part, the one
    /// with the line that was confirmed first.
    pub spans: Vec<Span>,
    /// When it was isolated, in seconds since the observation began.
    pub at_seconds: f64,
    /// The most that the sharing cost by then, in percent of its threads' time.
    pub cost_percent: f64,
    /// How often two consecutive commits to one of its lines were by two threads. `None` while it
    /// is isolated.
    pub interleaved_writes: Option<u64>,
    /// How its threads got on before it was isolated and while they were.
    pub progress: Option<Progress>,
    /// Why it was shared again, if isolating it did not help.
    pub in_vain: Option<String>,
}

impl Isolated {
    /// The first byte of its first span.
    pub fn address(&self) -> Address {
        self.spans.first().map_or(Address(0), |span| span.start)
    }

    /// The number of its bytes.
    pub fn bytes(&self) -> u64 {
        self.spans.iter().map(|span| span.len).sum()
    }

    /// How often threads took turns on its lines.
    pub fn turns(&self, ledger: &Ledger) -> u64 {
        let now = || ledger.interleaved_writes(&self.spans);
        self.interleaved_writes.unwrap_or_else(now)
    }
}

/// The figures of one run.
#[derive(Debug)]
pub struct Summary {
    pages: u32,
    given_up: usize,
    /// Pages that stayed shared since threads hand data over there by plain loads and stores.
    handed_over: usize,
    episodes: u64,
    returns: Vec<(&'static str, u64)>,
    commits: u64,
    committed_bytes: u64,
    shared_bytes: u64,
    upkeep: Spent,
    /// How often that was too much, and the percentage of the last time.
    too_much: Option<(usize, u64)>,
    error: i64,
    ended: Option<String>,
    left_out: Vec<String>,
    objects: Option<Vec<Isolated>>,
    others: Option<bool>,
    private_pages: Vec<PrivatePage>,
    /// The sum over all pages; `None` if nothing was counted.
    interleaved_writes: Option<u64>,
}

/// The states of pages that were private until they were given up for good.
const GIVEN_UP: [u32; 3] = [page::CONTENDED, page::AWAITED, page::COSTLY];

/// Why no thread is isolated any more, if the library has stopped isolating.
pub fn closed_because(control: &Control) -> Option<&'static str> {
    match control.closed.load(Relaxed) {
        closed::FORK => Some("the program forked"),
        closed::MEMBARRIER => Some("the program uses membarrier"),
        closed::MEMORY => Some("its memory could not be made sharable"),
        closed::TIMERS => {
            Some("the program has timers or a limit of CPU time, which isolated threads do not use")
        }
        closed::HOOKS => Some("its C library's kernel calls can't be led through hooks"),
        closed::TILES => {
            Some("the program may use AMX tiles, which isolated threads could not take home")
        }
        closed::COSTS => Some("isolating its threads took too much of their time"),
        closed::CONFINED => Some("the program confines its system calls"),
        closed::WAITS => Some("the program waits for children of all kinds (__WALL)"),
        closed::MOVED => Some("the program changes its mappings by raw system calls"),
        _ => None,
    }
}

impl Summary {
    /// For a program that has ended. `refused` says why the tool stopped isolating; `objects` are
    /// those that the tool chose by observing, `None` if it did not observe.
    pub fn new(
        control: &Control,
        refused: Option<&str>,
        left_out: &[String],
        objects: Option<&[Isolated]>,
    ) -> Self {
        let tracked = |states: &[u32]| {
            let pages = control.tracking.shared_pages();
            pages
                .filter(|(_, p)| states.contains(&p.state.load(Relaxed)))
                .count()
        };
        // The program may write any number there.
        let private = tracked(&[&GIVEN_UP[..], &[page::PRIVATE]].concat()) as u32;
        let pages = control.page_count.load(Relaxed).saturating_add(private);
        let named = [
            (why::RECALLED, "recalled"),
            (why::SYSTEM_CALL, "system_call"),
            (why::MEMORY, "memory"),
            (why::CODE, "code"),
            (why::EXCEPTION, "exception"),
            (why::NO_WORKER, "no_worker"),
            (why::NO_MEMORY, "not_then"),
            (why::OTHER_BYTES, "beside"),
        ];
        let returns: Vec<_> = named
            .into_iter()
            .filter_map(|(i, name)| Some((name, control.returns.get(i as usize)?.load(Relaxed))))
            .collect();
        let began = |name: &str| !matches!(name, "no_worker" | "not_then");
        let closed = closed_because(control);
        let given_up = control
            .pages
            .iter()
            .filter(|p| matches!(p.given_up.load(Relaxed), BESIDE | COSTLY | LEFT_OUT));
        Self {
            pages,
            handed_over: tracked(&[page::HANDED_OVER]),
            given_up: given_up.count() + tracked(&GIVEN_UP),
            episodes: returns
                .iter()
                .filter(|(n, _)| began(n))
                .fold(0, |sum: u64, (_, n)| sum.saturating_add(*n)),
            returns,
            commits: control.commits.load(Relaxed),
            committed_bytes: control.committed_bytes.load(Relaxed),
            shared_bytes: control.shared_bytes.load(Relaxed),
            upkeep: Spent::of_all(&control.slots),
            too_much: None,
            error: control.error.load(Relaxed),
            ended: refused.or(closed).map(ToOwned::to_owned),
            left_out: left_out.to_vec(),
            objects: objects.map(<[_]>::to_vec),
            others: None,
            private_pages: Vec::new(),
            interleaved_writes: None,
        }
    }

    /// Sets how often isolation took too much of the threads' time, and how many percent the last time.
    pub const fn paused(mut self, too_much: Option<(usize, u64)>) -> Self {
        self.too_much = too_much;
        self
    }

    /// Sets whether the program started other processes, which were not observed. After episodes
    /// this is not known: workers count like other children.
    pub const fn beside_others(mut self, others: Option<bool>) -> Self {
        self.others = if self.episodes == 0 { others } else { None };
        self
    }

    /// Adds what commits changed on which page, and how often threads took turns on the objects.
    pub fn with_ledger(mut self, control: &Control, ledger: Option<&Ledger>) -> Self {
        if let Some(ledger) = ledger {
            self.private_pages = ledger.pages(control);
            let turns = self.private_pages.iter().map(|p| p.interleaved_writes);
            self.interleaved_writes = Some(turns.sum());
            for object in self.objects.iter_mut().flatten() {
                object.interleaved_writes = Some(object.turns(ledger));
            }
        }
        self
    }

    /// For a program that ran natively from the beginning.
    pub fn native(why: &str) -> Self {
        Self {
            pages: 0,
            given_up: 0,
            handed_over: 0,
            episodes: 0,
            returns: Vec::new(),
            commits: 0,
            committed_bytes: 0,
            shared_bytes: 0,
            upkeep: Spent::default(),
            too_much: None,
            error: 0,
            ended: Some(why.to_owned()),
            left_out: Vec::new(),
            objects: None,
            others: None,
            private_pages: Vec::new(),
            interleaved_writes: None,
        }
    }

    /// The line for people.
    pub fn line(&self) -> String {
        let ended = |text: &String| format!("; then native, since {text}");
        let ended = self.ended.as_ref().map(ended).unwrap_or_default();
        let left_out = match self.left_out.first() {
            Some(first) => format!("; not {first}"),
            None => String::new(),
        };
        if self.episodes == 0 {
            let nothing = if self.objects.is_some() {
                "no false sharing that is worth it was confirmed"
            } else {
                "nothing of what is to be isolated was found"
            };
            let why = self.ended.as_deref().unwrap_or(if self.pages == 0 {
                nothing
            } else {
                "no thread computed there for long"
            });
            let others = if self.others == Some(true) {
                LEFT_ALONE
            } else {
                ""
            };
            return format!("nobody was isolated: {why}{left_out}{others}");
        }
        let handed_over = match self.handed_over {
            0 => String::new(),
            some => format!(
                "; threads hand data over on {} by plain stores, which isolation would delay",
                counted(some, "page")
            ),
        };
        let paused = match self.too_much {
            // Else it says why it has ended.
            Some((times, percent)) if self.ended.is_none() => format!(
                "; {} native for some seconds, since isolation took {percent} % of the threads' time",
                counted(times, "time")
            ),
            _ => String::new(),
        };
        if self.pages == 0 && self.handed_over > 0 {
            return format!("nothing was isolated{paused}{ended}{left_out}{handed_over}");
        }
        let given_up = if self.given_up > 0 {
            format!(", {} of them given up", self.given_up)
        } else {
            String::new()
        };
        let written = if self.commits == 0 && self.gained() {
            ", without a commit: no thread changed a byte there".to_owned()
        } else if self.commits == 0 {
            ", for nothing: no thread wrote there before it had to come back".to_owned()
        } else {
            let turns = self.interleaved_writes.filter(|turns| *turns > 0);
            let turns = turns.map(|turns| {
                let writers = self.private_pages.iter().flat_map(|page| &page.threads);
                let threads: BTreeSet<u32> = writers.map(|writer| writer.id).collect();
                format!(
                    ", {} of {}",
                    counted(turns as usize, "interleaved write"),
                    counted(threads.len(), "thread")
                )
            });
            format!(
                ", {} of {}{}",
                counted(self.commits as usize, "commit"),
                counted(self.committed_bytes as usize, "byte"),
                turns.unwrap_or_default()
            )
        };
        let objects = self.objects.iter().flatten();
        let gained = objects.filter_map(|object| object.progress.as_ref()).next();
        let gained = gained.map(|gain| format!("; {}", told(gain)));
        let gained = gained.unwrap_or_default();
        format!(
            "isolated {}{}{given_up} in {}{written}{gained}{handed_over}{paused}{ended}{left_out}",
            self.named(),
            counted(self.pages as usize, "page"),
            counted(self.episodes as usize, "episode"),
        )
    }

    /// Whether threads were seen to get on faster by it.
    fn gained(&self) -> bool {
        let mut objects = self.objects.iter().flatten();
        let pays = |object: &Isolated| object.progress.as_ref().map(|p| p.gain >= WORTH_KEEPING);
        objects.any(|object| pays(object) == Some(true))
    }

    /// The names of the chosen objects, and when the first was isolated.
    fn named(&self) -> String {
        const MOST: usize = 3;
        let objects = self.objects.as_deref().unwrap_or_default();
        let Some(first) = objects.first() else {
            return String::new();
        };
        let mut names: Vec<&str> = Vec::new();
        for object in objects {
            if !names.contains(&&*object.name) {
                names.push(&object.name);
            }
        }
        let more = match names.len().saturating_sub(MOST) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        names.truncate(MOST);
        let after = first.at_seconds * 1000.0;
        format!("`{}`{more} after {after:.0} ms: ", names.join("`, `"))
    }

    /// The report for tools.
    pub fn json(&self) -> String {
        let returns: serde_json::Map<_, _> = self
            .returns
            .iter()
            .map(|(name, count)| ((*name).to_owned(), json!(count)))
            .collect();
        let objects: Vec<_> = self
            .objects
            .iter()
            .flatten()
            .map(|o| {
                json!({
                    "name": o.name,
                    "address": format!("{:#x}", o.address().0),
                    "bytes": o.bytes(),
                    "at_seconds": o.at_seconds,
                    "cost_percent": o.cost_percent,
                    "interleaved_writes": o.interleaved_writes,
                    "progress": o.progress,
                })
            })
            .collect();
        let report = json!({
            "schema": "sunder-protect",
            "version": 1,
            "pages": self.pages,
            "pages_given_up": self.given_up,
            "pages_handed_over": self.handed_over,
            "episodes": self.episodes,
            "returns": returns,
            "commits": self.commits,
            "committed_bytes": self.committed_bytes,
            "interleaved_writes": self.interleaved_writes,
            "private_pages": self.private_pages,
            "sharable_bytes": self.shared_bytes,
            "isolation_paused": self.too_much.map(|(times, percent)| json!({
                "times": times,
                "percent": percent,
            })),
            "thread_seconds": self.upkeep.seconds(),
            "last_error": self.error,
            "ended": self.ended,
            "left_out": self.left_out,
            "objects": objects,
            "other_processes": self.others,
        });
        format!("{report:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader who sees only "isolated" would take it for a gain.
    #[test]
    fn a_summary_says_if_isolated_threads_wrote_nothing() {
        let mut summary = Summary::native("");
        summary.ended = None;
        (summary.pages, summary.episodes) = (2, 3);
        let nothing = "isolated 2 pages in 3 episodes, for nothing: no thread wrote there before it had to come back";
        assert_eq!(summary.line(), nothing);
        let gain = |gain| Isolated {
            name: "levels".into(),
            spans: Vec::new(),
            at_seconds: 0.1,
            cost_percent: 50.0,
            interleaved_writes: None,
            progress: Some(Progress {
                gain,
                threads: Vec::new(),
            }),
            in_vain: None,
        };
        summary.objects = Some(vec![gain(0.5), gain(2.0)]);
        let same = "isolated `levels` after 100 ms: 2 pages in 3 episodes, without a commit: no thread changed a byte there";
        assert!(summary.line().starts_with(same), "{}", summary.line());
        summary.objects = None;
        (summary.commits, summary.committed_bytes) = (1, 8);
        let some = "isolated 2 pages in 3 episodes, 1 commit of 8 bytes";
        assert_eq!(summary.line(), some);
    }

    #[test]
    fn a_summary_says_why_pages_stayed_shared() {
        let mut summary = Summary::native("");
        summary.ended = None;
        (summary.handed_over, summary.episodes) = (1, 3);
        let line = "nothing was isolated; threads hand data over on 1 page by plain stores, which isolation would delay";
        assert_eq!(summary.line(), line);
    }

    #[test]
    fn a_summary_says_if_isolation_took_too_much() {
        let mut summary = Summary::native("").paused(Some((1, 40)));
        summary.ended = None;
        (summary.pages, summary.episodes) = (1, 3);
        let paused =
            "1 time native for some seconds, since isolation took 40 % of the threads' time";
        let line = summary.line();
        assert!(line.ends_with(&format!("; {paused}")), "{line}");
        summary.ended = Some("isolating took 50 %".to_owned());
        let line = summary.line();
        assert!(
            line.ends_with("; then native, since isolating took 50 %"),
            "{line}"
        );
    }

    #[test]
    fn a_summary_says_if_other_processes_were_left_alone() {
        let summary = Summary::native("the program forked").beside_others(Some(true));
        let line = "nobody was isolated: the program forked; processes that the program started were left alone";
        assert_eq!(summary.line(), line);
    }
}
