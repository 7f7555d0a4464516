//! Predicts sharing that does not happen in the observed run, but would on another machine or
//! with another layout, and names its objects. Each prediction is an upper bound and is shown
//! separately from what was observed.

use crate::naming::show_object;
use crate::process::Process;
use std::collections::BTreeMap;
use sunder_access::{Address, Granule, ThreadId};
use sunder_findings as findings;
use sunder_findings::{Finding, LatentOn, OnSmallerLines, Sharing};
use sunder_objects::{ObjectKind, ObjectName};
use sunder_sharing::{Judge, LatentWord, Verdict};

/// Line sizes of other machines: 128 bytes on Apple and POWER processors (and
/// what Intel's prefetcher fetches in pairs), 256 on IBM Z.
const OTHER_SIZES: [u64; 2] = [128, 256];

/// The lines of small cores and of some accelerators, and half of today's lines. Objects that
/// share a line of 64 bytes may be on different lines of this size.
const SMALLER_SIZE: u64 = 32;

/// The most predictions that are named, the costliest first.
const MOST: usize = 16;

/// A prediction, before it has names.
struct Prediction {
    on: LatentOn,
    words: Vec<LatentWord>,
    cost_share: f64,
    object: ObjectName,
}

/// The predictions for one process that may cost more than `threshold` percent. Leaves out
/// `known` objects, for which false sharing was found.
pub fn predict(
    process: &mut Process,
    line: Granule,
    threshold: f64,
    known: &[Finding],
) -> Vec<Finding> {
    let mut predictions: BTreeMap<u64, Prediction> = BTreeMap::new();
    for bytes in OTHER_SIZES {
        let Ok(granule) = Granule::new(bytes) else {
            continue;
        };
        let dear = |share: f64| share * 100.0 >= threshold;
        let latent = process.judge.latent(&[granule]);
        for new in latent.into_iter().filter(|l| dear(l.cost_share)).take(MOST) {
            let Some(object) = object_of(process, &new.words) else {
                continue;
            };
            // Only the smallest line size at which the sharing happens is reported.
            predictions.entry(object.start.0).or_insert(Prediction {
                on: LatentOn::LineSize(bytes as u32),
                words: new.words,
                cost_share: new.cost_share,
                object,
            });
        }
    }
    for prediction in predictions.values_mut() {
        move_start(&process.judge, prediction, threshold);
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
        .filter(|p| p.on != LatentOn::LineSize(line.bytes() as u32) && !is_known(&p.object))
        .map(|p| finding(process, line, p))
        .collect()
}

/// Replaces the prediction for another line size by one for another start of the object, if
/// there is one. The allocator may place the object so on the same machine.
fn move_start(judge: &Judge, prediction: &mut Prediction, threshold: f64) {
    if prediction.object.kind != ObjectKind::Heap {
        return;
    }
    let Some(span) = prediction.object.span() else {
        return;
    };
    let Some(moved) = judge.latent_alignment(span) else {
        return;
    };
    if moved.cost_share * 100.0 >= threshold {
        prediction.on = LatentOn::StartOffset(moved.offset);
        prediction.words = moved.words;
        prediction.cost_share = moved.cost_share;
    }
}

/// The object that most of the words belong to; `None` if they have no name.
fn object_of(process: &mut Process, words: &[LatentWord]) -> Option<ObjectName> {
    let first = words.first()?;
    let context = process.context(first.address, None);
    let object = process.names.object_at(first.address, &context);
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
    } = prediction;
    let mut lines: BTreeMap<Address, findings::Line> = BTreeMap::new();
    for word in &words {
        let base = line.base(word.address);
        let offset = word.address.0.wrapping_sub(object.start.0);
        let field = object
            .span()
            .filter(|s| s.contains(word.address))
            .and_then(|_| process.names.field_at(&object, offset));
        let threads = word.threads.iter().map(|t| thread_use(process, *t));
        let shown = findings::Word {
            offset: line.offset(word.address) as u32,
            size: 8,
            field,
            threads: threads.collect(),
        };
        lines
            .entry(base)
            .or_insert_with(|| findings::Line {
                address: base,
                object_offset: Some(base.0.wrapping_sub(object.start.0) as i64),
                ..findings::Line::default()
            })
            .words
            .push(shown);
    }
    Finding {
        sharing: Sharing::False,
        latent: true,
        latent_on: Some(on),
        processes: vec![process.reference()],
        object: show_object(process, &object, None),
        lines: lines.into_values().collect(),
        false_share: 1.0,
        cost_percent: (cost_share * 100.0).min(100.0),
        gain_percent: None,
        ..Finding::default()
    }
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
