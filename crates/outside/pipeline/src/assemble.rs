//! Joins contended lines to findings: one for each object or pair of neighbours. Pure
//! bookkeeping over the judge's verdicts and the names.

use crate::latent::{on_smaller_lines, show_sharing};
use crate::locks::join_words_of_one_lock;
use crate::naming::{NamedLine, ObjectKey, Places, name_line};
use crate::process::Process;
use crate::shown::{language_of_code, show_object};
use crate::wanted::Wanted;
use std::collections::{BTreeMap, BTreeSet};
use sunder_access::{Address, Span, ThreadId, Time};
use sunder_findings as findings;
use sunder_findings::{Finding, Simulated};
use sunder_objects::ObjectName;
use sunder_sharing::{
    Confidence, MIN_EVIDENCE, Sharing, Verdict, joint_doubt, joint_sharing, jointly_confirmed,
};

/// Slices of time in a finding's timeline.
const SLICES: usize = 60;

/// The most lines that are shown of one finding; the others count for its cost.
const MOST_LINES: usize = 32;

/// The findings made of the verdicts.
pub struct Assembled {
    /// One for each object or pair.
    pub findings: Vec<Finding>,
    /// Objects that were left out because sequential use may explain their few coincidences.
    pub weak: usize,
}

/// The findings of one process over the run from `start` to `end`, for the `wanted` lines.
pub fn assemble(process: &mut Process, wanted: &Wanted, start: Time, end: Time) -> Assembled {
    let mappings = process.mappings().clone();
    process.names.set_mappings(mappings);
    process.read_generated();
    let size = process.judge.config().granule().bytes();
    let mut verdicts = process.judge.verdicts();
    verdicts.retain(|verdict| wanted.holds(Span::new(verdict.line, size)));
    let mut places = Places::default();
    let mut groups: BTreeMap<Vec<ObjectKey>, Vec<(Verdict, NamedLine)>> = BTreeMap::new();
    for mut verdict in verdicts {
        join_words_of_one_lock(&mut verdict, &mut process.names);
        let line = name_line(process, &mut places, &verdict);
        if line.parts.is_empty() {
            continue;
        }
        let mut key: Vec<_> = line.parts.iter().take(2).map(|p| p.key.clone()).collect();
        key.sort();
        groups.entry(key).or_default().push((verdict, line));
    }
    let mut done = Assembled {
        findings: Vec::new(),
        weak: 0,
    };
    for (_, lines) in groups {
        let evidence = joint_evidence(lines.iter().map(|(v, _)| v));
        let confirmed = lines
            .iter()
            .any(|(v, _)| v.confidence() == Confidence::Confirmed);
        if confirmed || evidence >= MIN_EVIDENCE {
            done.findings.push(join(process, lines, start, end));
        } else {
            done.weak += 1;
        }
    }
    done
}

/// The evidence of all lines of an object. One sample in a wide loop touches several lines at
/// once, so evidence with the same first and last time is counted once.
fn joint_evidence<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> u32 {
    let mut seen: BTreeMap<(Time, Time), u32> = BTreeMap::new();
    for verdict in verdicts {
        let most = seen.entry((verdict.first, verdict.last)).or_default();
        *most = (*most).max(verdict.evidence);
    }
    seen.into_values().fold(0, u32::saturating_add)
}

