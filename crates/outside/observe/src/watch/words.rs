//! The order in which to watch the words of a line: there are more words than watchpoints. Pure.

use std::collections::BTreeMap;
use sunder_access::{Access, Address, Granule, ThreadId};

/// Bytes that one watchpoint covers.
const WORD: u64 = 8;

/// All words of the line at `line`, the most suspect first. The threads take turns, beginning with
/// the one with most accesses to the line: each adds its most accessed word that is not in the list
/// yet. So a burst on the first words sees as many threads as possible. Words without known
/// accesses come last.
pub fn suspect_words<'a>(
    line: Address,
    granule: Granule,
    accesses: impl IntoIterator<Item = &'a Access>,
) -> Vec<Address> {
    let line = granule.base(line);
    let words = granule.bytes() / WORD;
    let mut touched: BTreeMap<ThreadId, Vec<f64>> = BTreeMap::new();
    for access in accesses {
        let span = access.span();
        let first = span.start.0.max(line.0);
        let end = span.end().0.min(line.0.saturating_add(granule.bytes()));
        if first >= end {
            continue;
        }
        let weights = touched
            .entry(access.thread)
            .or_insert_with(|| vec![0.0; words as usize]);
        // A store invalidates the others' copies, a load only fetches one.
        let weight = f64::from(access.weight) * if access.kind.writes() { 2.0 } else { 1.0 };
        for word in (first - line.0) / WORD..=(end - 1 - line.0) / WORD {
            weights[word as usize] += weight;
        }
    }

    let mut threads: Vec<Vec<f64>> = touched.into_values().collect();
    threads.sort_by(|a, b| total(b).total_cmp(&total(a)));
    let mut wishes: Vec<std::vec::IntoIter<u64>> = threads.iter().map(|t| by_weight(t)).collect();
    let mut chosen: Vec<u64> = Vec::new();
    while chosen.len() < words as usize {
        let before = chosen.len();
        for wish in &mut wishes {
            if let Some(word) = wish.find(|word| !chosen.contains(word)) {
                chosen.push(word);
            }
        }
        if chosen.len() == before {
            chosen.extend(
                (0..words)
                    .filter(|word| !chosen.contains(word))
                    .collect::<Vec<_>>(),
            );
        }
    }
    chosen
        .into_iter()
        .map(|word| Address(line.0 + word * WORD))
        .collect()
}

fn total(weights: &[f64]) -> f64 {
    weights.iter().sum()
}

/// The accessed words, heaviest first; of equal ones, the lower address first.
fn by_weight(weights: &[f64]) -> std::vec::IntoIter<u64> {
    let mut words: Vec<u64> = (0..weights.len() as u64)
        .filter(|&word| weights[word as usize] > 0.0)
        .collect();
    words.sort_by(|&a, &b| weights[b as usize].total_cmp(&weights[a as usize]));
    words.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::{CodeAddress, Kind, Provenance, Time};

    fn access(thread: u32, address: u64, width: u8, kind: Kind, weight: f32) -> Access {
        Access {
            time: Time(0),
            thread: ThreadId(thread),
            instruction: CodeAddress(0),
            address: Address(address),
            width,
            kind,
            provenance: Provenance::Sampled,
            weight,
        }
    }

    fn offsets(accesses: &[Access]) -> Vec<u64> {
        suspect_words(Address(0x1010), Granule::LINE, accesses)
            .iter()
            .map(|word| word.0 - 0x1000)
            .collect()
    }

    #[test]
    fn every_thread_gets_its_hottest_word_before_any_gets_a_second() {
        let seen = [
            access(1, 0x1030, 4, Kind::Write, 100.0),
            access(1, 0x1000, 8, Kind::Write, 90.0),
            access(2, 0x1008, 8, Kind::Read, 5.0),
            access(3, 0x1014, 4, Kind::Write, 4.0),
        ];
        // Thread 1 first (380), then 3 (a store of weight 4 is 8), then 2.
        assert_eq!(
            offsets(&seen),
            [0x30, 0x10, 0x08, 0x00, 0x18, 0x20, 0x28, 0x38]
        );
    }

    #[test]
    fn a_word_of_two_threads_is_listed_once() {
        let seen = [
            access(1, 0x1008, 8, Kind::Write, 9.0),
            access(2, 0x1008, 8, Kind::Write, 8.0),
            access(2, 0x1020, 8, Kind::Write, 1.0),
        ];
        assert_eq!(offsets(&seen)[..2], [0x08, 0x20]);
        assert_eq!(offsets(&seen).len(), 8);
    }

    #[test]
    fn accesses_beyond_the_line_count_only_inside_it() {
        let seen = [
            access(1, 0x0ffc, 8, Kind::Write, 1.0),
            access(2, 0x103c, 8, Kind::Write, 2.0),
            access(3, 0x2000, 8, Kind::Write, 100.0),
        ];
        assert_eq!(offsets(&seen)[..2], [0x38, 0x00]);
        assert_eq!(
            offsets(&[]),
            [0x00, 0x08, 0x10, 0x18, 0x20, 0x28, 0x30, 0x38]
        );
    }
}
