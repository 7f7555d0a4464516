//! The description of an event in a recording (`struct perf_event_attr`).

use crate::perf_event::{Fields, SampleLayout, kernel};
use linux_perf_data::linux_perf_event_reader::AttrFlags;

/// One event of the recording, from its `perf_event_attr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventAttr {
    pub kind: u32,
    pub config: u64,
    /// The period, or the frequency if `flags` say so.
    pub period: u64,
    pub flags: u64,
    pub layout: SampleLayout,
}

impl EventAttr {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let kind = fields.u32()?;
        let size = fields.u32()?;
        let config = fields.u64()?;
        let period = fields.u64()?;
        let sample_type = fields.u64()?;
        let read_format = fields.u64()?;
        let flags = fields.u64()?;
        // wakeup and bp_type, config1: up to version 0.
        fields.bytes(16)?;
        // A later field is present if the attribute's own size covers it.
        let mut later = |end: u32| {
            if size >= end { fields.u64() } else { Some(0) }
        };
        let _config2 = later(kernel::PERF_ATTR_SIZE_VER1)?;
        let branch_sample_type = later(kernel::PERF_ATTR_SIZE_VER2)?;
        let user_registers = later(kernel::PERF_ATTR_SIZE_VER2 + 8)?;
        Some(Self {
            kind,
            config,
            period,
            flags,
            layout: SampleLayout {
                sample_type,
                read_format,
                branch_sample_type,
                user_registers,
            },
        })
    }

    fn is_clock(&self) -> bool {
        const CLOCKS: [u32; 2] = [
            kernel::PERF_COUNT_SW_CPU_CLOCK,
            kernel::PERF_COUNT_SW_TASK_CLOCK,
        ];
        self.kind == kernel::PERF_TYPE_SOFTWARE
            && CLOCKS.iter().any(|&clock| self.config == u64::from(clock))
    }

    /// Whether the event is Intel's retired load that another core's modified line answered (event
    /// 0xd2, mask 0x04), whose data source does not show this.
    pub(super) const fn is_snoop_load(&self) -> bool {
        // Also the type number of Intel's core PMU.
        self.kind == kernel::PERF_TYPE_RAW && self.config & 0xffff == 0x04d2
    }

    const fn is_frequency(&self) -> bool {
        self.flags & AttrFlags::FREQ.bits() != 0
    }

    /// The number of events between two samples, for samples that do not have it.
    pub(super) const fn period(&self) -> u64 {
        if self.is_frequency() { 1 } else { self.period }
    }

    /// The time that a sample stands for.
    pub(super) fn nanoseconds(&self, period: Option<u64>) -> u64 {
        match period {
            Some(period) if self.is_clock() => period,
            // Another event at a given frequency: the kernel chooses periods so that samples come
            // this often.
            _ if self.is_frequency() => 1_000_000_000 / self.period.max(1),
            // The period of a clock is in nanoseconds. For another event the file does not tell its
            // duration: for cycles, one nanosecond per event is right within a factor of three.
            _ => period.unwrap_or(self.period),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_sample_comes_from_its_period_or_its_frequency() {
        let mut attr = EventAttr {
            kind: kernel::PERF_TYPE_SOFTWARE,
            config: kernel::PERF_COUNT_SW_CPU_CLOCK.into(),
            period: 4000,
            flags: AttrFlags::FREQ.bits(),
            layout: SampleLayout::default(),
        };
        assert_eq!(attr.nanoseconds(Some(250_000)), 250_000);
        assert_eq!(attr.nanoseconds(None), 250_000);
        attr.kind = 0;
        assert_eq!(attr.nanoseconds(Some(77)), 250_000);
        attr.flags = 0;
        assert_eq!((attr.nanoseconds(Some(77)), attr.period()), (77, 4000));
        // Must not divide by a frequency of zero.
        attr.flags = AttrFlags::FREQ.bits();
        attr.period = 0;
        assert_eq!(attr.nanoseconds(None), 1_000_000_000);
    }
}
