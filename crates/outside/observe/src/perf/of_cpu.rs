//! The event that samples whatever runs on one CPU, by the time. Called by the samplers that use such
//! events: of one process (`on_cpus`) and of the whole machine (`system`). Must not open anything.

use super::plan::period_ns;
use super::record::LAYOUT;
use crate::perf_event::{Attr, PAGE, kernel};

/// `hz` samples a second, told of when a ring of `pages` pages has filled to a quarter.
pub(super) fn attributes(hz: u32, pages: usize) -> Attr {
    let mut attr = Attr::software(kernel::PERF_COUNT_SW_CPU_CLOCK);
    attr.sample_type = LAYOUT.sample_type;
    attr.sample_regs_user = LAYOUT.user_registers;
    attr.sample_period = period_ns(hz);
    attr.set_sample_id_all(1);
    attr.set_watermark(1);
    attr.wakeup_watermark = (pages * PAGE / 4) as u32;
    attr
}
