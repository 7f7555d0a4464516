//! Chooses an observer. This is the only place that knows all observers by name.

use crate::kind::{Kind, Measure, ObserverChoice};
use crate::{perf, pmu, timer};
use anyhow::{Context, Result, bail};
use sunder_findings::Limit;

/// All observers of running programs, in the order in which they are shown to users.
pub static OBSERVERS: [&Kind; 4] = [&perf::KIND, &timer::KIND, &pmu::KIND, &ISOLATE];

/// Comparisons of the pages of isolated threads. A remedy brings this observer, which isolates
/// the threads.
static ISOLATE: Kind = Kind {
    choice: ObserverChoice::Isolate,
    name: "isolate",
    about: "What threads change while each computes on pages of its own (`detect` only): exact, \
            but writes alone, and slower",
    in_brief: "comparisons of pages",
    rank: None,
    refusal: || None,
    instead: "",
    missed: |_| None,
    measure: Measure::Differences,
    needs_library: true,
    needs_segment: false,
    open: |_| bail!("the isolate observer is for `sunder detect` only"),
};

/// The observer that `choice` means on this machine. If `Auto` has to do without a better one,
/// the reason is added to `limits`.
///
/// # Errors
/// If the observer that was asked for does not work here.
pub fn choose(choice: ObserverChoice, limits: &mut Vec<Limit>) -> Result<&'static Kind> {
    // Each probe delays the start of the program, so only what `choice` needs is probed.
    if choice == ObserverChoice::Auto {
        return choose_best(limits);
    }
    let kind = OBSERVERS.into_iter().find(|kind| kind.choice == choice);
    let kind = kind.context("there is no such observer")?;
    if let Some(why) = (kind.refusal)() {
        let (name, instead) = (kind.name, kind.instead);
        bail!("the {name} observer does not work here: {why}; {instead}");
    }
    Ok(kind)
}

/// The best observer that works on this machine.
fn choose_best(limits: &mut Vec<Limit>) -> Result<&'static Kind> {
    let mut ranked: Vec<&Kind> = OBSERVERS.into_iter().filter(|k| k.rank.is_some()).collect();
    ranked.sort_by_key(|kind| kind.rank);
    for kind in ranked {
        match (kind.refusal)() {
            None => return Ok(kind),
            Some(why) => limits.extend((kind.missed)(why)),
        }
    }
    bail!("no observer works on this machine")
}
