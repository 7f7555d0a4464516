//! Sums over hand-made records, whose answers were worked out by hand.

use sunder_findings::{Answer, Happening, WatchStatus, examples as findings};
use sunder_fleet::examples::{
    DAY, SECOND, START, Told, finding, fleet, lines, looked, nothing, present, status, status_of,
    sum_up,
};
use sunder_fleet::{Blind, Figures, Fleet, Gather, Labelled, Reading, Step, Wrong};

fn near(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-6
}

/// A status at `time` of a watch that began at `begun`, of one object that appeared at `appeared`.
fn costing(begun: u64, time: u64, appeared: u64, lost: f64) -> String {
    let told = Told {
        time,
        ..Told::default()
    };
    let one = present(&told, appeared, 10.0, lost, &findings::global_array());
    status(&told, begun, vec![one], vec![])
}

#[test]
fn seconds_since_a_finding_appeared_are_not_added_up_over_the_statuses() {
    let lines = [1, 2, 3].map(|n| costing(START, START + n * SECOND, START, n as f64 * 4.0));
    assert!(near(sum_up(&lines).lost_seconds, 12.0));
}

#[test]
fn a_watch_that_is_started_again_counts_anew_and_both_count() {
    let later = START + DAY;
    let lines = [
        costing(START, START + SECOND, START, 8.0),
        // The finding appeared in the same process, as the second watch sees it.
        costing(later, later + SECOND, later, 2.0),
    ];
    let fleet = sum_up(&lines);
    assert!(near(fleet.lost_seconds, 10.0), "{}", fleet.lost_seconds);
    let host = &fleet.hosts[0];
    assert_eq!((host.watches, fleet.objects[0].processes), (2, 1));
    assert!(
        near(host.seconds, 2.0),
        "one second of each: {}",
        host.seconds
    );
}

#[test]
fn a_watch_that_does_not_tell_when_it_began_is_known_by_its_age() {
    let old = |time: u64, seconds: f64, lost: f64| {
        let told = Told::default();
        let one = present(&told, 0, 10.0, lost, &findings::global_array());
        status_of(WatchStatus {
            host: "web1".into(),
            time_unix_ns: START + time * SECOND,
            seconds,
            present: vec![one],
            ..WatchStatus::default()
        })
    };
    // The clock was set by a second in between; at 200 s a second watch has begun.
    let lines = [
        old(60, 60.0, 5.0),
        old(121, 120.0, 9.0),
        old(260, 60.0, 1.0),
    ];
    let fleet = sum_up(&lines);
    assert_eq!(fleet.hosts[0].watches, 2);
    assert!(near(fleet.lost_seconds, 10.0), "{}", fleet.lost_seconds);
}

#[test]
fn a_finding_that_was_gone_and_comes_again_counts_twice() {
    let lines = [
        costing(START, START + 2 * SECOND, START, 3.0),
        costing(START, START + 9 * SECOND, START + 5 * SECOND, 1.5),
    ];
    assert!(near(sum_up(&lines).lost_seconds, 4.5));
}

/// The summary without what counts readings.
fn facts(mut fleet: Fleet) -> Fleet {
    fleet.reading = Reading::default();
    fleet
}

#[test]
fn order_and_repetitions_of_records_change_nothing() {
    let all = lines();
    let once = facts(fleet());
    let twice: Vec<String> = all.iter().chain(all.iter().rev()).cloned().collect();
    assert_eq!(facts(sum_up(&twice)), once);
    let mut other: Vec<String> = all.iter().skip(1).step_by(2).cloned().collect();
    other.extend(all.iter().step_by(2).cloned());
    assert_eq!(facts(sum_up(&other)), once);
}

#[test]
fn one_object_on_several_machines_is_one_row() {
    let fleet = fleet();
    assert_eq!(fleet.answer, Answer::Found);
    assert_eq!(fleet.objects.len(), 2);
    // Three machines, 5,000 s on each of two days; 900 s on each of two days.
    assert!(near(fleet.objects[0].lost_seconds, 30_000.0));
    assert!(near(fleet.objects[1].lost_seconds, 5_400.0));
    assert!(near(fleet.lost_seconds, 35_400.0));
    let hosts: Vec<u64> = fleet.objects.iter().map(|o| o.hosts).collect();
    assert_eq!(hosts, [3, 3]);
    // The counters are gone with the third release, the queue is there.
    let there: Vec<u64> = fleet.objects.iter().map(|o| o.there_on).collect();
    assert_eq!(there, [0, 3]);
    assert_eq!(fleet.objects[0].programs, ["server"]);
    let web3 = fleet
        .hosts
        .iter()
        .find(|host| host.host == "web3")
        .expect("it told");
    assert!(near(web3.lost_seconds, 11_800.0));
    assert_eq!((web3.objects, web3.there), (2, 1));
    assert_eq!(fleet.containers.len(), 1);
    assert!(near(fleet.containers[0].lost_seconds, 11_800.0));
}

