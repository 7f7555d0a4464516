//! The findings as a profile: the values of its samples are CPU time lost, their frames the program, the object,
//! the field and the line of code. The format of `pprof` and that of OTLP are both made from it. Pure.

use std::collections::HashMap;
use sunder_findings::{Happening, Record, Site, Watched};

/// The most findings that are kept; of more, those that cost least are left out.
const MOST: usize = 2000;

/// What is known of all findings so far.
#[derive(Debug, Default)]
pub struct Profile {
    findings: HashMap<(u32, String), Seen>,
    first_unix_ns: u64,
    last_unix_ns: u64,
    /// Until when [`Self::take`] has been told.
    taken_unix_ns: u64,
}

#[derive(Debug)]
struct Seen {
    watched: Box<Watched>,
    /// Everything that it has cost.
    lost_seconds: f64,
    /// What the last status said that it has cost since it appeared.
    told_seconds: f64,
    /// How much of what it has cost [`Profile::take`] has returned.
    taken_seconds: f64,
}

/// A frame of a sample: a line of code, or a field, an object or a program, which are shown like functions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The name of the function, or of what stands for one.
    pub name: String,
    /// The source file; empty if there is none.
    pub file: String,
    /// The line in it; 0 if there is none.
    pub line: u32,
}

impl Frame {
    fn named(name: &str, file: &str, line: u32) -> Self {
        Self {
            name: name.into(),
            file: file.into(),
            line,
        }
    }
}

/// One sample: what a finding has cost at a line of code, for one field.
#[derive(Clone, Debug)]
pub struct Sample<'a> {
    /// The record of the finding.
    pub watched: &'a Watched,
    /// The innermost first: line of code, field, object, program.
    pub frames: Vec<Frame>,
    /// The field; a line of code that uses several has a sample of each, with equal parts.
    pub field: Option<&'a str>,
    /// Source file and line of the code.
    pub code: Option<(&'a str, u32)>,
    /// CPU time lost, in nanoseconds.
    pub lost_ns: i64,
    /// The accesses of the line that were sampled.
    pub accesses: u64,
}

/// A period and its samples.
#[derive(Debug)]
pub struct Period<'a> {
    /// When it begins, in nanoseconds since 1970.
    pub begin_unix_ns: u64,
    /// How long it is.
    pub duration_ns: u64,
    /// In the order of the findings' fingerprints.
    pub samples: Vec<Sample<'a>>,
}

impl Profile {
    /// Takes a record.
    pub fn add(&mut self, record: &Record) {
        match record {
            Record::Finding(watched) => self.add_finding(watched),
            Record::Status(status) => {
                for one in &status.present {
                    let key = (one.pid, one.fingerprint.clone());
                    if let Some(seen) = self.findings.get_mut(&key) {
                        // Less than before: it went away and has appeared anew.
                        let more = match one.lost_seconds - seen.told_seconds {
                            more if more >= 0.0 => more,
                            _ => one.lost_seconds,
                        };
                        seen.lost_seconds += more.max(0.0);
                        seen.told_seconds = one.lost_seconds;
                    }
                }
                self.last_unix_ns = status.time_unix_ns;
                let before = status
                    .time_unix_ns
                    .saturating_sub((status.seconds * 1e9) as u64);
                if self.first_unix_ns == 0 {
                    (self.first_unix_ns, self.taken_unix_ns) = (before, before);
                }
            }
        }
    }

    fn add_finding(&mut self, watched: &Watched) {
        let key = (watched.origin.pid, watched.fingerprint.clone());
        if watched.event == Happening::Gone {
            if let Some(seen) = self.findings.get_mut(&key) {
                seen.told_seconds = 0.0;
            }
            return;
        }
        // Another process may have the number by now.
        let same = |old: &Seen| old.watched.origin == watched.origin;
        let seen = match self.findings.remove(&key).filter(same) {
            Some(old) => Seen {
                watched: Box::new(watched.clone()),
                ..old
            },
            None => Seen {
                watched: Box::new(watched.clone()),
                lost_seconds: 0.0,
                told_seconds: 0.0,
                taken_seconds: 0.0,
            },
        };
        self.findings.insert(key, seen);
        if self.findings.len() > MOST {
            let all = self.findings.iter();
            let least = all.min_by(|a, b| a.1.lost_seconds.total_cmp(&b.1.lost_seconds));
            if let Some(key) = least.map(|(key, _)| key.clone()) {
                self.findings.remove(&key);
            }
        }
    }

