//! Sentences and figures about a fleet, shared by text, Markdown and HTML.

use crate::figures::{counted, grouped, percent};
use chrono::DateTime;
use sunder_findings::{Answer, Sharing};
use sunder_fleet::{Blind, BuildCost, Fleet, FleetHost, FleetObject, Step};

/// The most machines that a sentence names.
const NAMED: usize = 5;
/// Digits of a build id that tell builds apart.
const DIGITS: usize = 12;
/// The same beside a version.
const DIGITS_BESIDE_VERSION: usize = 6;

/// A time of a record, to the minute, in UTC.
pub(crate) fn when(unix_ns: u64) -> String {
    match i64::try_from(unix_ns) {
        Ok(ns) if ns > 0 => DateTime::from_timestamp_nanos(ns)
            .format("%Y-%m-%d %H:%M")
            .to_string(),
        _ => "?".to_owned(),
    }
}

/// CPU time in two or three digits: `12 s`, `34 min`, `5.2 h`, `3.1 days`.
pub(crate) fn cpu_time(seconds: f64) -> String {
    const MINUTE: f64 = 60.0;
    const HOUR: f64 = 3600.0;
    const DAY: f64 = 86_400.0;
    let with = |unit: f64, name: &str| {
        let number = seconds / unit;
        if number < 9.95 {
            format!("{number:.1} {name}")
        } else {
            format!("{} {name}", grouped(number.round() as u64))
        }
    };
    if !seconds.is_finite() || seconds < 0.0 {
        "? s".to_owned()
    } else if seconds < 0.05 {
        "0 s".to_owned()
    } else if seconds < 2.0 * MINUTE {
        with(1.0, "s")
    } else if seconds < 2.0 * HOUR {
        with(MINUTE, "min")
    } else if seconds < 2.0 * DAY {
        with(HOUR, "h")
    } else {
        with(DAY, "days")
    }
}

/// The answer in a sentence or two.
pub(crate) fn fleet_answer(fleet: &Fleet) -> String {
    let machines = fleet.hosts.len();
    let looked = fleet.hosts.iter().filter(|host| host.has_looked()).count();
    let counted_machines = |count: usize| counted(count, "machine");
    match fleet.answer {
        Answer::Found => {
            let objects = fleet.objects.len();
            let on = fleet.hosts.iter().filter(|host| host.objects > 0).count();
            let (are, they) = match objects {
                1 => ("is", "It"),
                _ => ("are", "They"),
            };
            format!(
                "{} {are} shared falsely, on {on} of {}. {they} cost {} of CPU time.",
                counted(objects, "object"),
                counted_machines(machines),
                cpu_time(fleet.lost_seconds),
            )
        }
        Answer::None if looked == machines => {
            format!(
                "Nothing that is shared falsely was found on {}.",
                counted_machines(machines)
            )
        }
        Answer::None => format!(
            "Nothing that is shared falsely was found on {}; on {} nothing would have been seen.",
            counted_machines(looked),
            counted_machines(machines - looked)
        ),
        Answer::Inconclusive => format!(
            "Nothing was found, and nothing would have been: none of {} has looked closely at a process.",
            counted_machines(machines)
        ),
    }
}

/// Short facts about what was read.
pub(crate) fn fleet_facts(fleet: &Fleet) -> Vec<String> {
    let watched: f64 = fleet.hosts.iter().map(|host| host.seconds).sum();
    let looks: u64 = fleet
        .hosts
        .iter()
        .map(|host| host.looks)
        .fold(0, u64::saturating_add);
    vec![
        format!(
            "{} to {} UTC",
            when(fleet.first_unix_ns),
            when(fleet.last_unix_ns)
        ),
        format!(
            "{} watched for {} in all",
            counted(fleet.hosts.len(), "machine"),
            cpu_time(watched)
        ),
        format!("{} at processes", counted(looks as usize, "close look")),
    ]
}

/// What watching took.
pub(crate) fn own_cost(fleet: &Fleet) -> String {
    let sum = |of: fn(&FleetHost) -> f64| fleet.hosts.iter().map(of).sum::<f64>();
    let (own, interrupts) = (sum(|h| h.own_cpu_seconds), sum(|h| h.interrupt_seconds));
    let watched = sum(|h| h.seconds);
    let share = match watched > 0.0 {
        true => format!(
            ": {} of one CPU",
            percent(100.0 * (own + interrupts) / watched)
        ),
        false => String::new(),
    };
    format!(
        "Watching took {} of CPU time itself, and its interrupts took at most {} from programs{share}.",
        cpu_time(own),
        cpu_time(interrupts)
    )
}

