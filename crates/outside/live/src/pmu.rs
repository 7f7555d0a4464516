//! Memory events of the processor's performance monitoring unit (PMU), which carry addresses of
//! their own.

use crate::observer::{Intake, Observer};
use std::time::Duration;
use sunder_observe::ObserveError;
use sunder_observe::perf::Wait;
use sunder_observe::pmu::PmuSampler;

impl Observer for PmuSampler {
    fn wait(&mut self, pause: &mut Duration) -> Result<Wait, ObserveError> {
        Self::wait(self, *pause)
    }

    fn drain(&mut self, intake: &mut Intake<'_>, last: bool) {
        let mut sink = |event| intake.event(event);
        if last {
            self.finish(&mut sink);
        } else {
            Self::drain(self, &mut sink);
        }
    }
}
