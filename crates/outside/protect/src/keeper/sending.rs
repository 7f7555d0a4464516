//! The program's threads: which are looked at when, and which are sent into isolation.

use super::{Keeper, MOST_PAUSE, SHORT, Thread};
use crate::apart;
use crate::guard;
use crate::image;
use crate::threads::{is_alive, is_running, no_longer_exists, threads_of};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::time::{Duration, Instant};
use sunder_stop::{Stop, Stopped};
use sunder_wire::isolation::{
    CONTROL_BYTES, Control, REGISTERS, SLOTS, Slot, THREAD_AREA, THREAD_AREAS_AT, order, state, why,
};

/// For how long at least a thread with short episodes stays native, and a new thread if episodes
/// are short for all threads.
const PAUSE: Duration = Duration::from_millis(100);

/// Weight of the past in the averages of episode lengths (SHERIFF, section 5).
const ALPHA: f64 = 0.9;

impl Keeper {
    /// Looks at every thread whose pause is over.
    pub(super) fn look_at_threads(&mut self) {
        let threads = threads_of(self.process);
        self.free_slots();
        let process = self.process;
        let lives = |thread: &i32| threads.contains(thread) || !no_longer_exists(process, *thread);
        self.threads.retain(|thread, _| lives(thread));
        if threads.len() < 2 {
            return;
        }
        for thread in threads {
            if self.exit.is_some() || self.refused.is_some() {
                return;
            }
            if self.is_time(thread) && is_running(self.process, thread) {
                self.look_at(thread);
            }
        }
    }

    /// Frees the slots of threads that have ended. A thread in an episode can't end by itself, and
    /// freeing its slot would lose what it has computed; only the execution of another program
    /// leaves such a slot behind.
    pub(super) fn free_slots(&mut self) {
        for (index, slot) in self.shared.slots.iter().enumerate() {
            let thread = slot.thread.load(Relaxed) as i32;
            let is_home = slot.state.load(Acquire) == state::HOME;
            let ended = thread != 0 && no_longer_exists(self.process, thread);
            if ended && (is_home || self.is_another_image()) {
                let thread = self.threads.values().find(|t| t.slot == Some(index));
                if thread.is_some_and(|t| t.episodes != slot.episodes.load(Relaxed)) {
                    self.usual = averaged(self.usual, length_of(slot));
                }
                slot.thread.store(0, Relaxed);
                slot.state.store(state::FREE, Relaxed);
            }
        }
    }

    fn is_time(&mut self, thread: i32) -> bool {
        let now = Instant::now();
        let short = self.usual < self.short;
        let kept = self.threads.entry(thread).or_insert_with(|| Thread {
            slot: None,
            next: if short { now + PAUSE } else { now },
            pause: self.look,
            average: 2.0 * SHORT,
            episodes: 0,
        });
        if kept.next > now {
            return false;
        }
        let Some(slot) = kept.slot.and_then(|i| self.shared.slots.get(i)) else {
            return true;
        };
        if slot.state.load(Acquire) != state::HOME {
            return false;
        }
        let episodes = slot.episodes.load(Relaxed);
        if episodes != kept.episodes {
            kept.episodes = episodes;
            let length = length_of(slot);
            kept.average = averaged(kept.average, length);
            self.usual = averaged(self.usual, length);
            let reason = slot.why.load(Relaxed);
            // Memory that can't be made sharable is no reason for another conversion.
            let met = slot.address.load(Relaxed);
            let missed = reason == why::MEMORY && !apart::is_apart(&self.shared, met);
            self.missed += u32::from(missed);
            if reason == why::CODE {
                self.guards.request(self.process, &self.shared, met);
            }
            let failed = reason == why::NO_WORKER;
            if failed || kept.average < self.short {
                // Episodes were short, or no worker could be made: the thread stays native for a
                // while, longer each time.
                kept.pause = (kept.pause * 2).clamp(PAUSE, MOST_PAUSE);
                kept.next = now + kept.pause;
                kept.average = SHORT;
                return false;
            }
        }
        true
    }

