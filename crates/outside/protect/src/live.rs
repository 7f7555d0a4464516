//! `sunder protect` without a saved result: the program is observed as by `detect`, and objects
//! that are seen falsely shared are isolated while it runs. Called by [`crate::run`], and by
//! `sunder cure` beside another remedy. It joins two loops: the observer waits, and the keeper has its turn after each wait.

use super::choose::Chooser;
use super::commits::Stream;
use super::gains::Gains;
use super::keeper::Keeper;
use super::options::Options;
use super::outcome::{Outcome, outcome};
use super::placed::Placed;
use super::shared::{Shared, loaded};
use super::target::Targets;
use anyhow::{Context, Result};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use sunder_access::{Mappings, ProcessId, Span};
use sunder_findings::IsolatedObject;
use sunder_gain::gauge::READ_EVERY;
use sunder_guests::MemoryFile;
use sunder_hooking::call_sites::Chain;
use sunder_live::{Live, LiveRemedy, Loaded, Looks, run_observed};
use sunder_observe::launch::Child;
use sunder_observe::{ObserveError, monotonic_now};
use sunder_stop::Collector;

/// Pause between two looks at the lines.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Of this much time, looks take one part at most.
const LOOKING_IS_ONE_IN: u32 = 33;
/// Runs the program to its end. Global variables of `targets` are isolated from the beginning.
///
/// # Errors
/// If the program can't be started or a file can't be made.
pub fn run(options: &Options, targets: Targets, stream: Option<Stream>) -> Result<Outcome> {
    let mut protector = Protector::with_targets(options, targets)?;
    protector.stream = stream;
    let done = run_observed(&options.observation(), &mut protector);
    drop(protector.collector.take());
    let done = done?;
    Ok(protector.outcome(done.exit(), done.left_children_out()))
}

/// Isolates objects of a running program that are seen falsely shared.
pub struct Protector<'a> {
    options: &'a Options,
    library: MemoryFile,
    targets: Targets,
    /// The library's count of changes to heap blocks when the targets were last asked for.
    changes: Option<u32>,
    /// Where commits are written, until the keeper has it.
    stream: Option<Stream>,
    /// The control file, until the keeper has it.
    shared: Option<Rc<Shared>>,
    keeper: Option<Keeper>,
    /// The number of the program ([`Keeper::programs`]) that the chooser's choices are about.
    programs: u32,
    collector: Option<Collector>,
    chooser: Chooser,
    placed: Placed,
    looks: Looks,
}

impl<'a> Protector<'a> {
    /// For a program that is about to be started.
    ///
    /// # Errors
    /// If the kernel gives us no memory.
    pub fn new(options: &'a Options) -> Result<Self> {
        Self::with_targets(options, Targets::default())
    }

    fn with_targets(options: &'a Options, targets: Targets) -> Result<Self> {
        Ok(Self {
            library: MemoryFile::isolate().context("cannot make the library available")?,
            shared: Some(Rc::new(Shared::new()?)),
            options,
            targets,
            changes: None,
            stream: None,
            keeper: None,
            programs: 0,
            collector: None,
            chooser: Chooser::new(options.strict),
            placed: Placed::default(),
            looks: Looks::new(Duration::ZERO, LOOKING_IS_ONE_IN),
        })
    }

    /// From now on only objects on lines in these bytes are chosen.
    pub fn choose_only(&mut self, among: Vec<Span>) {
        self.chooser.only = Some(among);
    }

    /// In these bytes, samples are enough to choose an object: an earlier run has confirmed it.
    pub fn trust_samples_on(&mut self, spans: &[Span]) {
        if self.chooser.trusted != spans {
            self.chooser.trusted = spans.to_vec();
        }
    }

    /// Something will be isolated soon: prepares what takes time.
    pub fn expect_work(&mut self) {
        if let Some(keeper) = self.keeper.as_mut().filter(|keeper| keeper.is_open()) {
            keeper.expect_work();
        }
    }

    /// The control file, before the program begins and while it runs.
    fn shared(&self) -> Option<&Rc<Shared>> {
        let kept = self.keeper.as_ref().map(|keeper| &keeper.shared);
        kept.or(self.shared.as_ref())
    }

    /// From now on blocks that the program allocates through these calls get cache lines of their own,
    /// as far as [`Self::grant`] allows; whether there was room for any of the calls.
    pub fn place(&mut self, chains: &[Chain]) -> bool {
        let Some(shared) = self.shared().map(Rc::clone) else {
            return false;
        };
        self.placed.add(&shared, chains)
    }

    /// Each of some groups of threads may place so many more blocks.
    pub fn grant(&mut self, blocks: u32) {
        if let Some(shared) = self.shared().map(Rc::clone) {
            self.placed.grant(&shared, blocks);
        }
    }

    /// How many blocks the group of threads with the fewest may still place, and how many were placed in
    /// all, as far as the program tells.
    pub fn placing(&self) -> (i64, u64) {
        let state = self.shared().map(|shared| self.placed.state(shared));
        state.unwrap_or_default()
    }

    /// The program has these mappings now: calls of files that were loaded late are recognised.
    pub fn note_files(&self, mappings: &Mappings) {
        if let Some(shared) = self.shared() {
            self.placed.look_again(shared, mappings);
        }
    }

