//! The judge itself: it takes what observers saw, keeps the table of lines, and gives suspects
//! and verdicts. One judge serves one address space; the caller keeps processes apart. It reads
//! no clock: the only time is that of the accesses.

use crate::config::{Config, SAMPLES_PER_WINDOW};
use crate::executed::Executed;
use crate::footprint::Footprint;
use crate::hash::Map;
use crate::input::{Burst, Sample};
use crate::line::Line;
use crate::near::Near;
use crate::once::SingleTouches;
use crate::room::make_room;
use crate::running::Running;
use crate::scale::Scale;
use crate::stretch::{ANY_CPU, Class};
use crate::threads::{ThreadTime, Threads};
use crate::touch::Touch;
use crate::verdict::{self, Verdict};
use std::borrow::Cow;
use std::sync::OnceLock;
use sunder_access::{Access, Address, ByteMask, Provenance, Span, ThreadId, Time};

/// Most verdicts kept for memory that has changed owner. When there are more, the half with the
/// lowest cost is dropped.
const MAX_RETIRED: usize = 4096;

/// How much the judge took in, and what it could not keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Samples in time.
    pub samples: u64,
    /// Accesses with known addresses, from samples and streams.
    pub accesses: u64,
    /// Hits of watch bursts.
    pub watched: u64,
    /// Accesses that arrived after their memory had changed owner.
    pub late: u64,
    /// Lines that were dropped for lack of room although touched more than once.
    pub dropped_lines: u64,
    /// The contended ones among `dropped_lines`.
    pub dropped_contended: u64,
    /// Verdicts on memory that has changed owner, dropped for lack of room.
    pub dropped_retired: u64,
}

/// The error of an access that arrives after its memory has changed owner.
pub(crate) struct LateAccess;

/// Decides which lines are shared, how, and at what cost. See the crate's documentation.
#[derive(Clone, Debug)]
pub struct Judge {
    config: Config,
    pub(crate) scale: Scale,
    pub(crate) lines: Map<Address, Box<Line>>,
    singles: SingleTouches,
    pub(crate) near: Near,
    pub(crate) executed: Executed,
    pub(crate) threads: Threads,
    pub(crate) running: Running,
    pub(crate) retired: Vec<Verdict>,
    counts: Counts,
    next_serial: u64,
    /// When the first and the last event was seen.
    first: Time,
    last: Time,
    started: bool,
    /// Lines touched by the present sample; a field so that its allocation is reused.
    pub(crate) touched: Vec<Address>,
    /// The verdicts, once they were asked for, until something else is seen. Whoever looks at a program
    /// asks for them several times in a row.
    pub(crate) verdicts: OnceLock<Vec<Verdict>>,
}