    /// Stops a thread and sends it into isolation if it stands in code that it may execute there.
    fn look_at(&mut self, thread: i32) {
        let stopped = match Stopped::stop(thread, self.process) {
            Ok(Stop::Stopped(stopped)) => stopped,
            Ok(Stop::NotNow) => return,
            Ok(Stop::Ended(status)) => {
                self.exit = Some(status);
                return;
            }
            Err(_) if !is_alive(self.process, thread) => return,
            Err(error) => {
                self.refused = Some(format!("threads can't be stopped: {error}"));
                return;
            }
        };
        let at = stopped.computing_at();
        let computes =
            at.is_some_and(|at| self.is_code(at)) && !self.is_ours(stopped.registers().rsp);
        let Some(kept) = self.threads.get_mut(&thread) else {
            return;
        };
        if !computes {
            kept.pause = (kept.pause * 2).min(self.look * 16);
            kept.next = Instant::now() + kept.pause;
            // The thread need not stay stopped while files are read.
            drop(stopped);
            self.guards
                .request(self.process, &self.shared, at.unwrap_or(0));
            return;
        }
        kept.pause = self.look;
        // If another program begins, this is its only thread. As long as the thread is stopped,
        // what the control file says of the program stays true.
        if !self.is_open() {
            return;
        }
        if !self.is_same_image() {
            self.is_elsewhere = self.is_another_image();
            return;
        }
        if image::is_confined(self.process, thread) {
            self.refused = Some("the program confines its system calls".into());
            return;
        }
        if self.wants_conversion() {
            self.convert(stopped);
        } else {
            self.send(stopped, order::ISOLATE);
        }
    }

    /// Whether an address lies in the control file. The stack of a signal handler does, if the
    /// handler interrupted a thread that was leaving an episode.
    fn is_ours(&self, address: u64) -> bool {
        let base = self.shared.base.load(Relaxed);
        (base..base.saturating_add(CONTROL_BYTES as u64)).contains(&address)
    }

    fn is_code(&self, address: u64) -> bool {
        if guard::is_open(&self.shared, address) {
            return true;
        }
        let count = self.shared.code_count.load(Relaxed) as usize;
        self.shared
            .codes
            .iter()
            .take(count)
            .any(|[from, to]| (from.load(Relaxed)..to.load(Relaxed)).contains(&address))
    }

    /// Writes a stopped thread's registers into its slot and lets it continue in the library;
    /// whether it went.
    pub(super) fn send(&mut self, stopped: Box<Stopped>, order: u32) -> bool {
        let thread = stopped.thread();
        let Some(index) = self.slot_of(thread) else {
            return false;
        };
        let slot = &self.shared.slots[index];
        let Ok(mask) = stopped.mask() else {
            return false;
        };
        let r = stopped.registers();
        let general = [
            r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx,
            r.rdx, r.rsi, r.rdi,
        ];
        let kept = self.shared.registers(index);
        for (to, from) in kept.general.iter().zip(general) {
            to.store(from, Relaxed);
        }
        for (to, from) in kept.frame.iter().zip([r.rip, r.cs, r.eflags, r.rsp, r.ss]) {
            to.store(from, Relaxed);
        }
        slot.mask.store(mask, Relaxed);
        slot.order.store(order, SeqCst);
        let base = self.shared.base.load(Relaxed);
        let control: &Control = &self.shared;
        let first = control.slots.as_ptr() as usize - &raw const *control as usize;
        // The program writes the base; a wrong one sends its own thread astray.
        let at = |offset: usize| base.wrapping_add(offset as u64);
        let argument = at(first + index * size_of::<Slot>());
        let stack = at(THREAD_AREAS_AT + index * THREAD_AREA + REGISTERS);
        let entry = self.shared.entry.load(Relaxed);
        // Set before it goes: whoever waits for all threads must not overlook one that was sent and
        // has not begun.
        slot.state.store(state::ENTERING, SeqCst);
        let sent = stopped.send(entry, argument, stack).is_ok();
        if !sent {
            slot.state.store(state::HOME, SeqCst);
        }
        sent
    }

    fn slot_of(&mut self, thread: i32) -> Option<usize> {
        let kept = self.threads.get_mut(&thread)?;
        if kept.slot.is_none() {
            let free = self
                .shared
                .slots
                .iter()
                .position(|s| s.thread.load(Relaxed) == 0)?;
            debug_assert!(free < SLOTS);
            let slot = &self.shared.slots[free];
            slot.thread.store(thread as u32, Relaxed);
            slot.episodes.store(0, Relaxed);
            slot.native_since.store(0, Relaxed);
            slot.state.store(state::HOME, SeqCst);
            kept.slot = Some(free);
            if let Some(costs) = &mut self.costs {
                costs.begins(free);
            }
        }
        kept.slot
    }
}

fn averaged(before: f64, new: u64) -> f64 {
    ALPHA * before + (1.0 - ALPHA) * new as f64
}

/// Length of the last episode of a slot's thread, in nanoseconds.
fn length_of(slot: &Slot) -> u64 {
    let since = slot.since.load(Relaxed);
    slot.until.load(Relaxed).saturating_sub(since)
}
