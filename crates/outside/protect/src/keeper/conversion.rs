//! Makes the program's memory sharable, and holds all other threads while a thread forks that needs
//! the memory private again. Both keep threads stopped for as long as that takes. Called by the
//! keeper, on its thread.

use super::super::hooks::Readiness;
use super::*;

/// Whether no other process has this page in common with the process.
fn is_alone(process: ProcessId, page: u64) -> bool {
    match proc::AnonymousShared::at(process, Address(page)) {
        Ok(Some(mut memory)) => memory.is_of_one_process().is_ok(),
        Ok(None) => true,
        Err(_) => false,
    }
}

impl Keeper {
    /// Whether memory must be made sharable: none is so far, or isolated threads need new memory.
    pub(super) fn wants_conversion(&mut self) -> bool {
        if self.shared.conversions.load(Acquire) == 0 {
            return true;
        }
        let now = Instant::now();
        let room = (self.shared.range_count.load(Relaxed) as usize) < RANGES / 2;
        if !room || self.next_conversion.is_some_and(|at| at > now) {
            return false;
        }
        self.missed >= MISSED || Pages::any_new(&self.shared)
    }

    /// Whether the hooks can be put in place now. Refuses to isolate any further if they never can.
    fn may_hook(&mut self, readiness: Readiness) -> bool {
        match readiness {
            Readiness::Now => true,
            Readiness::NotNow => false,
            Readiness::Never(why) => {
                self.refuse(why);
                false
            }
        }
    }

    /// Has the thread `first` make the memory sharable, with all other threads stopped.
    pub(super) fn convert(&mut self, first: Box<Stopped>) {
        let planned = self.hooks.planned();
        if self.next_conversion.is_some_and(|at| at > Instant::now()) || !self.may_hook(planned) {
            return;
        }
        self.next_conversion = Some(Instant::now() + CONVERSION);
        let hooks = self.shared.hooks.each_ref();
        let hooks = hooks.map(|area| area.each_ref().map(|end| end.load(Relaxed)));
        if let Some(why) =
            image::hindrance(self.process, &hooks, self.shared.our_signal.load(Relaxed))
        {
            // Nothing can be read of a program that has just ended; that is no reason to refuse.
            if is_alive(self.process, first.thread()) {
                self.refuse(why);
            }
            return;
        }
        let Some(others) = self.stop_all_but(first.thread()) else {
            return;
        };
        // As long as all are stopped, what the control file says stays true.
        if !self.is_open() || self.shared.held.load(SeqCst) > 0 {
            return;
        }
        let process = ProcessId(self.process.unsigned_abs());
        let all = others.iter().chain([&*first]);
        let given = self.hooks.give(process, &self.shared, all);
        // If we died in the middle of a conversion and the threads went on, their writes would be
        // lost. So they are killed with us.
        if !self.may_hook(given) || others.iter().any(|other| other.bind().is_err()) {
            return;
        }
        if self.shared.conversions.load(Acquire) == 0 {
            // Before the first conversion a fork does not end isolation.
            let process = ProcessId(self.process.unsigned_abs());
            Pages::keep_only(&self.shared, |page| is_alone(process, page));
            // Before the hooks were in place, modules could come and go unseen.
            self.learn_code();
            self.guards.look_again(self.process, &self.shared);
        }
        if let Err(why) = apart::publish(self.process, first.thread(), &self.shared) {
            self.refuse(why);
            return;
        }
        self.shared.converted.store(0, SeqCst);
        let thread = first.thread();
        if !self.send(first, order::CONVERT) {
            return;
        }
        while self.shared.converted.load(Acquire) == 0 && is_alive(self.process, thread) {
            shared::wait(&self.shared.converted, 0);
        }
        drop(others);
        let done = self.shared.conversions.load(Acquire);
        if done > 0 {
            self.missed = 0;
            // A conversion copies new memory while all threads are stopped: the more there were,
            // the longer the pause.
            let pause = CONVERSION * (1 << done.min(8));
            self.next_conversion = Some(Instant::now() + pause);
        }
    }

    /// Stops all threads but `one`. `None` if one of them can't be stopped now.
    pub(super) fn stop_all_but(&mut self, one: i32) -> Option<Vec<Stopped>> {
        /// Lists of threads in a row that must have no new thread. One list may lack a thread; the
        /// next is complete, as no thread is left that could end while it is read.
        const LISTS: u32 = 2;
        let mut stopped: Vec<Stopped> = Vec::new();
        let mut seen = HashSet::from([one]);
        let mut without_new = 0;
        loop {
            let threads = threads_of(self.process);
            if threads.is_empty() {
                return None;
            }
            let new: Vec<i32> = threads.into_iter().filter(|t| !seen.contains(t)).collect();
            without_new = if new.is_empty() { without_new + 1 } else { 0 };
            if without_new == LISTS {
                return Some(stopped);
            }
            for thread in new {
                if !is_alive(self.process, thread) {
                    seen.insert(thread);
                    continue;
                }
                match Stopped::stop(thread, self.process) {
                    Ok(Stop::Stopped(one)) => {
                        seen.insert(thread);
                        stopped.push(*one);
                    }
                    Ok(Stop::Ended(status)) => {
                        self.exit = Some(status);
                        return None;
                    }
                    Ok(Stop::NotNow) | Err(_) if !is_alive(self.process, thread) => {}
                    Ok(Stop::NotNow) | Err(_) => return None,
                }
            }
        }
    }

    /// A thread is about to fork and needs all others stopped. A thread that can't be stopped
    /// inside the kernel is waited for as long as the fork can wait, so that the fork succeeds.
    pub(super) fn stop_for_a_fork(&mut self) {
        /// Pause between two attempts.
        const PAUSE: Duration = Duration::from_millis(1);
        let one = self.shared.stop.load(SeqCst) as i32;
        let end = Instant::now() + FORK;
        let mut others = None;
        // A thread that was asked to stop and did so too late is let go first: `exit` does that,
        // through `sweep`.
        while others.is_none()
            && self.exit().is_none()
            && self.wants_a_fork(one)
            && Instant::now() < end
        {
            others = self.stop_all_but(one);
            if others.is_none() {
                std::thread::sleep(PAUSE);
            }
        }
        let bound = |all: &Vec<Stopped>| all.iter().all(|other| other.bind().is_ok());
        let answer = if others.as_ref().is_some_and(bound) {
            1
        } else {
            2
        };
        self.shared.stopped.store(answer, SeqCst);
        shared::wake(&self.shared.stopped);
        while self.wants_a_fork(one) {
            shared::wait(&self.shared.stop, one as u32);
        }
        drop(others);
    }

    /// Whether the thread `one` still waits for the others to be stopped, or forks while they are.
    /// Not if another thread has executed a program since: the first thread of that may have the
    /// same number.
    pub(super) fn wants_a_fork(&self, one: i32) -> bool {
        let waits = self.shared.stop.load(SeqCst) == one as u32;
        waits && is_alive(self.process, one) && !self.is_another_image()
    }
}
