//! A thread that sends what waits in a spool, oldest first, until it is taken. Whoever puts batches there
//! never waits.

use crate::spool::Spool;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// The pause after a first failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What a receiver answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has the batch.
    Taken,
    /// It may take it later, for this reason; it may say when.
    Later(String, Option<Duration>),
    /// It will never take it, for this reason.
    Never(String),
}

/// See the module's head.
#[derive(Debug)]
pub struct Sender {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug)]
struct State {
    spool: Spool,
    /// When it has to end.
    end: Option<Instant>,
    refused: u64,
    notes: Vec<String>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sender {
    /// Begins to send the batches of `spool` by `send`.
    ///
    /// # Errors
    /// If there can be no further thread.
    pub fn start(
        spool: Spool,
        send: impl Fn(&[u8]) -> Answer + Send + 'static,
    ) -> io::Result<Self> {
        let state = State {
            spool,
            end: None,
            refused: 0,
            notes: Vec::new(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            wake: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = Builder::new().name("sunder-send".into());
        let thread = thread.spawn(move || run(&of_thread, &send))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Adds a batch.
    pub fn put(&self, batch: Vec<u8>) {
        self.shared.state().spool.put(batch);
        self.shared.wake.notify_one();
    }

    /// Batches that were lost: dropped for lack of room, or refused by the receiver.
    pub fn lost(&self) -> u64 {
        let state = self.shared.state();
        state.spool.dropped() + state.refused
    }

    /// Bytes that wait.
    pub fn waiting(&self) -> u64 {
        self.shared.state().spool.bytes()
    }

    /// What there is to be said to the user since the last call.
    pub fn notes(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.state().notes)
    }

    /// Sends what waits, for so long at most. What is left stays in the spool's folder, if it has one.
    pub fn end(mut self, patience: Duration) {
        self.shared.state().end = Some(Instant::now() + patience);
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, send: &dyn Fn(&[u8]) -> Answer) {
    let mut failures = 0_u32;
    let mut said = false;
    loop {
        let mut state = shared.state();
        let Some((number, batch)) = state.spool.first() else {
            if state.end.is_some() {
                return;
            }
            drop(shared.wake.wait(state));
            continue;
        };
        drop(state);
        let answer = send(&batch);
        let mut state = shared.state();
        match answer {
            Answer::Taken => {
                state.spool.done(number);
                (failures, said) = (0, false);
            }
            Answer::Never(why) => {
                state.spool.done(number);
                state.refused += 1;
                if !said {
                    state.notes.push(why);
                    said = true;
                }
            }
            Answer::Later(why, after) => {
                if !said {
                    state.notes.push(why);
                    said = true;
                }
                let pause = FIRST_PAUSE.saturating_mul(1 << failures.min(10));
                let pause = after.unwrap_or(pause).min(LONGEST_PAUSE);
                failures += 1;
                if !wait(shared, state, pause) {
                    return;
                }
            }
        }
    }
}

/// Waits for `pause`; new batches do not end it. Returns whether it may go on.
fn wait(shared: &Shared, mut state: MutexGuard<'_, State>, pause: Duration) -> bool {
    let until = Instant::now() + pause;
    loop {
        let now = Instant::now();
        let until = match state.end {
            Some(end) if now >= end => return false,
            // The end is near: it tries more often.
            Some(_) => until.min(now + FIRST_PAUSE),
            None => until,
        };
        let left = until.saturating_duration_since(now);
        if left.is_zero() {
            return true;
        }
        let was_ending = state.end.is_some();
        let waited = shared.wake.wait_timeout(state, left);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
        if was_ending {
            return state.end.is_none_or(|end| Instant::now() < end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, channel};

    /// A sender to a receiver that answers as `answers` say, and then takes all.
    fn sender(answers: Vec<Answer>) -> (Sender, Receiver<Vec<u8>>) {
        let (taken, seen) = channel();
        let answers = Mutex::new(answers.into_iter());
        let send = move |batch: &[u8]| {
            let next = answers.lock().expect("one thread").next();
            let answer = next.unwrap_or(Answer::Taken);
            if answer == Answer::Taken {
                taken.send(batch.to_vec()).expect("the test lives");
            }
            answer
        };
        let sender = Sender::start(Spool::in_memory(1 << 20), send).expect("a thread");
        (sender, seen)
    }

    fn later() -> Answer {
        Answer::Later("not now".into(), Some(Duration::from_millis(1)))
    }

    #[test]
    fn what_is_not_taken_is_sent_again_in_order() {
        let (sender, seen) = sender(vec![later(), later(), Answer::Taken, later()]);
        (0..3).for_each(|n| sender.put(vec![n]));
        let all: Vec<_> = seen.iter().take(3).collect();
        assert_eq!(all, [[0], [1], [2]]);
        assert_eq!(sender.notes(), ["not now"; 2]);
        assert_eq!(sender.lost(), 0);
        sender.end(Duration::ZERO);
    }

    #[test]
    fn what_is_refused_for_good_is_counted_and_does_not_block_the_rest() {
        let (sender, seen) = sender(vec![Answer::Never("no".into()), Answer::Never("no".into())]);
        (0..3).for_each(|n| sender.put(vec![n]));
        assert_eq!(seen.recv().expect("it comes"), [2]);
        assert_eq!((sender.lost(), sender.notes().len()), (2, 1));
        sender.end(Duration::from_secs(5));
    }

    #[test]
    fn the_end_does_not_wait_longer_than_it_may() {
        let refuse = |_: &[u8]| Answer::Later(String::new(), Some(Duration::from_secs(60)));
        let sender = Sender::start(Spool::in_memory(1 << 20), refuse).expect("a thread");
        sender.put(vec![1]);
        let since = Instant::now();
        sender.end(Duration::from_millis(100));
        assert!(since.elapsed() < Duration::from_secs(30));
    }
}
