//! Predicts sharing that does not happen in the observed run, but would on another machine or
//! with another layout, and names its objects. Each prediction is an upper bound and is shown
//! separately from what was observed.

use crate::beside::Beside;
use crate::naming::{TypedPointer, field, seen_by};
use crate::process::Process;
use crate::shown::show_object;
use std::collections::{BTreeMap, HashSet};
use sunder_access::{Address, Granule, ThreadId, Time};
use sunder_findings as findings;
use sunder_findings::{Finding, LatentOn, OnSmallerLines, Sharing};
use sunder_objects::{ObjectKind, ObjectName};
use sunder_sharing::{Latent, LatentWord, Verdict};

/// Line sizes of other machines: 128 bytes on Apple and POWER processors (and
/// what Intel's prefetcher fetches in pairs), 256 on IBM Z.
const OTHER_SIZES: [u64; 2] = [128, 256];

/// The lines of small cores and of some accelerators, and half of today's lines. Objects that
/// share a line of 64 bytes may be on different lines of this size.
const SMALLER_SIZE: u64 = 32;

/// The most predictions that are named, the costliest first.
const MOST: usize = 16;

/// A thread that has less than one in so many parts of the busiest one's CPU time leaves the
/// processors to the others, as a first thread does that waits for its workers.
const BUSY: u64 = 8;

/// The most threads of which it is worked out which took turns.
const MOST_THREADS: usize = 256;

/// A prediction with its objects.
struct Prediction {
    on: LatentOn,
    words: Vec<LatentWord>,
    cost_share: f64,
    object: ObjectName,
    /// The other object on the line, if two distinct ones would share it.
    neighbour: Option<ObjectName>,
}

/// Two threads met on a line if one of them ran beside the other for more than this share of its
/// time: by less, the sampling of turns may err.
const MET: f64 = 0.05;

/// The predictions for one process that may cost more than `threshold` percent. Leaves out
/// `known` objects, for which false sharing was found. The program was allowed to use `cpus`
/// processors; `beside` knows which threads ran at the same time.
pub fn predict(
    process: &mut Process,
    line: Granule,
    threshold: f64,
    known: &[Finding],
    (cpus, beside): (u32, &mut Beside),
) -> Vec<Finding> {
    let mut predictions: BTreeMap<u64, Prediction> = BTreeMap::new();
    for new in turns(process, threshold, cpus, beside) {
        if let Some(named) = objects_of(process, new.words) {
            predictions
                .entry(named.object.start.0)
                .or_insert(Prediction {
                    on: LatentOn::MoreCpusThan(cpus),
                    words: named.words,
                    cost_share: new.cost_share,
                    object: named.object,
                    neighbour: named.neighbour,
                });
        }
    }
    for bytes in OTHER_SIZES {
        let Ok(granule) = Granule::new(bytes) else {
            continue;
        };
        let dear = |share: f64| share * 100.0 >= threshold;
        let latent = process.judge.latent(&[granule]);
        for new in latent.into_iter().filter(|l| dear(l.cost_share)).take(MOST) {
            let Some(named) = objects_of(process, new.words) else {
                continue;
            };
            // Only the smallest change with which the sharing happens is reported.
            predictions
                .entry(named.object.start.0)
                .or_insert(Prediction {
                    on: LatentOn::LineSize(bytes as u32),
                    words: named.words,
                    cost_share: new.cost_share,
                    object: named.object,
                    neighbour: named.neighbour,
                });
        }
    }
    for prediction in predictions.values_mut() {
        move_start(process, prediction, threshold);
    }
    let is_known = |o: &ObjectName| {
        let start = o.start;
        known.iter().any(|f| {
            f.sharing != Sharing::True
                && (f.object.address == start
                    || f.neighbour.as_ref().is_some_and(|n| n.address == start))
        })
    };
    predictions
        .into_values()
        .filter(|p| p.on != LatentOn::LineSize(line.bytes() as u32))
        .filter(|p| !is_known(&p.object) && !p.neighbour.as_ref().is_some_and(is_known))
        .map(|p| finding(process, line, p))
        .collect()
}

