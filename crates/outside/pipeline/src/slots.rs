//! Samples of a living target, held back until the pointers in memory that their
//! accesses go through have been read. Fed by `session`; it must keep no sample
//! longer than until the observers have been drained.

use sunder_access::{Access, ProcessId, Provenance, Time};
use sunder_findings::Limit;
use sunder_observe::{Decoded, RawSample, SlotReader};

/// Samples held at most, whatever a drain brings; some 2 KiB each.
const MAX_HELD: usize = 8192;

/// See the module's head.
#[derive(Default)]
pub struct Held {
    reader: SlotReader,
    samples: Vec<(RawSample, Decoded)>,
    /// For reuse: their memory was allocated once.
    spare: Vec<Decoded>,
}

impl Held {
    /// Keeps a sample; `decoded` becomes one to be filled.
    pub fn put(&mut self, sample: &RawSample, decoded: &mut Decoded) {
        self.reader.sampled(sample, decoded);
        let next = self.spare.pop().unwrap_or_default();
        self.samples
            .push((*sample, std::mem::replace(decoded, next)));
    }

    /// Whether samples must be passed on before another can be kept.
    pub const fn is_full(&self) -> bool {
        self.samples.len() >= MAX_HELD
    }

    /// Reads what the samples held need, and adds to them what that tells. `now`
    /// must not be before any of them.
    pub fn read(&mut self, now: Time) {
        if self.samples.is_empty() {
            return;
        }
        self.reader.read(now);
        for (sample, decoded) in &mut self.samples {
            resolve(&self.reader, sample, decoded);
        }
    }

    /// The samples, in order of time.
    pub fn take(&mut self) -> Vec<(RawSample, Decoded)> {
        self.samples.sort_by_key(|(sample, _)| sample.time);
        std::mem::take(&mut self.samples)
    }

    /// Gives back the memory of what was taken.
    pub fn reuse(&mut self, samples: Vec<(RawSample, Decoded)>) {
        let decoded = samples.into_iter().map(|(_, decoded)| decoded);
        self.spare.extend(decoded.take(MAX_HELD));
        self.spare.truncate(MAX_HELD / 8);
    }

    /// The process became another program.
    pub fn forget(&mut self, process: ProcessId) {
        self.reader.forget(process);
    }

    /// Why accesses through pointers in memory remained unknown.
    pub fn limit(&self) -> Option<Limit> {
        let why = self.reader.refusal()?;
        Some(Limit::UnreadMemory {
            why: why.to_string(),
        })
    }
}

/// Turns near accesses whose address is told into accesses.
fn resolve(reader: &SlotReader, sample: &RawSample, decoded: &mut Decoded) {
    if decoded.near.iter().all(|near| near.through.is_none()) {
        return;
    }
    let mut near = std::mem::take(&mut decoded.near);
    near.retain(|one| {
        let Some(address) = reader.resolve(sample, decoded, one) else {
            return true;
        };
        decoded.accesses.push(Access {
            time: sample.time,
            thread: sample.thread,
            instruction: one.instruction,
            address,
            width: one.width,
            kind: one.kind,
            provenance: Provenance::Sampled,
            weight: 1.0,
        });
        decoded.distances.push(one.distance);
        false
    });
    decoded.near = near;
}
