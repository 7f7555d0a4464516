//! Makes findings from counts: one for each object, or pair of objects, that made nodes lose
//! pages, with the pages, the threads and the instructions. The contents of a page are shown as
//! runs of bytes that the same threads use in the same way, not word by word.

use super::counting::{Misses, Site};
use super::pass::{Counted, Uses};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use sunder_access::{Address, Kind, ThreadId};
use sunder_findings as findings;
use sunder_findings::{AccessKind, Finding, Limit, OnPages, PageCause, Simulated, SiteMisses};
use sunder_pipeline::Process;
use sunder_pipeline::{at_frame, show_object, user_frame};

/// The most findings of one result; the objects left out have fewer misses than any of them.
const MOST_FINDINGS: usize = 64;

/// Fewer misses than this are noise from the program's start and end, however large their share
/// of a short run is.
const LEAST_MISSES: u64 = 10;

/// The most pages that are shown of one finding.
const MOST_PAGES: usize = 32;

/// The most runs that are shown of one page.
const MOST_RUNS: usize = 24;

/// The most places in the code that are shown of one finding.
const MOST_SITES: usize = 24;

/// The misses that two subjects, or one, caused.
#[derive(Debug, Default)]
struct Pair {
    pages: BTreeMap<u64, Misses>,
    /// By the subject that was accessed and the one that was written.
    causes: BTreeMap<(u32, u32), Misses>,
    all: Misses,
}

/// Makes the findings of `counted`, and the limits for what was left out.
pub fn findings(counted: &Counted, process: &mut Process, page: u64) -> (Vec<Finding>, Vec<Limit>) {
    let mut pairs: BTreeMap<(u32, u32), Pair> = BTreeMap::new();
    for (&(page, asked, written), &misses) in &counted.counting.pairs {
        let pair = pairs
            .entry((asked.min(written), asked.max(written)))
            .or_default();
        pair.pages.entry(page).or_default().add(misses);
        pair.causes.entry((asked, written)).or_default().add(misses);
        pair.all.add(misses);
    }
    let all = pairs.len();
    pairs.retain(|_, pair| pair.all.all() >= LEAST_MISSES);
    let mut limits = Vec::new();
    if pairs.len() < all {
        limits.push(Limit::FewMisses {
            objects: all - pairs.len(),
            least: LEAST_MISSES,
        });
    }
    let mut pairs: Vec<_> = pairs.into_iter().collect();
    pairs.sort_by_key(|(who, pair)| (Reverse(pair.all.falsely), Reverse(pair.all.truly), *who));
    if pairs.len() > MOST_FINDINGS {
        let left = &pairs[MOST_FINDINGS..];
        let misses: u64 = left.iter().map(|(_, pair)| pair.all.falsely).sum();
        limits.push(Limit::MoreObjects {
            objects: left.len(),
            misses,
        });
    }
    pairs.truncate(MOST_FINDINGS);
    let parts = Parts::of(counted);
    let all = pairs.into_iter();
    let all = all.map(|(_, pair)| finding(counted, &parts, process, &pair, page));
    (all.collect(), limits)
}

/// The parts by page, and the runs known of each.
struct Parts {
    by_page: BTreeMap<u64, Vec<u32>>,
    pieces: BTreeMap<u32, BTreeMap<u16, BTreeMap<ThreadId, Uses>>>,
}

impl Parts {
    fn of(counted: &Counted) -> Self {
        let mut by_page: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for (number, part) in counted.counting.parts.iter().enumerate() {
            by_page.entry(part.page).or_default().push(number as u32);
        }
        let mut pieces: BTreeMap<u32, BTreeMap<u16, BTreeMap<ThreadId, Uses>>> = BTreeMap::new();
        for (&(part, piece, thread), &uses) in &counted.details.uses {
            let threads = pieces.entry(part).or_default().entry(piece).or_default();
            threads.insert(thread, uses);
        }
        Self { by_page, pieces }
    }
}