/// Makes one finding of all `lines` of an object, of which there is at least one.
fn join(
    process: &mut Process,
    mut lines: Vec<(Verdict, NamedLine)>,
    start: Time,
    end: Time,
) -> Finding {
    lines.sort_by(|a, b| b.0.cost_ns.total_cmp(&a.0.cost_ns));
    let (cost_percent, per_second) = cost(process, lines.iter().map(|(v, _)| v));
    let interleavings: f64 = lines.iter().map(|(v, _)| v.interleavings_per_second).sum();
    let false_share = if interleavings > 0.0 {
        lines
            .iter()
            .map(|(v, _)| v.false_share * v.interleavings_per_second)
            .sum::<f64>()
            / interleavings
    } else {
        lines[0].0.false_share
    };
    let sharing = joint_sharing(lines.iter().map(|(v, _)| v)).unwrap_or(Sharing::False);
    let sampled_false_share = match sharing {
        Sharing::True => joint_doubt(lines.iter().map(|(v, _)| v)),
        _ => None,
    };
    let first = &lines[0].1;
    let mut shown = first
        .parts
        .iter()
        .zip(&first.seen_through)
        .map(|(part, seen)| show_object(process, &part.name, seen.as_ref()));
    let mut object = shown.next().unwrap_or_default();
    let mut neighbour = shown.next();
    drop(shown);
    let language = language_of_code(process, &lines[0].0.sites);
    for object in std::iter::once(&mut object).chain(&mut neighbour) {
        object.language = object.language.or(language);
    }
    let key = first.parts[0].key.clone();
    let granule = process.judge.config().granule();
    let on_smaller_lines = on_smaller_lines(granule, lines.iter().map(|(v, _)| v));
    let mut timeline = vec![0.0; SLICES];
    let slice_seconds = (end.nanoseconds_since(start) as f64 / 1e9 / SLICES as f64).max(1e-9);
    for (verdict, _) in &lines {
        let slices = verdict.timeline.slices(start, end, SLICES);
        timeline
            .iter_mut()
            .zip(slices)
            .for_each(|(t, s)| *t += s / slice_seconds);
    }
    // Other observers see a part of the writes only.
    let all_writes = process.judge.config().diff_interval_ns.is_some();
    let interleaved_writes =
        all_writes.then(|| lines.iter().map(|(v, _)| v.interleaved_writes).sum());
    let confirmed = jointly_confirmed(lines.iter().map(|(v, _)| v), sharing);
    let simulated = simulated(process, lines.iter().map(|(v, _)| v.line));
    let sites = join_sites(lines.iter_mut().flat_map(|(_, l)| l.sites.drain(..)));
    let all: BTreeSet<Address> = lines.iter().map(|(v, _)| v.line).collect();
    let shown = join_lines(process, lines, &key);
    let further_lines = all.len().saturating_sub(shown.len()) as u32;
    Finding {
        rank: 0,
        sharing: show_sharing(sharing),
        latent: false,
        latent_on: None,
        confirmed,
        processes: vec![process.reference()],
        simulated,
        object,
        neighbour,
        lines: shown,
        further_lines,
        sites,
        interleavings_per_second: per_second,
        interleaved_writes,
        private_pages: Vec::new(),
        false_share,
        sampled_false_share,
        cost_percent,
        gain_percent: None,
        on_more_cpus: None,
        on_smaller_lines,
        on_pages: None,
        predicted: None,
        timeline,
        advice: Vec::new(),
    }
}

/// The simulation's counts of `lines`, if there was a simulation.
fn simulated(process: &Process, lines: impl Iterator<Item = Address>) -> Option<Simulated> {
    let lines: BTreeSet<Address> = lines.collect();
    let known = lines.iter().filter_map(|line| process.simulated.get(line));
    known.copied().reduce(|a, b| a + b)
}

/// The lines in the result's schema, by address. Verdicts of one line from before and after its
/// memory changed owner are joined.
fn join_lines(
    process: &Process,
    lines: Vec<(Verdict, NamedLine)>,
    key: &ObjectKey,
) -> Vec<findings::Line> {
    let all_writes = process.judge.config().diff_interval_ns.is_some();
    let mut shown: BTreeMap<u64, findings::Line> = BTreeMap::new();
    for (verdict, line) in lines {
        if let Some(old) = shown.get_mut(&verdict.line.0) {
            old.interleavings_per_second += verdict.interleavings_per_second;
            if let Some(writes) = &mut old.interleaved_writes {
                *writes += verdict.interleaved_writes;
            }
            join_words(&mut old.words, line.words);
        } else if shown.len() < MOST_LINES {
            // Each line is shown with its own instance of the object.
            let part = line.parts.iter().find(|p| p.key == *key);
            let part = part.or_else(|| line.parts.first());
            let object_offset = part.map(|part| offset_of_line(process, &verdict, &part.name));
            shown.insert(
                verdict.line.0,
                findings::Line {
                    address: verdict.line,
                    object_offset,
                    interleavings_per_second: verdict.interleavings_per_second,
                    interleaved_writes: all_writes.then_some(verdict.interleaved_writes),
                    words: line.words,
                },
            );
        }
    }
    shown.into_values().collect()
}

