//! Futexes: waiting until a word in memory changes. Contexts: all.

use super::call;
use core::sync::atomic::AtomicU32;

/// Which threads may wait for a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Threads of one process.
    Process,
    /// Threads of all processes that have the word mapped.
    All,
}

impl Reach {
    const fn flag(self) -> i32 {
        match self {
            Self::Process => libc::FUTEX_PRIVATE_FLAG,
            Self::All => 0,
        }
    }
}

/// Waits while `*word` is `value`, at most so many ns if that is given. Spurious returns are
/// possible.
pub fn wait(word: &AtomicU32, value: u32, nanoseconds: Option<u64>, reach: Reach) {
    let time = nanoseconds.map(|nanoseconds| libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000).cast_signed(),
        tv_nsec: (nanoseconds % 1_000_000_000).cast_signed(),
    });
    let time = time.as_ref().map_or(0, |time| &raw const *time as usize);
    let operation = (libc::FUTEX_WAIT | reach.flag()) as usize;
    let at = word.as_ptr() as usize;
    // SAFETY: the word and the time live as long as the call.
    unsafe { call(libc::SYS_futex, [at, operation, value as usize, time, 0, 0]) };
}

/// Wakes at most so many threads that wait for `word`.
pub fn wake(word: &AtomicU32, most: i32, reach: Reach) {
    let operation = (libc::FUTEX_WAKE | reach.flag()) as usize;
    let at = word.as_ptr() as usize;
    // SAFETY: waking uses only the address.
    unsafe { call(libc::SYS_futex, [at, operation, most as usize, 0, 0, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::now;
    use core::sync::atomic::Ordering::{Acquire, Release};

    #[test]
    fn waiters_are_woken_and_a_changed_word_does_not_wait() {
        for reach in [Reach::Process, Reach::All] {
            let word = AtomicU32::new(0);
            // The word has another value, so this returns at once; otherwise the test would never
            // end.
            wait(&word, 1, None, reach);
            let before = now();
            wait(&word, 0, Some(2_000_000), reach);
            assert!(now() > before, "time goes on");
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while word.load(Acquire) == 0 {
                        wait(&word, 0, None, reach);
                    }
                });
                word.store(1, Release);
                wake(&word, i32::MAX, reach);
            });
        }
    }
}
