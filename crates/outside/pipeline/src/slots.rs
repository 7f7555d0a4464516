//! Holds samples of a live target until the pointers in memory through which their accesses go
//! have been read. Fed by `session`; it must not keep a sample beyond the end of a drain.

use sunder_access::{Access, ProcessId, Provenance, Time};
use sunder_findings::Limit;
use sunder_observe::{Decoded, RawSample, SlotReader};

/// The most samples that are held, whatever a drain brings; each takes about 2 KiB.
const MAX_HELD: usize = 8192;

/// The held samples.
#[derive(Default)]
pub struct Held {
    reader: SlotReader,
    samples: Vec<(RawSample, Decoded)>,
    /// Values to be reused, so that their memory is allocated once.
    spare: Vec<Decoded>,
}

impl Held {
    /// Holds a sample. `decoded` is replaced by a value that can be filled again.
    pub fn put(&mut self, sample: &RawSample, decoded: &mut Decoded) {
        self.reader.sampled(sample, decoded);
        let next = self.spare.pop().unwrap_or_default();
        self.samples
            .push((*sample, std::mem::replace(decoded, next)));
    }

    /// Whether the samples must be passed on before another can be held.
    pub const fn is_full(&self) -> bool {
        self.samples.len() >= MAX_HELD
    }

    /// Reads the memory that the held samples need, and adds the addresses that it yields.
    /// `now` must not be before any of the samples.
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

    /// Takes back the memory of samples that were taken.
    pub fn reuse(&mut self, samples: Vec<(RawSample, Decoded)>) {
        let decoded = samples.into_iter().map(|(_, decoded)| decoded);
        self.spare.extend(decoded.take(MAX_HELD));
        self.spare.truncate(MAX_HELD / 8);
    }

    /// The process has become another program.
    pub fn forget(&mut self, process: ProcessId) {
        self.reader.forget(process);
    }

    /// Why accesses through pointers in memory have no address.
    pub fn limit(&self) -> Option<Limit> {
        let why = self.reader.refusal()?;
        Some(Limit::UnreadMemory {
            why: why.to_string(),
        })
    }
}

/// Turns near accesses whose pointer has been read into accesses.
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
    decoded.blind = near.iter().any(|near| near.suspect);
    decoded.near = near;
}
