//! How a protected program ended, and what was isolated in it.

use crate::keeper::Keeper;
use crate::report::{Isolated, Summary};
use std::process::ExitStatus;

/// How a protected program ended, and what was isolated.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub exit: ExitStatus,
    /// What was isolated, as a sentence for people; `None` if all has been said already.
    pub line: Option<String>,
    /// What was isolated, as JSON; `None` if nothing is known.
    pub report: Option<String>,
    /// Why not all commits could be written where [`crate::Options::commits`] says.
    pub(crate) unwritten: Option<String>,
}

impl Outcome {
    /// For a program that could not be protected.
    pub(crate) const fn nothing(exit: ExitStatus) -> Self {
        Self {
            exit,
            line: None,
            report: None,
            unwritten: None,
        }
    }
}

/// What was isolated in a program that has ended. `others` says whether it started processes that
/// were not looked at, if that is known.
pub fn outcome(
    keeper: &mut Keeper,
    left_out: &[String],
    objects: Option<&[Isolated]>,
    others: Option<bool>,
    exit: ExitStatus,
) -> Outcome {
    let unwritten = keeper.end_log(exit);
    let ledger = keeper.log.as_ref().map(|log| &log.ledger);
    let summary = Summary::new(&keeper.shared, keeper.refusal(), left_out, objects)
        .paused(keeper.too_much())
        .beside_others(others)
        .with_ledger(&keeper.shared, ledger);
    Outcome {
        exit,
        line: Some(summary.line()),
        report: Some(summary.json()),
        unwritten,
    }
}