#[test]
fn releases_that_brought_changed_and_mended_an_object_are_told() {
    let fleet = fleet();
    let steps = |at: usize| {
        fleet.objects[at]
            .builds
            .iter()
            .map(|b| b.step)
            .collect::<Vec<_>>()
    };
    assert_eq!(steps(0), [Step::First, Step::Grew, Step::Mended]);
    assert_eq!(steps(1), [Step::NotYet, Step::Brought, Step::Same]);
    let mended = &fleet.objects[0].builds[2];
    assert_eq!(
        (mended.hosts, mended.looks, mended.cost_percent),
        (3, 120, None)
    );
    let grown = &fleet.objects[0].builds[1];
    assert!(near(grown.lost_seconds, 15_000.0) && grown.cost_percent == Some(30.0));
}

#[test]
fn a_build_has_the_version_that_was_told_last_whatever_is_read_first() {
    let told = |time: u64, version| Told {
        time: START + time * SECOND,
        version,
        ..Told::default()
    };
    let counters = findings::global_array();
    let [older, newer, silent] = [(1, Some("1.0")), (2, Some("1.0-fixed")), (3, None)]
        .map(|(time, version)| told(time, version));
    let appeared = finding(&newer, Happening::Appeared, 10.0, &counters);
    let looked = |told: &Told| status(told, START, vec![], vec![looked(told, START, 3)]);
    let lines = [appeared, looked(&older), looked(&silent)];
    let version = |lines: [&String; 3]| sum_up(lines).objects[0].builds[0].version.clone();
    let [a, b, c] = &lines;
    for order in [[a, b, c], [c, b, a], [b, c, a]] {
        assert_eq!(version(order).as_deref(), Some("1.0-fixed"));
    }
}

#[test]
fn a_build_that_was_hardly_looked_at_mends_nothing() {
    let told = |time: u64, build| Told {
        time: START + time * SECOND,
        build: Some(build),
        ..Told::default()
    };
    let counters = findings::global_array();
    let (old, new) = (told(1, "aa01"), told(99, "bb02"));
    let with_looks = |looks| {
        sum_up(&[
            finding(&old, Happening::Appeared, 10.0, &counters),
            status(&old, START, vec![], vec![looked(&old, old.time, 9)]),
            status(&new, START, vec![], vec![looked(&new, new.time, looks)]),
        ])
    };
    let steps = |fleet: &Fleet| {
        fleet.objects[0]
            .builds
            .iter()
            .map(|b| b.step)
            .collect::<Vec<_>>()
    };
    assert_eq!(steps(&with_looks(1)), [Step::First, Step::Unknown]);
    assert_eq!(steps(&with_looks(2)), [Step::First, Step::Mended]);
}

#[test]
fn a_machine_whose_clock_is_wrong_changes_no_sum_and_no_order() {
    // What web2 tells, a year too early. It had both releases, in the same order.
    let year = 365 * DAY;
    let shifted = |line: &String| {
        let mut value: serde_json::Value = serde_json::from_str(line).expect("ours");
        if !line.contains("\"host\":\"web2\"") {
            return line.clone();
        }
        shift(&mut value, year);
        value.to_string()
    };
    let all: Vec<String> = lines().iter().map(shifted).collect();
    assert_ne!(all, lines());
    let (wrong, right) = (sum_up(&all), fleet());
    assert!(near(wrong.lost_seconds, right.lost_seconds));
    for (one, other) in wrong.objects.iter().zip(&right.objects) {
        let builds = |o: &sunder_fleet::FleetObject| {
            let all = o.builds.iter().map(|b| (b.build_id.clone(), b.step));
            all.collect::<Vec<_>>()
        };
        assert_eq!(builds(one), builds(other));
        assert_eq!((one.hosts, one.there_on), (other.hosts, other.there_on));
    }
}

/// Takes so much from every time in a record.
fn shift(value: &mut serde_json::Value, by: u64) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_u64().filter(|_| name.ends_with("_unix_ns")) {
                    Some(time) => *field = (time - by).into(),
                    None => shift(field, by),
                }
            }
        }
        serde_json::Value::Array(all) => all.iter_mut().for_each(|one| shift(one, by)),
        _ => {}
    }
}

