//! A thread that sends what waits in a spool, oldest first, until it is taken. Whoever puts batches there
//! never waits.

use crate::metrics::Sink;
use crate::spool::Spool;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The pause after a first failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The longest pause that a receiver may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(3600);

/// What a receiver answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has the batch.
    Taken,
    /// It has the batch but for a part, which it will never take, for this reason.
    Partly(String),
    /// It may take it later, for this reason; it may say when.
    Later(String, Option<Duration>),
    /// It will never take it, for this reason.
    Never(String),
    /// It takes no batch at all, for this reason. None is sent any more.
    Off(String),
}

/// What is left when a sender ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// Batches that were not sent.
    pub batches: u64,
    /// Those of them that are in the spool's folder, from which the next sender sends them.
    pub kept: u64,
}

/// See the module's head. Its thread ends with the process, or when it is told to end.
#[derive(Debug)]
pub struct Sender {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// There is something to be done.
    wake: Condvar,
    /// The thread has ended.
    ended: Condvar,
}

#[derive(Debug)]
struct State {
    spool: Spool,
    /// When it has to end.
    end: Option<Instant>,
    has_ended: bool,
    is_off: bool,
    refused: u64,
    notes: Vec<String>,
    /// Whether it has been said, since everything was sent, that the disk takes nothing.
    disk_said: bool,
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
            has_ended: false,
            is_off: false,
            refused: 0,
            notes: Vec::new(),
            disk_said: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            wake: Condvar::new(),
            ended: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        let thread = Builder::new().name("sunder-send".into());
        thread.spawn(move || {
            run(&of_thread, &send);
            of_thread.state().has_ended = true;
            of_thread.ended.notify_all();
        })?;
        Ok(Self { shared })
    }

    /// Adds a batch.
    pub fn put(&self, batch: Vec<u8>) {
        let mut state = self.shared.state();
        if state.is_off {
            state.refused += 1;
            return;
        }
        if let Err(error) = state.spool.put(batch)
            && !state.disk_said
        {
            let why = format!(
                "the folder of what waits to be sent takes nothing ({error}): it waits in memory"
            );
            state.notes.push(why);
            state.disk_said = true;
        }
        drop(state);
        self.shared.wake.notify_one();
    }

    /// How it is doing.
    pub fn sink(&self) -> Sink {
        let state = self.shared.state();
        Sink {
            lost_batches: state.spool.dropped() + state.refused,
            waiting_bytes: state.spool.bytes(),
            is_off: state.is_off,
        }
    }

    /// What there is to be said to the user since the last call.
    pub fn notes(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.state().notes)
    }

    /// If the receiver did not want anything, it is asked anew.
    pub fn switch_on(&self) {
        self.shared.state().is_off = false;
    }

    /// From now on only what can be sent before `until` is sent.
    pub fn end_by(&self, until: Instant) {
        self.shared.state().end = Some(until);
        self.shared.wake.notify_one();
    }

    /// After [`Self::end_by`]: waits until everything is sent, or `until`, also if a request is under way
    /// then. What that has sent may be sent again from the spool's folder.
    pub fn wait_for_end(&self, until: Instant) -> Left {
        let mut state = self.shared.state();
        while !state.has_ended {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.shared.ended.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        // The disk may have room by now. If not, that has been said.
        let _ = state.spool.keep();
        let (batches, kept) = state.spool.waiting();
        Left { batches, kept }
    }
}

fn run(shared: &Shared, send: &dyn Fn(&[u8]) -> Answer) {
    let mut failures = 0_u32;
    let mut said = false;
    loop {
        let mut state = shared.state();
        if state.end.is_some_and(|end| Instant::now() >= end) {
            return;
        }
        let Some((number, batch)) = state.spool.first() else {
            state.disk_said = false;
            if state.end.is_some() {
                return;
            }
            drop(shared.wake.wait(state));
            continue;
        };
        drop(state);
        let answer = send(&batch);
        let mut state = shared.state();
        let mut say = |state: &mut State, why| {
            if !said {
                state.notes.push(why);
            }
            said = true;
        };
        match answer {
            Answer::Taken => {
                state.spool.done(number);
                (failures, said) = (0, false);
            }
            Answer::Partly(why) | Answer::Never(why) => {
                state.spool.done(number);
                state.refused += 1;
                say(&mut state, why);
                failures = 0;
            }
            Answer::Off(why) => {
                state.spool.clear();
                state.is_off = true;
                state.notes.push(why);
                (failures, said) = (0, false);
            }
            Answer::Later(why, after) => {
                say(&mut state, why);
                let pause = Pause::after(failures, after);
                failures += 1;
                if !wait(shared, state, pause) {
                    return;
                }
            }
        }
    }
}

/// How long not to ask a receiver. A receiver may ask for a longer pause than the usual one, and not for a
/// shorter one: one that asks for none would be asked again and again at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pause {
    usual: Duration,
    /// When the end is near, it tries more often, unless it was asked not to.
    near_the_end: Duration,
}

impl Pause {
    /// After so many failures before this one, where the receiver may have asked for a pause.
    fn after(failures: u32, asked: Option<Duration>) -> Self {
        let chosen = FIRST_PAUSE.saturating_mul(1 << failures.min(10));
        let asked = asked.unwrap_or_default().min(LONGEST_ASKED);
        Self {
            usual: asked.max(chosen.min(LONGEST_PAUSE)),
            near_the_end: asked.max(FIRST_PAUSE),
        }
    }
}

