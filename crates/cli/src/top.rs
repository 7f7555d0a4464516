//! `sunder top`: a view of what threads share, in the terminal, while the program runs.

mod ansi;
mod draw;
mod kept;
mod repair;
mod screen;
mod view;

use crate::args::{ReportOptions, Top};
use crate::attach::process;
use crate::confined;
use crate::detect::{exit_code, start_failure};
use crate::endless::end_if_a_read_does_not;
use crate::output::Output;
use crate::status;
use crate::terminal;
use crate::usage::wrong;
use ansi::Ansi;
use anyhow::Result;
use kept::Kept;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use repair::Repairs;
use screen::Screen;
use std::collections::HashMap;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use sunder_access::{ProcessId, Time};
use sunder_confine::Work;
use sunder_findings::Findings;
use sunder_live::{
    Ending, Live, LiveRemedy, Loaded, Look, Observation, Signals, is_program, observe_with,
};
use sunder_observe::launch::Child;
use sunder_observe::{ObserveError, monotonic_now, proc};
use sunder_repair::attach::remember_own_confinement;
use view::{COVERED, Picture, SLICES, View, Wish};

/// The pause between two looks at the keys.
const KEYS_EVERY: Duration = Duration::from_millis(50);
/// The shortest pause between two pictures.
const PICTURE_EVERY: Duration = Duration::from_millis(500);
/// The longest time without a picture while threads are measured, which pictures would disturb.
const PICTURE_AFTER: Duration = Duration::from_secs(2);
/// Of so much time, one part goes into making pictures, unless they would come less often than this.
const TO_LOOK: u32 = 10;
/// The longest pause between two pictures. Beyond it the view looks frozen.
const PICTURE_LATEST: Duration = Duration::from_secs(2);

/// Runs the command. Returns the exit status.
///
/// # Errors
/// If there is no terminal, or the process can't be observed.
pub fn run(options: &Top) -> Result<u8> {
    match (options.program.first(), options.target.is_empty()) {
        (None, true) => Err(wrong(
            "say what to watch: a program after --, or a process by --pid, --name, --container or --unit",
        )),
        (Some(_), false) => Err(wrong(
            "a program and a running process can't be watched at once: leave one of them away",
        )),
        (Some(program), true) => of_program(options, &program.to_string_lossy()),
        (None, false) => of_process(options),
    }
}

/// How the report at the end is shown.
fn report(options: &Top) -> Result<Output> {
    let tell = ReportOptions {
        quiet: options.quiet,
        ..ReportOptions::default()
    };
    Output::new(&tell, false)
}

fn of_program(options: &Top, name: &str) -> Result<u8> {
    let output = report(options)?;
    remember_own_confinement()?;
    let mut shown = Shown::new(Screen::open()?, name);
    let kept = Kept::begin()?;
    let what = Observation {
        program: options.program.clone(),
        options: (&options.observe).into(),
        begun: Some(confined::beside_our_own_to_repair),
        ..Observation::default()
    };
    let done = observe_with(&what, &mut shown);
    let repaired = shown.repairs.take_done();
    drop(shown);
    drop(kept);
    let (mut findings, exit) = match done {
        Ok(done) => done,
        Err(error) => return Ok(start_failure(&error)),
    };
    repair::tell(repaired.as_ref(), &mut findings, options.quiet);
    output.write(&findings);
    Ok(exit_code(exit))
}

fn of_process(options: &Top) -> Result<u8> {
    let output = report(options)?;
    let process = process(&options.target)?;
    is_program(process)?;
    let file = proc::executable(process).unwrap_or_default();
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let mut shown = Shown::new(Screen::open()?, &format!("{name} ({process})"));
    shown.process = Some(process);
    remember_own_confinement()?;
    confined::beside(process, Work::Repair);
    end_if_a_read_does_not();
    let _stops = Signals::hold_stops();
    let mut look = Look::begin(process, &(&options.observe).into(), None, Ending::BySignals)?;
    loop {
        // A view that waits for nothing but keys must look at them.
        let until = look.live.elapsed() + shown.pause();
        look.go_on(Some(until), &mut |_| true)?;
        shown.repairs.step(&mut look.live);
        if look.is_over() || shown.look(&mut look.live).is_some() {
            break;
        }
    }
    // Before anything that takes long, and before a signal may end this process.
    shown.repairs.end();
    let repaired = shown.repairs.take_done();
    drop(shown);
    let mut findings = look.finish();
    let is_whole = repair::tell(repaired.as_ref(), &mut findings, options.quiet);
    output.write(&findings);
    Ok(if is_whole { 0 } else { status::FAILED })
}

/// The view on the terminal, and what it needs to be drawn.
struct Shown {
    screen: Screen,
    terminal: Terminal<Ansi>,
    view: View,
    title: String,
    ascii: bool,
    process: Option<ProcessId>,
    repairs: Repairs,
    /// The user has left the view.
    is_left: bool,
    next_picture: Duration,
    /// The times of threads in the last picture, and when that was.
    times: HashMap<u32, u64>,
    looked: Duration,
}