/// The lines whose threads took turns because there were more threads than processors.
fn turns(process: &Process, threshold: f64, cpus: u32, beside: &mut Beside) -> Vec<Latent> {
    let times = process.judge.thread_time();
    let most = times.iter().map(|t| t.cpu_ns).max().unwrap_or(0);
    let busy = times.iter().filter(|t| t.cpu_ns > most / BUSY);
    let threads: Vec<ThreadId> = busy.map(|t| t.thread).collect();
    if threads.len() <= cpus as usize {
        return Vec::new();
    }
    let mut part = |a, b| beside.share(a, std::iter::once(b));
    // Threads of which nothing is known may have met.
    let never = |part: Option<f64>| part.is_some_and(|part| part <= MET);
    let mut apart: HashSet<(ThreadId, ThreadId)> = HashSet::new();
    for (i, &a) in threads.iter().enumerate().take(MOST_THREADS) {
        for &b in threads.iter().take(MOST_THREADS).skip(i + 1) {
            if never(part(a, b)) && never(part(b, a)) {
                apart.extend([(a, b), (b, a)]);
            }
        }
    }
    let met = |a, b| !apart.contains(&(a, b));
    let mut all = process.judge.latent_turns(met);
    all.retain(|l| l.cost_share * 100.0 >= threshold);
    all.truncate(MOST);
    all
}

/// Replaces the prediction for another line size by one for another start of the object, if
/// there is one. The allocator may place the object so on the same machine.
fn move_start(process: &Process, prediction: &mut Prediction, threshold: f64) {
    let longer = matches!(prediction.on, LatentOn::LineSize(_));
    if prediction.object.kind != ObjectKind::Heap || !longer {
        return;
    }
    let Some(span) = prediction.object.span() else {
        return;
    };
    let alignment = process.alignment_of(span);
    let Some(moved) = process.judge.latent_alignment(span, alignment) else {
        return;
    };
    if moved.cost_share * 100.0 >= threshold {
        prediction.on = LatentOn::StartOffset(moved.offset);
        prediction.words = moved.words;
        prediction.neighbour = None;
        prediction.cost_share = moved.cost_share;
    }
}

/// The objects of a prediction and their words.
struct Named {
    object: ObjectName,
    neighbour: Option<ObjectName>,
    words: Vec<LatentWord>,
}

/// The one or two objects to which most of the words belong, and those words. A larger line takes
/// in what lies beside an object, so a word counts only for the object that holds it. `None` if
/// the words that have a named object do not conflict.
fn objects_of(process: &mut Process, words: Vec<LatentWord>) -> Option<Named> {
    let mut objects: Vec<(ObjectName, Vec<LatentWord>)> = Vec::new();
    for word in words {
        let holds = |o: &ObjectName| o.span().is_some_and(|s| s.contains(word.bytes.start));
        if let Some((_, own)) = objects.iter_mut().find(|(o, _)| holds(o)) {
            own.push(word);
        } else if let Some(object) = object_of(process, &word) {
            objects.push((object, vec![word]));
        }
    }
    let written = |words: &[LatentWord]| {
        let writers = words.iter().flat_map(|w| &w.threads);
        writers.filter(|(_, writes)| *writes).count()
    };
    objects.sort_by_key(|(o, own)| (std::cmp::Reverse((written(own), own.len())), o.start));
    objects.truncate(2);
    let mut objects = objects.into_iter();
    let (object, mut words) = objects.next()?;
    let neighbour = objects.next().map(|(neighbour, own)| {
        words.extend(own);
        neighbour
    });
    words.sort_by_key(|w| w.bytes.start);
    conflict(&words).then_some(Named {
        object,
        neighbour,
        words,
    })
}

/// Whether several threads use the words and one of them writes.
fn conflict(words: &[LatentWord]) -> bool {
    let uses: Vec<(ThreadId, bool)> = words.iter().flat_map(|w| w.threads.clone()).collect();
    uses.iter().any(|(_, writes)| *writes) && uses.iter().any(|(t, _)| *t != uses[0].0)
}

/// The object that holds the word, if it has a name or a call stack. Nobody watched whose its memory was,
/// so a block counts only if it surely was there before its threads were last seen.
fn object_of(process: &mut Process, word: &LatentWord) -> Option<ObjectName> {
    let of_word = |t: ThreadId| word.threads.iter().any(|(thread, _)| *thread == t);
    let times = process.judge.thread_time();
    let last = times.iter().filter(|t| of_word(t.thread)).map(|t| t.last);
    let last = last.max().unwrap_or(Time(0));
    let context = process.context_in(word.bytes.start, None, (Time(0), last));
    let object = process.names.object_at(word.bytes.start, &context);
    let named = match object.kind {
        ObjectKind::Heap => context.heap.is_some(),
        ObjectKind::Global | ObjectKind::Tls => true,
        ObjectKind::Stack => object.type_handle.is_some(),
        ObjectKind::Mapping | ObjectKind::Unknown => false,
    };
    named.then_some(object)
}

