//! Reading and writing a result. A file that is foreign, newer, truncated or damaged gives one
//! clear sentence, never a panic and never half a result.

mod header;

use crate::error::{FindingsError, LARGEST_FILE};
use crate::schema::{Findings, SCHEMA, VERSION};
use crate::shown::escaped_json;
use header::Header;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

impl Findings {
    /// Reads the result in the file at `path`.
    ///
    /// # Errors
    /// See [`Findings::read`]; also if the file can't be opened.
    pub fn open(path: &Path) -> Result<Self, FindingsError> {
        let file = File::open(path).map_err(|source| FindingsError::Open {
            path: path.to_owned(),
            source,
        })?;
        Self::read(file)
    }

    /// Reads a result.
    ///
    /// # Errors
    /// If reading fails, or if the text is empty, too large, truncated, damaged, of a newer
    /// version, or no result.
    pub fn read(reader: impl Read) -> Result<Self, FindingsError> {
        let mut text = Vec::new();
        reader
            .take(LARGEST_FILE + 1)
            .read_to_end(&mut text)
            .map_err(FindingsError::Read)?;
        if text.len() as u64 > LARGEST_FILE {
            return Err(FindingsError::TooLarge);
        }
        Self::parse(&text)
    }

    fn parse(text: &[u8]) -> Result<Self, FindingsError> {
        if text.iter().all(u8::is_ascii_whitespace) {
            return Err(FindingsError::Empty);
        }
        let header: Header = serde_json::from_slice(text).map_err(|e| not_json(text, &e))?;
        check_header(&header)?;
        serde_json::from_slice(text).map_err(|e| FindingsError::Damaged(e.to_string()))
    }

    /// Writes the result as indented JSON with a newline at the end.
    ///
    /// # Errors
    /// If writing fails, or if a figure is not a finite number; [`crate::rank`] removes such
    /// figures.
    pub fn write(&self, mut writer: impl Write) -> Result<(), FindingsError> {
        let text = self.to_json()?;
        writer
            .write_all(text.as_bytes())
            .and_then(|()| writer.flush())
            .map_err(FindingsError::Write)
    }

    /// The result as indented JSON with a newline at the end.
    ///
    /// # Errors
    /// If a figure is not a finite number; [`crate::rank`] removes such figures. JSON would
    /// have `null` in its place, and the file could not be read again.
    pub fn to_json(&self) -> Result<String, FindingsError> {
        if let Some(what) = self.unreal_figure() {
            return Err(FindingsError::Damaged(format!("{what} is not a number")));
        }
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|e| FindingsError::Write(io::Error::other(e)))?;
        text.push('\n');
        Ok(escaped_json(text))
    }

    fn unreal_figure(&self) -> Option<String> {
        let run = [
            ("run.seconds", self.run.seconds),
            ("run.threshold_percent", self.run.threshold_percent),
            ("run.observer_cpu_seconds", self.run.observer_cpu_seconds),
            (
                "run.program_cpu_seconds",
                self.run.program_cpu_seconds.unwrap_or_default(),
            ),
            (
                "run.left_out_percent",
                self.run.left_out_percent.unwrap_or_default(),
            ),
            (
                "machine.transfer_ns",
                self.machine.transfer_ns.unwrap_or(0.0),
            ),
        ];
        if let Some((name, _)) = run.iter().find(|(_, v)| !v.is_finite()) {
            return Some((*name).to_owned());
        }
        self.findings.iter().enumerate().find_map(|(i, f)| {
            let own = [f.cost_percent, f.interleavings_per_second, f.false_share];
            let gain = f.gain_percent.map(|g| [g.low, g.likely, g.high]);
            let cpus = f.on_more_cpus.map(|c| [c.low, c.times_as_fast, c.high]);
            let lines = f.lines.iter().map(|l| l.interleavings_per_second);
            own.into_iter()
                .chain(lines)
                .chain(f.timeline.iter().copied())
                .chain(gain.into_iter().chain(cpus).flatten())
                .any(|v| !v.is_finite())
                .then(|| format!("a figure of findings[{i}]"))
        })
    }
}

