//! The latest visits of a line that has too few of them to be judged alone. [`crate::crowd`] accounts
//! for those of many lines together. Called by [`crate::line`]; nothing is decided here.

use crate::stretch::{Class, Entry};

/// The most touches that are kept of a line, and of one on which only one thread was seen.
const MOST: usize = 64;
const MOST_OF_ONE_THREAD: usize = 4;

/// Visits of a line that is not judged alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Apart {
    /// The latest touches of samples in time, in the order in which they came.
    touches: Vec<Entry>,
    /// Time of earlier ones, which are not kept, ns.
    dropped_ns: f64,
}

impl Apart {
    /// Keeps the samples in time among `entries`.
    pub fn keep(&mut self, entries: &[Entry], is_shared: bool) {
        let timed = entries.iter().filter(|e| e.class == Class::Timed);
        self.touches.extend(timed);
        let most = if is_shared { MOST } else { MOST_OF_ONE_THREAD };
        if self.touches.len() > most {
            let drop = self.touches.len() - most;
            let dropped = self.touches.drain(..drop);
            self.dropped_ns += dropped.map(|e| f64::from(e.spent_ns)).sum::<f64>();
        }
        if !is_shared {
            // Most lines stay those of one thread, and there are many of them.
            self.touches.shrink_to_fit();
        }
    }

    /// The touches that are kept.
    pub fn touches(&self) -> &[Entry] {
        &self.touches
    }

    /// The time of all touches over that of those that are kept; at least 1.
    pub fn scale(&self) -> f64 {
        let kept: f64 = self.touches.iter().map(|e| f64::from(e.spent_ns)).sum();
        if kept > 0.0 {
            1.0 + self.dropped_ns / kept
        } else {
            1.0
        }
    }

    /// Forgets all: the threads' numbers have changed, or the memory's owner has.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stretch::ANY_CPU;

    fn touch(time: u64, class: Class) -> Entry {
        Entry {
            time,
            thread: 0,
            footprint: 0,
            class,
            spent_ns: 10.0,
            count: 1,
            cpu: ANY_CPU,
        }
    }

    #[test]
    fn the_latest_samples_are_kept_and_the_time_of_all() {
        let mut apart = Apart::default();
        for time in 0..3 * MOST as u64 {
            apart.keep(
                &[touch(time, Class::Timed), touch(time, Class::Exact)],
                true,
            );
        }
        assert_eq!(apart.touches().len(), MOST);
        assert_eq!(apart.touches()[0].time, 2 * MOST as u64);
        assert_eq!(apart.scale(), 3.0);
        apart.clear();
        assert_eq!((apart.touches().len(), apart.scale()), (0, 1.0));
    }

    #[test]
    fn little_is_kept_of_lines_of_one_thread() {
        let mut apart = Apart::default();
        for time in 0..10 {
            apart.keep(&[touch(time, Class::Timed)], false);
        }
        assert_eq!(apart.touches().len(), MOST_OF_ONE_THREAD);
    }
}
