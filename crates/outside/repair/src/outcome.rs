//! Reports one repair, from its history and from what the library left in its area. Called by
//! `repairer` at the end. Must not change anything.

use super::attempt::{Attempt, Stay};
use super::saved::IN_VAIN;
use super::serve::Server;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use sunder_access::{Address, CodeAddress, Time};
use sunder_findings::{FaultsSoFar, Move, Moved, Progress, RolledBack, Unrepaired};
use sunder_gain::gained::progress;
use sunder_plan::progress::WORTH_KEEPING;
use sunder_wire::remap::{self, Area, BY_INSTRUCTION, BY_TOOL, FREE, REFUSED, ROLLING_BACK};

/// The report of an attempt. `area` is its area, `None` in a dry run. Times count from `started`.
/// `function` gives the name of code that was copied.
///
/// # Errors
/// Says why the bytes were never moved.
pub fn outcome(
    attempt: &Attempt,
    area: Option<(usize, &Area)>,
    server: Option<&Server>,
    started: Time,
    function: &mut dyn FnMut(CodeAddress) -> Option<String>,
) -> Result<Moved, Unrepaired> {
    let proposal = &attempt.proposal;
    let seconds = |time: u64| Time(time).nanoseconds_since(started) as f64 / 1e9;
    let mut moved = Moved {
        object: proposal.object.clone(),
        address: Address(proposal.page),
        bytes: proposal.len,
        groups: attempt.groups.clone(),
        cost_percent: proposal.cost_share * 100.0,
        at_seconds: seconds(attempt.decided.0),
        ..Moved::default()
    };
    let Some((number, area)) = area else {
        return Ok(moved);
    };
    let state = area.state.load(Acquire);
    if attempt.stays.is_empty() {
        return Err(Unrepaired {
            object: proposal.object.clone(),
            address: Some(moved.address),
            reason: attempt
                .hindrance
                .clone()
                .unwrap_or_else(|| never(area, state)),
        });
    }
    let (code, refusal) = server.map(|s| s.code_of(number)).unwrap_or_default();
    moved.code = code
        .into_iter()
        .map(|(at, mut code)| {
            let at = CodeAddress(at);
            code.function = function(at).unwrap_or_else(|| at.to_string());
            code
        })
        .collect();
    moved.faults = area.faults.load(Relaxed);
    moved.requests = area.asked.load(Relaxed);
    moved.moves = attempt
        .stays
        .iter()
        .map(|stay| shown(stay, refusal.as_deref(), &seconds))
        .collect();
    if let (Some(first), Some(last)) = (moved.moves.first(), moved.moves.last()) {
        moved.at_seconds = first.at_seconds;
        moved.took_microseconds = first.took_microseconds;
        moved.rolled_back = last.rolled_back.clone();
    }
    // The program ended while the bytes were being put back, so that no time is known.
    if state == ROLLING_BACK && moved.rolled_back.is_none() {
        moved.rolled_back = Some(RolledBack {
            reason: remap::reason(area.reason.load(Relaxed)).to_owned(),
            at_seconds: 0.0,
        });
    }
    moved.progress = best(&attempt.stays);
    if moved.progress.is_none() {
        let why = attempt
            .unmeasured
            .unwrap_or("it did not stay for long enough");
        moved.unmeasured = Some(why.into());
    }
    Ok(moved)
}

/// Why the bytes of an attempt were never moved, for somebody who looks on.
pub fn refusal(attempt: &Attempt, area: &Area) -> String {
    let known = attempt.hindrance.clone();
    known.unwrap_or_else(|| never(area, area.state.load(Acquire)))
}

/// Why the bytes of an attempt are back, if they are. `refusal`: why no copy of code was made for
/// them, if so.
pub fn why_back(attempt: &Attempt, refusal: Option<&str>) -> Option<String> {
    let last = attempt.stays.last()?;
    Some(shown(last, refusal, &|_| 0.0).rolled_back?.reason)
}

/// Why the bytes were never moved.
fn never(area: &Area, state: u32) -> String {
    match state {
        FREE => "the program ended, or none of its threads ran, before it could be moved".into(),
        REFUSED => {
            let error = std::io::Error::from_raw_os_error(area.reason.load(Relaxed) as i32);
            format!("the kernel did not move it: {error}")
        }
        _ => "the program ended as it was moved".into(),
    }
}

/// Why bytes are back for which the user asked.
pub const YOU: &str = "you put it back";

fn shown(stay: &Stay, refusal: Option<&str>, seconds: &dyn Fn(u64) -> f64) -> Move {
    let gain = stay.gain();
    let rolled_back = stay.back.map(|(number, at)| RolledBack {
        reason: match (number, refusal, gain, stay.rethought) {
            (BY_INSTRUCTION, Some(why), ..) => why.to_owned(),
            (BY_TOOL, ..) if stay.undone => YOU.into(),
            (BY_TOOL, .., Some(why)) => why.why().into(),
            (BY_TOOL, _, Some(gain), _) if gain >= WORTH_KEEPING => format!(
                "{IN_VAIN}: one of the threads got on {:.2} times as fast as before",
                stay.least_gain().unwrap_or(gain)
            ),
            (BY_TOOL, _, Some(gain), _) if gain * WORTH_KEEPING < 1.0 => {
                format!("{IN_VAIN}: threads got on {gain:.2} times as fast as before")
            }
            (BY_TOOL, _, Some(gain), _) => format!(
                "{IN_VAIN}: threads got on {gain:.2} times as fast as before, and less than \
                 {WORTH_KEEPING} is not told from chance"
            ),
            _ => remap::reason(number).to_owned(),
        },
        at_seconds: seconds(at),
    });
    Move {
        at_seconds: seconds(stay.applied),
        took_microseconds: stay.took as f64 / 1000.0,
        faults: stay.faults,
        faults_over_time: (stay.faults_over_time.iter())
            .map(|&(at, faults)| FaultsSoFar {
                at_seconds: seconds(at),
                faults,
            })
            .collect(),
        gain,
        rolled_back,
    }
}

/// The progress in the last stay in which it was measured.
fn best(stays: &[Stay]) -> Option<Progress> {
    stays.iter().rev().find_map(|s| progress(&s.gains))
}
