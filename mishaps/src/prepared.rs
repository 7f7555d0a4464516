//! A program that is ready for runs: what it does natively, how long the tool usually lives beside it
//! and what the tool calls. From these and a seed comes what happens in a run.

use crate::calls::Calls;
use crate::judge::{Verdict, judge};
use crate::mishap::{Faults, Kills, Mishap};
use crate::mode::{Mode, Start};
use crate::places::Places;
use crate::random::Random;
use crate::scene::{Outcome, Scene};
use crate::subject::Subject;
use std::io;
use std::path::Path;

/// A mode and a program, ready for runs.
#[derive(Debug)]
pub struct Prepared<'a> {
    mode: &'a Mode,
    sunder: &'a Path,
    places: &'a Places,
    subject: Subject,
    native: Outcome,
    kills: Kills,
}

/// A run: what happened, what became of it, and what is to be said of it.
#[derive(Clone, Debug)]
pub struct Run {
    /// What happened.
    pub mishap: Mishap,
    /// What became of the run.
    pub outcome: Outcome,
    /// What is to be said of it.
    pub verdict: Verdict,
}

/// What kind of mishaps happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The tool is ended.
    Kills,
    /// Its calls fail, or something is short.
    Faults,
}

impl<'a> Prepared<'a> {
    /// Runs the program natively, and twice under the tool.
    ///
    /// # Errors
    /// If it can't be started, or if a run is wrong though nothing happens to the tool.
    pub fn new(
        mode: &'a Mode,
        subject: Subject,
        sunder: &'a Path,
        places: &'a Places,
    ) -> Result<Self, String> {
        let scene = Scene {
            mode,
            subject: &subject,
            sunder,
            places,
        };
        let failed = |error: io::Error| format!("{}, {}: {error}", mode.name, subject.name);
        let native = scene.natively(None).map_err(failed)?;
        let seen = scene.run(&Mishap::None, 0).map_err(failed)?;
        let verdict = judge(&scene, &Mishap::None, &native, &seen);
        if verdict != Verdict::Native {
            return Err(format!(
                "{}, {}: {verdict:?}\n{}",
                mode.name, subject.name, seen.stderr
            ));
        }
        let list = places.own().join("calls");
        // Without strace there is no list.
        let _ = scene.run_after(Calls::recording(&list), &Mishap::None, 0);
        let calls = Calls::read(&std::fs::read_to_string(&list).unwrap_or_default());
        let kills = Kills {
            life: seen.life,
            calls,
        };
        Ok(Self {
            mode,
            sunder,
            places,
            subject,
            native,
            kills,
        })
    }

    /// The program.
    pub const fn subject(&self) -> &Subject {
        &self.subject
    }

    /// How long the tool usually lives, and what it calls.
    pub const fn usual(&self) -> &Kills {
        &self.kills
    }

    /// Makes the run of this seed.
    ///
    /// # Errors
    /// If something can't be started.
    pub fn run(&self, kind: Kind, seed: u64) -> io::Result<Run> {
        let scene = Scene {
            mode: self.mode,
            subject: &self.subject,
            sunder: self.sunder,
            places: self.places,
        };
        let mut random = Random::new(seed);
        // How the program may end: as it always does, or as natively under the same shortage.
        let mut natives = vec![self.native.clone()];
        let mishap = match kind {
            Kind::Kills => self.kills.draw(&mut random),
            Kind::Faults if random.below(3) > 0 => {
                let calls = self.kills.calls.clone();
                Faults { calls }.draw(&mut random)
            }
            Kind::Faults => {
                let shortage = Faults::shortage(&mut random);
                // A program to which the tool is attached has as much as ever.
                if self.mode.start == Start::ByTool {
                    natives.insert(0, scene.natively(Some(shortage))?);
                }
                Mishap::Short(shortage)
            }
        };
        let outcome = scene.run(&mishap, seed)?;
        let mut verdicts = natives
            .iter()
            .map(|native| judge(&scene, &mishap, native, &outcome));
        let first = verdicts.next().unwrap_or(Verdict::NotStarted);
        let verdict = match first {
            Verdict::Wrong(_) => verdicts
                .find(|other| !matches!(other, Verdict::Wrong(_)))
                .unwrap_or(first),
            right => right,
        };
        Ok(Run {
            mishap,
            outcome,
            verdict,
        })
    }
}
