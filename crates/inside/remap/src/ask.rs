//! Asks the tool where a thread is to continue. Contexts: signal, all signals blocked.

use crate::registers::General;
use crate::shared;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use sunder_guest::system;
use sunder_wire::remap::{Control, Request};

/// How long a thread waits for an answer, in ns. A running tool answers in a fraction of a
/// millisecond; on a machine with far more threads than CPUs it may have to wait for its turn.
const TIME_LIMIT: u64 = 1_000_000_000;

/// The outcome of a question.
pub enum Answer {
    /// The thread continues at this address.
    Go(u64),
    /// There is no copy at which the thread can continue.
    No,
    /// No answer in time, or too many threads ask at once.
    None,
}

/// What the tool should know of the thread besides its registers.
#[derive(Clone, Copy)]
pub struct Manner {
    /// Whether its string instructions go downwards.
    pub downwards: bool,
    /// As [`Request::again`].
    pub again: bool,
}

/// Asks about the instruction at `ip`, which faulted at `address`.
pub fn ask(
    control: &Control,
    area: u32,
    ip: u64,
    address: u64,
    general: &General,
    manner: Manner,
) -> Answer {
    let start = system::now();
    let Some(request) = take(control, start) else {
        return Answer::None;
    };
    request.thread.store(system::thread_id(), Relaxed);
    request.area.store(area, Relaxed);
    request.ip.store(ip, Relaxed);
    request.address.store(address, Relaxed);
    request
        .downwards
        .store(u32::from(manner.downwards), Relaxed);
    request.again.store(u32::from(manner.again), Relaxed);
    for (to, &value) in request.general.iter().zip(general) {
        to.store(value, Relaxed);
    }
    let asked = request.ask();
    control.bell.fetch_add(1, AcqRel);
    shared::wake(&control.bell);
    while request.waits(asked) {
        if system::now().wrapping_sub(start) > TIME_LIMIT {
            if request.give_up(asked) {
                return Answer::None;
            }
            break;
        }
        shared::wait(&request.state, asked, 50_000_000);
    }
    match request.take_answer(asked) {
        None => Answer::None,
        Some(0) => Answer::No,
        Some(to) => Answer::Go(to),
    }
}

fn take(control: &Control, start: u64) -> Option<&Request> {
    loop {
        let free = control.requests.iter().find(|r| r.take());
        if free.is_some() {
            return free;
        }
        if system::now().wrapping_sub(start) > TIME_LIMIT {
            return None;
        }
        system::give_way();
    }
}
