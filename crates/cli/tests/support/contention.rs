//! Whether two threads that write one line slow each other down at this moment. They do not where the
//! two CPUs of a virtual machine are one core's for a while, or take turns on it: the guest sees both
//! at work. Then a tool has nothing to find, and its tests nothing to judge. Uses nothing of the tool.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// For this long the threads count, once side by side on a line and once apart.
const TIME: Duration = Duration::from_millis(60);
/// Threads that share a line are slowed down by five to fifty times where a line has to move.
const SLOWER: f64 = 1.5;

#[repr(align(4096))]
struct Pages([AtomicU64; 1024]);

/// How many times as fast two threads count on lines of their own as on one line: the median of three.
pub fn slowdown() -> f64 {
    let pages = Pages([const { AtomicU64::new(0) }; 1024]);
    let once = |_| {
        let shared = counted(&pages.0[0], &pages.0[1]);
        counted(&pages.0[0], &pages.0[512]) as f64 / shared.max(1) as f64
    };
    let mut all: Vec<f64> = (0..3).map(once).collect();
    all.sort_by(f64::total_cmp);
    all[1]
}

/// Whether threads contend for a line now, with a sentence on what was measured.
pub fn is_felt() -> (bool, String) {
    let slowdown = slowdown();
    let told =
        format!("two threads of the test counted {slowdown:.1} times as fast apart as on one line");
    (slowdown >= SLOWER, told)
}

/// Fails with what is `wrong`, if threads of the program ran side by side and those of the test contend.
pub fn complain_if(side_by_side: bool, wrong: impl FnOnce() -> String) {
    if side_by_side {
        let (felt, told) = is_felt();
        assert!(!felt, "{}; {told}", wrong());
    }
}

/// How far two threads count together.
fn counted(one: &AtomicU64, other: &AtomicU64) -> u64 {
    let start = Barrier::new(2);
    let count = |word: &AtomicU64| {
        start.wait();
        let begun = Instant::now();
        let mut rounds = 0;
        while begun.elapsed() < TIME {
            for _ in 0..1000 {
                word.fetch_add(1, Ordering::Relaxed);
            }
            rounds += 1000;
        }
        rounds
    };
    std::thread::scope(|scope| {
        let second = scope.spawn(|| count(other));
        count(one) + second.join().expect("it only counts")
    })
}
