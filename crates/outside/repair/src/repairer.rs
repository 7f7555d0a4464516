//! Repairs a program while it is observed: chooses pages, has them moved (`moving`), and follows
//! them. Driven by the loop of `live`, for a program that we started and for a running one. It must
//! not speak to threads itself: `request`, `serve` and `attach` do.

mod chaos;
mod expecting;
mod moving;
mod rearranging;

use crate::attach::entry::{Entry, Planned};
use crate::attach::leave::Left;
use crate::attach::refuse::{has_glibc, is_stopped};
use crate::attempt::{Attempt, is_on_its_way};
use crate::chaos::Chaos;
use crate::choose::{Chooser, Look};
use crate::control::ControlFile;
use crate::outcome::outcome;
use crate::serve::Server;
use crate::urgency::run_sooner;
use crate::{request, tell};
use anyhow::{Context, Result};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;
use sunder_access::{Address, CodeAddress, Mappings, ProcessId, Span, Time};
use sunder_findings::{Repair, Unrepaired};
use sunder_gain::before::{Before, Measured};
use sunder_gain::gauge::READ_EVERY;
use sunder_hooking::Calls;
use sunder_live::{Live, LiveRemedy, Loaded, Looks, Stage};
use sunder_observe::ObserveError;
use sunder_observe::foreign::ForeignFiles;
use sunder_observe::launch::Child;
use sunder_observe::watch::Budget;
use sunder_observe::{monotonic_now, proc};
use sunder_pipeline::Wanted;
use sunder_wire::remap::{ACTIVE, AREAS, Area, NO_HOOKS, NOT_LOADED, READY, ROLLING_BACK};

/// Pause between two looks at the lines.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The same while a move waits for what is measured, confirmed or prepared meanwhile.
const LOOK_SOON: Duration = Duration::from_millis(3);
/// Of this much time, looks take one part at most.
const LOOKING_IS_ONE_IN: u32 = 33;
/// Time that watchpoints may cost at first. A move stops all threads for longer, so a line that is
/// worth it is confirmed as soon as it can be.
const ADVANCE: Duration = Duration::from_millis(8);

/// How much of the result is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Detail {
    /// All findings, and everything that was done.
    #[default]
    Report,
    /// The names of objects that were moved or left alone.
    Lines,
    /// Only whether something was done; no names.
    Nothing,
}

/// Repairs a program while it is observed: chooses pages, has them moved, and follows them.
pub struct Repairer {
    /// Only say what would be moved.
    pub dry_run: bool,
    /// As [`Options::compares_all`](crate::Options::compares_all).
    pub compares_all: bool,
    /// In a dry run, whether the kernel lets us stop the program's threads.
    pub may_stop: bool,
    /// The file that is shared with the library.
    pub file: Arc<ControlFile>,
    /// How the library gets into the program.
    pub entry: Entry,
    server: Option<Server>,
    /// The process.
    pub process: ProcessId,
    /// Its files, also after its end.
    pub files: Arc<ForeignFiles>,
    started: Time,
    looks: Looks,
    /// Chooses what is moved.
    pub chooser: Chooser,
    calls: Calls,
    /// In chaos mode: picks random pages in place of falsely shared ones.
    chaos: Option<Chaos>,
    pub(crate) attempts: Vec<Attempt>,
    gauge: Before,
    /// Threads of ours prepared a move at the last look.
    is_planning: bool,
    /// Threads were measured for what a saved result names, before anything was suspected.
    expected: bool,
    /// The program's mappings when bytes were last moved.
    pub mappings: Mappings,
    pub(crate) refused: Vec<Unrepaired>,
    /// What seemed to be worth a move at the end of a program in which nothing was decided.
    undecided: Option<Unrepaired>,
    /// Address ranges of ours in the program, mapped or about to be.
    taken: Vec<(u64, u64)>,
    pub(crate) hindrance: Option<String>,
    /// Why no library of ours can be in the program that was started, as its file tells. A program
    /// that it becomes by `exec` may be another.
    pub unloadable: Option<&'static str>,
    /// The library was seen in place.
    began: bool,
    /// Threads of the program were stopped. `ptrace` reports the program's end too, so it must be
    /// asked of `sunder_stop`.
    stops: bool,
    /// Nothing is moved any more, as another remedy acts on the program.
    pub retired: bool,
    /// How much of the result is wanted.
    pub detail: Detail,
}

impl LiveRemedy for Repairer {
    fn load(&self) -> Option<Loaded> {
        let Entry::Preloaded(library) = &self.entry else {
            return None;
        };
        let library = library.path();
        let mut value = library.clone().into_os_string();
        value.push(",");
        value.push(self.file.path());
        Some(Loaded {
            library,
            variable: "SUNDER_REMAP".into(),
            value,
        })
    }