/// Waits for the pause; new batches do not end it. Returns whether it may go on.
fn wait(shared: &Shared, mut state: MutexGuard<'_, State>, pause: Pause) -> bool {
    let begin = Instant::now();
    loop {
        let mut until = begin + pause.usual;
        if let Some(end) = state.end {
            until = begin + pause.near_the_end;
            if until >= end {
                return false;
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        let waited = shared.wake.wait_timeout(state, left);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
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
        // What came is known here before the sender knows that it was taken.
        let until = Instant::now() + Duration::from_secs(60);
        sender.end_by(until);
        assert_eq!(sender.wait_for_end(until), Left::default());
        assert_eq!(sender.notes(), ["not now"; 2]);
        assert_eq!(sender.sink(), Sink::default());
    }

    /// `Retry-After: 0`, and times that have passed.
    #[test]
    fn a_receiver_that_asks_for_no_pause_gets_the_usual_one() {
        let usual = |failures| Pause::after(failures, None);
        assert_eq!(usual(0).usual, FIRST_PAUSE);
        assert_eq!(usual(2).usual, FIRST_PAUSE * 4);
        assert_eq!(usual(u32::MAX).usual, LONGEST_PAUSE);
        assert_eq!(usual(u32::MAX).near_the_end, FIRST_PAUSE);
        for failures in [0, 2, u32::MAX] {
            for asked in [Duration::ZERO, Duration::from_millis(1)] {
                assert_eq!(Pause::after(failures, Some(asked)), usual(failures));
            }
            for (asked, wanted) in [(100, 100), (u64::MAX, LONGEST_ASKED.as_secs())] {
                let pause = Pause::after(failures, Some(Duration::from_secs(asked)));
                let wanted = Duration::from_secs(wanted);
                assert_eq!((pause.usual, pause.near_the_end), (wanted, wanted));
            }
        }
        // What is sent waits so long: a bound from below, which a busy machine does not change.
        let none = || Answer::Later(String::new(), Some(Duration::ZERO));
        let since = Instant::now();
        let (sender, seen) = sender(vec![none(), none()]);
        sender.put(vec![0]);
        assert_eq!(seen.recv().expect("it comes"), [0]);
        assert!(since.elapsed() >= usual(0).usual + usual(1).usual);
    }

    #[test]
    fn what_is_refused_for_good_is_counted_and_does_not_block_the_rest() {
        let (sender, seen) = sender(vec![Answer::Never("no".into()), Answer::Never("no".into())]);
        (0..3).for_each(|n| sender.put(vec![n]));
        assert_eq!(seen.recv().expect("it comes"), [2]);
        assert_eq!(sender.sink().lost_batches, 2);
        assert_eq!(sender.notes(), ["no"]);
    }

    #[test]
    fn a_signal_that_is_not_wanted_is_sent_no_more_until_it_is_switched_on() {
        let (sender, seen) = sender(vec![Answer::Off("off".into())]);
        sender.put(vec![0]);
        let since = Instant::now();
        while !sender.sink().is_off {
            assert!(since.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
        (1..4).for_each(|n| sender.put(vec![n]));
        assert_eq!(sender.notes(), ["off"]);
        let sink = sender.sink();
        assert_eq!((sink.lost_batches, sink.waiting_bytes), (4, 0));
        sender.switch_on();
        sender.put(vec![4]);
        assert_eq!(seen.recv().expect("it comes"), [4]);
        assert_eq!(sender.sink().lost_batches, 4);
    }

    /// Ends a sender within 100 ms; what is left.
    fn ended(sender: &Sender) -> Left {
        let since = Instant::now();
        let until = since + Duration::from_millis(100);
        sender.end_by(until);
        let left = sender.wait_for_end(until);
        assert!(since.elapsed() < Duration::from_secs(30));
        left
    }

    #[test]
    fn the_end_does_not_wait_longer_than_it_may() {
        let refuse = |_: &[u8]| Answer::Later(String::new(), Some(Duration::from_secs(3000)));
        let silent = |_: &[u8]| {
            std::thread::sleep(Duration::from_secs(3000));
            Answer::Taken
        };
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::in_folder(folder.path(), 1 << 20).expect("a queue");
        let refused = Sender::start(spool, refuse).expect("a thread");
        let slow = Sender::start(Spool::in_memory(1 << 20), silent).expect("a thread");
        let left = [refused, slow].map(|sender| {
            (0..3).for_each(|n| sender.put(vec![n]));
            ended(&sender)
        });
        let batches = 3;
        assert_eq!(left[0], Left { batches, kept: 3 });
        assert_eq!(left[1], Left { batches, kept: 0 });
    }

    #[test]
    fn what_can_be_sent_before_the_end_is_sent() {
        let (sender, seen) = sender(vec![later()]);
        (0..3).for_each(|n| sender.put(vec![n]));
        let until = Instant::now() + Duration::from_secs(60);
        sender.end_by(until);
        assert_eq!(sender.wait_for_end(until), Left::default());
        assert_eq!(seen.try_iter().count(), 3);
    }
}
