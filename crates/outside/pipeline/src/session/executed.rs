//! Execution bursts: which one is wanted, and what its hits say. A hit is a sample taken at the
//! instruction, so the decoder gives the exact address of what the instruction is about to access.

use super::Session;
use crate::blind::{Answer, Question, Touched};
use sunder_access::{Access, CodeAddress, ProcessId, Provenance, Time};
use sunder_observe::decode::CodeSource;
use sunder_observe::watch::Executions;
use sunder_observe::{NearAccess, RawSample};
use sunder_recording::{self as recording, Step};
use sunder_sharing::Execution;

impl Session {
    /// The execution burst that would tell most of the addresses that samples do not tell; `None`
    /// if too little time is without.
    pub fn question(&mut self, process: ProcessId, now: Time) -> Option<Question> {
        self.process(process).blind.question(now)
    }

    /// Takes the result of a burst for `question`; `None` if it was not possible.
    pub fn executed(
        &mut self,
        process: ProcessId,
        question: &Question,
        now: Time,
        burst: Option<&Executions>,
    ) {
        if let Some(keeper) = &mut self.keeper {
            let step = Step::Executed(recording::Executed {
                process: process.0,
                at: question.at.0,
                suspects: question.suspects.iter().map(|at| at.0).collect(),
                threads: question.threads.iter().map(|thread| thread.0).collect(),
                now: now.0,
                burst: burst.map(|burst| keeper.hits(burst, &mut self.code)),
            });
            keeper.recorder.add(&step);
        }
        let armed = burst.map_or(&[][..], |burst| burst.instructions.as_slice());
        let wanted = question.suspects.iter().copied();
        let suspects: Vec<CodeAddress> = wanted.filter(|one| armed.contains(one)).collect();
        let mut answers = Vec::new();
        for (thread, hits) in burst.iter().flat_map(|burst| &burst.hits) {
            let times = |instruction: CodeAddress| {
                let here = |hit: &&RawSample| hit.registers.ip == instruction;
                hits.iter().filter(here).count() as u32
            };
            let executed: Vec<_> = suspects.iter().map(|&one| (one, times(one))).collect();
            let accesses = self.accesses_at(&suspects, hits);
            let is_told = |&(instruction, times): &(CodeAddress, u32)| {
                let of = |access: &Access| access.instruction == instruction;
                times == 0 || accesses.iter().any(of)
            };
            let passes = times(question.at);
            answers.push(Answer {
                thread: *thread,
                passes,
                executed: executed.iter().map(|one| one.1).sum(),
                all_told: executed.iter().all(is_told),
                touched: accesses.iter().map(touched).collect(),
            });
            self.process(process).judge.execution(&Execution {
                time: now,
                thread: *thread,
                at: question.at,
                passes,
                executed: &executed,
                accesses: &accesses,
            });
        }
        let blind = &mut self.process(process).blind;
        blind.answered(question, now, &suspects, &answers);
    }

    /// The accesses that the instructions in which `hits` were taken were about to make.
    fn accesses_at(&mut self, instructions: &[CodeAddress], hits: &[RawSample]) -> Vec<Access> {
        let mut all = Vec::new();
        for hit in hits {
            if !instructions.contains(&hit.registers.ip) {
                continue;
            }
            let code: &mut dyn CodeSource = match &mut self.kept_code {
                Some(kept) => kept,
                None => &mut self.code,
            };
            self.decoder.decode(hit, code, &mut self.decoded);
            let accesses = self.decoded.accesses.iter().zip(&self.decoded.distances);
            let own = accesses.filter(|(_, distance)| **distance == 0);
            all.extend(own.map(|(access, _)| *access));
            let near = self.decoded.near.iter();
            let masked = near.filter(|near| near.distance == 0 && !near.avoidable);
            all.extend(masked.filter_map(|near| first_byte(hit, near)));
        }
        all
    }
}

/// Where an access is, and whether it writes.
fn touched(access: &Access) -> Touched {
    Touched {
        instruction: access.instruction,
        span: access.span(),
        writes: access.kind.writes(),
    }
}

/// The first byte of those among which a mask chooses. It is the likeliest that the instruction
/// accesses: a mask mostly cuts off the end of a block. Watchpoints can't tell which others it is, since
/// some processors trap at what is cut off, too.
fn first_byte(hit: &RawSample, near: &NearAccess) -> Option<Access> {
    Some(Access {
        time: hit.time,
        thread: hit.thread,
        instruction: near.instruction,
        address: near.within?,
        width: 1,
        kind: near.kind,
        provenance: Provenance::Watched,
        weight: 1.0,
    })
}