    fn waits_for_samples(&self) -> bool {
        false
    }

    fn can_follow(&self) -> bool {
        false
    }

    fn budget(&self, share: f64) -> Budget {
        Budget {
            advance: ADVANCE,
            ..Budget::of(share)
        }
    }

    fn wanted(&self) -> Wanted {
        match self.detail {
            Detail::Report => Wanted::All,
            Detail::Nothing => Wanted::Of(Vec::new()),
            Detail::Lines => {
                let moved = self.attempts.iter().map(|a| a.pages());
                let moved = moved.map(|(page, len)| Span::new(Address(page), len));
                let left = self.refused.iter().chain(&self.undecided);
                let left = left.filter_map(tell::line_of);
                Wanted::Of(moved.chain(left).collect())
            }
        }
    }

    fn begins(&mut self, process: ProcessId) -> Result<()> {
        self.process = process;
        self.files = Arc::new(ForeignFiles::of(process));
        self.calls.set_files(Arc::clone(&self.files));
        self.started = monotonic_now();
        if !self.dry_run {
            run_sooner();
        }
        if matches!(self.entry, Entry::Preloaded(_)) {
            self.file.control().process.store(process.0, Release);
            self.serve(process)?;
        }
        Ok(())
    }

    fn step(&mut self, live: &mut Live) {
        if self.stops {
            // A thread that did not stop in time is let go on as soon as it has stopped. An end of
            // the program that is learned of meanwhile is remembered by `sunder_stop`.
            let _ = sunder_stop::exit(self.process);
        }
        if self.retired {
            return;
        }
        self.request_moves();
        self.note_code_at_start();
        self.note_copies(live);
        let elapsed = live.elapsed();
        self.gauge.read();
        if !self.dry_run && live.first_suspect.is_some() {
            self.entry.foresee(self.process);
        } else {
            self.expect_known(live);
        }
        if self.chaos.is_some() {
            self.move_at_random(live);
            return;
        }
        self.follow_moves(live);
        let every = match self.gauge {
            Before::Measuring(_) => LOOK_SOON,
            Before::Nothing | Before::Refused => LOOK_EVERY,
        };
        if live.first_suspect.is_some() && self.looks.begin(elapsed, every) {
            self.look(live);
            self.looks.end();
        }
    }

    fn ended(&mut self, live: &mut Live) {
        self.note_undecided(live);
    }

    fn patience(&self) -> Option<Duration> {
        let measuring = matches!(self.gauge, Before::Measuring(..))
            || self.attempts.iter().any(Attempt::is_measuring);
        (measuring || self.chaos.is_some()).then_some(READ_EVERY)
    }

    fn collect(&mut self, child: &mut Child) -> Result<Option<ExitStatus>, ObserveError> {
        if self.stops {
            return Ok(sunder_stop::exit(self.process).map(ExitStatus::from_raw));
        }
        child.try_wait()
    }
}

impl Repairer {
    /// A repairer of a program into which the library gets by `entry`; `chaos` is the seed of
    /// chaos mode.
    ///
    /// # Errors
    /// If the kernel gives us no memory.
    pub fn new(entry: Entry, chaos: Option<u64>) -> Result<Self> {
        let file = match entry {
            Entry::Preloaded(_) => ControlFile::with_plan()?,
            _ => ControlFile::unshared()?,
        };
        Ok(Self {
            dry_run: false,
            compares_all: false,
            may_stop: true,
            file: Arc::new(file),
            entry,
            server: None,
            stops: false,
            retired: false,
            detail: Detail::Report,
            process: ProcessId(0),
            files: Arc::new(ForeignFiles::ours()),
            started: Time(0),
            looks: Looks::new(Duration::ZERO, LOOKING_IS_ONE_IN),
            chooser: Chooser::default(),
            calls: Calls::to_move(),
            chaos: chaos.map(Chaos::new),
            attempts: Vec::new(),
            gauge: Before::Nothing,
            is_planning: false,
            expected: false,
            mappings: Mappings::new(),
            refused: Vec::new(),
            undecided: None,
            taken: Vec::new(),
            hindrance: None,
            unloadable: None,
            began: false,
        })
    }

