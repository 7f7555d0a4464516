//! Names the places of all parts, and adds up the counts of those that are one object. What comes out
//! is what the page pass over the whole trace counts, with the same numbers for objects, places in the
//! code and parts of pages: they follow from the order of first accesses and allocations, which each
//! part tells.

use super::{Caller, KINDS, Pages, Place, simulated};
use crate::simulate::pages::counting::{Counting, Misses, Part, Site};
use crate::simulate::pages::subjects::{BlockOf, BlocksOf, Subjects};
use crate::simulate::pages::{Counted, Details};
use anyhow::{Context, Result};
use rustc_hash::FxHashMap;
use std::collections::HashMap;
use std::hash::Hash;
use sunder_access::{Address, CodeAddress, ThreadId, Time};
use sunder_findings::Simulated;
use sunder_pipeline::Process;
use sunder_tables::{About, StackEvent, StackStep};

/// What the page pass over all of `trace` counts, of pages of `granule` bytes. `stacks` are the call
/// stacks of allocations. The events about stacks go to `process` here, each before what is named after
/// it.
///
/// # Errors
/// If a block is named whose call stack never allocated one.
pub fn named(
    pages: &Pages,
    trace: &About,
    stacks: FxHashMap<u32, Vec<CodeAddress>>,
    granule: u64,
    process: &mut Process,
) -> Result<Counted> {
    let mappings = process.mappings().clone();
    process.names.set_mappings(mappings);
    let mut subjects = Subjects::new(stacks);
    let of_place = places(pages, trace, &mut subjects, process)?;
    let subject = |place: u32| of_place[place as usize];
    let mut counting = Counting::default();
    let shares = pages.shares.iter();
    let shares = shares
        .map(|&(page, place, first, counts)| ((page, subject(place)), first, simulated(&counts)));
    let (shares, of_share) = summed(shares, |sum: &mut Simulated, more| *sum = *sum + more);
    counting.parts = shares
        .into_iter()
        .map(|((page, subject), counts)| Part {
            page,
            subject,
            counts,
        })
        .collect();
    let sites = pages.sites.iter();
    let sites = sites.map(|&(place, instruction, kind, thread, first, accesses)| {
        ((subject(place), instruction, kind, thread), first, accesses)
    });
    let (sites, of_site) = summed(sites, |sum: &mut u64, more| *sum += more);
    counting.sites = sites
        .into_iter()
        .map(|((subject, instruction, kind, thread), accesses)| Site {
            subject,
            instruction: CodeAddress(instruction),
            kind: KINDS[usize::from(kind)],
            thread: ThreadId(thread),
            accesses,
        })
        .collect();
    let site = |site: u32| of_site[site as usize];
    for &(page, asked, written, truly, falsely) in &pages.pairs {
        let pair = (page, subject(asked), subject(written));
        let misses = counting.pairs.entry(pair).or_default();
        misses.add(Misses { truly, falsely });
    }
    for &(of, written, truly, falsely) in &pages.missed {
        let misses = counting.missed.entry((site(of), subject(written)));
        misses.or_default().add(Misses { truly, falsely });
    }
    for &(of, victim, copies) in &pages.destroyed {
        *counting
            .destroyed
            .entry((site(of), subject(victim)))
            .or_default() += copies;
    }
    let mut details = Details::new(pages.costliest.iter().copied(), granule);
    for &(share, piece, thread, uses) in &pages.uses {
        // Each part has details of its own costliest pages; those of the trace are fewer.
        if !details.pages.contains(&pages.shares[share as usize].0) {
            continue;
        }
        let key = (of_share[share as usize], piece, ThreadId(thread));
        let known = details.uses.entry(key).or_default();
        known.iter_mut().zip(uses).for_each(|(k, u)| *k += u);
    }
    Ok(Counted {
        counting,
        subjects,
        details,
        span: (Time(trace.span.0), Time(trace.span.1)),
    })
}

