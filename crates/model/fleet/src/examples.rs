//! Hand-made records and a fleet of them, for tests. Each figure is chosen so that sums are easily checked
//! by hand.

use crate::{Fleet, Gather, Reading};
use sunder_findings::{
    Finding, Happening, Looked, Origin, Present, Record, WATCH_SCHEMA, WATCH_VERSION, WatchStatus,
    Watched, examples, fingerprint,
};

/// A second, in the unit of records.
pub const SECOND: u64 = 1_000_000_000;
/// A day.
pub const DAY: u64 = 86_400 * SECOND;
/// When the example begins: 2026-03-02 08:00 UTC.
pub const START: u64 = 1_772_438_400 * SECOND;

/// Where and when a finding is told.
#[derive(Clone, Debug)]
pub struct Told {
    /// The machine.
    pub host: &'static str,
    /// When.
    pub time: u64,
    /// The process.
    pub pid: u32,
    /// The program's path.
    pub path: &'static str,
    /// Its build.
    pub build: Option<&'static str>,
    /// Its version.
    pub version: Option<&'static str>,
    /// Its container.
    pub container: Option<String>,
}

impl Default for Told {
    fn default() -> Self {
        Self {
            host: "web1",
            time: START,
            pid: 42,
            path: "/srv/shop/server",
            build: Some("aa01"),
            version: None,
            container: None,
        }
    }
}

fn line(record: &Record) -> String {
    serde_json::to_string(record).unwrap_or_default()
}

/// The line of a finding.
pub fn finding(told: &Told, event: Happening, percent: f64, finding: &Finding) -> String {
    line(&Record::Finding(Box::new(Watched {
        schema: WATCH_SCHEMA.into(),
        version: WATCH_VERSION,
        tool: "0.1.0".into(),
        time_unix_ns: told.time,
        event,
        fingerprint: fingerprint(finding),
        origin: Origin {
            host: told.host.into(),
            pid: told.pid,
            started_ticks: 1,
            program: told.path.rsplit('/').next().unwrap_or_default().into(),
            path: Some(told.path.into()),
            build_id: told.build.map(str::to_owned),
            version: told.version.map(str::to_owned),
            container: told.container.clone(),
            ..Origin::default()
        },
        before_percent: None,
        finding: Finding {
            cost_percent: percent,
            ..finding.clone()
        },
    })))
}

/// A finding in a status: it appeared at `appeared` and has cost so many seconds since.
pub fn present(told: &Told, appeared: u64, percent: f64, lost: f64, finding: &Finding) -> Present {
    Present {
        fingerprint: fingerprint(finding),
        object: finding.subject(),
        program: told.path.rsplit('/').next().unwrap_or_default().into(),
        container: told.container.clone(),
        pid: told.pid,
        build_id: told.build.map(str::to_owned),
        appeared_unix_ns: appeared,
        cost_percent: percent,
        lost_seconds: lost,
    }
}

/// Looks at the build of `told`, until then.
pub fn looked(told: &Told, first: u64, looks: u64) -> Looked {
    Looked {
        program: told.path.rsplit('/').next().unwrap_or_default().into(),
        path: Some(told.path.into()),
        build_id: told.build.map(str::to_owned),
        version: told.version.map(str::to_owned),
        looks,
        samples: looks.saturating_mul(1000),
        samples_unattributed: 0.0,
        first_unix_ns: first,
        last_unix_ns: told.time,
    }
}

/// The line of a status at the time of `told`, by a watch that began at `begun`. Its counts are those of a
/// watch that sees well.
pub fn status(told: &Told, begun: u64, present: Vec<Present>, looked: Vec<Looked>) -> String {
    let seconds = (told.time - begun) as f64 / SECOND as f64;
    status_of(WatchStatus {
        host: told.host.into(),
        time_unix_ns: told.time,
        begun_unix_ns: begun,
        seconds,
        samples: (seconds * 99.0) as u64,
        samples_looked_at: (seconds * 9.0) as u64,
        samples_unattributed: seconds * 0.9,
        looks: 10,
        own_cpu_seconds: seconds * 0.004,
        interrupt_seconds: seconds * 0.002,
        present,
        looked,
        ..WatchStatus::default()
    })
}

/// The line of any status.
pub fn status_of(status: WatchStatus) -> String {
    line(&Record::Status(Box::new(WatchStatus {
        schema: WATCH_SCHEMA.into(),
        version: WATCH_VERSION,
        ..status
    })))
}