fn not_json(text: &[u8], error: &serde_json::Error) -> FindingsError {
    let opens_an_object = text
        .iter()
        .find(|b| !b.is_ascii_whitespace())
        .is_some_and(|&b| b == b'{');
    // A number that is cut in its middle is reported as one that is wrong.
    let ends_in_a_number = matches!(text.last(), Some(b'.' | b'e' | b'E' | b'+' | b'-'));
    let lines = text.iter().filter(|&&b| b == b'\n').count() + 1;
    let is_cut = error.is_eof() || error.line() == lines && ends_in_a_number;
    if is_cut && opens_an_object {
        FindingsError::Truncated { line: error.line() }
    } else {
        FindingsError::Foreign(format!("it is not JSON ({error})"))
    }
}

/// Checks schema and version before anything else: a newer result may have any other form.
fn check_header(header: &Header) -> Result<(), FindingsError> {
    let Some(schema) = &header.schema else {
        return Err(FindingsError::Foreign(
            "it is JSON without \"schema\"".to_owned(),
        ));
    };
    if schema != SCHEMA {
        let shown: String = schema.chars().take(40).collect();
        return Err(FindingsError::Foreign(format!(
            "its \"schema\" is {shown:?}, not {SCHEMA:?}"
        )));
    }
    match header.version {
        Some(version) if version == u64::from(VERSION) => Ok(()),
        Some(found) if found > u64::from(VERSION) => Err(FindingsError::Newer { found }),
        _ => Err(FindingsError::Damaged(
            "its \"version\" is no version of the schema".to_owned(),
        )),
    }
}

