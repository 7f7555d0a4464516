//! Waiting for a word in memory to change. Contexts: all.

use super::call;
use core::sync::atomic::AtomicU32;

/// Who may wait for a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Threads of one process.
    Process,
    /// Whoever has the word mapped.
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

/// Waits while `*word` is `value`, at most so many nanoseconds if that is given; may come
/// back for no reason.
pub fn wait(word: &AtomicU32, value: u32, nanoseconds: Option<u64>, reach: Reach) {
    let time = nanoseconds.map(|nanoseconds| libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000).cast_signed(),
        tv_nsec: (nanoseconds % 1_000_000_000).cast_signed(),
    });
    let time = time.as_ref().map_or(0, |time| &raw const *time as usize);
    let operation = (libc::FUTEX_WAIT | reach.flag()) as usize;
    let at = word.as_ptr() as usize;
    // SAFETY: word and time live as long as the call.
    unsafe { call(libc::SYS_futex, [at, operation, value as usize, time, 0, 0]) };
}

/// Wakes at most so many of those that wait for `word`.
pub fn wake(word: &AtomicU32, most: i32, reach: Reach) {
    let operation = (libc::FUTEX_WAKE | reach.flag()) as usize;
    let at = word.as_ptr() as usize;
    // SAFETY: waking takes the address alone.
    unsafe { call(libc::SYS_futex, [at, operation, most as usize, 0, 0, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::now;
    use core::sync::atomic::Ordering::{Acquire, Release};

    #[test]
    fn who_waits_is_woken_and_who_need_not_wait_does_not() {
        for reach in [Reach::Process, Reach::All] {
            let word = AtomicU32::new(0);
            // Another value: comes back at once, or this test never ends.
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
