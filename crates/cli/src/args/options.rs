//! The options that several commands have: which observer, how to observe, how to report.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use sunder_live::{OBSERVERS, ObserverChoice};

/// Parses the value of `--observer`: `auto`, or the name of an observer.
pub fn observers() -> impl TypedValueParser<Value = ObserverChoice> {
    let auto = PossibleValue::new("auto").help("The best that this machine offers");
    let named = OBSERVERS.map(|kind| PossibleValue::new(kind.name).help(kind.about));
    let names = std::iter::once(auto).chain(named);
    PossibleValuesParser::new(names).map(|name| {
        let found = OBSERVERS.iter().find(|kind| kind.name == name);
        found.map_or(ObserverChoice::Auto, |kind| kind.choice)
    })
}

/// How to observe.
#[derive(Debug, Args, Clone)]
pub struct ObserveOptions {
    /// Samples a second and thread; default: high at the start, lower later
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub frequency: Option<u32>,
    /// Bytes of a cache line; default: read from the machine
    #[arg(long, value_name = "BYTES", value_parser = parse_line_size)]
    pub line_size: Option<u32>,
    /// Share of the program's time that hardware watchpoints may take, in percent; 0 for none
    #[arg(long, value_name = "PERCENT", default_value_t = 0.5, value_parser = parse_percent)]
    pub watch_budget: f64,
}

/// How to report.
#[derive(Debug, Args, Clone, Default)]
pub struct ReportOptions {
    /// The form of the report; may be given several times, each with its own -o
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Vec<Format>,
    /// Where to write the report of the --format at the same place; without --format, in the form
    /// that the name's ending says (.html, .sarif, .jsonl, .txt, else JSON); - is standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// Also show what lies below the threshold, and true sharing in full
    #[arg(long)]
    pub all: bool,
    /// Leave out what costs less than this share of the threads' time
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub threshold: Option<f64>,
    /// Show every word of a line with its counts and threads
    #[arg(long)]
    pub words: bool,
    /// Exit with 123 if false sharing above the threshold was found, with 122 if the run could not
    /// tell; both, separated by a comma
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    pub fail_on: Vec<FailOn>,
    /// No report on standard error; files are still written
    #[arg(long, short)]
    pub quiet: bool,
}

/// What `--format` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people, in a terminal
    Text,
    /// The complete result, for `sunder report`, `sunder diff` and other tools
    Json,
    /// One self-contained page
    Html,
    /// For code-scanning viewers
    Sarif,
    /// For editors: one diagnostic of the Language Server Protocol a line, as JSON, with its file
    Lsp,
}

/// What `--fail-on` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Any false or mixed sharing above the threshold
    FalseSharing,
    /// A run that found none, but would not have shown it: too few samples, threads that seldom ran at
    /// once, addresses that are not known
    Inconclusive,
}

/// Parses a duration: a number with ms, s or m.
///
/// # Errors
/// If it is none.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no duration; write 500ms, 10s or 2m");
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "ms" => number / 1e3,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// Parses a percentage.
///
/// # Errors
/// If it is none.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(value) if (0.0..=100.0).contains(&value) => Ok(value),
        _ => Err(format!("'{text}' is no percentage from 0 to 100")),
    }
}

/// Parses the size of a cache line.
///
/// # Errors
/// If no line has that size.
pub fn parse_line_size(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(value) if value.is_power_of_two() && (16..=256).contains(&value) => Ok(value),
        _ => Err(format!(
            "'{text}' is no line size; it must be 16, 32, 64, 128 or 256"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("3"), Ok(Duration::from_secs(3)));
        for bad in ["", "s", "5x", "-1s", "1e400s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