/// The offset of the line's start from the object's start. In a replay that moved the object it
/// is computed from a word of the object on the line.
fn offset_of_line(process: &Process, verdict: &Verdict, object: &ObjectName) -> i64 {
    let words = verdict.words.iter().map(|w| u64::from(w.offset));
    let mut inside = words.filter_map(|word| {
        let at = verdict.line.offset(word as i64);
        let origin = process.origin(at, verdict.owner);
        let offset = object.offset_of(origin)?;
        object.span()?.contains(origin).then_some((offset, word))
    });
    match inside.next() {
        Some((offset, word)) => offset.wrapping_sub(word) as i64,
        None => verdict.line.0.wrapping_sub(object.start.0) as i64,
    }
}

/// Adds `new` words to the known ones, by ascending offset. Words of different extents are kept
/// side by side.
fn join_words(known: &mut Vec<findings::Word>, new: Vec<findings::Word>) {
    for word in new {
        let same = |w: &&mut findings::Word| (w.offset, w.size) == (word.offset, word.size);
        let Some(old) = known.iter_mut().find(same) else {
            known.push(word);
            continue;
        };
        for use_ in word.threads {
            match old.threads.iter_mut().find(|t| t.id == use_.id) {
                Some(t) => {
                    t.reads += use_.reads;
                    t.writes += use_.writes;
                    t.updates += use_.updates;
                    t.atomics += use_.atomics;
                }
                None => old.threads.push(use_),
            }
        }
    }
    known.sort_by_key(|w| (w.offset, w.size));
}

/// The lost time of all lines, in percent of the CPU time of all threads involved, and the
/// interleavings per second.
fn cost<'a>(process: &Process, verdicts: impl Iterator<Item = &'a Verdict>) -> (f64, f64) {
    let mut threads: Vec<ThreadId> = Vec::new();
    let (mut lost, mut per_second) = (0.0, 0.0);
    for verdict in verdicts {
        lost += verdict.cost_ns;
        per_second += verdict.interleavings_per_second;
        threads.extend(verdict.threads.iter().map(|t| t.thread));
    }
    threads.sort_unstable();
    threads.dedup();
    let spent: f64 = process
        .judge
        .thread_time()
        .iter()
        .filter(|t| threads.contains(&t.thread))
        .map(|t| if t.samples > 0 { t.cpu_ns } else { t.last.nanoseconds_since(t.first) } as f64)
        .sum();
    let percent = if spent > 0.0 {
        (lost / spent * 100.0).min(100.0)
    } else {
        0.0
    };
    (percent, per_second)
}

/// Joins the sites of one source line and kind of access; without source, those of one
/// instruction.
fn join_sites(sites: impl Iterator<Item = findings::Site>) -> Vec<findings::Site> {
    let mut joined: Vec<findings::Site> = Vec::new();
    // The threads and fields of sites to which several were joined, as sets: each line of a
    // large object adds the same ones.
    let mut all: Vec<Option<(BTreeSet<u32>, BTreeSet<String>)>> = Vec::new();
    for site in sites {
        let same = |old: &findings::Site| {
            old.kind == site.kind
                && old.function == site.function
                && old.file == site.file
                && old.line == site.line
                && (site.line.is_some() || old.address == site.address)
        };
        match joined.iter_mut().zip(&mut all).find(|(old, _)| same(old)) {
            Some((old, all)) => {
                old.accesses += site.accesses;
                old.calls = old.calls.take().filter(|_| old.accesses == 0);
                let (threads, fields) = all.get_or_insert_with(|| {
                    let threads = std::mem::take(&mut old.threads).into_iter().collect();
                    let fields = std::mem::take(&mut old.fields).into_iter().collect();
                    (threads, fields)
                });
                threads.extend(site.threads);
                fields.extend(site.fields);
            }
            None => {
                joined.push(site);
                all.push(None);
            }
        }
    }
    for (site, all) in joined.iter_mut().zip(all) {
        if let Some((threads, fields)) = all {
            site.threads = threads.into_iter().collect();
            site.fields = fields.into_iter().collect();
        }
    }
    joined.sort_by_key(|s| std::cmp::Reverse(s.accesses));
    // For a line that was sampled, the calls of lock functions need not be shown too.
    let sampled = joined.partition_point(|s| s.accesses > 0);
    let found = joined.split_off(sampled);
    for site in found {
        let same = |s: &findings::Site| {
            s.function == site.function && s.file == site.file && s.line == site.line
        };
        if !joined.iter().any(same) {
            joined.push(site);
        }
    }
    joined
}
