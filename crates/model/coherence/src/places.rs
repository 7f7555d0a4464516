//! A growing set of small integers: the indices of a line's valid replicas. It takes one word
//! for up to 64, more only if a line has more sharers.

/// A growing bit set.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplicaSet {
    first: u64,
    rest: Vec<u64>,
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
        }
        self.rest[word] |= 1 << (place % 64);
    }

    pub(crate) fn remove(&mut self, place: usize) {
        if place < 64 {
            self.first &= !(1 << place);
        } else if let Some(word) = self.rest.get_mut(place / 64 - 1) {
            *word &= !(1 << (place % 64));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first == 0 && self.rest.iter().all(|&word| word == 0)
    }

    /// Removes and returns the least member.
    pub(crate) fn pop(&mut self) -> Option<usize> {
        for (index, word) in std::iter::once(&mut self.first)
            .chain(&mut self.rest)
            .enumerate()
        {
            if *word != 0 {
                let bit = word.trailing_zeros() as usize;
                *word &= *word - 1;
                return Some(index * 64 + bit);
            }
        }
        None
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
