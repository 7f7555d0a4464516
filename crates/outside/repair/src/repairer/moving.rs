//! Begins moves, has the program's threads carry them out, and follows the bytes: measures threads,
//! puts bytes back, moves them again.

use super::Repairer;
use crate::attach::entry::Entry;
use crate::attempt::{Attempt, Next, Rethought};
use crate::contended::contended;
use crate::layout::{groups_of, layout, rules};
use crate::mark::Mark;
use crate::movable::can_be_moved;
use crate::proposal::Proposal;
use crate::request::Executes;
use crate::serve::Server;
use crate::soundness::{OTHER_CODE, has_its_code, is_sound};
use crate::{place, request};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use sunder_access::{Address, Span, Time};
use sunder_findings::{MovedGroup, Unrepaired};
use sunder_gain::gauge::Windows;
use sunder_live::Live;
use sunder_observe::{monotonic_now, proc};
use sunder_wire::remap::{
    ACTIVE, APPLY, APPLY_AGAIN, AREA_BYTES, CACHE, FREE, ROLL_BACK, ROLLED_BACK,
};

/// Looks that a thread has to move the bytes once it is asked; then another thread is asked.
const PATIENCE: u32 = 20;
/// How many times in a row all threads are stopped to move something; after that only now and then.
const ATTEMPTS: u32 = 8;
/// Why nothing more is moved once the program has executed another, in which no library of ours is.
const BECAME_ANOTHER: &str = "the program became another, into which nothing was loaded";

impl Repairer {
    /// Begins to move the bytes of a proposal, or notes why they are left alone. `before` is how
    /// the threads got on until now.
    pub fn begin(&mut self, proposal: Proposal, before: Windows) {
        let refuse = |proposal: &Proposal, reason: String| Unrepaired {
            object: proposal.object.clone(),
            address: Some(Address(proposal.page)),
            reason,
        };
        let groups = groups_of(&proposal, None);
        let number = self.attempts.len();
        if self.dry_run {
            self.push(proposal, groups, None, before);
            return;
        }
        if !self.put_library_in() {
            if self.hindrance.is_none() {
                let reason = "the program ended before it could be moved".into();
                self.refused.push(refuse(&proposal, reason));
            }
            return;
        }
        if let Err(reason) = is_sound(self.process, proposal.page, proposal.len) {
            self.refused.push(refuse(&proposal, reason));
            return;
        }
        match self.prepare(&proposal, number) {
            Ok(at) => {
                let groups = groups_of(&proposal, Some(at));
                self.push(proposal, groups, Some(number), before);
                self.attempts[number].mappings.clone_from(&self.mappings);
                self.area(number).wanted.store(APPLY, Release);
                self.request_moves();
            }
            Err(reason) => self.refused.push(refuse(&proposal, reason)),
        }
    }

    fn push(
        &mut self,
        proposal: Proposal,
        groups: Vec<MovedGroup>,
        area: Option<usize>,
        before: Windows,
    ) {
        let now = monotonic_now();
        let mut attempt = Attempt::new(proposal, groups, area, now, before);
        attempt.stays_anyway = self.compares_all;
        self.attempts.push(attempt);
    }

    /// Follows the bytes that were moved: measures threads, puts bytes back, moves them again.
    pub fn follow_moves(&mut self, live: &mut Live) {
        let now = monotonic_now().0;
        let id = self.process;
        for number in 0..self.attempts.len() {
            let attempt = &mut self.attempts[number];
            let Some(area) = attempt.area.map(|n| &self.file.control().areas[n]) else {
                continue;
            };
            let process = live.session.process(id);
            let next = attempt.step(area, id, now, &mut |proposal, mark| {
                contended(process, proposal, mark)
            });
            let (page, len) = (attempt.proposal.page, attempt.proposal.len);
            if attempt.has_gone_back() {
                self.chooser.decisions.put_back(page, len, Time(now));
            }
            let beside = &mut self.chooser.beside;
            let pages = Span::new(Address(page), len);
            if attempt.gained_little() && beside.could_take(process, pages) {
                attempt.rearrange(area, Rethought::AnotherRemedy);
            }
            match next {
                Next::Nothing => {}
                Next::Mark => {
                    let mark = Mark::of_pages(live.session.process(id), page, len);
                    attempt.look_from(mark, now);
                }
                Next::Again => match self.may_again(live, number) {
                    Ok(()) => {
                        self.chooser.decisions.moved_again(page, len);
                        self.move_again(number);
                    }
                    Err(_) => self.attempts[number].end(),
                },
            }
        }
        self.part_crossed();
    }