/// What watching lost, in figures.
pub(crate) fn lost(fleet: &Fleet) -> String {
    let sum = |of: fn(&FleetHost) -> u64| fleet.hosts.iter().map(of).fold(0, u64::saturating_add);
    let looked_at = sum(|h| h.samples_looked_at);
    let unknown: f64 = fleet.hosts.iter().map(|h| h.samples_unattributed).sum();
    let unknown = match looked_at {
        0 => String::new(),
        all => format!(
            " Of {} samples of close looks, {} have no known address.",
            grouped(all),
            percent(100.0 * unknown / all as f64)
        ),
    };
    let by_symbols = match sum(|h| h.looks_by_symbols) {
        0 => String::new(),
        some => format!(
            " Debug information took too much in {}, whose findings are named by symbols.",
            counted(some as usize, "look")
        ),
    };
    format!(
        "The kernel dropped {} samples beside {} that came.{unknown} {} of {} close looks failed, and {} \
         records were not handed over.{by_symbols}",
        grouped(sum(|h| h.lost_records)),
        grouped(sum(|h| h.samples)),
        grouped(sum(|h| h.looks_failed)),
        grouped(sum(|h| h.looks)),
        grouped(sum(|h| h.records_dropped)),
    )
}

/// Why there may be more than was found, and what could not be read, a sentence each.
pub(crate) fn fleet_limits(fleet: &Fleet) -> Vec<String> {
    let kinds = [
        Blind::NoStatus,
        Blind::NoSamples,
        Blind::NoLooks,
        Blind::LooksFailed,
        Blind::Unattributed,
        Blind::SamplesLost,
        Blind::RecordsDropped,
    ];
    let mut limits: Vec<String> = Vec::new();
    for kind in kinds {
        let of_kind = |host: &&FleetHost| host.blind.contains(&kind);
        let names: Vec<&str> = fleet
            .hosts
            .iter()
            .filter(of_kind)
            .map(|h| h.host.as_str())
            .collect();
        if names.is_empty() {
            continue;
        }
        let shown = names
            .iter()
            .take(NAMED)
            .copied()
            .collect::<Vec<_>>()
            .join(", ");
        let more = match names.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        limits.push(format!("{}: {shown}{more}.", blind(kind)));
    }
    let reading = &fleet.reading;
    let counts = [
        (
            reading.damaged,
            "line or batch is no record, and was left out",
            "lines or batches are no records, and were left out",
        ),
        (
            reading.newer,
            "record is of a newer version, and was left out",
            "records are of a newer version, and were left out",
        ),
        (
            reading.cut_off,
            "file ends in the middle of a record",
            "files end in the middle of a record",
        ),
        (
            reading.unread,
            "file could not be read to its end",
            "files could not be read to their end",
        ),
        (
            reading.passed_over,
            "entry of a folder was not opened, because it is no plain file or lies too deep",
            "entries of folders were not opened, because they are no plain files or lie too deep",
        ),
        (
            reading.left_out,
            "record was not taken whole, because a table was full",
            "records were not taken whole, because a table was full",
        ),
    ];
    for (count, one, several) in counts {
        match count {
            0 => {}
            1 => limits.push(format!("1 {one}.")),
            many => limits.push(format!("{} {several}.", grouped(many))),
        }
    }
    limits.extend(
        reading
            .unread_names
            .iter()
            .map(|name| format!("Not read: {name}.")),
    );
    if fleet.unnamed_lost_seconds >= 0.05 {
        limits.push(format!(
            "{} of CPU time belong to objects whose records are not among these files.",
            cpu_time(fleet.unnamed_lost_seconds)
        ));
    }
    limits
}

/// Why there may be more than was found on some machines, as the beginning of a sentence.
pub(crate) const fn blind(kind: Blind) -> &'static str {
    match kind {
        Blind::NoStatus => "How the watch is doing was not told, so what is not found may be there",
        Blind::NoSamples => "Nothing was sampled",
        Blind::NoLooks => {
            "No process was looked at closely, since none was seen to run on two CPUs at once"
        }
        Blind::LooksFailed => "The results of most close looks were lost",
        Blind::Unattributed => {
            "For most samples the address is not known; what hides there is not found"
        }
        Blind::SamplesLost => "The kernel dropped samples",
        Blind::RecordsDropped => "The watch could not hand over some of its records",
    }
}

/// The same in a word or two, for a table.
pub(crate) const fn blind_word(kind: Blind) -> &'static str {
    match kind {
        Blind::NoStatus => "no status",
        Blind::NoSamples => "no samples",
        Blind::NoLooks => "no close look",
        Blind::LooksFailed => "looks failed",
        Blind::Unattributed => "addresses not known",
        Blind::SamplesLost => "samples lost",
        Blind::RecordsDropped => "records dropped",
    }
}

