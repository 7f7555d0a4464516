//! The PMU's description of a sampled memory access, `union perf_mem_data_src` of
//! `linux/perf_event.h`, and the access made from it. For live PMU events and imported files; pure.

use crate::perf_event::{Sample, kernel};
use sunder_access::{Access, Address, CodeAddress, Kind, ProcessId, Provenance, ThreadId, Time};

/// One decoded `data_src`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSource(pub u64);

impl DataSource {
    /// The field that begins at bit `shift` and has `bits` bits.
    const fn field(self, shift: u32, bits: u32) -> u32 {
        (self.0 >> shift) as u32 & ((1 << bits) - 1)
    }

    /// The kind of the access; `None` for prefetches, instruction fetches, and if the PMU does not
    /// know it.
    pub const fn kind(self) -> Option<Kind> {
        use kernel::{PERF_MEM_OP_LOAD, PERF_MEM_OP_STORE};
        let operation = self.field(kernel::PERF_MEM_OP_SHIFT, 5);
        let locked = self.is_locked();
        match (
            operation & PERF_MEM_OP_LOAD != 0,
            operation & PERF_MEM_OP_STORE != 0,
        ) {
            (false, false) => None,
            // The PMU reports a locked instruction by its load or by its store.
            _ if locked => Some(Kind::Atomic),
            (true, true) => Some(Kind::Update),
            (true, false) => Some(Kind::Read),
            (false, true) => Some(Kind::Write),
        }
    }

    /// Whether the instruction was locked.
    pub const fn is_locked(self) -> bool {
        self.field(kernel::PERF_MEM_LOCK_SHIFT, 2) & kernel::PERF_MEM_LOCK_LOCKED != 0
    }

    /// Whether the line came modified from another core's cache: `SNOOP_HITM`, or `SNOOPX_PEER`, by
    /// which newer kernels report a transfer between caches in an unknown state.
    pub const fn is_hitm(self) -> bool {
        let snoop = self.field(kernel::PERF_MEM_SNOOP_SHIFT, 5);
        let extended = self.field(kernel::PERF_MEM_SNOOPX_SHIFT, 2);
        snoop & kernel::PERF_MEM_SNOOP_HITM != 0 || extended & kernel::PERF_MEM_SNOOPX_PEER != 0
    }

    /// Whether the data came from memory, by either of the two encodings.
    pub const fn is_memory(self) -> bool {
        const RAM: u32 = kernel::PERF_MEM_LVL_LOC_RAM
            | kernel::PERF_MEM_LVL_REM_RAM1
            | kernel::PERF_MEM_LVL_REM_RAM2;
        self.level() & RAM != 0
            || self.field(kernel::PERF_MEM_LVLNUM_SHIFT, 4) == kernel::PERF_MEM_LVLNUM_RAM
    }

    /// Whether the data came from another socket or node.
    pub const fn is_remote(self) -> bool {
        const REMOTE: u32 = kernel::PERF_MEM_LVL_REM_RAM1
            | kernel::PERF_MEM_LVL_REM_RAM2
            | kernel::PERF_MEM_LVL_REM_CCE1
            | kernel::PERF_MEM_LVL_REM_CCE2;
        self.level() & REMOTE != 0 || self.field(kernel::PERF_MEM_REMOTE_SHIFT, 1) != 0
    }

    /// The older of the two encodings of the level.
    const fn level(self) -> u32 {
        self.field(kernel::PERF_MEM_LVL_SHIFT, 14)
    }
}

/// A sample of a memory event as an access.
///
/// The PMU records the first byte but not the width, so the width is 1: an access must not claim
/// bytes that are not certain. [`refine`] widens it. `None` if the sample is no data access of the
/// program.
pub(crate) fn access_of(sample: &Sample, period: u64) -> Option<(ProcessId, Access, bool)> {
    let source = DataSource(sample.data_source?);
    let address = sample.address?;
    // Kernel addresses have the highest bit set; 0 means that the PMU recorded none.
    if address == 0 || address >> 63 == 1 {
        return None;
    }
    let access = Access {
        time: Time(sample.time?),
        thread: ThreadId(sample.thread?),
        instruction: CodeAddress(sample.ip?),
        address: Address(address),
        width: 1,
        kind: source.kind()?,
        provenance: Provenance::Counted,
        weight: sample.period.unwrap_or(period).max(1) as f32,
    };
    Some((ProcessId(sample.process?), access, source.is_hitm()))
}