    /// Everything since the watch began.
    pub fn whole(&self) -> Period<'_> {
        Period {
            begin_unix_ns: self.first_unix_ns,
            duration_ns: self.last_unix_ns.saturating_sub(self.first_unix_ns),
            samples: self.samples(|seen| Some(seen.lost_seconds)),
        }
    }

    /// What was lost since the call before, if anything. Findings that have lost nothing are left out.
    pub fn take(&mut self) -> Option<Period<'_>> {
        let begin_unix_ns = self.taken_unix_ns;
        let mut more = HashMap::new();
        for (key, seen) in &mut self.findings {
            let seconds = seen.lost_seconds - seen.taken_seconds;
            if seconds > 0.0 {
                seen.taken_seconds = seen.lost_seconds;
                more.insert(key.clone(), seconds);
            }
        }
        self.taken_unix_ns = self.last_unix_ns;
        if more.is_empty() {
            return None;
        }
        let of = |seen: &Seen| {
            let watched = &seen.watched;
            let key = (watched.origin.pid, watched.fingerprint.clone());
            more.get(&key).copied()
        };
        Some(Period {
            begin_unix_ns,
            duration_ns: self.last_unix_ns.saturating_sub(begin_unix_ns),
            samples: self.samples(of),
        })
    }

    /// The samples of the findings for which there are `seconds`.
    fn samples(&self, seconds: impl Fn(&Seen) -> Option<f64>) -> Vec<Sample<'_>> {
        let all = self.findings.values();
        let mut all: Vec<_> = all
            .filter_map(|seen| Some((seen, seconds(seen)?)))
            .collect();
        let order = |seen: &Seen| (seen.watched.fingerprint.clone(), seen.watched.origin.pid);
        all.sort_by_cached_key(|(seen, _)| order(seen));
        let all = all.into_iter();
        all.flat_map(|(seen, seconds)| samples_of(&seen.watched, seconds))
            .collect()
    }
}

/// The samples of a finding: what it has cost is shared out to its lines of code as its accesses are.
fn samples_of(watched: &Watched, lost_seconds: f64) -> Vec<Sample<'_>> {
    let finding = &watched.finding;
    let lost_ns = lost_seconds * 1e9;
    let place = finding.place();
    let declared = place.as_ref().map_or("", |place| place.file.as_str());
    let line = place.as_ref().and_then(|place| place.line).unwrap_or(0);
    let outer = [
        Frame::named(&finding.subject(), declared, line),
        Frame::named(&watched.origin.program, "", 0),
    ];
    let all: u64 = finding.sites.iter().map(|site| site.accesses).sum();
    if all == 0 {
        return vec![Sample {
            watched,
            frames: outer.into(),
            field: None,
            code: None,
            lost_ns: lost_ns as i64,
            accesses: 0,
        }];
    }
    let parts = finding.sites.iter().flat_map(by_field);
    parts
        .filter(|part| part.2 > 0)
        .map(|(site, field, accesses)| {
            let file = site.file.as_deref().unwrap_or_default();
            let line = site.line.unwrap_or(0);
            let inner = [
                Some(Frame::named(&site.function, file, line)),
                field.map(|field| Frame::named(field, declared, 0)),
            ];
            let frames = inner.into_iter().flatten().chain(outer.iter().cloned());
            Sample {
                watched,
                frames: frames.collect(),
                field,
                code: Some((file, line)),
                lost_ns: (lost_ns * (accesses as f64 / all as f64)) as i64,
                accesses,
            }
        })
        .collect()
}

