//! CPU time lost as profiles of OTLP. Their format is in development (`v1development`), and receivers take them only where
//! they were told to. Pure.

use super::values::{any, scope};
use crate::profile::{Frame, Period, Sample};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development as wire;
use opentelemetry_proto::tonic::resource::v1::Resource;
use std::collections::HashMap;

/// The request that sends the samples of a period. `identity` is that of the profile: another for each.
pub fn profiles_request(
    resource: &Resource,
    period: &Period<'_>,
    identity: [u8; 16],
) -> ExportProfilesServiceRequest {
    let mut making = Making::new();
    let sample_type = wire::ValueType {
        type_strindex: making.text("false_sharing"),
        unit_strindex: making.text("nanoseconds"),
    };
    let samples = period.samples.iter().map(|sample| making.sample(sample));
    let samples = samples.collect();
    let profile = wire::Profile {
        sample_type: Some(sample_type),
        samples,
        time_unix_nano: period.begin_unix_ns,
        duration_nano: period.duration_ns,
        profile_id: identity.into(),
        ..wire::Profile::default()
    };
    ExportProfilesServiceRequest {
        resource_profiles: vec![wire::ResourceProfiles {
            resource: Some(resource.clone()),
            scope_profiles: vec![wire::ScopeProfiles {
                scope: Some(scope()),
                profiles: vec![profile],
                schema_url: String::new(),
            }],
            schema_url: String::new(),
        }],
        dictionary: Some(making.dictionary),
    }
}

/// The tables of a request that is being made. The first entry of each is empty and means "none"; no other is
/// there twice.
struct Making {
    dictionary: wire::ProfilesDictionary,
    texts: HashMap<String, i32>,
    functions: HashMap<wire::Function, i32>,
    locations: HashMap<(i32, u32), i32>,
    stacks: HashMap<wire::Stack, i32>,
    attributes: HashMap<(i32, Attribute), i32>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Attribute {
    Text(String),
    Number(i64),
}

impl Making {
    fn new() -> Self {
        Self {
            dictionary: wire::ProfilesDictionary {
                mapping_table: vec![wire::Mapping::default()],
                location_table: vec![wire::Location::default()],
                function_table: vec![wire::Function::default()],
                link_table: vec![wire::Link::default()],
                string_table: vec![String::new()],
                attribute_table: vec![wire::KeyValueAndUnit::default()],
                stack_table: vec![wire::Stack::default()],
            },
            texts: HashMap::from([(String::new(), 0)]),
            functions: HashMap::new(),
            locations: HashMap::new(),
            stacks: HashMap::new(),
            attributes: HashMap::new(),
        }
    }

    fn text(&mut self, text: &str) -> i32 {
        if let Some(&index) = self.texts.get(text) {
            return index;
        }
        let index = push(&mut self.dictionary.string_table, text.to_owned());
        self.texts.insert(text.to_owned(), index);
        index
    }

    fn location(&mut self, frame: &Frame) -> i32 {
        let function = wire::Function {
            name_strindex: self.text(&frame.name),
            filename_strindex: self.text(&frame.file),
            ..wire::Function::default()
        };
        let dictionary = &mut self.dictionary;
        let function_index = *self
            .functions
            .entry(function)
            .or_insert_with(|| push(&mut dictionary.function_table, function));
        let line = wire::Line {
            function_index,
            line: frame.line.into(),
            column: 0,
        };
        let key = (function_index, frame.line);
        *self.locations.entry(key).or_insert_with(|| {
            let location = wire::Location {
                lines: vec![line],
                ..wire::Location::default()
            };
            push(&mut dictionary.location_table, location)
        })
    }

    fn attribute(&mut self, key: &str, value: Attribute) -> i32 {
        let key_strindex = self.text(key);
        let table = &mut self.dictionary.attribute_table;
        let known = self.attributes.entry((key_strindex, value.clone()));
        *known.or_insert_with(|| {
            let value = match value {
                Attribute::Text(text) => Value::StringValue(text),
                Attribute::Number(number) => Value::IntValue(number),
            };
            let attribute = wire::KeyValueAndUnit {
                key_strindex,
                value: Some(any(value)),
                unit_strindex: 0,
            };
            push(table, attribute)
        })
    }

