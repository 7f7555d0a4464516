//! From a sample to the judge: decoding, and the wait until the target's memory has been read. It must
//! take samples in the order in which they come.

use super::{Follow, Session};
use crate::kept::Noting;
use crate::slots::Held;
use sunder_access::{ThreadId, Time};
use sunder_findings::Limit;
use sunder_observe::decode::CodeSource;
use sunder_observe::{Decoded, RawSample};
use sunder_recording::Step;

impl Session {
    /// Takes one sample.
    pub fn sample(&mut self, sample: &RawSample) {
        if !self.follows(sample.process) {
            return;
        }
        self.code.executed_at(sample.time);
        self.at_once.sampled(sample);
        self.beside.sampled(sample);
        self.decode(sample);
        if self.held.as_ref().is_some_and(Held::is_full) {
            self.pass_on();
        }
        if let Some(held) = &mut self.held {
            held.put(sample, &mut self.decoded);
            return;
        }
        let decoded = std::mem::take(&mut self.decoded);
        self.judge(sample, &decoded);
        self.decoded = decoded;
    }

    fn decode(&mut self, sample: &RawSample) {
        let (decoder, decoded) = (&mut self.decoder, &mut self.decoded);
        let code: &mut dyn CodeSource = match &mut self.kept_code {
            Some(kept) => kept,
            None => &mut self.code,
        };
        let Some(keeper) = &mut self.keeper else {
            decoder.decode(sample, code, decoded);
            return;
        };
        let mut noting = Noting { code, last: None };
        decoder.decode(sample, &mut noting, decoded);
        keeper.sample(sample, noting.last.as_ref());
    }

    fn judge(&mut self, sample: &RawSample, decoded: &Decoded) {
        let several = self.follow == Follow::All;
        let process = self.processes.enter(sample.process);
        process.sample(sample, decoded);
        if several && process.has_common_memory() {
            self.shared.sample(process.mappings(), sample, decoded);
        }
    }

    /// The share of the thread's time, 0 to 1, in which one of `rivals` ran beside it on another CPU, as
    /// far as samples tell.
    pub fn share_beside(
        &mut self,
        thread: ThreadId,
        rivals: impl Iterator<Item = ThreadId>,
    ) -> Option<f64> {
        self.beside.share(thread, rivals)
    }

    /// The target lives: its samples are held until [`Session::flush`], which reads its memory
    /// to find more of their addresses.
    pub fn hold(&mut self) {
        self.held = Some(Held::default());
    }

    /// All samples up to `now` have been taken: reads the target's memory for them and judges
    /// them.
    pub fn flush(&mut self, now: Time) {
        if let Some(held) = &mut self.held {
            let resolved = held.read(now);
            // It says that the samples are passed on, too.
            self.note(|| Step::Resolved(resolved));
        }
        self.judge_held();
    }

    /// Judges the held samples without reading memory.
    pub fn pass_on(&mut self) {
        if self.held.as_ref().is_some_and(|held| !held.is_empty()) {
            self.note(|| Step::PassOn);
        }
        self.judge_held();
    }

    fn judge_held(&mut self) {
        let Some(samples) = self.held.as_mut().map(Held::take) else {
            return;
        };
        for (sample, decoded) in &samples {
            self.judge(sample, decoded);
        }
        if let Some(held) = &mut self.held {
            held.reuse(samples);
        }
    }

    /// What could not be read of the target's memory, for the report.
    pub fn memory_limit(&self) -> Option<Limit> {
        self.held.as_ref()?.limit()
    }
}
