//! Streams of samples made by hand or from a model of threads, for the judge's
//! tests. Deterministic: the generator is seeded and no clock is read.

use sunder_access::{Access, Address, CodeAddress, Kind, Provenance, ThreadId, Time};
use sunder_sharing::{Config, Judge, Sample, Verdict};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1000 * MS;
/// The line that the tests look at.
pub const LINE: u64 = 0x10_0000;

/// One way to touch memory: address, width and kind.
pub type Use = (u64, u8, Kind);

pub fn access((address, width, kind): Use, thread: u32, time: u64) -> Access {
    Access {
        time: Time(time),
        thread: ThreadId(thread),
        // An instruction of its own for each address and kind.
        instruction: CodeAddress(0x40_0000 + (address % 4096) * 4 + kind as u64),
        address: Address(address),
        width,
        kind,
        provenance: Provenance::Sampled,
        weight: 1.0,
    }
}

pub fn traced(what: Use, thread: u32, time: u64) -> Access {
    Access {
        provenance: Provenance::Traced,
        ..access(what, thread, time)
    }
}

pub fn sample(judge: &mut Judge, time: u64, thread: u32, period_ns: u64, uses: &[Use]) {
    let accesses: Vec<_> = uses.iter().map(|&u| (access(u, thread, time), 0)).collect();
    judge.sample(&Sample {
        time: Time(time),
        thread: ThreadId(thread),
        period_ns,
        accesses: &accesses,
        near: &[],
        ways: None,
    });
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Clone)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform from 0 to 1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Exponential with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// A thread that does each of its `uses` for a share of its time and uses private memory for
/// the rest, while it is `active`.
#[derive(Clone)]
pub struct Model {
    pub thread: u32,
    pub uses: Vec<(Use, f64)>,
    pub active: fn(u64) -> bool,
}

impl Model {
    pub fn new(thread: u32, uses: &[(Use, f64)]) -> Self {
        Self {
            thread,
            uses: uses.to_vec(),
            active: |_| true,
        }
    }

    pub fn during(self, active: fn(u64) -> bool) -> Self {
        Self { active, ..self }
    }

    fn at(&self, random: &mut Random) -> Use {
        let mut left = random.unit();
        for &(what, share) in &self.uses {
            if left < share {
                return what;
            }
            left -= share;
        }
        // A private line.
        (0x90_0000 + u64::from(self.thread) * 4096, 8, Kind::Update)
    }
}

/// Runs `models` for `duration` ns with samples at exponential intervals of
/// mean `period` ns of each thread's active time.
pub fn simulate(judge: &mut Judge, models: &[Model], period: u64, duration: u64, seed: u64) {
    let mut random = Random(seed);
    let mut all: Vec<(u64, u32, Use)> = Vec::new();
    for model in models {
        let mut time = 0.0;
        loop {
            time += random.exponential(period as f64);
            if time >= duration as f64 {
                break;
            }
            if (model.active)(time as u64) {
                all.push((time as u64, model.thread, model.at(&mut random)));
            }
        }
    }
    all.sort_by_key(|e| e.0);
    for (time, thread, what) in all {
        sample(judge, time, thread, period, &[what]);
    }
    judge.check_invariants();
}

pub fn judge() -> Judge {
    Judge::new(Config::default())
}

/// A judge after `duration` of `models` at 1 kHz.
pub fn judged(models: &[Model], duration: u64) -> Judge {
    let mut judge = judge();
    simulate(&mut judge, models, MS, duration, 1);
    judge
}

/// The reliable verdict on the line at `line`, if there is one.
pub fn verdict_on(judge: &Judge, line: u64) -> Option<Verdict> {
    judge
        .verdicts()
        .into_iter()
        .find(|v| v.line == Address(line) && v.confidence() > sunder_sharing::Confidence::Weak)
}

pub fn assert_near(value: f64, wanted: f64, error: f64) {
    assert!(
        (value - wanted).abs() <= error,
        "{value} is not {wanted} +- {error}"
    );
}