    fn sample(&mut self, sample: &Sample<'_>) -> wire::Sample {
        let frames = sample.frames.iter().map(|frame| self.location(frame));
        let stack = wire::Stack {
            location_indices: frames.collect(),
        };
        let stacks = &mut self.dictionary.stack_table;
        let known = self.stacks.entry(stack.clone());
        let stack_index = *known.or_insert_with(|| push(stacks, stack));
        let watched = sample.watched;
        let origin = &watched.origin;
        let text = |text: &str| Attribute::Text(text.into());
        let mut attributes = vec![
            ("process.pid", Attribute::Number(origin.pid.into())),
            ("process.executable.name", text(&origin.program)),
            ("sunder.fingerprint", text(&watched.fingerprint)),
            ("sunder.object", text(&watched.finding.subject())),
        ];
        let more = [
            ("sunder.field", sample.field),
            ("container.id", origin.container.as_deref()),
            ("systemd.unit", origin.unit.as_deref()),
        ];
        let more = more
            .iter()
            .filter_map(|(key, value)| Some((*key, text((*value)?))));
        attributes.extend(more);
        let attributes = attributes.into_iter();
        let attribute_indices = attributes.map(|(key, value)| self.attribute(key, value));
        wire::Sample {
            stack_index,
            attribute_indices: attribute_indices.collect(),
            link_index: 0,
            values: vec![sample.lost_ns],
            timestamps_unix_nano: Vec::new(),
        }
    }
}

/// Adds an entry to a table; its index.
fn push<T>(table: &mut Vec<T>, entry: T) -> i32 {
    table.push(entry);
    // A profile has some thousand samples at most (`MOST` of the profile).
    i32::try_from(table.len() - 1).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use crate::profile::tests::{status, watched};
    use std::collections::HashSet;
    use sunder_findings::{Happening, Record};

    /// The rules of `profiles.proto`: the first entry of each table is empty, none is there twice, each
    /// index leads to one.
    #[test]
    fn tables_keep_the_rules_of_the_format() {
        let mut profile = Profile::default();
        let watched = watched(Happening::Appeared);
        profile.add(&Record::Finding(Box::new(watched.clone())));
        profile.add(&status(15, Some(3.0)));
        let period = profile.take().expect("3 s were lost");
        let request = profiles_request(&Resource::default(), &period, [7; 16]);
        let made = &request.resource_profiles[0].scope_profiles[0].profiles[0];
        let tables = request.dictionary.as_ref().expect("it has one");
        assert_eq!(tables.string_table[0], "");
        assert_eq!(tables.mapping_table, [wire::Mapping::default()]);
        assert_eq!(tables.link_table, [wire::Link::default()]);
        assert_eq!(tables.location_table[0], wire::Location::default());
        assert_eq!(tables.function_table[0], wire::Function::default());
        assert_eq!(tables.attribute_table[0], wire::KeyValueAndUnit::default());
        assert_eq!(tables.stack_table[0], wire::Stack::default());
        let texts: HashSet<_> = tables.string_table.iter().collect();
        assert_eq!(texts.len(), tables.string_table.len());
        let stacks: HashSet<_> = tables.stack_table.iter().collect();
        assert_eq!(stacks.len(), tables.stack_table.len());
        let functions: HashSet<_> = tables.function_table.iter().collect();
        assert_eq!(functions.len(), tables.function_table.len());
        let text = |index: i32| tables.string_table[index as usize].as_str();
        let kind = made.sample_type.expect("it has one");
        assert_eq!(
            (text(kind.type_strindex), text(kind.unit_strindex)),
            ("false_sharing", "nanoseconds")
        );
        assert_eq!(made.samples.len(), period.samples.len());
        for (sample, from) in made.samples.iter().zip(&period.samples) {
            assert_eq!(sample.values, [from.lost_ns]);
            let stack = &tables.stack_table[sample.stack_index as usize];
            let frames = stack.location_indices.iter().map(|&index| {
                let line = &tables.location_table[index as usize].lines[0];
                let function = &tables.function_table[line.function_index as usize];
                Frame {
                    name: text(function.name_strindex).into(),
                    file: text(function.filename_strindex).into(),
                    line: line.line as u32,
                }
            });
            assert_eq!(frames.collect::<Vec<_>>(), from.frames);
            let attributes = sample.attribute_indices.iter();
            let attributes = attributes.map(|&index| &tables.attribute_table[index as usize]);
            let keys: Vec<_> = attributes.clone().map(|a| text(a.key_strindex)).collect();
            assert!(keys.contains(&"sunder.object"), "{keys:?}");
            let pid = attributes
                .clone()
                .find(|a| text(a.key_strindex) == "process.pid");
            let pid = pid.and_then(|a| a.value.clone()?.value);
            assert_eq!(pid, Some(Value::IntValue(42)));
        }
        let lost: i64 = made.samples.iter().map(|sample| sample.values[0]).sum();
        assert!(
            (lost - 3_000_000_000).abs() <= made.samples.len() as i64,
            "{lost}"
        );
    }
}