    /// Looks at the program's lines, and begins a move if one is due.
    fn look(&mut self, live: &mut Live) {
        self.take_back();
        live.session.process(self.process).stops_to_move = self.stops_to_move();
        if !self.can_move() || self.waits_to_go_on() {
            return;
        }
        let now = monotonic_now();
        let unwatched = live.watch_refused.is_some();
        let process = live.session.process(self.process);
        let is_planned = self.entry.is_planned();
        let planned_now = is_planned && std::mem::take(&mut self.is_planning);
        // For a saved result a crowded window will do.
        if planned_now && self.chooser.known.is_empty() {
            self.gauge.undisturbed();
        }
        self.is_planning |= !is_planned;
        let measured = match self.gauge.measured() {
            _ if self.dry_run => Measured::Well,
            measured if is_planned => measured,
            _ => Measured::Not,
        };
        match self.chooser.look(process, now, unwatched, measured) {
            // What was measured for a saved result waits for a suspicion.
            Look::Nothing if !self.chooser.known.is_empty() => self.gauge.forget_old(),
            Look::Nothing => self.gauge = Before::Nothing,
            Look::Gathering(bytes) => {
                live.note(Stage::Measuring);
                self.entry.plan(self.process);
                self.gauge.measure(self.process, bytes, self.dry_run);
            }
            Look::Move(proposal) if self.rearranges(&proposal, live) => {
                self.gauge = Before::Nothing;
            }
            Look::Move(proposal) => {
                live.note(Stage::Moving);
                // An earlier refusal was about another pattern of sharing.
                self.refused
                    .retain(|r| !r.address.is_some_and(|at| proposal.holds(at)));
                let before = std::mem::take(&mut self.gauge).end();
                // These pages get another layout now, so earlier layouts are not used again.
                let (page, end) = (proposal.page, proposal.page + proposal.len);
                let earlier = self.attempts.iter_mut().filter(|a| {
                    let (from, len) = a.pages();
                    from < end && page < from + len
                });
                earlier.for_each(Attempt::end);
                self.begin(proposal, before);
            }
            Look::Leave(refused) => {
                self.gauge = Before::Nothing;
                self.refused.push(refused);
            }
        }
    }

    /// At the end: what seems to be worth a move is told even if nothing came of it, so that nobody
    /// takes the program for one without false sharing.
    pub fn note_undecided(&mut self, live: &mut Live) {
        if !self.has_decided() && self.chaos.is_none() {
            let process = live.session.process(self.process);
            self.undecided = self.chooser.undecided(process);
        }
    }

    /// Whether bytes of the program are at another place, or on the way there or back.
    pub fn is_moving(&self) -> bool {
        self.attempts.iter().any(|attempt| {
            let area = attempt.area.map(|n| self.area(n));
            area.is_some_and(|area| {
                let state = area.state.load(Acquire);
                // A library that has left has freed its areas.
                !self.retired && is_on_its_way(area) || matches!(state, ACTIVE | ROLLING_BACK)
            })
        })
    }

    /// Whether anything was decided about the program's lines.
    pub fn has_decided(&self) -> bool {
        let any = !self.attempts.is_empty() || !self.refused.is_empty();
        any || self.hindrance.is_some() || self.retired
    }

    /// The bytes that cost enough and could not be moved, or did not stay, but for those that a saved
    /// result leaves to no remedy; all bytes if nothing can be moved in this program.
    pub fn failed(&self) -> Vec<Span> {
        if self.hindrance.is_some() {
            return vec![Span::new(Address(0), u64::MAX)];
        }
        let refused = self.refused.iter().filter_map(|one| one.address);
        // Of some lines only samples tell; a remedy that wants certainty takes a line beside them.
        let refused = refused.map(|at| self.chooser.decisions.around(at));
        let now = monotonic_now().0;
        let back = self.attempts.iter().filter(|one| one.has_failed(now));
        let back = back.map(Attempt::pages);
        let back = back.map(|(page, len)| Span::new(Address(page), len));
        let is_open = |span: &Span| !self.chooser.left.is_left_alone(*span);
        refused.chain(back).filter(is_open).collect()
    }

    /// Bytes in these spans may be moved again, whatever became of them before.
    pub(crate) fn wanted_again(&mut self, spans: &[Span]) {
        self.refused.retain(|one| !tell::is_on_pages_of(one, spans));
        self.chooser.open_again(spans);
    }

    /// Starts answering the program's threads.
    fn serve(&mut self, process: ProcessId) -> Result<()> {
        let server = Server::start(Arc::clone(&self.file), process, self.compares_all);
        self.server = Some(server.context("cannot start a thread")?);
        Ok(())
    }

    /// Why a copy of code could not be made for area `number`, if so.
    pub(crate) fn refusal_of(&self, number: usize) -> Option<String> {
        self.server.as_ref()?.refusal_of(number)
    }

    /// Whether all threads are stopped to move bytes; in a dry run, whether they would be.
    const fn stops_to_move(&self) -> bool {
        let is_there = matches!(self.entry, Entry::Late(_) | Entry::Inside(_));
        is_there || self.dry_run && self.may_stop
    }

