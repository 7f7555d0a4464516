//! The last writer of each word of a shared granule, with the time of its write. It answers the
//! question of the classification: which words did others write since a given time? Kept only
//! for granules that several nodes touched.
//!
//! The last write of each word is enough, although Dubois' algorithm keeps a flag for each word
//! and node. A word is pending for a node if and only if another node wrote it after the node's
//! last essential miss and the node has not touched it since. If the node itself wrote the word
//! last, that write touched it and made its lifetime essential, so no earlier write is pending.
//! If another node wrote it last, the time of that write tells whether it is pending.
//!
//! Time counts the changes of the granule's writer, not accesses. All writes of a node between
//! gaining and losing ownership have the same time, because no other node can access the
//! granule in between.

/// The part of a granule that an access touches, in words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    /// The first word.
    pub(crate) first: u32,
    /// The last word.
    pub(crate) last: u32,
    /// One bit for each word in granules of up to 64 words; all ones in larger ones.
    pub(crate) mask: u64,
}

/// The upper bits of a stamp are a time, the lower 24 bits a node.
const NODE_BITS: u32 = 24;

/// The last write of each word.
#[derive(Debug)]
pub(crate) enum History {
    /// For up to 64 words: disjoint masks, the oldest first, without empty ones.
    Narrow(Vec<Epoch>),
    /// For more words: one stamp for each word, allocated at the first write.
    Wide(Vec<u64>),
}

/// The words that one node wrote last in one span of ownership.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch {
    words: u64,
    time: u64,
    node: u32,
}

impl History {
    pub(crate) const fn new(narrow: bool) -> Self {
        if narrow {
            Self::Narrow(Vec::new())
        } else {
            Self::Wide(Vec::new())
        }
    }

    /// Narrow granules: `node`, the owner since `time`, wrote `words`.
    pub(crate) fn record(&mut self, words: u64, time: u64, node: u32) {
        let Self::Narrow(epochs) = self else { return };
        if words == 0 {
            return;
        }
        epochs.retain_mut(|epoch| {
            epoch.words &= !words;
            epoch.words != 0
        });
        epochs.push(Epoch { words, time, node });
    }

    /// Narrow granules: the words that nodes other than `node` wrote after each of two times.
    pub(crate) fn foreign(&self, node: u32, since: u64, later: u64) -> (u64, u64) {
        let Self::Narrow(epochs) = self else {
            return (0, 0);
        };
        let mut found = (0, 0);
        for epoch in epochs.iter().rev() {
            if epoch.time <= since {
                break;
            }
            if epoch.node != node {
                found.0 |= epoch.words;
                if epoch.time > later {
                    found.1 |= epoch.words;
                }
            }
        }
        found
    }

    /// Wide granules: `node`, the owner since `time`, writes `words`. The granule has `total`
    /// words.
    pub(crate) fn stamp(&mut self, words: Words, time: u64, node: u32, total: u32) {
        let Self::Wide(stamps) = self else { return };
        if stamps.is_empty() {
            stamps.resize(total as usize, 0);
        }
        stamps[words.first as usize..=words.last as usize]
            .fill(time << NODE_BITS | u64::from(node));
    }

    /// Wide granules: whether a node other than `node` wrote one of `words` after `since`.
    pub(crate) fn foreign_within(&self, words: Words, node: u32, since: u64) -> bool {
        let Self::Wide(stamps) = self else {
            return false;
        };
        let node = u64::from(node);
        let written = stamps
            .get(words.first as usize..=words.last as usize)
            .unwrap_or_default();
        written
            .iter()
            .any(|stamp| stamp >> NODE_BITS > since && stamp & ((1 << NODE_BITS) - 1) != node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_writer_of_a_word_counts() {
        let mut history = History::new(true);
        history.record(0b1111, 1, 7);
        history.record(0b0110, 2, 8);
        // Node 9 sees all words; node 8 only those last written by 7; after time 1 only 8's.
        assert_eq!(history.foreign(9, 0, 1), (0b1111, 0b0110));
        assert_eq!(history.foreign(8, 0, 0), (0b1001, 0b1001));
        assert_eq!(history.foreign(7, 1, 2), (0b0110, 0));
        let History::Narrow(epochs) = &history else {
            unreachable!("made narrow")
        };
        assert_eq!(epochs.len(), 2);
    }

    #[test]
    fn the_same_for_wide_granules() {
        let words = |first, last| Words {
            first,
            last,
            mask: !0,
        };
        let mut history = History::new(false);
        assert!(!history.foreign_within(words(0, 3), 9, 0));
        history.stamp(words(0, 3), 1, 7, 512);
        history.stamp(words(1, 2), 2, 8, 512);
        assert!(history.foreign_within(words(2, 2), 9, 1));
        assert!(!history.foreign_within(words(3, 3), 9, 1));
        assert!(!history.foreign_within(words(1, 2), 8, 0));
        assert!(!history.foreign_within(words(4, 511), 9, 0));
    }
}
