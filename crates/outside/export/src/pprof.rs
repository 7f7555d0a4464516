//! The profile of the findings in the format of `pprof`: one file, written anew with each status, with everything since
//! the watch began.

use crate::files::Place;
use crate::profile::{Frame, Period, Profile, Sample};
use flate2::{Compression, write::GzEncoder};
use prost::Message;
use std::collections::HashMap;
use std::io::{self, Write};

/// Writes the whole profile to `file`. Whoever reads that meanwhile sees the old profile or the new one, whole.
///
/// # Errors
/// If it can't be written.
pub fn write_pprof(file: &Place, profile: &Profile) -> io::Result<()> {
    file.put_whole(&packed(&profile.whole())?)
}

/// The period's samples, packed as `pprof` reads them.
fn packed(period: &Period<'_>) -> io::Result<Vec<u8>> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(&message(period).encode_to_vec())?;
    packer.finish()
}

fn message(period: &Period<'_>) -> wire::Profile {
    let mut making = Making::default();
    // The format wants an empty text first.
    making.text("");
    let lost = making.kind("false_sharing", "nanoseconds");
    let samples = making.kind("samples", "count");
    period.samples.iter().for_each(|sample| making.add(sample));
    wire::Profile {
        sample_type: vec![lost, samples],
        default_sample_type: lost.kind,
        sample: making.samples,
        location: making.locations,
        function: making.functions,
        string_table: making.texts,
        time_nanos: period.begin_unix_ns as i64,
        duration_nanos: period.duration_ns as i64,
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

    fn location(&mut self, frame: &Frame) -> u64 {
        let key = (self.text(&frame.name), self.text(&frame.file));
        let next = self.functions.len() as u64 + 1;
        let function = *self.by_name.entry(key).or_insert(next);
        if function == next {
            self.functions.push(wire::Function {
                id: next,
                name: key.0,
                filename: key.1,
            });
        }
        let line = i64::from(frame.line);
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

    fn add(&mut self, sample: &Sample<'_>) {
        let origin = &sample.watched.origin;
        let mut labels = vec![
            ("object", sample.watched.finding.subject()),
            ("process", origin.pid.to_string()),
            ("program", origin.program.clone()),
            ("host", origin.host.clone()),
        ];
        labels.extend(origin.container.clone().map(|id| ("container", id)));
        let code = sample.code.map(|(file, line)| format!("{file}:{line}"));
        labels.extend(code.map(|code| ("line", code)));
        labels.extend(sample.field.map(|field| ("field", field.to_owned())));
        let label = labels.iter().map(|(key, text)| wire::Label {
            key: self.text(key),
            text: self.text(text),
        });
        let label = label.collect();
        let location = sample.frames.iter().map(|frame| self.location(frame));
        let location = location.collect();
        self.samples.push(wire::Sample {
            location,
            value: vec![sample.lost_ns, sample.accesses as i64],
            label,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::{status, watched};
    use flate2::read::GzDecoder;
    use std::io::Read;
    use sunder_findings::{Happening, Record};

    #[test]
    fn the_cost_of_a_finding_is_shared_out_to_its_lines() {
        let watched = watched(Happening::Appeared);
        let mut profile = Profile::default();
        profile.add(&Record::Finding(Box::new(watched.clone())));
        profile.add(&status(15, Some(3.0)));
        let mut bytes = Vec::new();
        let packed = packed(&profile.whole()).expect("it is packed");
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
