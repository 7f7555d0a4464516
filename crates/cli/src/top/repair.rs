//! Repairs of the objects that the user selects in the view. `sunder_repair` decides and acts; this
//! file keeps what it says, for the rows of the view and for the end.

use crate::output::note;
use anyhow::Result;
use ratatui::style::{Color, Style};
use std::process::ExitStatus;
use std::time::Duration;
use sunder_access::{ProcessId, Span};
use sunder_findings::{Findings, Shown};
use sunder_live::Live;
use sunder_observe::ObserveError;
use sunder_observe::launch::Child;
use sunder_repair::by_hand::{ByHand, Done, Gained, Standing};

/// What the user has had repaired.
#[derive(Default)]
pub struct Repairs {
    inside: Option<ByHand>,
    /// Objects that could not be repaired because the library can't be in the program, and why.
    refused: Vec<(String, Standing)>,
    /// What was done, after the end.
    done: Option<Done>,
    /// Threads of a child were stopped, so its end is learned of by `sunder_stop` from then on.
    stopped: Option<ProcessId>,
}

impl Repairs {
    /// The object is to be repaired. The library is put in first, if it is not there.
    pub fn wish(
        &mut self,
        process: Option<ProcessId>,
        live: &mut Live,
        object: &str,
        spans: Vec<Span>,
    ) {
        let Some(process) = process else { return };
        self.refused.retain(|(of, _)| of != object);
        if self.inside.is_none() {
            self.stopped = Some(process);
            match ByHand::begin(process, live) {
                Ok(inside) => self.inside = Some(inside),
                Err(error) => {
                    let why = Standing::Refused(format!("{error:#}"));
                    self.refused.push((object.to_owned(), why));
                    return;
                }
            }
        }
        if let Some(inside) = &mut self.inside {
            inside.wish(object, spans);
        }
    }

    /// The object's bytes are to go back.
    pub fn undo(&mut self, object: &str) {
        self.refused.retain(|(of, _)| of != object);
        if let Some(inside) = &mut self.inside {
            inside.undo(object);
        }
    }

    /// Whether the library is in the program.
    pub const fn is_inside(&self) -> bool {
        self.inside.is_some()
    }

    /// Takes the repairs one step further.
    pub fn step(&mut self, live: &mut Live) {
        if let Some(inside) = &mut self.inside {
            inside.step(live);
        }
    }

    /// Whether threads are being measured. A picture that is made meanwhile takes a CPU from them and
    /// keeps this thread from reading their progress.
    pub fn is_measuring(&self) -> bool {
        self.patience().is_some()
    }

    /// The longest time until the next step, if it matters.
    pub fn patience(&self) -> Option<Duration> {
        self.inside.as_ref()?.patience()
    }

    /// Collects the exit status of a child if it has ended.
    pub fn collect(&mut self, child: &mut Child) -> Result<Option<ExitStatus>, ObserveError> {
        match (&mut self.inside, self.stopped) {
            (Some(inside), _) => inside.collect(child),
            (None, Some(process)) => Ok(sunder_repair::by_hand::exit(process)),
            (None, None) => child.try_wait(),
        }
    }

    /// How each object stands that was to be repaired.
    pub fn standings(&self) -> Vec<(String, Standing)> {
        let mut all = self.refused.clone();
        all.extend(self.inside.iter().flat_map(ByHand::standings));
        all
    }

    /// Puts everything back and takes the library out.
    pub fn end(&mut self) {
        if let Some(inside) = self.inside.take() {
            self.done = Some(inside.end());
        }
    }

    /// What was done, if anything was.
    pub fn take_done(&mut self) -> Option<Done> {
        self.done.take()
    }
}

/// Says at the end what was repaired, and puts it into the result. Returns whether nothing of ours is
/// left in the program.
pub fn tell(done: Option<&Done>, findings: &mut Findings, quiet: bool) -> bool {
    let Some(done) = done else { return true };
    let lines = done.tell(findings);
    if !quiet {
        lines.iter().for_each(|line| note(line));
    }
    !done.left_something
}

/// How an object stands, for its row.
pub fn in_brief(standing: &Standing) -> String {
    match standing {
        Standing::Waits => "repair: waits".into(),
        Standing::Moving => "repair: moving".into(),
        Standing::Measuring => "moved: measuring".into(),
        Standing::Moved {
            gain: Some(gain), ..
        } => format!("moved: {}", times(gain)),
        Standing::Moved { gain: None, .. } => "moved: not measured".into(),
        Standing::PuttingBack => "putting back".into(),
        Standing::Back(_) => "put back".into(),
        Standing::Refused(_) => "repair: refused".into(),
    }
}

/// How an object stands, with the reason.
pub fn in_full(standing: &Standing) -> String {
    match standing {
        Standing::Waits => {
            "repair: waits until threads contend for it so much that a move pays".into()
        }
        Standing::Moving => "repair: its bytes are being moved".into(),
        Standing::Measuring => "moved: its threads are being measured".into(),
        Standing::Moved {
            gain: Some(gain), ..
        } => match gain.threads {
            1 => format!("moved: one thread gets on {:.2} times as fast", gain.mean),
            threads => format!(
                "moved: {threads} threads get on {:.2} times as fast ({:.2} to {:.2})",
                gain.mean, gain.least, gain.most
            ),
        },
        Standing::Moved { unmeasured, .. } => match unmeasured {
            Some(why) => format!("moved; what it gains is not known: {why}"),
            None => "moved; what it gains is not known".into(),
        },
        Standing::PuttingBack => "its bytes are being put back".into(),
        Standing::Back(why) => format!("put back: {}", Shown(why)),
        Standing::Refused(why) => format!("not repaired: {}", Shown(why)),
    }
}

/// A gain in a few characters: its mean, and its range over the threads.
fn times(gain: &Gained) -> String {
    let range = match gain.threads {
        1 => String::new(),
        _ => format!(" ({:.1}-{:.1})", gain.least, gain.most),
    };
    format!("{:.2}x{range}", gain.mean)
}

/// The colour of a standing.
pub const fn color_of(standing: &Standing) -> Style {
    let color = match standing {
        Standing::Moved { .. } => Color::Green,
        Standing::Waits | Standing::Moving | Standing::Measuring | Standing::PuttingBack => {
            Color::Yellow
        }
        Standing::Back(_) | Standing::Refused(_) => Color::Magenta,
    };
    Style::new().fg(color)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_fits_a_row_and_tells_its_range() {
        let gain = |least, most, threads| {
            let mean: f64 = least * most;
            let gain = Some(Gained {
                mean: mean.sqrt(),
                least,
                most,
                threads,
            });
            let unmeasured = None;
            Standing::Moved { gain, unmeasured }
        };
        let brief = in_brief(&gain(100.0, 400.0, 8));
        assert_eq!(brief, "moved: 200.00x (100.0-400.0)");
        assert!(brief.len() <= 30);
        assert_eq!(in_brief(&gain(1.5, 1.5, 1)), "moved: 1.50x");
        assert!(in_full(&gain(1.0, 4.0, 2)).contains("2.00 times as fast (1.00 to 4.00)"));
    }

    #[test]
    fn names_from_the_program_are_cleaned() {
        let refused = Standing::Refused("in \u{1b}[31m".into());
        assert!(!in_full(&refused).contains('\u{1b}'));
    }
}
