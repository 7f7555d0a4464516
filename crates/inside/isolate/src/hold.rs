//! [`Hold`], which keeps threads from being isolated. Contexts: normal; also with all signals
//! blocked and inside `malloc`.

use crate::{control, tick};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use sunder_guest::confinement::{Calls, Confinement};
use sunder_guest::system;
use sunder_wire::isolation::{Control, state};

/// Whether the program has confined itself, and how many threads may be in system calls of ours: those
/// that hold, and those that were sent into isolation and have not come home.
pub static CONFINEMENT: Confinement = Confinement::new();

/// While it lives, no episode begins and no memory is made sharable.
pub struct Hold(
    &'static Control,
    #[expect(dead_code, reason = "counted while it lives")] Calls,
);

impl Hold {
    /// Also ends all running episodes and waits for that. `None` where there is nothing to hold: in
    /// programs that are not protected or have confined themselves, and in other processes.
    pub fn new() -> Option<Self> {
        let hold = Self::without_recall()?;
        hold.recall();
        Some(hold)
    }

    /// As [`Self::new`], but running episodes go on until [`Self::recall`].
    pub fn without_recall() -> Option<Self> {
        let control = control::get()?;
        let calls = CONFINEMENT.begin()?;
        if control.process.load(Relaxed) != system::process_id() {
            return None;
        }
        control.held.fetch_add(1, SeqCst);
        Some(Self(control, calls))
    }

    /// Ends all running episodes and waits for that.
    pub fn recall(&self) {
        if self.0.conversions.load(SeqCst) > 0 {
            recall_all(self.0);
        }
    }

    /// The control file.
    pub const fn control(&self) -> &'static Control {
        self.0
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, SeqCst);
    }
}

/// Ends the episode of every isolated thread, and waits for that.
fn recall_all(control: &Control) {
    const INTERVAL: u32 = 500;
    for slot in &control.slots {
        loop {
            let now = slot.state.load(SeqCst);
            if now != state::ENTERING && now != state::ISOLATED {
                break;
            }
            slot.recall.store(1, SeqCst);
            if now == state::ISOLATED {
                tick::send(slot);
            }
            control::wait(&slot.state, now, INTERVAL);
        }
    }
}