#[test]
fn what_is_there_the_last_word_of_each_machine_says() {
    let at = |time: u64| Told {
        time: START + time * SECOND,
        ..Told::default()
    };
    let counters = findings::global_array();
    let one = |told: &Told| vec![present(told, START, 10.0, 1.0, &counters)];
    let appeared = finding(&at(1), Happening::Appeared, 10.0, &counters);
    let gone = finding(&at(8), Happening::Gone, 10.0, &counters);
    let there = |lines: &[&String]| sum_up(lines.iter().copied()).objects[0].there_on;
    assert_eq!(there(&[&appeared]), 1);
    assert_eq!(there(&[&appeared, &gone]), 0);
    let listed = status(&at(5), START, one(&at(5)), vec![]);
    assert_eq!(there(&[&appeared, &listed]), 1);
    assert_eq!(there(&[&appeared, &listed, &gone]), 0);
    let not_listed = status(&at(9), START, vec![], vec![]);
    assert_eq!(there(&[&appeared, &listed, &not_listed]), 0);
}

/// A later watch may have been asked about other processes only.
#[test]
fn an_object_at_which_nobody_has_looked_again_is_not_gone() {
    let at = |time: u64| Told {
        time: START + time * SECOND,
        ..Told::default()
    };
    let counters = findings::global_array();
    let one = vec![present(&at(5), START, 10.0, 1.0, &counters)];
    let appeared = finding(&at(1), Happening::Appeared, 10.0, &counters);
    let listed = status(&at(5), START, one, vec![]);
    let presence = |lines: &[&String]| {
        let fleet = sum_up(lines.iter().copied());
        (fleet.objects[0].there_on, fleet.objects[0].not_looked_at_on)
    };
    let begun = START + 50 * SECOND;
    let of_others = Told {
        path: "/usr/bin/backup",
        build: None,
        ..at(60)
    };
    for (looked, wanted, why) in [
        (vec![], (0, 1), "it knows nothing of it"),
        (
            vec![looked(&at(60), begun + SECOND, 1)],
            (0, 1),
            "one look shows little",
        ),
        (
            vec![looked(&at(60), begun + SECOND, 9)],
            (0, 0),
            "it was looked for",
        ),
        (
            vec![looked(&of_others, begun + SECOND, 9)],
            (0, 1),
            "another program",
        ),
    ] {
        let other = status(&at(60), begun, vec![], looked);
        assert_eq!(presence(&[&appeared, &listed, &other]), wanted, "{why}");
        let told = finding(&at(7), Happening::Gone, 10.0, &counters);
        assert_eq!(
            presence(&[&appeared, &listed, &told, &other]),
            (0, 0),
            "{why}"
        );
    }
    assert_eq!(presence(&[&appeared, &listed]), (1, 0));
}

/// The figures of the watch of `web1` that began at [`START`].
fn figures(time: u64, lost: &[(&str, f64)]) -> Figures {
    Figures {
        host: "web1".into(),
        begun_unix_ns: START,
        time_unix_ns: START + time * SECOND,
        status: WatchStatus {
            samples: 900,
            looks: 3,
            ..WatchStatus::default()
        },
        lost_seconds: lost
            .iter()
            .map(|&(object, value)| Labelled {
                program: "server".into(),
                object: object.into(),
                container: String::new(),
                value,
            })
            .collect(),
    }
}

#[test]
fn figures_beside_statuses_of_the_same_watch_count_once() {
    let counters = findings::global_array();
    let subject = counters.subject();
    let sum = |with_status: bool, all: &[(u64, f64)]| {
        let mut gather = Gather::new();
        let appeared = finding(&Told::default(), Happening::Appeared, 10.0, &counters);
        gather.line(appeared.as_bytes()).expect("a record");
        if with_status {
            let status = costing(START, START + SECOND, START, 6.0);
            gather.line(status.as_bytes()).expect("a record");
        }
        for &(time, lost) in all {
            gather
                .figures(&figures(time, &[(&subject, lost)]))
                .expect("possible");
        }
        gather.finish(Reading::default())
    };
    // Told by both; by the figures only; and beyond what the status has.
    assert!(near(sum(true, &[(1, 6.0)]).lost_seconds, 6.0));
    assert!(near(
        sum(false, &[(1, 6.0), (2, 7.0), (2, 7.0)]).lost_seconds,
        7.0
    ));
    let more = sum(true, &[(1, 6.0), (5, 9.0)]);
    assert!(near(more.lost_seconds, 9.0) && near(more.unnamed_lost_seconds, 0.0));
    assert!(near(more.objects[0].builds[0].lost_seconds, 9.0));
    assert_eq!(more.hosts[0].watches, 1);
}