    /// Of two moves whose bytes the same loops use, the later one goes back: the other has been measured. Where
    /// one of them is not known to be away yet, or is back, threads will tell again if they have to.
    fn part_crossed(&mut self) {
        let crossed = self.server.as_ref().map(Server::crossed);
        for (one, other) in crossed.into_iter().flatten() {
            let since = |attempt: &Attempt| {
                let is_one = [Some(one), Some(other)].contains(&attempt.area);
                let last = attempt.stays.last().filter(|_| is_one)?;
                last.back.is_none().then_some(last.applied)
            };
            let both = self
                .attempts
                .iter_mut()
                .filter(|attempt| since(attempt).is_some());
            let mut both: Vec<&mut Attempt> = both.collect();
            both.sort_by_key(|attempt| since(attempt));
            if let [_, later] = &mut both[..]
                && let Some(number) = later.area
            {
                later.rearrange(&self.file.control().areas[number], Rethought::Crossed);
            }
        }
    }

    /// Whether bytes may be moved again. All checks of the first time are repeated, as the program
    /// may have changed.
    pub fn may_again(&mut self, live: &mut Live, number: usize) -> Result<(), String> {
        let (page, len) = self.attempts[number].pages();
        is_sound(self.process, page, len)?;
        let mappings = proc::mappings(self.process).map_err(|e| e.to_string())?;
        self.calls.all_seen(&mappings)?;
        can_be_moved(live.session.process(self.process), &mappings, page, len)?;
        let attempt = &mut self.attempts[number];
        if let Some(area) = attempt.area.map(|n| &self.file.control().areas[n])
            && !has_its_code(area, &attempt.mappings, &mappings)
        {
            return Err(OTHER_CODE.into());
        }
        if let Some(server) = &self.server {
            server.renew(&mappings);
            attempt
                .proposal
                .all_code()
                .for_each(|at| server.prepare(at));
        }
        attempt.mappings = mappings;
        Ok(())
    }

    /// Asks for the bytes of an attempt to be moved once more.
    pub fn move_again(&mut self, number: usize) {
        let attempt = &mut self.attempts[number];
        if let Some(area) = attempt.area.map(|n| &self.file.control().areas[n]) {
            attempt.again(area);
            self.request_moves();
        }
    }

    /// Enters a move into an area of the control file; gives the address of the area's data.
    fn prepare(&mut self, proposal: &Proposal, number: usize) -> Result<u64, String> {
        let mappings = proc::mappings(self.process).map_err(|e| e.to_string())?;
        self.mappings.clone_from(&mappings);
        self.calls.all_seen(&mappings)?;
        let end = proposal.page + proposal.len;
        let ours = |&(from, to): &(u64, u64)| from < end && proposal.page < to;
        if self.taken.iter().any(ours) {
            return Err("it is memory of ours".into());
        }
        let shared = mappings
            .at(Address(proposal.page))
            .is_some_and(|m| m.shared);
        if shared && !matches!(self.entry, Entry::Inside(_)) {
            return Err(
                "other processes may come to share its memory while threads can't be stopped"
                    .into(),
            );
        }
        let full = || "there is no room near it in the address space".to_owned();
        let at = place::near(&mappings, &self.taken, proposal.page, AREA_BYTES).ok_or_else(full)?;
        self.taken.push((at, at + AREA_BYTES));
        let text = if proposal.near == 0 {
            proposal.page
        } else {
            proposal.near
        };
        let code = place::near(&mappings, &self.taken, text, CACHE).ok_or_else(full)?;
        self.taken.push((code, code + CACHE));
        let layout = layout(proposal)
            .ok_or_else(|| "its groups do not fit into the room for them".to_owned())?;
        let area = self.area(number);
        area.page.store(proposal.page, Relaxed);
        area.len.store(proposal.len, Relaxed);
        area.at.store(at, Relaxed);
        area.code.store(code, Relaxed);
        for (slot, (group, to)) in area.group.iter().zip(proposal.groups.iter().zip(&layout)) {
            slot.from.store(group.offset as u32, Relaxed);
            slot.len.store(group.size as u32, Relaxed);
            slot.to.store(*to as u32, Relaxed);
        }
        area.groups.store(layout.len() as u32, Relaxed);
        let moved = rules(proposal, &layout, at);
        if let Some(server) = &self.server {
            server.renew(&mappings);
            proposal.all_code().for_each(|at| server.prepare(at));
            server.moves(number, moved, proposal.groups.clone(), code);
        }
        Ok(at)
    }

