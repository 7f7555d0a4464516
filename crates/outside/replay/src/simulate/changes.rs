//! The changes that the command line asks for: policies, and types, fields and objects by name.
//! `resolve` finds out what the names stand for.

use crate::options::PlacementAsked;

/// Padding to less has no effect, as the ABI aligns blocks to this many bytes.
pub const LEAST_LINE: u64 = 16;

/// The changes that the command line asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// `--placement`
    pub placement: PlacementAsked,
    /// `--pad`
    pub pad: Vec<String>,
    /// `--align`
    pub align: Vec<(String, u64)>,
}

impl Changes {
    /// Whether nothing is moved.
    pub fn is_actual(&self) -> bool {
        self.placement == PlacementAsked::Actual && self.pad.is_empty() && self.align.is_empty()
    }
}

/// Parses the value of `--placement`.
///
/// # Errors
/// If it is not a policy.
pub fn parse_placement(text: &str) -> Result<PlacementAsked, String> {
    if text == "actual" {
        return Ok(PlacementAsked::Actual);
    }
    if let Some(sites) = text.strip_prefix("padded:") {
        let sites: Vec<String> = sites.split(',').map(|s| s.trim().to_owned()).collect();
        if sites.iter().any(String::is_empty) {
            return Err(format!(
                "'{text}' names no call site; write padded:worker.c:41,make"
            ));
        }
        return Ok(PlacementAsked::Padded(sites));
    }
    let name = if text == "glibc" { "general" } else { text };
    name.parse().map(PlacementAsked::Policy).map_err(|_| {
        let known = "actual, glibc, hoard, sized, call-site, sized-call-site or padded:CALLSITE,…";
        format!("'{text}' is no placement: it is one of {known}")
    })
}

/// Parses one pair of `--align`: `OBJECT=BYTES`.
///
/// # Errors
/// If it is not such a pair.
pub fn parse_align(text: &str) -> Result<(String, u64), String> {
    let wrong = || format!("'{text}' is no alignment; write OBJECT=BYTES, such as table=128");
    let (object, bytes) = text.rsplit_once('=').ok_or_else(wrong)?;
    let bytes: u64 = bytes.trim().parse().map_err(|_| wrong())?;
    if object.trim().is_empty() {
        return Err(wrong());
    }
    if !bytes.is_power_of_two() || !(LEAST_LINE..=LARGEST_ALIGN).contains(&bytes) {
        return Err(format!(
            "{bytes} is no alignment: it must be a power of two from {LEAST_LINE} to {LARGEST_ALIGN}"
        ));
    }
    Ok((object.trim().to_owned(), bytes))
}

/// The largest alignment that is accepted: a large page.
const LARGEST_ALIGN: u64 = 1 << 21;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_are_policies_or_call_sites() {
        assert_eq!(parse_placement("actual"), Ok(PlacementAsked::Actual));
        let general = Ok(PlacementAsked::Policy(sunder_placement::Policy::General));
        assert_eq!(parse_placement("glibc"), general);
        assert_eq!(parse_placement("general"), general);
        let sites = vec!["a.c:4".to_owned(), "make".to_owned()];
        assert_eq!(
            parse_placement("padded:a.c:4,make"),
            Ok(PlacementAsked::Padded(sites))
        );
        for bad in ["", "padded:", "padded:a,,b", "jemalloc"] {
            assert!(parse_placement(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn alignments_are_powers_of_two() {
        assert_eq!(parse_align("table=128"), Ok(("table".to_owned(), 128)));
        assert_eq!(parse_align("a.c:4=64"), Ok(("a.c:4".to_owned(), 64)));
        for bad in ["table", "=64", "table=", "table=0", "table=48", "table=8"] {
            assert!(parse_align(bad).is_err(), "{bad}");
        }
    }
}
