//! The parts of a result that are known before it is made, as a recording has them. Written by the
//! session, read by `rejudge`.

use crate::result::Observed;
use serde::{Deserialize, Serialize};
use sunder_findings::{Limit, Machine, Program, Run};

/// The parts of a result that are known before it is made, as a recording has them.
#[derive(Debug, Serialize, Deserialize)]
pub struct Told {
    program: Program,
    machine: Machine,
    run: Run,
    limits: Vec<Limit>,
}

impl From<&Observed> for Told {
    fn from(known: &Observed) -> Self {
        Self {
            program: known.program.clone(),
            machine: known.machine.clone(),
            run: known.run.clone(),
            limits: known.limits.clone(),
        }
    }
}

impl From<Told> for Observed {
    fn from(told: Told) -> Self {
        Self {
            program: told.program,
            machine: told.machine,
            run: told.run,
            limits: told.limits,
        }
    }
}
