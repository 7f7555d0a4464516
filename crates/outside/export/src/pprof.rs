//! Findings as a profile of `pprof`: its samples are CPU time lost, its frames the object, the field, and the
//! line of code. One file, written anew with each status, with everything since the watch began.

use crate::textfile::replace;
use anyhow::{Context, Result};
use flate2::{Compression, write::GzEncoder};
use prost::Message;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use sunder_findings::{Happening, Record, Watched};

/// The most findings that are kept; of more, those that cost least are left out.
const MOST: usize = 2000;

/// What is known of all findings so far.
#[derive(Debug, Default)]
pub struct Profile {
    findings: HashMap<(u32, String), Seen>,
    first_unix_ns: u64,
    last_unix_ns: u64,
}

#[derive(Debug)]
struct Seen {
    watched: Box<Watched>,
    lost_seconds: f64,
}

impl Profile {
    /// Takes a record.
    pub fn add(&mut self, record: &Record) {
        match record {
            Record::Finding(watched) if watched.event != Happening::Gone => {
                let key = (watched.origin.pid, watched.fingerprint.clone());
                let old = self.findings.remove(&key);
                // Another process may have the number by now.
                let same = |old: &Seen| old.watched.origin == watched.origin;
                let lost_seconds = old.filter(same).map_or(0.0, |old| old.lost_seconds);
                let seen = Seen {
                    watched: watched.clone(),
                    lost_seconds,
                };
                self.findings.insert(key, seen);
                self.make_room();
            }
            Record::Finding(_) => {}
            Record::Status(status) => {
                for one in &status.present {
                    let key = (one.pid, one.fingerprint.clone());
                    if let Some(seen) = self.findings.get_mut(&key) {
                        seen.lost_seconds = seen.lost_seconds.max(one.lost_seconds);
                    }
                }
                self.last_unix_ns = status.time_unix_ns;
                let before = status
                    .time_unix_ns
                    .saturating_sub((status.seconds * 1e9) as u64);
                if self.first_unix_ns == 0 {
                    self.first_unix_ns = before;
                }
            }
        }
    }

    fn make_room(&mut self) {
        if self.findings.len() <= MOST {
            return;
        }
        let all = self.findings.iter();
        let least = all.min_by(|a, b| a.1.lost_seconds.total_cmp(&b.1.lost_seconds));
        if let Some(key) = least.map(|(key, _)| key.clone()) {
            self.findings.remove(&key);
        }
    }

    /// The profile, packed as `pprof` reads it.
    ///
    /// # Errors
    /// If it can't be packed.
    pub fn packed(&self) -> Result<Vec<u8>> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::default());
        packer.write_all(&self.message().encode_to_vec())?;
        packer.finish().context("cannot pack a profile")
    }

    /// Writes it to `file`. Whoever reads that meanwhile sees the old profile or the new one, whole.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write(&self, file: &Path) -> Result<()> {
        replace(file, &self.packed()?)
    }

    fn message(&self) -> wire::Profile {
        let mut making = Making::default();
        // The format wants an empty text first.
        making.text("");
        let lost = making.kind("false_sharing", "nanoseconds");
        let samples = making.kind("samples", "count");
        let mut all: Vec<&Seen> = self.findings.values().collect();
        all.sort_by(|a, b| a.watched.fingerprint.cmp(&b.watched.fingerprint));
        all.into_iter().for_each(|seen| making.add(seen));
        wire::Profile {
            sample_type: vec![lost, samples],
            default_sample_type: lost.kind,
            sample: making.samples,
            location: making.locations,
            function: making.functions,
            string_table: making.texts,
            time_nanos: self.first_unix_ns as i64,
            duration_nanos: self.last_unix_ns.saturating_sub(self.first_unix_ns) as i64,
        }
    }
}

/// The tables of a profile that is being made.
#[derive(Default)]
struct Making {
    texts: Vec<String>,
    by_text: HashMap<String, i64>,
    functions: Vec<wire::Function>,
    by_name: HashMap<(i64, i64), u64>,
    locations: Vec<wire::Location>,
    by_place: HashMap<(u64, i64), u64>,
    samples: Vec<wire::Sample>,
}

