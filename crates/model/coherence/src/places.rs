//! A growing set of small integers: the indices of a line's valid replicas. It takes one word
//! for up to 64, more only if a line has more sharers.

/// A growing bit set. The words beyond the first are counted in summaries, so that the least member
/// of a set of tens of thousands is found without a look at every word.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplicaSet {
    first: u64,
    rest: Vec<u64>,
    /// A bit for each word of `rest`, set if the word is not zero.
    summary: Vec<u64>,
}

impl ReplicaSet {
    pub(crate) fn insert(&mut self, place: usize) {
        if place < 64 {
            self.first |= 1 << place;
            return;
        }
        let word = place / 64 - 1;
        if self.rest.len() <= word {
            self.rest.resize(word + 1, 0);
            self.summary.resize(word / 64 + 1, 0);
        }
        self.rest[word] |= 1 << (place % 64);
        self.summary[word / 64] |= 1 << (word % 64);
    }

    pub(crate) fn remove(&mut self, place: usize) {
        if place < 64 {
            self.first &= !(1 << place);
        } else {
            self.clear(place / 64 - 1, 1 << (place % 64));
        }
    }

    /// Clears `bits` of a word of `rest`, if there is one.
    fn clear(&mut self, word: usize, bits: u64) {
        let Some(of) = self.rest.get_mut(word) else {
            return;
        };
        *of &= !bits;
        if *of == 0 {
            self.summary[word / 64] &= !(1 << (word % 64));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first == 0 && self.summary.iter().all(|&words| words == 0)
    }

    /// Removes and returns the least member.
    pub(crate) fn pop(&mut self) -> Option<usize> {
        if self.first != 0 {
            let bit = self.first.trailing_zeros() as usize;
            self.first &= self.first - 1;
            return Some(bit);
        }
        let group = self.summary.iter().position(|&words| words != 0)?;
        let word = group * 64 + self.summary[group].trailing_zeros() as usize;
        let bit = self.rest[word].trailing_zeros() as usize;
        self.clear(word, 1 << bit);
        Some((word + 1) * 64 + bit)
    }

    /// The members, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        let mut copy = self.clone();
        std::iter::from_fn(move || copy.pop())
    }
}

#[cfg(test)]
mod tests {
    use super::ReplicaSet;

    #[test]
    fn a_set_of_tens_of_thousands_finds_its_least_member() {
        let mut set = ReplicaSet::default();
        let places: Vec<usize> = (0..65_536).filter(|n| n % 7 == 3).collect();
        places.iter().rev().for_each(|&place| set.insert(place));
        set.remove(3);
        set.remove(65_535);
        assert_eq!(set.iter().count(), places.len() - 1);
        for &place in &places[1..] {
            assert_eq!(set.pop(), Some(place));
        }
        assert!(set.is_empty());
    }

    #[test]
    fn sets_of_more_than_64_nodes_keep_all_members() {
        let mut set = ReplicaSet::default();
        for place in [5, 63, 64, 200, 1023] {
            set.insert(place);
        }
        set.remove(64);
        set.remove(4000);
        assert_eq!(set.iter().collect::<Vec<_>>(), [5, 63, 200, 1023]);
        assert_eq!(set.pop(), Some(5));
        assert!(!set.is_empty());
        while set.pop().is_some() {}
        assert!(set.is_empty());
    }
}
