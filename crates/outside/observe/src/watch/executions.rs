//! Execution bursts: for a short time, hardware breakpoints stop threads at chosen instructions and
//! record all of their registers there. So the address of an instruction's operand is exact, in
//! whatever way control came to it and whatever the instruction does to its own address register.
//!
//! Called for instructions near samples whose addresses the samples do not tell. A burst spends the
//! same budget as the watchpoints do, and must leave no breakpoint behind. It must not decode: a hit
//! is a sample taken at the instruction.

use super::arm::{Armed, Stop};
use super::{SLOTS, WatchError, Watcher, run};
use crate::perf_event::Sample;
use crate::{RawSample, Registers};
use std::time::Duration;
use sunder_access::{Address, CodeAddress, ProcessId, ThreadId, Time};

/// The instructions, threads and limits of a burst.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionRequest {
    /// The instructions, the most important first; at most [`SLOTS`] are used. Each must be the
    /// address at which an instruction begins: a breakpoint within one is never reached.
    pub instructions: Vec<CodeAddress>,
    /// The threads to stop, the most important first. The budget may allow fewer.
    pub threads: Vec<ThreadId>,
    /// The kernel disables a thread's breakpoint after this many hits. If the budget does not allow as
    /// many in one thread, there is no burst.
    pub max_hits_per_thread: u32,
    /// The burst ends after this time, or when every thread has used up the hits of one
    /// instruction.
    pub max_duration: Duration,
}

/// The result of an execution burst.
#[derive(Clone, Debug, PartialEq)]
pub struct Executions {
    /// The instructions that had breakpoints: the first ones of those asked for, as many as there were
    /// slots free.
    pub instructions: Vec<CodeAddress>,
    /// The hits, by thread, each in the order of time: the registers before the instruction at
    /// `registers.ip`. Of each thread there are only those of the time in which none of its
    /// breakpoints had used up its hits, so that their numbers can be compared. They stand for no
    /// time: `period_ns` is 0.
    pub hits: Vec<(ThreadId, Vec<RawSample>)>,
}

impl Watcher {
    /// Makes one execution burst. Blocks for its duration.
    ///
    /// # Errors
    /// If no breakpoint was set; see [`WatchError`].
    pub fn executions(&mut self, request: &ExecutionRequest) -> Result<Executions, WatchError> {
        let wanted = request.instructions.len().min(SLOTS);
        let places: Vec<Address> = request.instructions[..wanted]
            .iter()
            .map(|instruction| Address(instruction.0))
            .collect();
        if places.is_empty() || request.max_hits_per_thread == 0 {
            return Err(WatchError::Empty);
        }
        let each = request
            .max_hits_per_thread
            .saturating_mul(places.len() as u32);
        let affordable = self.affordable_hits(1, places.len(), each)?;
        // Fewer threads rather than fewer hits: what is seen of a thread must be enough to tell.
        let threads = request.threads.len().min((affordable / each) as usize);
        let threads = &request.threads[..threads];
        let mut armed = Armed::set(
            self.process,
            threads,
            Stop::Execution,
            &places,
            request.max_hits_per_thread,
        )?;

        armed.enable();
        run(&mut armed, affordable.into(), request.max_duration);
        armed.disable();
        armed.collect();

        self.charge(&armed, armed.hit_count());
        let process = self.process;
        let hits = armed
            .hits()
            .map(|(thread, samples)| {
                let comparable = comparable(samples, armed.words(), armed.limit());
                let raw = |sample| raw(process, thread, sample);
                (thread, comparable.iter().filter_map(raw).collect())
            })
            .collect();
        Ok(Executions {
            instructions: request.instructions[..armed.words().len()].to_vec(),
            hits,
        })
    }
}

/// The hits up to the one with which the first of `places` used up its `limit`.
fn comparable<'a>(samples: &'a [Sample], places: &[Address], limit: u32) -> &'a [Sample] {
    let used_up = |place: &Address| {
        let mut of_place = samples
            .iter()
            .enumerate()
            .filter(|(_, sample)| sample.address == Some(place.0));
        of_place.nth(limit as usize - 1).map(|(index, _)| index + 1)
    };
    let end = places.iter().filter_map(used_up).min();
    &samples[..end.unwrap_or(samples.len())]
}

/// The hit as a sample.
fn raw(process: ProcessId, thread: ThreadId, sample: &Sample) -> Option<RawSample> {
    let registers: Registers = sample.registers?;
    Some(RawSample {
        time: Time(sample.time?),
        process,
        thread,
        cpu: RawSample::NO_CPU,
        period_ns: 0,
        registers,
    })
}
