//! One record as it stands in a file. Only what is summed up is taken from it; the largest part of a
//! finding, its lines and code, is passed over. Numbers are checked before they are used.

use serde::Deserialize;
use sunder_findings::{
    Advice, Finding, Happening, Object, Origin, Sharing, WATCH_SCHEMA, WATCH_VERSION, WatchStatus,
};

/// Why a line is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It is damaged, or no record of a watch.
    Damaged,
    /// A newer `sunder` wrote it.
    Newer,
}

/// A record that can be used.
#[derive(Debug)]
pub enum Line {
    /// About a finding.
    Finding(Box<SeenFinding>),
    /// About a watch.
    Status(Box<WatchStatus>),
}

/// The parts of a record of a finding that are summed up.
#[derive(Debug, Deserialize)]
pub struct SeenFinding {
    pub time_unix_ns: u64,
    pub event: Happening,
    pub fingerprint: String,
    pub origin: Origin,
    pub finding: Brief,
}

/// The parts of a finding that are shown.
#[derive(Debug, Deserialize)]
pub struct Brief {
    #[serde(default)]
    pub sharing: Sharing,
    pub cost_percent: f64,
    object: Object,
    #[serde(default)]
    neighbour: Option<Object>,
    #[serde(default)]
    sites: Vec<BriefSite>,
    #[serde(default)]
    advice: Vec<Advice>,
}

#[derive(Debug, Deserialize)]
struct BriefSite {
    #[serde(default)]
    file: Option<String>,
    #[serde(default)]
    line: Option<u32>,
}

impl Brief {
    /// The object in a few words, its place, and the first advice.
    pub fn described(self) -> (String, Option<String>, Option<String>) {
        let site = self.sites.into_iter().find(|site| site.file.is_some());
        let finding = Finding {
            object: self.object,
            neighbour: self.neighbour,
            ..Finding::default()
        };
        let place = match finding.place() {
            Some(place) => Some((place.file, place.line)),
            None => site.and_then(|site| Some((site.file?, site.line))),
        };
        let place = place.map(|(file, line)| match line {
            Some(line) => format!("{file}:{line}"),
            None => file,
        });
        let advice = self.advice.into_iter().next().map(|advice| advice.text);
        (finding.subject(), place, advice)
    }
}

/// What a line says of itself.
#[derive(Deserialize)]
struct Head {
    record: Kind,
    schema: String,
    version: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Finding,
    Status,
    #[serde(other)]
    Another,
}

/// A larger share or number of seconds is none: 30,000 years.
const LARGEST: f64 = 1e12;
/// A larger share in percent is none, whatever it is a share of.
const LARGEST_PERCENT: f64 = 1e4;

/// A cost or a count of seconds that can be believed.
fn is_figure(number: f64) -> bool {
    (0.0..=LARGEST).contains(&number)
}

impl Line {
    /// Takes a line apart.
    ///
    /// # Errors
    /// If it is no record, or one with impossible figures.
    pub fn parse(text: &[u8]) -> Result<Self, Wrong> {
        let head: Head = serde_json::from_slice(text).map_err(|_| Wrong::Damaged)?;
        if head.schema != WATCH_SCHEMA {
            return Err(Wrong::Damaged);
        }
        if head.version > WATCH_VERSION {
            return Err(Wrong::Newer);
        }
        let line = match head.record {
            Kind::Finding => Self::Finding(read(text)?),
            Kind::Status => Self::Status(read(text)?),
            Kind::Another => return Err(Wrong::Damaged),
        };
        if line.is_possible() {
            Ok(line)
        } else {
            Err(Wrong::Damaged)
        }
    }

    fn is_possible(&self) -> bool {
        match self {
            Self::Finding(seen) => {
                is_percent(seen.finding.cost_percent) && is_fingerprint(&seen.fingerprint)
            }
            Self::Status(status) => {
                let all = [
                    status.seconds,
                    status.samples_unattributed,
                    status.own_cpu_seconds,
                    status.interrupt_seconds,
                ];
                let present = status.present.iter().all(|one| {
                    is_figure(one.lost_seconds)
                        && is_percent(one.cost_percent)
                        && is_fingerprint(&one.fingerprint)
                });
                present && all.into_iter().all(is_figure)
            }
        }
    }
}

fn is_percent(number: f64) -> bool {
    (0.0..=LARGEST_PERCENT).contains(&number)
}

fn read<T: for<'a> Deserialize<'a>>(text: &[u8]) -> Result<T, Wrong> {
    serde_json::from_slice(text).map_err(|_| Wrong::Damaged)
}

/// Whether it may be one: 32 hexadecimal digits, and shorter or longer ones of other versions.
fn is_fingerprint(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// What a status says where it was sent as figures: sums by program, object and container, without
/// fingerprints. In a spool there is nothing else of a status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The machine's name.
    pub host: String,
    /// When the watch began, in nanoseconds since 1970.
    pub begun_unix_ns: u64,
    /// When the figures were made.
    pub time_unix_ns: u64,
    /// Samples, looks and so on.
    pub status: WatchStatus,
    /// CPU seconds that were lost since the watch began.
    pub lost_seconds: Vec<Labelled>,
}

/// A figure of an object in a program and container.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Labelled {
    /// The program's file name.
    pub program: String,
    /// The object in a few words.
    pub object: String,
    /// The container's number, or nothing.
    pub container: String,
    /// The figure.
    pub value: f64,
}

impl Figures {
    /// Whether the figures can be believed.
    pub fn is_possible(&self) -> bool {
        let status = &self.status;
        let own = [
            status.samples_unattributed,
            status.own_cpu_seconds,
            status.interrupt_seconds,
        ];
        let lost = self.lost_seconds.iter().map(|one| one.value);
        lost.chain(own).all(is_figure)
    }
}
