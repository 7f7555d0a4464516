//! `meminfo`: the memory of the machine.

use std::fs;

/// Bytes of memory that the system would give to new programs; none if it does not say.
pub fn available_memory() -> Option<u64> {
    parse(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read() {
        let text = "MemTotal:  8000 kB\nMemFree: 10 kB\nMemAvailable:    5000 kB\n";
        assert_eq!(parse(text), Some(5000 << 10));
        assert_eq!(parse("MemAvailable: many"), None);
    }
}