/// Adds up what has the same key. Keys are numbered in the order of their first accesses; also returns
/// the number of each item's key.
fn summed<K: Copy + Eq + Hash, V: Default>(
    items: impl Iterator<Item = (K, i64, V)>,
    add: impl Fn(&mut V, V),
) -> (Vec<(K, V)>, Vec<u32>) {
    let mut numbers: HashMap<K, u32> = HashMap::new();
    let mut sums: Vec<(i64, K, V)> = Vec::new();
    let mut of_item: Vec<u32> = Vec::new();
    for (key, first, value) in items {
        let number = *numbers.entry(key).or_insert_with(|| {
            sums.push((first, key, V::default()));
            sums.len() as u32 - 1
        });
        let sum = &mut sums[number as usize];
        sum.0 = sum.0.min(first);
        add(&mut sum.2, value);
        of_item.push(number);
    }
    let mut order: Vec<u32> = (0..sums.len() as u32).collect();
    order.sort_by_key(|&number| sums[number as usize].0);
    let mut place: Vec<u32> = vec![0; sums.len()];
    for (new, &old) in (0..).zip(&order) {
        place[old as usize] = new;
    }
    let of_item = of_item.iter().map(|&old| place[old as usize]).collect();
    sums.sort_by_key(|sum| sum.0);
    let sums = sums.into_iter().map(|(_, key, value)| (key, value));
    (sums.collect(), of_item)
}

/// Something that the pass over the whole trace meets.
enum Met<'a> {
    Stack(&'a StackStep),
    Caller(u32, &'a Caller),
    Place(usize, Address),
}

/// The subject of each place. All is met in the order of the trace, since names depend on it: on what is
/// known of stacks by then, and on the first block of several.
fn places(
    pages: &Pages,
    trace: &About,
    subjects: &mut Subjects,
    process: &mut Process,
) -> Result<Vec<u32>> {
    let mut met: Vec<(i64, Met<'_>)> = Vec::new();
    met.extend(trace.stacks.iter().map(|s| (s.ord, Met::Stack(s))));
    let callers = pages.callers.iter();
    met.extend(callers.map(|(&stack, of)| (of.first, Met::Caller(stack, of))));
    for (number, &(place, first)) in pages.places.iter().enumerate() {
        if let Place::Outside(address, _) = place {
            met.push((first, Met::Place(number, Address(address))));
        }
    }
    met.sort_by_key(|(ord, _)| *ord);
    let mut of_place: Vec<Option<u32>> = vec![None; pages.places.len()];
    for (_, met) in met {
        match met {
            Met::Stack(step) => stack_event(step, trace, subjects, process),
            Met::Caller(stack, caller) => {
                subjects.blocks(process, blocks_of(caller), stack);
            }
            Met::Place(number, address) => {
                of_place[number] = Some(subjects.other(process, address));
            }
        }
    }
    let all = of_place.into_iter().zip(&pages.places);
    all.map(|(of, (place, _))| match place {
        Place::Stack(stack) => subjects.of_stack(*stack),
        Place::Outside(..) => of,
    })
    .collect::<Option<_>>()
    .context("a part names a block that the part of bucket 00 does not have")
}

fn stack_event(step: &StackStep, trace: &About, subjects: &mut Subjects, process: &mut Process) {
    let event = step.event.event();
    let thread = trace.thread(event.thread);
    if matches!(step.event, StackEvent::Start { .. }) {
        process.threads.started(thread);
        subjects.look_again();
    }
    process.recorded_stack(&event, thread);
}

fn blocks_of(caller: &Caller) -> BlocksOf {
    let thread = ThreadId(caller.thread);
    BlocksOf {
        first: BlockOf {
            start: Address(caller.address),
            size: caller.size,
            thread,
        },
        count: caller.blocks,
        size: caller.same_size.then_some(caller.size),
        thread: caller.same_thread.then_some(thread),
    }
}