fn finding(
    counted: &Counted,
    parts: &Parts,
    process: &mut Process,
    pair: &Pair,
    page: u64,
) -> Finding {
    // The subject that was missed most often by false sharing comes first.
    let main = pair.causes.iter();
    let main = main.max_by_key(|(who, misses)| (misses.falsely, misses.truly, Reverse(**who)));
    let (first, second) = main.map_or((0, 0), |(&who, _)| who);
    let who: BTreeSet<u32> = [first, second].into();
    let [object, neighbour] = [first, second].map(|number| {
        let subject = counted.subjects.get(number);
        let mut object = show_object(process, &subject.name, None);
        object.blocks = (subject.blocks > 1).then_some(subject.blocks);
        object
    });
    let all = pair.all;
    let mut lines: Vec<(&u64, &Misses)> = pair.pages.iter().collect();
    lines.sort_by_key(|(page, misses)| (Reverse(misses.all()), **page));
    let seconds = counted.span.1.nanoseconds_since(counted.span.0) as f64 / 1e9;
    let rate = |misses: u64| misses as f64 / seconds.max(1e-9);
    let lines = lines.into_iter().take(MOST_PAGES);
    let lines = lines.filter(|(page, _)| counted.details.pages.contains(page));
    let mut lines: Vec<findings::Line> = lines
        .map(|(&at, misses)| findings::Line {
            address: Address(at),
            object_offset: None,
            interleavings_per_second: rate(misses.all()),
            interleaved_writes: None,
            words: runs(counted, parts, process, at),
        })
        .collect();
    // Sorted by the text of the address, as in all earlier results: the order differs from that
    // of the numbers if the addresses have different numbers of digits.
    lines.sort_by_cached_key(|line| line.address.to_string());
    let (sites, threads) = sites(counted, process, &who);
    Finding {
        confirmed: true,
        processes: vec![process.reference()],
        simulated: Some(simulated(counted, parts, pair, &who)),
        neighbour: (first != second).then_some(neighbour),
        object,
        lines,
        sites,
        interleavings_per_second: rate(all.all()),
        on_pages: Some(OnPages {
            page,
            pages: pair.pages.len() as u64,
            causes: causes(pair, first),
            threads,
        }),
        ..Finding::default()
    }
}

fn causes(pair: &Pair, first: u32) -> Vec<PageCause> {
    let mut all: Vec<PageCause> = pair
        .causes
        .iter()
        .map(|(&(asked, written), misses)| PageCause {
            neighbour_missed: asked != first,
            neighbour_written: written != first,
            true_sharing: misses.truly,
            false_sharing: misses.falsely,
        })
        .collect();
    all.sort_by_key(|cause| Reverse((cause.false_sharing, cause.true_sharing)));
    all
}

/// The counts of the parts of `who` on the pair's pages. Of the misses because another node
/// wrote, only those that the pair itself caused.
fn simulated(counted: &Counted, parts: &Parts, pair: &Pair, who: &BTreeSet<u32>) -> Simulated {
    let pages = pair.pages.keys().filter_map(|page| parts.by_page.get(page));
    let of = pages
        .flatten()
        .map(|&part| &counted.counting.parts[part as usize]);
    let counts = of
        .filter(|part| who.contains(&part.subject))
        .fold(Simulated::default(), |sum, part| sum + part.counts);
    let misses = counts.cold + counts.replacement + counts.true_sharing + counts.false_sharing;
    Simulated {
        hits: counts.references.saturating_sub(misses + counts.upgrades),
        true_sharing: pair.all.truly,
        false_sharing: pair.all.falsely,
        ..counts
    }
}

/// Neighbouring pieces of one part.
struct ByteRun {
    part: u32,
    first: u16,
    last: u16,
    threads: BTreeMap<ThreadId, Uses>,
}

impl ByteRun {
    /// The threads that access it, and whether each writes.
    fn roles(&self) -> Vec<(ThreadId, bool)> {
        let role = |(&thread, uses): (&ThreadId, &Uses)| (thread, uses[1] + uses[2] > 0);
        self.threads.iter().map(role).collect()
    }

    fn join(&mut self, other: Self) {
        self.last = other.last;
        for (thread, uses) in other.threads {
            let known = self.threads.entry(thread).or_default();
            known.iter_mut().zip(uses).for_each(|(k, u)| *k += u);
        }
    }

    fn accesses(&self) -> u64 {
        self.threads.values().map(|u| u[0] + u[1] + u[2]).sum()
    }
}

/// The runs of the page at `at`, in the form of a line's words.
fn runs(counted: &Counted, parts: &Parts, process: &mut Process, at: u64) -> Vec<findings::Word> {
    let mut pieces: Vec<ByteRun> = Vec::new();
    for &part in parts.by_page.get(&at).into_iter().flatten() {
        let known = parts.pieces.get(&part).into_iter().flatten();
        pieces.extend(known.map(|(&piece, threads)| ByteRun {
            part,
            first: piece,
            last: piece,
            threads: threads.clone(),
        }));
    }
    pieces.sort_by_key(|run| (run.first, run.part));
    let mut runs = joined(pieces, |a, b| {
        b.first <= a.last + 1 && a.roles() == b.roles()
    });
    if runs.len() > MOST_RUNS {
        runs = joined(runs, |_, _| true);
    }
    if runs.len() > MOST_RUNS {
        runs.sort_by_key(|run| Reverse(run.accesses()));
        runs.truncate(MOST_RUNS);
        runs.sort_by_key(|run| (run.first, run.part));
    }
    let piece = counted.details.piece as u32;
    runs.into_iter()
        .map(|run| {
            let subject = counted.counting.parts[run.part as usize].subject;
            let object = show_object(process, &counted.subjects.get(subject).name, None);
            findings::Word {
                offset: u32::from(run.first) * piece,
                size: (u32::from(run.last - run.first) + 1) * piece,
                field: Some(object.label()),
                threads: run
                    .threads
                    .iter()
                    .map(|(&thread, uses)| findings::ThreadUse {
                        id: thread.0,
                        name: process.threads.label(thread).name,
                        process: None,
                        reads: uses[0],
                        writes: uses[1],
                        updates: uses[2],
                        atomics: uses[3],
                    })
                    .collect(),
            }
        })
        .collect()
}