/// The JSON Schema of a result, indented and with a newline at the end. The same text is in
/// `docs/schema/sunder-findings-1.json`.
#[cfg(feature = "schema")]
pub fn json_schema() -> String {
    let mut schema = schemars::schema_for!(Findings);
    let name = format!("{SCHEMA}-{VERSION}.json");
    schema.insert("$id".to_owned(), serde_json::Value::String(name));
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples;

    fn error(text: &str) -> String {
        Findings::read(text.as_bytes())
            .expect_err("must be refused")
            .to_string()
    }

    #[test]
    fn a_written_result_is_read_back_unchanged() {
        let all = examples::report();
        let mut text = Vec::new();
        all.write(&mut text).expect("it can be written");
        assert_eq!(Findings::read(text.as_slice()).expect("it is good"), all);
    }

    #[test]
    fn every_cut_is_noticed() {
        let text = examples::report().to_json().expect("it can be written");
        // The closing brace and the newline end a complete result.
        for cut in (1..text.len() - 2).step_by(37).chain([text.len() - 2]) {
            let Some(head) = text.get(..cut) else {
                continue; // inside a character
            };
            let said = error(head);
            assert!(said.contains("cut short"), "cut at {cut}: {said}");
        }
    }

    #[test]
    fn each_bad_file_gets_its_own_sentence() {
        for (text, said) in [
            ("", "empty"),
            (" \n", "empty"),
            ("\u{7f}ELF\u{2}\u{1}", "not JSON"),
            ("[1, 2", "not JSON"),
            ("[]", "without \"schema\""),
            ("null", "without \"schema\""),
            ("{\"schema\": {\"a\": [1]}}", "without \"schema\""),
            ("{\"schema\": 3, \"version\": 1}", "without \"schema\""),
            ("3", "without \"schema\""),
            ("{\"runs\": []}", "without \"schema\""),
            (
                "{\"schema\": \"sarif\"}",
                "\"sarif\", not \"sunder-findings\"",
            ),
            (
                "{\"schema\": \"sunder-findings\"}",
                "no version of the schema",
            ),
            (
                "{\"schema\": \"sunder-findings\", \"version\": 0}",
                "no version of the schema",
            ),
            (
                "{\"schema\": \"sunder-findings\", \"version\": [1]}",
                "no version of the schema",
            ),
            (
                "{\"schema\": \"sunder-findings\", \"version\": 2, \"anything\": 1}",
                "schema version 2, and this sunder reads up to 1",
            ),
            (
                "{\"schema\": \"sunder-findings\", \"version\": 1}",
                "damaged: missing field",
            ),
        ] {
            let found = error(text);
            assert!(found.contains(said), "{text:?}: {found}");
            assert!(!found.contains('\n'), "one sentence: {found}");
        }
    }

    #[test]
    fn an_address_that_is_none_is_refused_and_shown_harmlessly() {
        let good = serde_json::to_value(examples::report()).expect("finite");
        for place in [
            "/findings/0/object/address",
            "/findings/0/lines/0/address",
            "/findings/0/sites/0/address",
        ] {
            let long = "x".repeat(1000);
            for bad in ["", "55e3", "0x", "0x+1", "\u{1b}[2J</script>\n", &long] {
                let mut value = good.clone();
                *value.pointer_mut(place).expect("it is there") = serde_json::Value::from(bad);
                let said = error(&value.to_string());
                assert!(said.contains("damaged: "), "{place} {bad:?}: {said}");
                assert!(said.contains("is no address"), "{place} {bad:?}: {said}");
                assert!(said.len() < 200, "{said}");
                assert!(!said.contains(|c: char| c.is_control()), "{said:?}");
            }
            let mut value = good.clone();
            *value.pointer_mut(place).expect("it is there") = serde_json::Value::from(16);
            assert!(error(&value.to_string()).contains("damaged: "), "{place}");
        }
    }

    /// What no version wrote in another way reads back as the same bytes.
    #[test]
    fn addresses_that_are_missing_keep_their_text() {
        let repair = crate::Repair {
            moved: vec![crate::Moved {
                address: crate::Address(0x7000),
                groups: vec![crate::MovedGroup {
                    from: crate::Address(0x7010),
                    ..crate::MovedGroup::default()
                }],
                ..crate::Moved::default()
            }],
            refused: vec![crate::Unrepaired::default()],
            ..crate::Repair::default()
        };
        let value = serde_json::to_value(&repair).expect("finite");
        assert_eq!(value["moved"][0]["address"], "0x7000");
        assert_eq!(value["moved"][0]["groups"][0]["from"], "0x7010");
        assert_eq!(value["moved"][0]["groups"][0]["to"], "");
        assert_eq!(value["refused"][0]["address"], "");
        let read: crate::Repair = serde_json::from_value(value).expect("just written");
        assert_eq!(read, repair);
    }

    #[test]
    fn a_frame_may_have_no_offset() {
        for (text, wanted) in [
            ("", None),
            (",\"offset\":null", None),
            (",\"offset\":\"0x12f4\"", Some(crate::LinkAddress(0x12f4))),
        ] {
            let text = format!(
                "{{\"function\":\"f\",\"file\":null,\"line\":null,\"inlined\":false,\"module\":null{text}}}"
            );
            let frame: crate::Frame = serde_json::from_str(&text).expect("a frame");
            assert_eq!(frame.offset, wanted);
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let said = Findings::open(Path::new("/nowhere/result.json"))
            .expect_err("it is not there")
            .to_string();
        assert!(said.contains("/nowhere/result.json"), "{said}");
    }

    #[test]
    fn deep_nesting_is_refused_without_a_crash() {
        let text = "[".repeat(100_000);
        assert!(error(&text).contains("no sunder result"));
    }

    #[test]
    fn an_endless_file_is_refused() {
        let said = Findings::read(io::repeat(b' ')).expect_err("no end");
        assert!(matches!(said, FindingsError::TooLarge));
    }

    #[test]
    fn a_figure_that_is_no_number_is_not_written() {
        let mut all = examples::report();
        all.findings[1].cost_percent = f64::NAN;
        let said = all.to_json().expect_err("NaN").to_string();
        assert!(said.contains("findings[1]"), "{said}");
        crate::rank(&mut all);
        assert!(all.to_json().is_ok());
    }

    #[test]
    fn a_field_of_a_later_minor_change_is_ignored() {
        let text = examples::report().to_json().expect("it can be written");
        let more = text.replacen("\"tool\"", "\"added_later\": [1], \"tool\"", 1);
        assert!(Findings::read(more.as_bytes()).is_ok());
    }
}