#[test]
fn figures_of_objects_without_records_are_told_apart() {
    let mut gather = Gather::new();
    gather
        .figures(&figures(5, &[("counters", 3.0)]))
        .expect("possible");
    let fleet = gather.finish(Reading::default());
    assert_eq!((fleet.answer, fleet.objects.len()), (Answer::Found, 0));
    assert!(near(fleet.unnamed_lost_seconds, 3.0) && near(fleet.lost_seconds, 3.0));
    assert!(near(fleet.hosts[0].lost_seconds, 3.0));
    assert_eq!(
        Gather::new().figures(&figures(5, &[("x", f64::NAN)])),
        Err(Wrong::Damaged)
    );
}

#[test]
fn nothing_found_is_only_said_where_something_was_looked_at() {
    let blind = |status: WatchStatus| {
        let fleet = sum_up(&[status_of(WatchStatus {
            host: "web1".into(),
            time_unix_ns: START,
            ..status
        })]);
        (fleet.answer, fleet.hosts[0].blind.clone())
    };
    let sees = WatchStatus {
        samples: 1000,
        looks: 4,
        samples_looked_at: 100,
        ..WatchStatus::default()
    };
    assert_eq!(blind(sees.clone()), (Answer::None, vec![]));
    for (status, kind) in [
        (WatchStatus::default(), Blind::NoSamples),
        (
            WatchStatus {
                looks: 0,
                ..sees.clone()
            },
            Blind::NoLooks,
        ),
        (
            WatchStatus {
                looks_failed: 2,
                ..sees.clone()
            },
            Blind::LooksFailed,
        ),
    ] {
        assert_eq!(blind(status), (Answer::Inconclusive, vec![kind]));
    }
    for (status, kind) in [
        (
            WatchStatus {
                samples_unattributed: 50.0,
                ..sees.clone()
            },
            Blind::Unattributed,
        ),
        (
            WatchStatus {
                lost_records: 11,
                ..sees.clone()
            },
            Blind::SamplesLost,
        ),
        (
            WatchStatus {
                records_dropped: 1,
                ..sees.clone()
            },
            Blind::RecordsDropped,
        ),
    ] {
        assert_eq!(blind(status), (Answer::None, vec![kind]));
    }
    let mixed = nothing();
    assert_eq!(mixed.answer, Answer::None);
    assert_eq!(
        mixed.hosts.iter().filter(|host| host.has_looked()).count(),
        1
    );
}

#[test]
fn impossible_records_are_refused_whole() {
    let wrong = |line: &str| {
        Gather::new()
            .line(line.as_bytes())
            .expect_err("it is refused")
    };
    let good = costing(START, START + SECOND, START, 8.0);
    assert_eq!(Gather::new().line(good.as_bytes()), Ok(()));
    for (from, to, why) in [
        (
            "\"lost_seconds\":8.0",
            "\"lost_seconds\":-8.0",
            Wrong::Damaged,
        ),
        (
            "\"lost_seconds\":8.0",
            "\"lost_seconds\":1e13",
            Wrong::Damaged,
        ),
        (
            "\"lost_seconds\":8.0",
            "\"lost_seconds\":null",
            Wrong::Damaged,
        ),
        ("\"version\":1", "\"version\":2", Wrong::Newer),
        ("sunder-watch", "other", Wrong::Damaged),
        (
            "\"record\":\"status\"",
            "\"record\":\"new\"",
            Wrong::Damaged,
        ),
    ] {
        let bad = good.replace(from, to);
        assert_ne!(bad, good, "{from}");
        assert_eq!(wrong(&bad), why, "{to}");
    }
    assert_eq!(wrong("{}"), Wrong::Damaged);
    assert_eq!(wrong(&good[..good.len() - 1]), Wrong::Damaged);
}

#[test]
fn names_of_others_are_cleaned() {
    let hostile = serde_json::to_string(&sunder_fleet::examples::hostile()).expect("JSON");
    assert!(!hostile.contains("\\u001b") && !hostile.contains('\u{202e}'));
    assert!(
        hostile.len() < 20_000,
        "long names are cut: {}",
        hostile.len()
    );
}