/// Joins neighbouring `runs` of one part if `alike` allows it.
fn joined(runs: Vec<ByteRun>, alike: impl Fn(&ByteRun, &ByteRun) -> bool) -> Vec<ByteRun> {
    let mut all: Vec<ByteRun> = Vec::new();
    for run in runs {
        match all.last_mut() {
            Some(last) if last.part == run.part && alike(last, &run) => last.join(run),
            _ => all.push(run),
        }
    }
    all
}

/// The places in the code that missed, or made others miss, and the misses of the threads.
fn sites(
    counted: &Counted,
    process: &mut Process,
    who: &BTreeSet<u32>,
) -> (Vec<findings::Site>, Vec<findings::ThreadMisses>) {
    let counting = &counted.counting;
    // Misses that one object of a pair causes to itself belong to a finding of its own.
    let fits = |site: &Site, other: u32| {
        who.contains(&site.subject)
            && who.contains(&other)
            && (who.len() == 1 || site.subject != other)
    };
    let mut of: BTreeMap<u32, SiteMisses> = BTreeMap::new();
    for (&(site, other), misses) in &counting.missed {
        if fits(&counting.sites[site as usize], other) {
            let known = of.entry(site).or_default();
            known.true_sharing += misses.truly;
            known.false_sharing += misses.falsely;
        }
    }
    for (&(site, victim), &copies) in &counting.destroyed {
        if fits(&counting.sites[site as usize], victim) {
            of.entry(site).or_default().destroyed += copies;
        }
    }
    let mut threads: BTreeMap<ThreadId, Misses> = BTreeMap::new();
    let mut places: Vec<findings::Site> = Vec::new();
    for (number, misses) in of {
        let site = &counting.sites[number as usize];
        threads.entry(site.thread).or_default().add(Misses {
            truly: misses.true_sharing,
            falsely: misses.false_sharing,
        });
        let name = &counted.subjects.get(site.subject).name;
        let label = show_object(process, name, None).label();
        add(&mut places, place(process, site, misses, label));
    }
    let weight = |site: &findings::Site| {
        let misses = site.misses.unwrap_or_default();
        misses.false_sharing + misses.true_sharing + misses.destroyed
    };
    places.sort_by_key(|site| Reverse((weight(site), site.accesses)));
    places.truncate(MOST_SITES);
    let threads = threads.into_iter().map(|(thread, misses)| {
        let findings::Thread { id, name } = process.threads.label(thread);
        findings::ThreadMisses {
            id,
            name,
            true_sharing: misses.truly,
            false_sharing: misses.falsely,
        }
    });
    (places, threads.collect())
}

fn place(process: &mut Process, site: &Site, misses: SiteMisses, label: String) -> findings::Site {
    let frames = process.names.frames(site.instruction);
    findings::Site {
        kind: match site.kind {
            Kind::Read => AccessKind::Read,
            Kind::Write => AccessKind::Write,
            Kind::Update => AccessKind::Update,
            Kind::Atomic => AccessKind::Atomic,
        },
        threads: vec![site.thread.0],
        accesses: site.accesses,
        address: site.instruction,
        fields: vec![label],
        misses: Some(misses),
        ..at_frame(&process.names, user_frame(&frames))
    }
}

/// Adds a place to that of the same source line; without source, to that of the same
/// instruction.
fn add(places: &mut Vec<findings::Site>, site: findings::Site) {
    let same = |old: &&mut findings::Site| {
        old.kind == site.kind
            && old.function == site.function
            && old.file == site.file
            && old.line == site.line
            && (site.line.is_some() || old.address == site.address)
    };
    let Some(old) = places.iter_mut().find(same) else {
        places.push(site);
        return;
    };
    old.accesses += site.accesses;
    old.threads.extend(site.threads);
    old.threads.sort_unstable();
    old.threads.dedup();
    old.fields.extend(site.fields);
    old.fields.sort_unstable();
    old.fields.dedup();
    let (Some(known), Some(more)) = (&mut old.misses, site.misses) else {
        return;
    };
    known.true_sharing += more.true_sharing;
    known.false_sharing += more.false_sharing;
    known.destroyed += more.destroyed;
}