/// The share of the threads' time: `12 %`, or `12 %, up to 30 %` where machines differ.
pub(crate) fn share(object: &FleetObject) -> String {
    let (middle, highest) = (
        percent(object.cost_percent),
        percent(object.highest_percent),
    );
    if middle == highest {
        middle
    } else {
        format!("{middle}, up to {highest}")
    }
}

/// Where it is and was.
pub(crate) fn spread(object: &FleetObject) -> String {
    let hosts = counted(object.hosts as usize, "machine");
    let processes = match object.processes {
        1 => "1 process".to_owned(),
        many => format!("{} processes", grouped(many)),
    };
    format!("On {hosts}, in {processes}; {}.", presence(object))
}

fn presence(object: &FleetObject) -> String {
    let all = object.hosts;
    let of = |count: u64, what: &str| match count {
        0 => None,
        _ if count == all && all == 1 => Some(what.to_owned()),
        _ if count == all => Some(format!("{what} on all of them")),
        some => Some(format!("{what} on {}", grouped(some))),
    };
    let gone = all.saturating_sub(object.there_on + object.not_looked_at_on);
    let parts = [
        of(object.there_on, "still there"),
        of(object.not_looked_at_on, "not looked at since"),
        match gone {
            0 => None,
            _ if gone == all => Some("gone from all of them".to_owned()),
            // As before: that it is there on some says that it is gone from the others.
            _ if object.not_looked_at_on == 0 => None,
            some => Some(format!("gone from {}", grouped(some))),
        },
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    parts.join(", ")
}

/// The kind of sharing.
pub(crate) const fn fleet_kind(object: &FleetObject) -> &'static str {
    match object.sharing {
        Sharing::False => "false sharing",
        Sharing::True => "true sharing",
        Sharing::Mixed => "mixed sharing",
    }
}

/// A build in a few words: its build id, or its version with the beginning of the id.
pub(crate) fn build_name(build: &BuildCost) -> String {
    let id = |digits| match &build.build_id {
        Some(id) if id.chars().count() > digits => {
            format!("{}…", id.chars().take(digits).collect::<String>())
        }
        Some(id) => id.clone(),
        None => "no build id".to_owned(),
    };
    match &build.version {
        Some(version) => format!("{version} {}", id(DIGITS_BESIDE_VERSION)),
        None => id(DIGITS),
    }
}

/// What a build changed.
pub(crate) const fn step(step: Step) -> &'static str {
    match step {
        Step::First => "there from the first build on",
        Step::NotYet => "not there yet",
        Step::Brought => "appeared with this build",
        Step::Mended => "not there any more",
        Step::Grew => "costs more than before",
        Step::Shrank => "costs less than before",
        Step::Same => "as before",
        Step::StillAbsent => "still not there",
        Step::Unknown => "looked at too seldom to tell",
    }
}

/// What the object costs in a build.
pub(crate) fn build_cost(build: &BuildCost) -> String {
    match build.cost_percent {
        Some(cost) => percent(cost),
        None if build.step == Step::Unknown => "?".to_owned(),
        None => "not seen".to_owned(),
    }
}

/// What the builds say of the object in one sentence; `None` if there is one build only.
pub(crate) fn history(object: &FleetObject) -> Option<String> {
    if object.builds.len() < 2 {
        return None;
    }
    let last = object
        .builds
        .iter()
        .rev()
        .find(|build| !matches!(build.step, Step::Same | Step::StillAbsent | Step::Unknown))?;
    let name = build_name(last);
    Some(match last.step {
        Step::Brought => format!(
            "It appeared with build {name} on {}.",
            when(last.first_unix_ns)
        ),
        Step::Mended => format!(
            "It is gone since build {name} of {}: not seen in {} looks.",
            when(last.first_unix_ns),
            grouped(last.looks)
        ),
        Step::Grew => format!(
            "It costs more since build {name} of {}.",
            when(last.first_unix_ns)
        ),
        Step::Shrank => format!(
            "It costs less since build {name} of {}.",
            when(last.first_unix_ns)
        ),
        _ => "No build changed what it costs.".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_durations_are_for_people() {
        assert_eq!(when(1_700_000_000_000_000_000), "2023-11-14 22:13");
        assert_eq!((when(0), when(u64::MAX)), ("?".into(), "?".into()));
        for (seconds, wanted) in [
            (0.0, "0 s"),
            (0.06, "0.1 s"),
            (12.34, "12 s"),
            (119.0, "119 s"),
            (150.0, "2.5 min"),
            (7_000.0, "117 min"),
            (10_000.0, "2.8 h"),
            (400_000.0, "4.6 days"),
            (1e9, "11,574 days"),
            (f64::NAN, "? s"),
        ] {
            assert_eq!(cpu_time(seconds), wanted, "{seconds}");
        }
    }
}
