//! How often a program is looked at that is looked at again and again, so that looking takes a small part
//! of the program's time however many lines it shares. Used by `watching` and by the remedies. It must not
//! look at anything itself.

use std::time::Duration;
use sunder_observe::thread_time;

/// CPU time that looks may take before they are held to their part: what is decided in a program's first
/// second gains most.
const ADVANCE: Duration = Duration::from_millis(100);

/// An unoptimised build takes about so many times as long for a look. Tests, which run one, are to look as
/// often as a release does.
const SLOWER: u32 = if cfg!(debug_assertions) { 10 } else { 1 };

/// After a look nothing is due for so many times what it took.
const PAUSE_AFTER: u32 = 4;

/// Looks that are repeated by one thread, each once the one before is over.
#[derive(Debug)]
pub struct Looks {
    /// Of this much time, looks may take one part.
    one_in: u32,
    /// No look is due before, counted from the start.
    next: Duration,
    /// The CPU time of the looks so far.
    spent: Duration,
    /// When a look began, and the thread's CPU time then.
    begun: Option<(Duration, Duration)>,
}

impl Looks {
    /// The first is due after `first`, and together they take one in `one_in` parts of the time.
    pub const fn new(first: Duration, one_in: u32) -> Self {
        Self {
            one_in,
            next: first,
            spent: Duration::ZERO,
            begun: None,
        }
    }

    /// Whether a look is due at `elapsed` after the start. If so it begins now, and the next one is not due
    /// for `every`.
    pub fn begin(&mut self, elapsed: Duration, every: Duration) -> bool {
        let begins = elapsed >= self.next && self.spent <= ADVANCE + elapsed / self.one_in;
        if begins {
            self.next = elapsed + every;
            self.begun = Some((elapsed, thread_time()));
        }
        begins
    }

    /// The look that began last is over.
    pub fn end(&mut self) {
        if let Some((elapsed, begun)) = self.begun.take() {
            let took = thread_time().saturating_sub(begun) / SLOWER;
            self.spent += took;
            self.next = self.next.max(elapsed + took * PAUSE_AFTER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(10);

    /// The number of looks in a minute, each of which takes `took`.
    fn in_a_minute(took: Duration) -> u32 {
        let mut looks = Looks::new(EVERY, 100);
        let began = (0..60_000).filter(|&ms| {
            let begins = looks.begin(Duration::from_millis(ms), EVERY);
            if begins {
                looks.begun = None;
                looks.spent += took;
            }
            begins
        });
        began.count() as u32
    }

    #[test]
    fn looks_take_their_part_of_the_time_and_no_more() {
        let regular = 60_000 / 10 - 1;
        assert_eq!(in_a_minute(Duration::from_micros(50)), regular);
        // A hundredth of a minute, and the advance; one look may begin just before all is spent.
        let all = Duration::from_millis(600) + ADVANCE;
        let slow = in_a_minute(EVERY);
        assert!((all.as_millis() as u32 / 10).abs_diff(slow) <= 1, "{slow}");
    }

    #[test]
    fn the_first_look_waits_and_what_it_takes_is_counted() {
        let mut looks = Looks::new(EVERY, 100);
        assert!(!looks.begin(EVERY / 2, EVERY));
        looks.end();
        assert_eq!(looks.spent, Duration::ZERO, "none had begun");
        assert!(looks.begin(EVERY, EVERY));
        let begun = thread_time();
        while thread_time() < begun + Duration::from_millis(2) {
            std::hint::black_box(0);
        }
        looks.end();
        assert!(looks.spent >= Duration::from_millis(2) / SLOWER);
        assert!(!looks.begin(EVERY * 3 / 2, EVERY));
        assert!(looks.begin(EVERY * 2, EVERY));
        // However often looks are wanted, there is time between two of them.
        let soon = Duration::from_micros(10);
        let begun = thread_time();
        while thread_time() < begun + EVERY * SLOWER {
            std::hint::black_box(0);
        }
        looks.end();
        assert!(!looks.begin(EVERY * 5, soon));
        assert!(looks.begin(EVERY * 20, soon));
    }
}
