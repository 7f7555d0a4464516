//! Holds samples of a live target until the pointers in memory through which their accesses go
//! have been read. Fed by `session`; it must not keep a sample beyond the end of a drain.

use std::collections::HashMap;
use sunder_access::{Access, Address, ProcessId, Provenance, Time};
use sunder_findings::Limit;
use sunder_observe::{Decoded, NearAccess, RawSample, SlotReader};
use sunder_recording::Resolved;

/// The most samples that are held, whatever a drain brings; each takes about 2 KiB.
const MAX_HELD: usize = 8192;

/// The held samples.
pub struct Held {
    /// `None` for a kept run, whose pointers were read while the target lived.
    reader: Option<SlotReader>,
    samples: Vec<(RawSample, Decoded)>,
    /// Values to be reused, so that their memory is allocated once.
    spare: Vec<Decoded>,
}

impl Default for Held {
    fn default() -> Self {
        Self {
            reader: Some(SlotReader::default()),
            samples: Vec::new(),
            spare: Vec::new(),
        }
    }
}

impl Held {
    /// Those of a kept run: nothing is read.
    pub fn of_recording() -> Self {
        Self {
            reader: None,
            ..Self::default()
        }
    }

    /// Whether no sample is held.
    pub const fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Holds a sample. `decoded` is replaced by a value that can be filled again.
    pub fn put(&mut self, sample: &RawSample, decoded: &mut Decoded) {
        if let Some(reader) = &mut self.reader {
            reader.sampled(sample, decoded);
        }
        let next = self.spare.pop().unwrap_or_default();
        self.samples
            .push((*sample, std::mem::replace(decoded, next)));
    }

    /// Whether the samples must be passed on before another can be held.
    pub const fn is_full(&self) -> bool {
        self.samples.len() >= MAX_HELD
    }

    /// Reads the memory that the held samples need, and adds the addresses that it yields.
    /// `now` must not be before any of the samples. Returns what was added.
    pub fn read(&mut self, now: Time) -> Vec<Resolved> {
        let mut added = Vec::new();
        let Some(reader) = self.reader.as_mut().filter(|_| !self.samples.is_empty()) else {
            return added;
        };
        reader.read(now);
        for ((sample, decoded), number) in self.samples.iter_mut().zip(0..) {
            resolve(sample, decoded, &mut |decoded, near, one| {
                let address = reader.resolve(sample, decoded, one)?;
                added.push(Resolved {
                    sample: number,
                    near,
                    address: address.0,
                });
                Some(address)
            });
        }
        added
    }

    /// Adds the addresses that were read while the target lived. Returns whether all of them belong to
    /// held samples.
    pub fn resolve(&mut self, all: &[Resolved]) -> bool {
        let known: HashMap<(u32, u32), u64> = all
            .iter()
            .map(|one| ((one.sample, one.near), one.address))
            .collect();
        let mut used = 0;
        for ((sample, decoded), number) in self.samples.iter_mut().zip(0..) {
            resolve(sample, decoded, &mut |_, near, _| {
                let address = known.get(&(number, near))?;
                used += 1;
                Some(Address(*address))
            });
        }
        used == known.len()
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
        if let Some(reader) = &mut self.reader {
            reader.forget(process);
        }
    }

    /// Why accesses through pointers in memory have no address.
    pub fn limit(&self) -> Option<Limit> {
        let why = self.reader.as_ref()?.refusal()?;
        Some(Limit::UnreadMemory {
            why: why.to_string(),
        })
    }
}

/// Turns near accesses whose pointer has been read into accesses.
/// `address` tells that of a near access, from its number.
fn resolve(
    sample: &RawSample,
    decoded: &mut Decoded,
    address: &mut dyn FnMut(&Decoded, u32, &NearAccess) -> Option<Address>,
) {
    if decoded.near.iter().all(|near| near.through.is_none()) {
        return;
    }
    let mut near = std::mem::take(&mut decoded.near);
    let mut number = 0;
    near.retain(|one| {
        number += 1;
        let found = one.through.and_then(|_| address(decoded, number - 1, one));
        let Some(address) = found else {
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