fn finding(process: &mut Process, line: Granule, prediction: Prediction) -> Finding {
    let Prediction {
        on,
        words,
        cost_share,
        object,
        neighbour,
    } = prediction;
    // The name of a block says less than the type through which it was accessed.
    let objects: Vec<(&ObjectName, Option<TypedPointer>)> = std::iter::once(&object)
        .chain(&neighbour)
        .map(|one| (one, seen_on(process, line, &words, one)))
        .collect();
    let mut lines: BTreeMap<Address, findings::Line> = BTreeMap::new();
    for word in &words {
        let (at, size) = (word.bytes.start, word.bytes.len);
        let base = line.base(at);
        let mut all = objects.iter();
        let holder = all.find(|(o, _)| o.span().is_some_and(|s| s.contains(at)));
        let field = holder.and_then(|(o, seen)| field(process, o, seen.as_ref(), at));
        let threads = word.threads.iter().map(|t| thread_use(process, *t));
        let shown = findings::Word {
            offset: line.offset(at) as u32,
            size: size as u32,
            field,
            threads: threads.collect(),
        };
        lines
            .entry(base)
            .or_insert_with(|| findings::Line {
                address: base,
                // A line may hold the neighbour alone.
                object_offset: object
                    .span()
                    .is_none_or(|s| {
                        base.0 < s.end().0 && s.start.0 < base.0.saturating_add(line.bytes())
                    })
                    .then(|| base.0.wrapping_sub(object.start.0) as i64),
                ..findings::Line::default()
            })
            .words
            .push(shown);
    }
    let mut shown = objects
        .iter()
        .map(|(one, seen)| show_object(process, one, seen.as_ref()));
    let shown_object = shown.next().unwrap_or_default();
    let shown_neighbour = shown.next();
    Finding {
        sharing: Sharing::False,
        latent: true,
        latent_on: Some(on),
        processes: vec![process.reference()],
        object: shown_object,
        neighbour: shown_neighbour,
        lines: lines.into_values().collect(),
        false_share: 1.0,
        cost_percent: (cost_share * 100.0).min(100.0),
        gain_percent: None,
        on_more_cpus: None,
        ..Finding::default()
    }
}

/// The typed pointer through which `object` was accessed on the lines of `words`.
fn seen_on(
    process: &mut Process,
    granule: Granule,
    words: &[LatentWord],
    object: &ObjectName,
) -> Option<TypedPointer> {
    let mut lines: Vec<Address> = words.iter().map(|w| granule.base(w.bytes.start)).collect();
    lines.dedup();
    lines.into_iter().find_map(|line| {
        let sites = process.judge.sites_on(line);
        seen_by(process, (line, None), &sites, object)
    })
}

/// A prediction knows which threads read or write, but not how often: the count 1 stands for
/// "yes".
fn thread_use(process: &Process, (thread, writes): (ThreadId, bool)) -> findings::ThreadUse {
    findings::ThreadUse {
        id: thread.0,
        name: process.threads.label(thread).name,
        reads: u64::from(!writes),
        writes: u64::from(writes),
        ..findings::ThreadUse::default()
    }
}

/// What lines of `SMALLER_SIZE` bytes would leave of the contention on an object's lines, which
/// have `line` bytes; `None` if those are not larger.
pub fn on_smaller_lines<'a>(
    line: Granule,
    verdicts: impl Iterator<Item = &'a Verdict>,
) -> Option<OnSmallerLines> {
    let granule = Granule::new(SMALLER_SIZE).ok().filter(|g| *g < line)?;
    let left = verdicts.filter_map(|v| v.within(granule));
    Some(OnSmallerLines {
        line_size: granule.bytes() as u32,
        sharing: left.reduce(sunder_sharing::Sharing::and).map(show_sharing),
    })
}

/// The kind of sharing in the result's schema.
pub const fn show_sharing(sharing: sunder_sharing::Sharing) -> Sharing {
    match sharing {
        sunder_sharing::Sharing::False => Sharing::False,
        sunder_sharing::Sharing::True => Sharing::True,
        sunder_sharing::Sharing::Mixed => Sharing::Mixed,
    }
}