    /// The objects that were isolated so far.
    pub fn isolated(&self) -> impl Iterator<Item = IsolatedObject> {
        let log = self.keeper.as_ref().and_then(|keeper| keeper.log.as_ref());
        self.chooser.isolated.iter().map(move |one| IsolatedObject {
            object: one.name.clone(),
            address: one.address(),
            bytes: one.bytes(),
            at_seconds: one.at_seconds,
            cost_percent: one.cost_percent,
            interleaved_writes: log.map(|log| one.turns(&log.ledger)),
            progress: one.progress.clone(),
            in_vain: one.in_vain.clone(),
        })
    }

    /// Whether threads of the program can be isolated, as far as is known.
    pub fn is_open(&self) -> bool {
        self.keeper.as_ref().is_some_and(Keeper::is_open)
    }

    /// Whether objects are isolated, or are about to be.
    pub fn is_isolating(&self) -> bool {
        self.chooser.has_chosen() && self.is_open()
    }

    /// Whether nothing was done to the program: no thread was seen in code that it may execute in isolation.
    pub fn has_changed_nothing(&self) -> bool {
        let changed = |keeper: &Keeper| keeper.shared.conversions.load(Relaxed) > 0;
        !self.keeper.as_ref().is_some_and(changed)
    }

    /// Isolates nothing of what was chosen so far, now or later. To be called only as long as it
    /// [has changed nothing](Self::has_changed_nothing).
    pub fn give_up(&mut self) {
        if let Some(keeper) = &self.keeper {
            self.chooser.give_up(keeper);
        }
    }

    /// What was isolated in the program, which has ended. `others` says whether it started
    /// processes that were not observed.
    pub fn outcome(&mut self, exit: ExitStatus, others: bool) -> Outcome {
        let (left_out, isolated) = (&self.chooser.left_out, &self.chooser.isolated);
        match &mut self.keeper {
            Some(keeper) => outcome(keeper, left_out, Some(isolated), Some(others), exit),
            None => Outcome::nothing(exit),
        }
    }
}

impl LiveRemedy for Protector<'_> {
    fn load(&self) -> Option<Loaded> {
        let shared = self.shared.as_ref()?;
        Some(loaded(&self.library, shared))
    }

    fn waits_for_samples(&self) -> bool {
        false
    }

    fn begins(&mut self, process: ProcessId) -> Result<()> {
        let shared = self.shared.take().context("a program begins once")?;
        let process = process.0 as i32;
        let mut keeper = Keeper::new(shared, self.options, process);
        keeper.write_log_to(self.stream.take());
        self.keeper = Some(keeper);
        let collector = Collector::start(process).context("cannot start a thread")?;
        self.collector = Some(collector);
        Ok(())
    }

    fn step(&mut self, live: &mut Live) {
        let Some(keeper) = &mut self.keeper else {
            return;
        };
        keeper.turn();
        if self.programs != keeper.programs {
            self.programs = keeper.programs;
            self.changes = None;
            let only = self.chooser.only.take();
            self.chooser = Chooser::new(self.options.strict);
            self.chooser.only = only;
        }
        if !keeper.is_open() {
            self.chooser.gains = Gains::default();
            return;
        }
        let root = ProcessId(keeper.process().unsigned_abs());
        let gained = self
            .chooser
            .gains
            .read(root, &keeper.shared, monotonic_now());
        for gained in gained {
            self.chooser.take_in(gained, keeper);
        }
        let status = live.session.runtime_status(root);
        let signal = status.timer_signal.unwrap_or(0);
        keeper.shared.our_signal.store(signal, Relaxed);
        let changes = keeper.shared.block_changes.load(Relaxed);
        if self.changes != Some(changes) {
            self.changes = Some(changes);
            self.targets.choose_globals(keeper);
        }
        let process = live.session.process(root);
        self.chooser.request_pages(process, keeper);
        let elapsed = live.elapsed();
        if live.first_suspect.is_none() {
            return;
        }
        let may_choose = self
            .chooser
            .only
            .as_ref()
            .is_none_or(|only| !only.is_empty());
        if !may_choose {
            self.chooser.gains.expect_nothing();
            return;
        }
        keeper.expect_work();
        if !self.looks.begin(elapsed, LOOK_EVERY) {
            return;
        }
        let unwatched = live.watch_refused.is_some();
        let seconds = elapsed.as_secs_f64();
        let process = live.session.process(root);
        self.chooser
            .look(process, keeper, monotonic_now(), seconds, unwatched);
        self.looks.end();
    }

    fn patience(&self) -> Option<Duration> {
        let keeper = self.keeper.as_ref()?;
        if self.chooser.gains.is_measuring() {
            return Some(READ_EVERY.min(keeper.look()));
        }
        (self.chooser.is_busy() || self.targets.has_globals()).then(|| keeper.look())
    }

    fn ended(&mut self, _live: &mut Live) {
        drop(self.collector.take());
    }

    fn collect(&mut self, child: &mut Child) -> Result<Option<ExitStatus>, ObserveError> {
        match &mut self.keeper {
            Some(keeper) => Ok(keeper.exit().map(ExitStatus::from_raw)),
            None => child.try_wait(),
        }
    }
}