impl Judge {
    /// A judge that has seen nothing.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            scale: Scale {
                granule: config.granule().bytes() as usize,
                window_ns: config.window_ns.max(1),
                transfer_ns: config.transfer_ns.max(1.0),
                diff_interval_ns: config.diff_interval_ns,
                origin: config.origin.unwrap_or_default(),
            },
            lines: Map::default(),
            singles: SingleTouches::default(),
            near: Near::default(),
            executed: Executed::default(),
            threads: Threads::default(),
            running: Running::default(),
            retired: Vec::new(),
            counts: Counts::default(),
            next_serial: 0,
            first: Time(0),
            last: Time(0),
            started: false,
            touched: Vec::new(),
            verdicts: OnceLock::new(),
        }
    }

    /// A judge that has found these verdicts, which are not finished, and has seen these threads, in
    /// a stream from the first to the last time of `span`. For [`crate::Saved`].
    pub(crate) fn found(
        config: Config,
        verdicts: Vec<Verdict>,
        threads: Vec<ThreadTime>,
        span: Option<(Time, Time)>,
    ) -> Self {
        let mut new = Self::new(config);
        new.retired = verdicts;
        new.threads = Threads::of(threads);
        if let Some((first, last)) = span {
            (new.started, new.first, new.last) = (true, first, last);
        }
        new
    }

    /// The configuration that the judge was made with.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Sets the price of a transfer, where it was measured after the judge was made. From
    /// samples in time, whose cost is known without the price, the number of interleavings
    /// follows from it. A caller with other streams must give the price in the configuration.
    pub fn set_transfer(&mut self, nanoseconds: f64) {
        let nanoseconds = nanoseconds.max(1.0);
        self.verdicts.take();
        let assumed = std::mem::replace(&mut self.scale.transfer_ns, nanoseconds);
        self.config.transfer_ns = nanoseconds;
        for verdict in &mut self.retired {
            verdict.count_again(assumed / nanoseconds);
        }
    }

    /// Whether contention was seen so far on any line that has bytes of `span`.
    pub fn is_contended_at(&self, span: Span) -> bool {
        let mut lines = self.config.granule().bases(span);
        lines.any(|base| {
            self.lines
                .get(&base)
                .is_some_and(|line| line.is_contended())
        })
    }

    /// Takes one sample in time from a thread whose CPU is not known.
    pub fn sample(&mut self, sample: &Sample<'_>) {
        self.take_sample(sample, ANY_CPU);
    }

    /// Takes one sample in time of a thread that ran on `cpu`. Threads that take turns on one
    /// CPU do not contend, however finely they are interleaved; without this, everything shared
    /// would look contended on a machine with one CPU.
    pub fn sample_on(&mut self, cpu: u32, sample: &Sample<'_>) {
        let cpu = u16::try_from(cpu).unwrap_or(ANY_CPU);
        self.take_sample(sample, cpu);
    }

    fn take_sample(&mut self, sample: &Sample<'_>, cpu: u16) {
        self.verdicts.take();
        self.see(sample.time, sample.thread, sample.period_ns);
        self.running
            .sampled(sample.thread, sample.time, sample.period_ns);
        self.scale.window_ns = self
            .config
            .window_ns
            .max(SAMPLES_PER_WINDOW.saturating_mul(sample.period_ns))
            .max(1);
        self.counts.samples += 1;
        self.touched.clear();
        for (access, _) in sample.accesses {
            let access = Access {
                time: sample.time,
                thread: sample.thread,
                ..*access
            };
            self.take(&access, Class::Timed, sample.period_ns as f32, cpu);
        }
        self.take_executed(sample, cpu);
        self.take_near(sample);
    }

    /// A thread has ended. Those that are first seen on a line later were never there together with it.
    pub fn ended(&mut self, thread: ThreadId, time: Time) {
        self.running.ended(thread, time);
    }

    /// Takes one access without any share of time. It counts once (a trace, a comparison of
    /// pages) or with a known weight (a PMU event).
    pub fn access(&mut self, access: &Access) {
        self.verdicts.take();
        self.see(access.time, access.thread, 0);
        self.touched.clear();
        let class = match access.provenance {
            Provenance::Sampled | Provenance::Counted => Class::Counted,
            Provenance::Watched | Provenance::Diffed | Provenance::Traced => Class::Exact,
        };
        self.take(access, class, 0.0, ANY_CPU);
    }

    /// Takes a watch burst.
    pub fn burst(&mut self, burst: &Burst<'_>) {
        self.verdicts.take();
        let granule = self.config.granule();
        let mut bases: Vec<Address> = burst.words.iter().map(|&w| granule.base(w)).collect();
        bases.sort_unstable();
        bases.dedup();
        self.counts.watched += burst.accesses.len() as u64;
        for access in burst.accesses {
            self.see(access.time, access.thread, 0);
        }
        for base in bases {
            let watched = burst
                .words
                .iter()
                .map(|&w| ByteMask::of_span(granule, base, Span::new(w, 8)))
                .fold(ByteMask::EMPTY, ByteMask::union);
            let hits: Vec<_> = burst
                .accesses
                .iter()
                .filter_map(|a| Some((*a, self.footprint(base, a)?)))
                .collect();
            self.open_line(base, burst.started);
            let scale = self.scale;
            if let Some(line) = self.lines.get_mut(&base) {
                line.add_burst(&hits, watched, &scale);
            }
        }
    }

    /// The memory of `span` changed owner at `at`. What was seen of it before belongs to
    /// `owner`, a tag that is found in [`Verdict::owner`] later, and is never combined with
    /// what follows. To be called when memory is freed, unmapped or allocated again; for memory
    /// that was never seen it costs one look-up a line. Accesses should come in order of time:
    /// one from before `at` that comes later is dropped if the line is still known.
    pub fn retire(&mut self, span: Span, at: Time, owner: u64) {
        self.verdicts.take();
        let granule = self.config.granule();
        let known = self.lines.len() + self.singles.len();
        let is_small = span.len / granule.bytes() <= known as u64;
        let bases: Vec<Address> = if is_small {
            granule.bases(span).collect()
        } else {
            let inside = |base: &&Address| span.overlaps(Span::new(**base, granule.bytes()));
            self.lines.keys().filter(inside).copied().collect()
        };
        self.singles
            .retire(span, is_small.then_some(bases.as_slice()));
        let lines = bases.iter();
        let lines = lines.filter_map(|&base| Some((base, &**self.lines.get(&base)?)));
        let mut together = self.verdicts_of_crowds(lines);
        for base in bases {
            let of_crowd = together.remove(&base);
            self.retire_in_line(base, span, of_crowd, at, owner);
        }
    }

    fn retire_in_line(
        &mut self,
        base: Address,
        span: Span,
        of_crowd: Option<Verdict>,
        at: Time,
        owner: u64,
    ) {
        let granule = self.config.granule();
        let Some(line) = self.lines.get_mut(&base) else {
            return;
        };
        let from = span.start.0.max(base.0) - base.0;
        let to = span.end().0.min(base.0.saturating_add(granule.bytes())) - base.0;
        let bytes = Footprint {
            start: from as u16,
            len: (to - from) as u16,
            kind: sunder_access::Kind::Write,
        };
        line.catch_up(&self.scale);
        self.next_serial += 1;
        if !line.uses(bytes) {
            line.bar(bytes, at.0);
            if line.users.is_empty() {
                // What is known of it is known from execution bursts only.
                line.serial = self.next_serial;
            }
            return;
        }
        line.settle(&self.scale);
        let verdict = of_crowd.or_else(|| {
            line.is_contended_in(bytes)
                .then(|| verdict::verdict(line, base, self.scale.transfer_ns))
                .flatten()
        });
        if let Some(mut verdict) = verdict {
            verdict.owner = Some(owner);
            **line = Line::new(self.next_serial, at.0, &self.scale);
            line.bar(bytes, at.0);
            self.keep_retired(verdict);
        } else {
            line.forget(bytes, at.0, self.next_serial);
            if line.is_blank() {
                self.lines.remove(&base);
            }
        }
    }

    fn keep_retired(&mut self, verdict: Verdict) {
        self.retired.push(verdict);
        if self.retired.len() > MAX_RETIRED && !self.config.keeps_all {
            self.retired.sort_by(|a, b| b.cost_ns.total_cmp(&a.cost_ns));
            self.retired.truncate(MAX_RETIRED / 2);
            self.counts.dropped_retired += (MAX_RETIRED + 1 - MAX_RETIRED / 2) as u64;
        }
    }

    /// The same judge with all queued touches of its lines taken in.
    pub(crate) fn caught_up(&self) -> Cow<'_, Self> {
        if self.lines.values().any(|line| line.has_queued()) {
            let mut judge = self.clone();
            judge.catch_up();
            Cow::Owned(judge)
        } else {
            Cow::Borrowed(self)
        }
    }

    /// Takes in the queued touches of all lines. This changes no answer. Called after the last
    /// access, it saves the copy of the judge that some queries make otherwise.
    pub fn catch_up(&mut self) {
        for line in self.lines.values_mut() {
            line.catch_up(&self.scale);
        }
    }

    /// CPU time observed of a thread; without samples in time, the time between
    /// its first and last access.
    pub(crate) fn time_of(&self, thread: ThreadId) -> f64 {
        self.threads.time_of(thread)
    }

    /// Seconds between the first and the last event seen.
    pub fn seconds(&self) -> f64 {
        self.last.nanoseconds_since(self.first) as f64 / 1e9
    }

    /// When the first and the last event was seen; `None` before the first.
    pub fn span_of_time(&self) -> Option<(Time, Time)> {
        self.started.then_some((self.first, self.last))
    }

    /// All threads seen, by number.
    pub fn thread_time(&self) -> Vec<ThreadTime> {
        self.threads.by_number()
    }

    /// How much the judge took in, and what it could not keep.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Panics if the judge's tables contradict themselves. For tests and end-to-end builds.
    pub fn check_invariants(&self) {
        let keeps_all = self.config.keeps_all;
        assert!(keeps_all || self.lines.len() <= self.config.max_lines.max(1));
        assert!(keeps_all || self.retired.len() <= MAX_RETIRED);
        for (base, line) in &self.lines {
            assert_eq!(self.config.granule().base(*base), *base);
            assert!(line.serial <= self.next_serial);
            line.check_invariants(&self.scale);
        }
    }

    fn see(&mut self, time: Time, thread: ThreadId, cpu_ns: u64) {
        if !self.started {
            self.started = true;
            self.first = time;
            self.scale.origin = self.config.origin.unwrap_or(time);
        }
        self.last = self.last.max(time);
        self.threads.see(time, thread, cpu_ns);
    }

    fn take(&mut self, access: &Access, class: Class, spent_ns: f32, cpu: u16) {
        self.counts.accesses += 1;
        let granule = self.config.granule();
        let span = access.span();
        let first = granule.base(span.start);
        if granule.offset(span.start) + span.len <= granule.bytes() {
            return self.take_in(first, access, class, spent_ns, cpu);
        }
        for base in granule.bases(span) {
            self.take_in(base, access, class, spent_ns, cpu);
        }
    }

    /// Takes in the part of an access that lies in the line at `base`.
    #[inline]
    fn take_in(&mut self, base: Address, access: &Access, class: Class, spent_ns: f32, cpu: u16) {
        let Some(footprint) = self.footprint(base, access) else {
            return;
        };
        let opens_visit = !self.touched.contains(&base);
        let touch = Touch {
            time: access.time.0,
            thread: access.thread,
            footprint,
            instruction: access.instruction,
            class,
            spent_ns: if opens_visit { spent_ns } else { 0.0 },
            count: match class {
                Class::Counted => access.weight.max(1.0) as u32,
                _ => 1,
            },
            opens_visit,
            cpu,
        };
        let serial = match self.put(base, &touch) {
            Ok(serial) => serial,
            Err(LateAccess) => {
                self.counts.late += 1;
                return;
            }
        };
        if class == Class::Timed {
            self.touched.push(base);
            self.near
                .learn(access.thread, access.instruction, base, serial);
        }
    }

    /// Passes a touch to its line if the line was touched before, else remembers it as the
    /// line's first. Returns the line's serial for touches of samples, else 0.
    pub(crate) fn put(&mut self, base: Address, touch: &Touch) -> Result<u64, LateAccess> {
        let scale = self.scale;
        if let Some(line) = self.lines.get_mut(&base) {
            if !line.touch(touch, &self.running, &scale) {
                return Err(LateAccess);
            }
            // Only samples need the serial, and it lies in another cache line.
            let wanted = touch.class == Class::Timed;
            return Ok(if wanted { line.serial } else { 0 });
        }
        let first = match self.singles.take(base) {
            None if !self.config.keeps_all => {
                self.singles.put(base, *touch);
                return Ok(0);
            }
            first => first,
        };
        self.line(base, Time(first.map_or(touch.time, |first| first.time)));
        let Some(line) = self.lines.get_mut(&base) else {
            return Ok(0);
        };
        if let Some(first) = first {
            line.touch(&first, &self.running, &scale);
        }
        line.touch(touch, &self.running, &scale);
        Ok(line.serial)
    }

    /// The part of `access` that lies in the line at `base`.
    pub(crate) fn footprint(&self, base: Address, access: &Access) -> Option<Footprint> {
        let span = access.span();
        let line = Span::new(base, self.config.granule().bytes());
        if !span.overlaps(line) {
            return None;
        }
        let from = span.start.max(base).0 - base.0;
        let to = span.end().min(line.end()).0 - base.0;
        Some(Footprint {
            start: from as u16,
            len: (to - from) as u16,
            kind: access.kind,
        })
    }

    /// Makes the record of the line at `base`, if there is none, and returns the line's serial.
    pub(crate) fn open_line(&mut self, base: Address, time: Time) -> u64 {
        let first = self.singles.take(base);
        self.line(base, time);
        let Some(line) = self.lines.get_mut(&base) else {
            return 0;
        };
        if let Some(first) = first {
            line.touch(&first, &self.running, &self.scale);
        }
        line.serial
    }

    fn line(&mut self, base: Address, time: Time) -> &mut Line {
        let full = !self.config.keeps_all && self.lines.len() >= self.config.max_lines;
        if full && !self.lines.contains_key(&base) {
            let dropped = make_room(&mut self.lines, self.last, &self.scale);
            self.counts.dropped_lines += dropped.lines;
            self.counts.dropped_contended += dropped.contended;
        }
        let (serial, scale) = (&mut self.next_serial, &self.scale);
        self.lines.entry(base).or_insert_with(|| {
            *serial += 1;
            Box::new(Line::new(*serial, time.0, scale))
        })
    }
}