    /// Puts the library into the program, and starts the thread that answers it.
    ///
    /// # Errors
    /// Says why it could not be put in, and what stays in the program.
    pub fn put(&mut self, process: ProcessId, planned: Planned) -> Result<()> {
        self.stops = true;
        let (inside, file, mut calls) = planned.put(process)?;

        self.file = Arc::new(file);
        if let Err(error) = self.serve(process) {
            if let Left::Memory(why) = inside.take_out(&self.file) {
                return Err(error.context(format!("our library stays in it, as {why}")));
            }
            return Err(error);
        }
        self.taken.extend(inside.ours());
        let code: Vec<_> = inside.code().map(|(start, end)| [start, end]).collect();
        calls.know(&code);
        self.calls = calls;
        self.began = true;
        self.entry = Entry::Inside(Box::new(inside));
        Ok(())
    }

    /// Something is to be moved: puts the library into the program if it waits for that
    /// ([`Entry::Late`]). False if it could not be put in.
    fn put_library_in(&mut self) -> bool {
        match std::mem::replace(&mut self.entry, Entry::Never) {
            Entry::Late(late) => {
                let process = self.process;
                if self.unloadable.is_some() && !has_glibc(process) {
                    self.hindrance = self.ran_natively();
                    return false;
                }
                let planned = late.take(process);
                if let Err(error) = planned.and_then(|planned| self.put(process, planned)) {
                    if !request::has_ended(process) {
                        self.hindrance = Some(format!("{error:#}"));
                    }
                    return false;
                }
                true
            }
            other => {
                self.entry = other;
                true
            }
        }
    }

    /// Notes the code that was there when the library was put in place: it is the library's own.
    fn note_code_at_start(&mut self) {
        if self.began || self.file.control().ready.load(Acquire) != READY {
            return;
        }
        self.began = true;
        if let Ok(mappings) = proc::mappings(self.process) {
            self.calls.begin(&mappings);
        }
    }

    /// Tells those who decode samples of the copies of code that have been made.
    fn note_copies(&self, live: &mut Live) {
        for copy in self.server.iter().flat_map(Server::made) {
            live.session.copied(self.process, copy);
        }
    }

    /// Whether the library is in place and another move may begin.
    fn can_move(&mut self) -> bool {
        if self.dry_run {
            return self.attempts.len() < AREAS;
        }
        let chaos = self.chaos.is_some();
        let under_way = self.attempts.iter().any(|attempt| {
            let area = attempt.area.map(|n| self.area(n));
            area.is_some_and(|area| {
                if chaos {
                    is_on_its_way(area)
                } else {
                    attempt.holds_up(area)
                }
            })
        });
        let ready = self.file.control().ready.load(Acquire) == READY
            || matches!(self.entry, Entry::Late(_));
        ready && !under_way && self.attempts.len() < AREAS
    }

    /// Whether a signal has stopped the program into which the library is to be put. It waits for that
    /// to be over.
    fn waits_to_go_on(&self) -> bool {
        matches!(self.entry, Entry::Late(_)) && is_stopped(self.process)
    }

    fn area(&self, number: usize) -> &Area {
        &self.file.control().areas[number]
    }

    /// That nothing of ours can be in the program, if its file tells so.
    fn ran_natively(&self) -> Option<String> {
        let why = self.unloadable?;
        Some(format!("the program ran natively: {why}"))
    }

    /// What was repaired. `function` gives the name of code that was copied.
    pub fn finish(&mut self, function: &mut dyn FnMut(CodeAddress) -> Option<String>) -> Repair {
        let ready = self.file.control().ready.load(Acquire);
        let preloaded = matches!(self.entry, Entry::Preloaded(_));
        if preloaded && ready != READY && self.attempts.is_empty() {
            self.hindrance = Some(
                match ready {
                    NOT_LOADED => "the library was not loaded into the program",
                    NO_HOOKS => "the C library's kernel calls can't be led through hooks",
                    _ => "the program confines itself, or makes processes in a way that can't be followed",
                }
                .into(),
            );
        }
        if self.attempts.is_empty() && self.hindrance.is_none() {
            self.hindrance = self.ran_natively();
        }
        let mut repair = Repair {
            dry_run: self.dry_run,
            hindrance: self.hindrance.take(),
            moved: Vec::new(),
            refused: std::mem::take(&mut self.refused),
        };
        if repair.hindrance.is_none() {
            repair.refused.extend(self.undecided.take());
        }
        let now = monotonic_now().0;
        let areas = &self.file.control().areas;
        for attempt in &mut self.attempts {
            let area = attempt.area.map(|n| (n, &areas[n]));
            if let Some((_, area)) = area {
                attempt.follow(area, now);
            }
            match outcome(attempt, area, self.server.as_ref(), self.started, function) {
                Ok(moved) => repair.moved.push(moved),
                Err(refused) => repair.refused.push(refused),
            }
        }
        // What came to hinder moves later is told of what it hindered.
        repair.hindrance.take_if(|_| !repair.moved.is_empty());
        repair.refused.extend(self.chooser.known.refused());
        repair
    }
}
