//! The line of an observation: its time, what it does, samples, threads, the best suspect so far, and
//! the end that is awaited.

use super::bottom::{self, Line};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use sunder_findings::Shown;
use sunder_live::{Seen, Show, Stage, Suspected};

/// A line that costs less is no suspect worth a word.
const LEAST: f64 = 0.005;

/// The end that is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// That of the program.
    ProgramEnds,
    /// So much time.
    Over(Duration),
    /// The user's signal.
    Interrupted,
}

/// What the line that is shown says of the end; `None` if there is no line.
static UNTIL: Mutex<Option<Until>> = Mutex::new(None);

fn until() -> std::sync::MutexGuard<'static, Option<Until>> {
    UNTIL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line is shown until the value is dropped.
pub struct Observing(Option<Line>);

impl Observing {
    /// Begins to show, if there is a terminal and not `quiet`.
    pub fn begin(quiet: bool, awaited: Until) -> Self {
        let line = if quiet { None } else { Line::begin() };
        if line.is_some() {
            *until() = Some(awaited);
        }
        Self(line)
    }

    /// What shows the progress, for whoever observes.
    pub fn show(&self) -> Option<Show> {
        self.0.is_some().then_some(show as Show)
    }

    /// Takes the line away.
    pub fn end(self) {}
}

impl Drop for Observing {
    fn drop(&mut self) {
        if self.0.is_some() {
            *until() = None;
        }
    }
}

fn show(seen: &Seen) {
    let Some(until) = *until() else { return };
    bottom::draw(seen.elapsed, &text(seen, until));
}

fn text(seen: &Seen, until: Until) -> String {
    let stage = match seen.stage {
        Stage::Sampling => "sampling",
        Stage::Confirming => "confirming",
        Stage::Measuring => "measuring",
        Stage::Moving => "moving",
        Stage::Naming => "naming",
    };
    let threads = if seen.threads == 1 {
        "thread"
    } else {
        "threads"
    };
    let mut text = format!(
        "sunder: {} s, {stage} · {} samples · {} {threads}",
        seen.elapsed.as_secs(),
        seen.samples,
        seen.threads
    );
    match seen.suspect.as_ref().filter(|s| s.cost_share >= LEAST) {
        Some(suspect) => text.push_str(&format!(" · {}", suspected(suspect))),
        None => text.push_str(" · no suspect yet"),
    }
    if seen.stage != Stage::Naming {
        text.push_str(&match until {
            Until::ProgramEnds => " · until the program ends".to_owned(),
            Until::Over(time) => format!(" · until {} s", time.as_secs_f64()),
            Until::Interrupted => " · until Ctrl-C".to_owned(),
        });
    }
    text
}

/// `up to 41 % at a line of demo`.
fn suspected(suspect: &Suspected) -> String {
    let name = Path::new(&suspect.of).file_name();
    let name = name.map(|name| name.to_string_lossy().into_owned());
    let of = match name.as_deref() {
        None | Some("[heap]") => "the heap".to_owned(),
        Some(name) => Shown(name).to_string(),
    };
    let percent = (suspect.cost_share * 100.0).clamp(0.0, 100.0);
    format!("up to {percent:.0} % at a line of {of}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::Address;

    #[test]
    fn the_line_says_how_far_it_is_what_is_suspected_and_what_ends_it() {
        let mut seen = Seen {
            elapsed: Duration::from_millis(12_900),
            stage: Stage::Confirming,
            samples: 4_211,
            threads: 3,
            suspect: None,
        };
        assert_eq!(
            text(&seen, Until::ProgramEnds),
            "sunder: 12 s, confirming · 4211 samples · 3 threads · no suspect yet · until the program ends"
        );
        let of = |path: &str| {
            Some(Suspected {
                line: Address(0x1000),
                of: path.to_owned(),
                cost_share: 0.414,
            })
        };
        seen.suspect = of("/usr/lib/libx\u{1b}.so");
        let said = text(&seen, Until::Over(Duration::from_secs(30)));
        assert!(
            said.contains("up to 41 % at a line of libx�.so · until 30 s"),
            "{said}"
        );
        for heap in ["[heap]", ""] {
            seen.suspect = of(heap);
            let said = text(&seen, Until::Interrupted);
            assert!(
                said.ends_with("at a line of the heap · until Ctrl-C"),
                "{said}"
            );
        }
    }
}
