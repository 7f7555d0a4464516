//! The kernel's description of a PMU below `/sys/bus/event_source/devices`: its type number, the
//! bits of `config` for each term, its named events, its CPUs. Only reads and translates; `events`
//! chooses the events.

use crate::machine::parse_cpu_list;
use std::fs;
use std::path::{Path, PathBuf};

/// The configuration words of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Config {
    /// `config`, `config1`, `config2` of the attribute.
    pub words: [u64; 3],
}

/// One PMU.
#[derive(Clone, Debug)]
pub(super) struct Pmu {
    folder: PathBuf,
    /// The attribute's type.
    pub kind: u32,
    /// The CPUs on which its events count; `None` means all.
    pub cpus: Option<Vec<u32>>,
}

impl Pmu {
    /// The PMU `name` below `root`, if there is one.
    pub(super) fn read(root: &Path, name: &str) -> Option<Self> {
        let folder = root.join(name);
        let kind = text(&folder.join("type"))?.parse().ok()?;
        let cpus = text(&folder.join("cpus")).map(|list| parse_cpu_list(&list));
        Some(Self { folder, kind, cpus })
    }

    /// The terms of a named event, such as `event=0xcd,umask=0x1,ldlat=3`.
    pub(super) fn event(&self, name: &str) -> Option<String> {
        text(&self.folder.join("events").join(name))
    }

    /// Whether the PMU knows the term `name`.
    pub(super) fn has_term(&self, name: &str) -> bool {
        self.folder.join("format").join(name).exists()
    }

    /// The most precise sampling that the PMU can do (`caps/max_precise`).
    pub(super) fn max_precise(&self) -> Option<u32> {
        text(&self.folder.join("caps/max_precise"))?.parse().ok()
    }

    /// The configuration of `terms`; a later term replaces an earlier one of the same name. `None`
    /// if the PMU does not know a term or a value does not fit.
    pub(super) fn encode(&self, terms: &str) -> Option<Config> {
        let mut config = Config::default();
        for term in terms.split(',').map(str::trim).filter(|t| !t.is_empty()) {
            let (name, value) = term.split_once('=').unwrap_or((term, "1"));
            let value = parse_number(value)?;
            let format = match name {
                "config" | "config1" | "config2" => format!("{name}:0-63"),
                _ => text(&self.folder.join("format").join(name))?,
            };
            config.set(&format, value)?;
        }
        Some(config)
    }
}

impl Config {
    /// Puts `value` into the bits of a format such as `config:0-7,32-35`, lowest bits first.
    fn set(&mut self, format: &str, mut value: u64) -> Option<()> {
        let (word, ranges) = format.split_once(':')?;
        let word = match word {
            "config" => 0,
            "config1" => 1,
            "config2" => 2,
            _ => return None,
        };
        for range in ranges.split(',') {
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            let (low, high): (u32, u32) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
            if low > high || high > 63 {
                return None;
            }
            let width = high - low + 1;
            let mask = u64::MAX >> (64 - width);
            self.words[word] &= !(mask << low);
            self.words[word] |= (value & mask) << low;
            value = value.checked_shr(width).unwrap_or(0);
        }
        (value == 0).then_some(())
    }
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pmu(formats: &[(&str, &str)]) -> (tempfile::TempDir, Pmu) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("cpu");
        fs::create_dir_all(folder.join("format")).unwrap();
        fs::write(folder.join("type"), "4\n").unwrap();
        for (name, bits) in formats {
            fs::write(folder.join("format").join(name), format!("{bits}\n")).unwrap();
        }
        let pmu = Pmu::read(root.path(), "cpu").unwrap();
        (root, pmu)
    }

    #[test]
    fn terms_are_encoded_in_the_bits_of_their_format() {
        let (_root, pmu) = pmu(&[
            ("event", "config:0-7"),
            ("umask", "config:8-15"),
            ("ldlat", "config1:0-15"),
        ]);
        let config = pmu.encode("event=0xcd,umask=0x1,ldlat=3,ldlat=30").unwrap();
        assert_eq!(config.words, [0x01cd, 30, 0]);
        assert!(pmu.has_term("ldlat") && !pmu.has_term("swfilt"));
        assert_eq!((pmu.kind, pmu.cpus.clone()), (4, None));
    }

    #[test]
    fn split_formats_take_the_lowest_bits_first() {
        // AMD's event number: bits 0-7 and 32-35.
        let (_root, pmu) = pmu(&[("event", "config:0-7,32-35"), ("edge", "config:18")]);
        let config = pmu.encode("event=0x1d2,edge").unwrap();
        assert_eq!(config.words[0], 0xd2 | 1 << 32 | 1 << 18);
    }

    #[test]
    fn values_wider_than_their_field_are_refused() {
        let (_root, pmu) = pmu(&[
            ("event", "config:0-7"),
            ("odd", "config:9-3"),
            ("far", "config:60-70"),
            ("newer", "config9:0-7"),
        ]);
        for terms in [
            "event=0x100",
            "unknown=1",
            "event=x",
            "odd=1",
            "far=1",
            "newer=1",
        ] {
            assert_eq!(pmu.encode(terms), None, "{terms}");
        }
        assert_eq!(
            pmu.encode("config1=0xffffffffffffffff").unwrap().words[1],
            u64::MAX
        );
    }
}
