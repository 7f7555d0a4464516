//! Texts from records, each kept once, cleaned and cut, under a number. The tables are bounded.

use rustc_hash::FxHashMap;
use std::rc::Rc;
use sunder_findings::Shown;

/// The longest name, in characters: the watch cuts paths at this length, too.
const LONGEST: usize = 512;

/// `text` as it may be shown, cut at the longest length that is kept.
pub fn shown(text: &str) -> String {
    let cleaned = Shown(text).to_string();
    match cleaned.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &cleaned[..at]),
        None => cleaned,
    }
}

/// Keys of a kind and their numbers.
#[derive(Debug)]
pub struct Names<K> {
    numbers: FxHashMap<Rc<K>, u32>,
    keys: Vec<Rc<K>>,
    most: usize,
}

impl<K: Eq + std::hash::Hash> Names<K> {
    /// A table of `most` keys.
    pub fn new(most: usize) -> Self {
        Self {
            numbers: FxHashMap::default(),
            keys: Vec::new(),
            most,
        }
    }

    /// The number of a key; `None` if it is new and the table is full.
    pub fn number(&mut self, key: K) -> Option<u32> {
        if let Some(&number) = self.numbers.get(&key) {
            return Some(number);
        }
        if self.keys.len() >= self.most {
            return None;
        }
        let number = u32::try_from(self.keys.len()).ok()?;
        let key = Rc::new(key);
        self.keys.push(Rc::clone(&key));
        self.numbers.insert(key, number);
        Some(number)
    }

    /// The number of a key that may be known.
    pub fn known(&self, key: &K) -> Option<u32> {
        self.numbers.get(key).copied()
    }

    /// The key of a number.
    pub fn key(&self, number: u32) -> &K {
        &self.keys[number as usize]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_knows_its_keys_and_takes_no_new_ones() {
        let mut names = Names::new(2);
        let mut number = |key: &str| names.number(key.to_owned());
        assert_eq!(
            ["a", "b", "a", "c"].map(&mut number),
            [Some(0), Some(1), Some(0), None]
        );
        assert_eq!((names.key(1).as_str(), names.len()), ("b", 2));
        assert_eq!(names.known(&"c".to_owned()), None);
    }

    #[test]
    fn names_are_cleaned_and_cut() {
        assert_eq!(shown("a\u{1b}[2J"), "a\u{fffd}[2J");
        assert_eq!(shown(&"x".repeat(600)).chars().count(), LONGEST + 1);
    }
}