/// What these lines sum up to. All of them have to be records.
///
/// # Panics
/// If one is none.
pub fn sum_up<'a>(lines: impl IntoIterator<Item = &'a String>) -> Fleet {
    let mut gather = Gather::new();
    for line in lines {
        gather
            .line(line.as_bytes())
            .unwrap_or_else(|wrong| panic!("{wrong:?}: {line}"));
    }
    gather.finish(Reading {
        files: 1,
        ..Reading::default()
    })
}

/// The lines of [`fleet`].
pub fn lines() -> Vec<String> {
    let (counters, queue) = (examples::global_array(), examples::heap_pair());
    let builds = [
        ("8c1f09ab2d44e1f07a9b", "4.1.0"),
        ("d20b77c9015e6f3388aa", "4.2.0"),
        ("f4410a3c9be27d51c066", "4.2.1"),
    ];
    let mut lines = Vec::new();
    // Three machines get a release a day. The second brings the queue; the third mends the counters.
    for (host, offset) in [
        ("web1", 0),
        ("web2", 3_600 * SECOND),
        ("web3", 7_200 * SECOND),
    ] {
        let begun = START + offset;
        for (day, (build, version)) in (0..).zip(builds) {
            let pid = 100 + day as u32;
            let at = |time| Told {
                host,
                time: begun + day * DAY + time,
                pid,
                build: Some(build),
                version: Some(version),
                path: "/srv/shop/server",
                container: (host == "web3").then(|| "3f1c9d2e7a8b".repeat(6)[..64].to_owned()),
            };
            let (first, last) = (at(60 * SECOND), at(DAY - 60 * SECOND));
            let mut there = Vec::new();
            let percent = if day == 0 { 12.0 } else { 30.0 };
            if day < 2 {
                lines.push(finding(&first, Happening::Appeared, percent, &counters));
                there.push(present(&last, first.time, percent, 5_000.0, &counters));
            }
            if day > 0 {
                lines.push(finding(&first, Happening::Appeared, 6.0, &queue));
                there.push(present(&last, first.time, 6.0, 900.0, &queue));
            }
            let looks = vec![looked(&last, first.time, 40)];
            lines.push(status(&last, begun, there, looks));
            let end = at(DAY - SECOND);
            if day < 2 {
                lines.push(finding(&end, Happening::Gone, percent, &counters));
            }
            if day == 1 {
                lines.push(finding(&end, Happening::Gone, 6.0, &queue));
            }
        }
    }
    let quiet = Told {
        host: "batch1",
        time: START + DAY,
        path: "/usr/bin/backup",
        ..Told::default()
    };
    lines.push(status(
        &quiet,
        START,
        Vec::new(),
        vec![looked(&quiet, START, 12)],
    ));
    lines.push(status_of(WatchStatus {
        host: "db1".into(),
        time_unix_ns: START + DAY,
        begun_unix_ns: START,
        seconds: 86_400.0,
        samples: 7,
        ..WatchStatus::default()
    }));
    lines
}

/// Five machines, two objects, three releases.
pub fn fleet() -> Fleet {
    sum_up(&lines())
}

/// A fleet in which every text tries to get out of a page or to command a terminal.
pub fn hostile() -> Fleet {
    const BAD: &str =
        "</style><script>alert(1)</script><b onclick='x'>\"&\u{202e}\u{1b}[2J\u{7}|@all `x`";
    let mut finding_of = examples::linear_regression();
    finding_of.object.type_name = Some(BAD.into());
    finding_of.object.name = Some(BAD.repeat(20));
    for advice in &mut finding_of.advice {
        advice.text = BAD.into();
    }
    let told = Told {
        host: BAD,
        path: BAD,
        build: Some(BAD),
        container: Some(BAD.repeat(30)),
        ..Told::default()
    };
    let there = present(&told, START, 99.0, 1e12, &finding_of);
    sum_up(&[
        finding(&told, Happening::Appeared, 1e4, &finding_of),
        status(
            &told,
            START - SECOND,
            vec![there],
            vec![looked(&told, START, u64::MAX)],
        ),
    ])
}

/// A fleet where nothing was found: one machine has looked, another has not.
pub fn nothing() -> Fleet {
    let lines = lines();
    sum_up(&lines[lines.len() - 2..])
}