/// Takes width and kind of a PMU access from its instruction: `code` are the bytes from
/// `access.instruction` on. Leaves `access` as it is if no operand of the instruction does what the
/// PMU recorded.
pub fn refine(access: &mut Access, code: &[u8]) {
    use iced_x86::{Decoder, DecoderOptions};
    use sunder_x86::{Certainty, Manual};
    let mut decoder = Decoder::with_ip(64, code, access.instruction.0, DecoderOptions::NONE);
    if !decoder.can_decode() {
        return;
    }
    let instruction = decoder.decode();
    if instruction.is_invalid() {
        return;
    }
    let does = Manual::new().does(&instruction);
    // Of repeated instructions it is not known how much is accessed at once.
    let operand = does
        .accesses()
        .filter(|operand| operand.certainty != Certainty::Counted)
        .find_map(|operand| {
            let kind = crate::watch::kind_of(operand)?;
            let width = u8::try_from(operand.width).ok()?;
            let fits =
                (kind.reads() && access.kind.reads()) || (kind.writes() && access.kind.writes());
            (fits && (1..=64).contains(&width)).then_some((kind, width))
        });
    if let Some((kind, width)) = operand {
        access.kind = kind;
        access.width = width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel composes it: operation, level, snoop, lock.
    const fn source(operation: u64, level: u64, snoop: u64, lock: u64) -> u64 {
        operation | level << 5 | snoop << 19 | lock << 24
    }

    const L3_HIT: u64 = 0x02 | 0x40;

    #[test]
    fn operations_and_locks_make_kinds() {
        let kind = |operation, lock| DataSource(source(operation, L3_HIT, 0x02, lock)).kind();
        assert_eq!(kind(0x02, 0x01), Some(Kind::Read));
        assert_eq!(kind(0x04, 0x01), Some(Kind::Write));
        assert_eq!(kind(0x06, 0x01), Some(Kind::Update));
        assert_eq!(kind(0x02, 0x02), Some(Kind::Atomic));
        // Not available, prefetch, execution.
        assert_eq!(
            (kind(0x01, 0), kind(0x08, 0), kind(0x10, 0)),
            (None, None, None)
        );
    }

    #[test]
    fn hitm_differs_from_other_snoops() {
        for (snoop, hitm) in [
            (0x01, false),
            (0x02, false),
            (0x04, false),
            (0x08, false),
            (0x10, true),
        ] {
            assert_eq!(
                DataSource(source(0x02, L3_HIT, snoop, 0x01)).is_hitm(),
                hitm
            );
        }
        let forward = source(0x02, L3_HIT, 0x02, 0x01) | 1 << 38;
        assert!(!DataSource(forward).is_hitm());
        let peer = source(0x02, L3_HIT, 0x02, 0x01) | 2 << 38;
        assert!(DataSource(peer).is_hitm());
    }

    #[test]
    fn levels_are_read_in_both_encodings() {
        // The value that `perf mem` prints as "LVL Remote RAM (1 hop)".
        let remote = DataSource(source(0x02, 0x02 | 0x100, 0x08, 0x01));
        assert!(remote.is_memory() && remote.is_remote());
        let numbered = DataSource(0x02 | 0x0d << 33 | 1 << 37);
        assert!(numbered.is_memory() && numbered.is_remote());
        let l3 = DataSource(0x02 | 0x03 << 33);
        assert!(!l3.is_memory() && !l3.is_remote());
    }

    fn sample(address: u64, data_source: u64) -> Sample {
        Sample {
            ip: Some(0x40_1000),
            process: Some(7),
            thread: Some(8),
            time: Some(99),
            address: Some(address),
            data_source: Some(data_source),
            ..Sample::default()
        }
    }

    #[test]
    fn a_sample_becomes_an_access_of_its_first_byte() {
        let (process, access, hitm) =
            access_of(&sample(0x8004, source(0x04, L3_HIT, 0x10, 0x01)), 1000).unwrap();
        assert_eq!((process.0, access.thread.0, access.time.0), (7, 8, 99));
        assert_eq!((access.address.0, access.width), (0x8004, 1));
        assert_eq!(
            (access.kind, access.weight, hitm),
            (Kind::Write, 1000.0, true)
        );
        assert_eq!(access.provenance, Provenance::Counted);
        // No address, the kernel's address, no data access.
        assert!(access_of(&sample(0, source(0x02, 0, 0, 0)), 1).is_none());
        assert!(access_of(&sample(u64::MAX - 7, source(0x02, 0, 0, 0)), 1).is_none());
        assert!(access_of(&sample(0x8004, source(0x01, 0, 0, 0)), 1).is_none());
    }

    #[test]
    fn width_is_taken_from_the_instruction() {
        let (_, mut access, _) = access_of(&sample(0x8004, 0x02), 1).unwrap();
        // mov eax,[rdi]
        refine(&mut access, &[0x8b, 0x07]);
        assert_eq!((access.width, access.kind), (4, Kind::Read));
        // lock add qword [rdi],1, of which the PMU saw the load
        refine(&mut access, &[0xf0, 0x48, 0x83, 0x07, 0x01]);
        assert_eq!((access.width, access.kind), (8, Kind::Atomic));
        // mov [rdi],al stores only: not the load that was seen.
        let (_, mut load, _) = access_of(&sample(0x8004, 0x02), 1).unwrap();
        refine(&mut load, &[0x88, 0x07]);
        assert_eq!((load.width, load.kind), (1, Kind::Read));
        refine(&mut load, &[]);
        assert_eq!(load.width, 1);
    }
}