    /// Has all open requests carried out. If the library was put in while the program ran, all
    /// threads are stopped for that. If it was loaded at the start, a thread is asked by a signal;
    /// one that runs, so that none of its kernel calls is interrupted.
    pub fn request_moves(&mut self) {
        let process = self.process;
        let control = self.file.control();
        let mut became_another = false;
        for attempt in &mut self.attempts {
            let Some(area) = attempt.area.map(|n| &control.areas[n]) else {
                continue;
            };
            let open = matches!(
                (area.state.load(Acquire), area.wanted.load(Acquire)),
                (FREE, APPLY) | (ROLLED_BACK, APPLY_AGAIN) | (ACTIVE, ROLL_BACK)
            );
            if !open {
                continue;
            }
            attempt.asked += 1;
            if attempt.asked > PATIENCE * PATIENCE {
                attempt.give_up(area);
                // Bytes that must go back are asked for as long as they are away, but less often.
                if area.wanted.load(Acquire) != ROLL_BACK || !attempt.asked.is_multiple_of(PATIENCE)
                {
                    continue;
                }
            }
            match request::executes(process) {
                // The loader may have put the library into the new program since.
                Executes::Program => {
                    let became = |why: &mut String| why == BECAME_ANOTHER;
                    self.hindrance.take_if(became);
                    attempt.hindrance.take_if(became);
                }
                Executes::Another => {
                    became_another = true;
                    break;
                }
                Executes::Nothing | Executes::Unknown => return,
            }
            if let Entry::Inside(inside) = &self.entry {
                // Each attempt stops all threads for a moment.
                if attempt.asked > ATTEMPTS && !attempt.asked.is_multiple_of(ATTEMPTS) {
                    continue;
                }
                let number = attempt.area.unwrap_or(0);
                let done = if area.wanted.load(Acquire) == ROLL_BACK {
                    inside.roll_back(&self.file, number)
                } else {
                    inside.apply(&self.file, number, &mut self.calls, &attempt.mappings)
                };
                attempt.answered(area, done, attempt.asked == PATIENCE * PATIENCE);
                continue;
            }
            // A thread that runs but blocks the signal is not asked for ever.
            let threads = &attempt.proposal.threads;
            let first = (attempt.asked / PATIENCE) as usize;
            let mut threads = threads.iter().cycle().skip(first).take(threads.len());
            // Never the first thread: if the program executes another one at this moment, only that
            // thread is left, and the signal would end the new program.
            if let Some(thread) =
                threads.find(|t| t.0 != process.0 && request::is_running(process, t.0))
            {
                request::send(process, thread.0);
            }
        }
        if became_another {
            self.note_another();
        }
    }

    /// What waits to be moved can't be.
    fn note_another(&mut self) {
        let became = || BECAME_ANOTHER.to_owned();
        self.hindrance.get_or_insert_with(became);
        for attempt in &mut self.attempts {
            if attempt.stays.is_empty() {
                attempt.hindrance.get_or_insert_with(became);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use sunder_access::ProcessId;

    /// A repairer that waits for a move in `process`, which none of its threads can be asked for.
    fn waiting(process: u32) -> Repairer {
        let mut repairer = Repairer::new(Entry::Never, None).expect("memory");
        repairer.process = ProcessId(process);
        let proposal = Proposal {
            page: 0x5000_0000,
            len: 4096,
            groups: Vec::new(),
            object: "counters".into(),
            cost_share: 0.5,
            threads: Vec::new(),
            code: 0,
            near: 0,
        };
        repairer.push(proposal, Vec::new(), Some(0), Windows::default());
        repairer.area(0).wanted.store(APPLY, Release);
        repairer
    }

    #[test]
    fn what_a_program_that_became_another_left_waiting_has_that_reason() {
        let mut other = Command::new("sleep").arg("1000").spawn().expect("sleep");
        let mut repairer = waiting(other.id());
        repairer.request_moves();
        let told = repairer.finish(&mut |_| None);
        other.kill().and_then(|()| other.wait()).expect("it ends");
        assert_eq!(told.hindrance.as_deref(), Some(BECAME_ANOTHER));
        assert_eq!(told.refused[0].reason, BECAME_ANOTHER);
    }

    /// This process has mapped the control file, as a program has into which the library was loaded.
    #[test]
    fn a_new_program_with_the_library_is_no_hindrance() {
        let mut repairer = waiting(std::process::id());
        repairer.note_another();
        repairer.request_moves();
        assert_eq!(repairer.hindrance, None);
        let told = repairer.finish(&mut |_| None);
        assert_ne!(told.refused[0].reason, BECAME_ANOTHER);
    }
}