/// A line of code with each of its fields, and with that one's part of its accesses. Which field an access
/// was to is not known any more, so all have equal parts.
fn by_field(site: &Site) -> Vec<(&Site, Option<&str>, u64)> {
    let fields: Vec<Option<&str>> = match site.fields.is_empty() {
        true => vec![None],
        false => site
            .fields
            .iter()
            .map(|field| Some(field.as_str()))
            .collect(),
    };
    let many = fields.len() as u64;
    let parts = fields.into_iter().zip(0..);
    parts
        .map(|(field, n)| {
            let rest = u64::from(n < site.accesses % many);
            (site, field, site.accesses / many + rest)
        })
        .collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    #[test]
    fn each_field_of_a_line_of_code_has_its_part() {
        let site = |fields: &[&str], accesses| Site {
            fields: fields.iter().map(|&field| field.to_owned()).collect(),
            accesses,
            ..Site::default()
        };
        let parts = |site: &Site| -> Vec<(Option<String>, u64)> {
            let all = by_field(site).into_iter();
            all.map(|(_, field, n)| (field.map(str::to_owned), n))
                .collect()
        };
        assert_eq!(parts(&site(&[], 7)), [(None, 7)]);
        let both = [(Some("a".to_owned()), 4), (Some("b".to_owned()), 3)];
        assert_eq!(parts(&site(&["a", "b"], 7)), both);
    }

    use sunder_findings::{Origin, Present, WatchStatus, examples, fingerprint};

    /// An example's finding in the process 42.
    pub fn watched(event: Happening) -> Watched {
        let finding = examples::linear_regression();
        Watched {
            schema: String::new(),
            version: 1,
            tool: String::new(),
            time_unix_ns: 0,
            event,
            fingerprint: fingerprint(&finding),
            origin: Origin {
                pid: 42,
                program: "server".into(),
                ..Origin::default()
            },
            before_percent: None,
            finding,
        }
    }

    /// A status after so many seconds of a watch that began 5 s after 1970, which says what the finding has
    /// cost.
    pub fn status(seconds: u64, lost_seconds: Option<f64>) -> Record {
        let fingerprint = watched(Happening::Appeared).fingerprint;
        let present = lost_seconds.map(|lost_seconds| Present {
            fingerprint,
            pid: 42,
            lost_seconds,
            ..Present::default()
        });
        Record::Status(Box::new(WatchStatus {
            time_unix_ns: (5 + seconds) * 1_000_000_000,
            seconds: seconds as f64,
            present: present.into_iter().collect(),
            ..WatchStatus::default()
        }))
    }

    fn lost(period: &Period<'_>) -> f64 {
        let all = period.samples.iter().map(|sample| sample.lost_ns as f64);
        (all.sum::<f64>() / 1e6).round() / 1e3
    }

    fn tell(profile: &mut Profile, event: Happening) {
        profile.add(&Record::Finding(Box::new(watched(event))));
    }

    #[test]
    fn each_period_has_what_was_lost_in_it_and_all_of_them_have_everything() {
        let mut profile = Profile::default();
        let mut taken = Vec::new();
        let mut step = |profile: &mut Profile, record: Record| {
            profile.add(&record);
            let period = profile.take();
            taken.push(period.map(|p| (p.begin_unix_ns / 1_000_000_000, lost(&p))));
        };
        step(&mut profile, status(10, None));
        tell(&mut profile, Happening::Appeared);
        step(&mut profile, status(20, Some(3.0)));
        step(&mut profile, status(30, Some(3.0)));
        step(&mut profile, status(40, Some(4.5)));
        tell(&mut profile, Happening::Gone);
        // It appears anew and has cost more already than when it went away.
        tell(&mut profile, Happening::Appeared);
        step(&mut profile, status(50, Some(5.0)));
        step(&mut profile, status(60, None));
        let expected = [
            None,
            Some((15, 3.0)),
            None,
            Some((35, 1.5)),
            Some((45, 5.0)),
            None,
        ];
        assert_eq!(taken, expected);
        let whole = profile.whole();
        assert_eq!(lost(&whole), 9.5);
        assert_eq!(whole.begin_unix_ns, 5_000_000_000);
        assert_eq!(whole.duration_ns, 60_000_000_000);
    }

    #[test]
    fn frames_lead_from_the_line_to_the_program() {
        let mut profile = Profile::default();
        tell(&mut profile, Happening::Appeared);
        profile.add(&status(10, Some(1.0)));
        let whole = profile.whole();
        let finding = &watched(Happening::Appeared).finding;
        assert_eq!(
            whole.samples.len(),
            finding.sites.iter().filter(|s| s.accesses > 0).count()
        );
        for sample in &whole.samples {
            let names: Vec<&str> = sample.frames.iter().map(|f| f.name.as_str()).collect();
            let mut expected = vec![sample.frames[0].name.as_str()];
            expected.extend(sample.field);
            let subject = finding.subject();
            expected.extend([subject.as_str(), "server"]);
            assert_eq!(names, expected);
            let code = &sample.frames[0];
            let mut sites = finding.sites.iter();
            assert!(sites.any(|s| s.function == code.name && s.line == Some(code.line)));
        }
    }
}