impl Shown {
    fn new(mut screen: Screen, program: &str) -> Self {
        screen.enter();
        let ascii = terminal::is_ascii();
        let name = Path::new(program).file_name().unwrap_or_default();
        let options = TerminalOptions {
            viewport: Viewport::Fixed(Rect::ZERO),
        };
        let Ok(terminal) = Terminal::with_options(Ansi::new(ascii), options);
        Self {
            screen,
            terminal,
            view: View::default(),
            title: name.to_string_lossy().into_owned(),
            ascii,
            process: None,
            repairs: Repairs::default(),
            is_left: false,
            next_picture: Duration::ZERO,
            times: HashMap::new(),
            looked: Duration::ZERO,
        }
    }

    /// Makes a new picture if it is time for one, takes the keys, and draws.
    fn look(&mut self, live: &mut Live) -> Option<Wish> {
        if self.is_left {
            return None;
        }
        let again = self.screen.enter();
        let mut is_new = again;
        let elapsed = live.elapsed();
        let waits = self.repairs.is_measuring() && elapsed < self.next_picture + PICTURE_AFTER;
        if elapsed >= self.next_picture && !waits {
            let begun = Instant::now();
            let picture = self.picture(live);
            self.view.take(picture);
            self.view.standings = self.repairs.standings();
            let pause = (begun.elapsed() * TO_LOOK).clamp(PICTURE_EVERY, PICTURE_LATEST);
            self.next_picture = live.elapsed() + pause;
            is_new = true;
        }
        for key in self.screen.keys() {
            is_new = true;
            match self.view.press(key) {
                None => {}
                Some(Wish::Repair(object)) => {
                    let spans = self.view.spans(&object);
                    self.repairs.wish(self.process, live, &object, spans);
                }
                Some(Wish::Undo(object)) => self.repairs.undo(&object),
                wish => return wish,
            }
            self.view.is_inside = self.repairs.is_inside();
            self.view.standings = self.repairs.standings();
        }
        let (columns, rows) = self.screen.size();
        let area = Rect::new(0, 0, columns, rows);
        let resized = self.terminal.get_frame().area() != area;
        if self.screen.is_on() && (is_new || resized) {
            self.terminal.backend_mut().set_size(columns, rows);
            if resized || again {
                let Ok(()) = self.terminal.resize(area);
                let Ok(()) = self.terminal.clear();
            }
            let (view, title, ascii) = (&self.view, &self.title, self.ascii);
            let Ok(_) = self
                .terminal
                .draw(|frame| draw::draw(frame, view, title, ascii));
            let text = self.terminal.backend_mut().take();
            self.screen.write(&text);
        }
        None
    }

    /// What was seen so far.
    fn picture(&mut self, live: &mut Live) -> Picture {
        let now = monotonic_now();
        let slice = COVERED / SLICES as u32;
        // What was before is added to the first slice, which is not shown.
        let covered = (COVERED + slice).as_nanos() as u64;
        let from = Time(now.0.saturating_sub(covered));
        let (samples, _) = live.session.seen_so_far();
        let mut all = live.session.so_far(from, now);
        for finding in &mut all {
            finding.timeline.drain(..finding.timeline.len().min(1));
        }
        let elapsed = live.elapsed();
        let passed = elapsed.saturating_sub(self.looked).as_nanos().max(1) as f64;
        let mut threads = Vec::new();
        for (thread, time) in live.session.thread_times() {
            let before = self.times.insert(thread.id, time).unwrap_or(0);
            let name = thread.name.unwrap_or_default();
            let name = format!("{} {}", thread.id, sunder_findings::Shown(&name));
            threads.push((name, time.saturating_sub(before) as f64 / passed));
        }
        threads.sort_by(|a, b| b.1.total_cmp(&a.1));
        self.looked = elapsed;
        Picture {
            findings: Findings {
                findings: all,
                ..Findings::default()
            },
            threads,
            elapsed,
            samples,
        }
    }

    /// The longest time until the next step.
    fn pause(&self) -> Duration {
        let wanted = self.repairs.patience();
        wanted.map_or(KEYS_EVERY, |wanted| wanted.min(KEYS_EVERY))
    }

    /// Leaves the view. The program goes on.
    fn leave(&mut self) {
        self.is_left = true;
        self.screen.leave();
    }
}

impl LiveRemedy for Shown {
    fn load(&self) -> Option<Loaded> {
        None
    }

    fn waits_for_samples(&self) -> bool {
        false
    }

    fn can_follow(&self) -> bool {
        false
    }

    fn begins(&mut self, process: ProcessId) -> Result<()> {
        self.process = Some(process);
        Ok(())
    }

    fn step(&mut self, live: &mut Live) {
        self.repairs.step(live);
        match self.look(live) {
            Some(Wish::Leave) => {
                self.leave();
                self.repairs.end();
                self.screen.write(
                    "sunder: the program goes on; Ctrl-C ends it, and its output comes at its end\r\n",
                );
            }
            Some(Wish::Interrupt) => {
                if let Some(process) = self.process {
                    // SAFETY: takes two numbers; the process is a child that was not waited for.
                    unsafe { libc::kill(process.0 as i32, libc::SIGINT) };
                }
            }
            Some(Wish::Repair(_) | Wish::Undo(_)) | None => {}
        }
    }

    fn ended(&mut self, _live: &mut Live) {
        self.leave();
        self.repairs.end();
    }

    fn patience(&self) -> Option<Duration> {
        (!self.is_left).then(|| self.pause())
    }

    fn collect(&mut self, child: &mut Child) -> Result<Option<ExitStatus>, ObserveError> {
        self.repairs.collect(child)
    }
}