impl Making {
    fn text(&mut self, text: &str) -> i64 {
        if let Some(&number) = self.by_text.get(text) {
            return number;
        }
        let number = self.texts.len() as i64;
        self.texts.push(text.to_owned());
        self.by_text.insert(text.to_owned(), number);
        number
    }

    fn kind(&mut self, kind: &str, unit: &str) -> wire::ValueType {
        wire::ValueType {
            kind: self.text(kind),
            unit: self.text(unit),
        }
    }

    /// The location of a line in a function; objects and fields are shown as functions, too.
    fn location(&mut self, name: &str, file: &str, line: u32) -> u64 {
        let key = (self.text(name), self.text(file));
        let next = self.functions.len() as u64 + 1;
        let function = *self.by_name.entry(key).or_insert(next);
        if function == next {
            self.functions.push(wire::Function {
                id: next,
                name: key.0,
                filename: key.1,
            });
        }
        let line = i64::from(line);
        let next = self.locations.len() as u64 + 1;
        let location = *self.by_place.entry((function, line)).or_insert(next);
        if location == next {
            self.locations.push(wire::Location {
                id: next,
                line: vec![wire::Line { function, line }],
            });
        }
        location
    }

    /// Adds a finding: its cost goes to its lines of code as its accesses do.
    fn add(&mut self, seen: &Seen) {
        let (origin, finding) = (&seen.watched.origin, &seen.watched.finding);
        let object = finding.subject();
        let lost_ns = seen.lost_seconds * 1e9;
        let all: u64 = finding.sites.iter().map(|site| site.accesses).sum();
        let program = self.location(&origin.program, "", 0);
        let place = finding.place();
        let declared = place.as_ref().map_or("", |place| place.file.as_str());
        let line = place.as_ref().and_then(|place| place.line).unwrap_or(0);
        let of_object = self.location(&object, declared, line);
        let process = origin.pid.to_string();
        let mut labels = vec![
            ("object", object.clone()),
            ("process", process),
            ("program", origin.program.clone()),
            ("host", origin.host.clone()),
        ];
        labels.extend(origin.container.clone().map(|id| ("container", id)));
        let sample = |making: &mut Self, stack, values, more: Vec<(&str, String)>| {
            let label = labels.iter().cloned().chain(more);
            let label = label.map(|(key, text)| wire::Label {
                key: making.text(key),
                text: making.text(&text),
            });
            let label = label.collect();
            making.samples.push(wire::Sample {
                location: stack,
                value: values,
                label,
            });
        };
        if all == 0 {
            sample(
                self,
                vec![of_object, program],
                vec![lost_ns as i64, 0],
                Vec::new(),
            );
            return;
        }
        for site in finding.sites.iter().filter(|site| site.accesses > 0) {
            let file = site.file.as_deref().unwrap_or_default();
            let line = site.line.unwrap_or(0);
            let mut stack = vec![self.location(&site.function, file, line)];
            let mut more = vec![("line", format!("{file}:{line}"))];
            if let Some(field) = site.fields.first() {
                stack.push(self.location(field, declared, 0));
                more.push(("field", field.clone()));
            }
            stack.extend([of_object, program]);
            let part = site.accesses as f64 / all as f64;
            let values = vec![(lost_ns * part) as i64, site.accesses as i64];
            sample(self, stack, values, more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use std::io::Read;
    use sunder_findings::{Origin, Present, WatchStatus, examples, fingerprint};

    /// A profile of a finding that has cost three seconds.
    fn profile() -> (Profile, Watched) {
        let finding = examples::linear_regression();
        let watched = Watched {
            schema: String::new(),
            version: 1,
            tool: String::new(),
            time_unix_ns: 0,
            event: Happening::Appeared,
            fingerprint: fingerprint(&finding),
            origin: Origin {
                pid: 42,
                program: "server".into(),
                ..Origin::default()
            },
            before_percent: None,
            finding,
        };
        let mut profile = Profile::default();
        profile.add(&Record::Finding(Box::new(watched.clone())));
        profile.add(&Record::Status(Box::new(WatchStatus {
            time_unix_ns: 20_000_000_000,
            seconds: 15.0,
            present: vec![Present {
                fingerprint: watched.fingerprint.clone(),
                pid: 42,
                lost_seconds: 3.0,
                ..Present::default()
            }],
            ..WatchStatus::default()
        })));
        (profile, watched)
    }

    #[test]
    fn the_cost_of_a_finding_is_shared_out_to_its_lines() {
        let (profile, watched) = profile();
        let mut bytes = Vec::new();
        let packed = profile.packed().expect("it is packed");
        let read = GzDecoder::new(&packed[..]).read_to_end(&mut bytes);
        read.expect("it is unpacked");
        let made = wire::Profile::decode(&bytes[..]).expect("a profile");
        assert_eq!(made.string_table[0], "");
        let text = |number: i64| made.string_table[number as usize].as_str();
        let kinds = made
            .sample_type
            .iter()
            .map(|k| (text(k.kind), text(k.unit)));
        let wanted = [("false_sharing", "nanoseconds"), ("samples", "count")];
        assert_eq!(kinds.collect::<Vec<_>>(), wanted);
        let lost: i64 = made.sample.iter().map(|sample| sample.value[0]).sum();
        let sites = &watched.finding.sites;
        assert!((lost - 3_000_000_000).abs() <= sites.len() as i64, "{lost}");
        let accesses: i64 = made.sample.iter().map(|sample| sample.value[1]).sum();
        assert_eq!(
            accesses as u64,
            sites.iter().map(|s| s.accesses).sum::<u64>()
        );
        let object = watched.finding.subject();
        for sample in &made.sample {
            let label = |key| {
                let found = sample.label.iter().find(|label| text(label.key) == key);
                found.map(|label| text(label.text))
            };
            assert_eq!(label("object"), Some(object.as_str()));
            assert_eq!(label("process"), Some("42"));
            for location in &sample.location {
                let function = made.location[*location as usize - 1].line[0].function;
                assert_eq!(made.function[function as usize - 1].id, function);
            }
        }
        assert_eq!(
            (made.time_nanos, made.duration_nanos),
            (5_000_000_000, 15_000_000_000)
        );
    }
}

/// The messages of `profile.proto` of `pprof`, as far as they are used.
mod wire {
    use prost::Message;

    #[derive(Clone, PartialEq, Message)]
    pub struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub sample: Vec<Sample>,
        #[prost(message, repeated, tag = "4")]
        pub location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub string_table: Vec<String>,
        #[prost(int64, tag = "9")]
        pub time_nanos: i64,
        #[prost(int64, tag = "10")]
        pub duration_nanos: i64,
        #[prost(int64, tag = "14")]
        pub default_sample_type: i64,
    }

    #[derive(Clone, Copy, PartialEq, Message)]
    pub struct ValueType {
        #[prost(int64, tag = "1")]
        pub kind: i64,
        #[prost(int64, tag = "2")]
        pub unit: i64,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub location: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub label: Vec<Label>,
    }

    #[derive(Clone, Copy, PartialEq, Message)]
    pub struct Label {
        #[prost(int64, tag = "1")]
        pub key: i64,
        #[prost(int64, tag = "2")]
        pub text: i64,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Location {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(message, repeated, tag = "4")]
        pub line: Vec<Line>,
    }

    #[derive(Clone, Copy, PartialEq, Message)]
    pub struct Line {
        #[prost(uint64, tag = "1")]
        pub function: u64,
        #[prost(int64, tag = "2")]
        pub line: i64,
    }

    #[derive(Clone, Copy, PartialEq, Message)]
    pub struct Function {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(int64, tag = "2")]
        pub name: i64,
        #[prost(int64, tag = "4")]
        pub filename: i64,
    }
}
