//! The layout of `PERF_RECORD_SAMPLE`, as `linux/perf_event.h` documents it.
//!
//! It must not trust a length in a record: files come from anywhere. A record that contradicts its
//! layout is no sample.

use super::{Fields, Records, USER_REGISTERS, kernel};
use crate::Registers;
use sunder_access::CodeAddress;

/// The fields in the samples of one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SampleLayout {
    /// The attribute's `sample_type`.
    pub sample_type: u64,
    /// The attribute's `read_format`.
    pub read_format: u64,
    /// The attribute's `branch_sample_type`.
    pub branch_sample_type: u64,
    /// The attribute's `sample_regs_user`.
    pub user_registers: u64,
}

/// The fields that observers use; `None` where the event does not have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    pub ip: Option<u64>,
    pub process: Option<u32>,
    pub thread: Option<u32>,
    pub time: Option<u64>,
    pub address: Option<u64>,
    pub cpu: Option<u32>,
    pub period: Option<u64>,
    /// The event's own count, if the sample has a single count without times and ids.
    pub count: Option<u64>,
    /// All sixteen general registers and the instruction pointer; `None` if one
    /// of them was not recorded or the code was not 64-bit.
    pub registers: Option<Registers>,
    pub weight: Option<u64>,
    pub data_source: Option<u64>,
}

impl SampleLayout {
    /// Whether the samples have one of `fields`, which are `PERF_SAMPLE_*`.
    pub(crate) const fn has(&self, fields: u32) -> bool {
        self.sample_type & fields as u64 != 0
    }

    /// The time of a record that is no sample, from its trailer (`struct sample_id`): time,
    /// numbers of the event, CPU, identifier.
    pub(crate) fn trailer_time(&self, body: &[u8]) -> Option<u64> {
        const FROM_TIME_ON: u32 = kernel::PERF_SAMPLE_TIME
            | kernel::PERF_SAMPLE_ID
            | kernel::PERF_SAMPLE_STREAM_ID
            | kernel::PERF_SAMPLE_CPU
            | kernel::PERF_SAMPLE_IDENTIFIER;
        if !self.has(kernel::PERF_SAMPLE_TIME) {
            return None;
        }
        let fields = (self.sample_type & u64::from(FROM_TIME_ON)).count_ones() as usize;
        let at = body.len().checked_sub(fields * 8)?;
        Fields(&body[at..]).u64()
    }

    /// Whether every sample has all general registers and the instruction pointer.
    pub(crate) const fn has_registers(&self) -> bool {
        self.has(kernel::PERF_SAMPLE_REGS_USER)
            && self.user_registers & USER_REGISTERS == USER_REGISTERS
    }

    /// Reads the body of a sample (without the record's header). `None` if it is
    /// shorter than its fields say.
    pub(crate) fn parse(&self, body: &[u8]) -> Option<Sample> {
        let mut rest = Fields(body);
        let mut found = Sample::default();
        self.parse_fixed(&mut rest, &mut found)?;
        if self.has(kernel::PERF_SAMPLE_READ) && self.read_format == 0 {
            found.count = Some(rest.u64()?);
        } else if self.has(kernel::PERF_SAMPLE_READ) {
            self.skip_counts(&mut rest)?;
        }
        if self.has(kernel::PERF_SAMPLE_CALLCHAIN) {
            let frames = rest.u64()?;
            rest.skip(frames, 8)?;
        }
        if self.has(kernel::PERF_SAMPLE_RAW) {
            let bytes = rest.u32()?;
            rest.skip(bytes.into(), 1)?;
        }
        if self.has(kernel::PERF_SAMPLE_BRANCH_STACK) {
            self.skip_branches(&mut rest)?;
        }
        if self.has(kernel::PERF_SAMPLE_REGS_USER) {
            found.registers = self.parse_registers(&mut rest)?;
        }
        if self.has(kernel::PERF_SAMPLE_STACK_USER) {
            let bytes = rest.u64()?;
            rest.skip(bytes, 1)?;
            if bytes != 0 {
                rest.u64()?;
            }
        }
        if self.has(kernel::PERF_SAMPLE_WEIGHT | kernel::PERF_SAMPLE_WEIGHT_STRUCT) {
            let weight = rest.u64()?;
            // In the divided form the lowest 32 bits are the latency, in the undivided one all are.
            found.weight = Some(if self.has(kernel::PERF_SAMPLE_WEIGHT_STRUCT) {
                weight & 0xffff_ffff
            } else {
                weight
            });
        }
        if self.has(kernel::PERF_SAMPLE_DATA_SRC) {
            found.data_source = Some(rest.u64()?);
        }
        Some(found)
    }

    /// The samples in `records`; malformed ones are left out.
    pub(crate) fn samples(&self, records: &[u8]) -> Vec<Sample> {
        Records::new(records)
            .filter(|record| record.kind == kernel::PERF_RECORD_SAMPLE)
            .filter_map(|record| self.parse(record.body))
            .collect()
    }

    fn parse_fixed(&self, rest: &mut Fields<'_>, found: &mut Sample) -> Option<()> {
        if self.has(kernel::PERF_SAMPLE_IDENTIFIER) {
            rest.u64()?;
        }
        if self.has(kernel::PERF_SAMPLE_IP) {
            found.ip = Some(rest.u64()?);
        }
        if self.has(kernel::PERF_SAMPLE_TID) {
            found.process = Some(rest.u32()?);
            found.thread = Some(rest.u32()?);
        }
        if self.has(kernel::PERF_SAMPLE_TIME) {
            found.time = Some(rest.u64()?);
        }
        if self.has(kernel::PERF_SAMPLE_ADDR) {
            found.address = Some(rest.u64()?);
        }
        if self.has(kernel::PERF_SAMPLE_ID) {
            rest.u64()?;
        }
        if self.has(kernel::PERF_SAMPLE_STREAM_ID) {
            rest.u64()?;
        }
        if self.has(kernel::PERF_SAMPLE_CPU) {
            found.cpu = Some(rest.u32()?);
            rest.u32()?;
        }
        if self.has(kernel::PERF_SAMPLE_PERIOD) {
            found.period = Some(rest.u64()?);
        }
        Some(())
    }

    fn skip_counts(&self, rest: &mut Fields<'_>) -> Option<()> {
        let bits = |mask: u32| u64::from((self.read_format & u64::from(mask)).count_ones());
        let times =
            bits(kernel::PERF_FORMAT_TOTAL_TIME_ENABLED | kernel::PERF_FORMAT_TOTAL_TIME_RUNNING);
        let each = 1 + bits(kernel::PERF_FORMAT_ID | kernel::PERF_FORMAT_LOST);
        let counters = if bits(kernel::PERF_FORMAT_GROUP) != 0 {
            rest.u64()?
        } else {
            1
        };
        rest.skip(times, 8)?;
        rest.skip(counters, each * 8)
    }

    fn skip_branches(&self, rest: &mut Fields<'_>) -> Option<()> {
        let with = |flag: u32| self.branch_sample_type & u64::from(flag) != 0;
        let branches = rest.u64()?;
        if with(kernel::PERF_SAMPLE_BRANCH_HW_INDEX) {
            rest.u64()?;
        }
        rest.skip(branches, 24)?;
        if with(kernel::PERF_SAMPLE_BRANCH_COUNTERS) {
            rest.skip(branches, 8)?;
        }
        Some(())
    }

    fn parse_registers(&self, rest: &mut Fields<'_>) -> Option<Option<Registers>> {
        let abi = rest.u64()?;
        if abi == u64::from(kernel::PERF_SAMPLE_REGS_ABI_NONE) {
            // The sample hit a kernel thread.
            return Some(None);
        }
        let mut registers = Registers::default();
        for number in (0..64).filter(|number: &u32| self.user_registers >> number & 1 == 1) {
            let value = rest.u64()?;
            if number == kernel::PERF_REG_X86_IP {
                registers.ip = CodeAddress(value);
            } else if let Some(encoding) = encoding_of(number) {
                registers.general[encoding] = value;
            }
        }
        Some(
            (abi == u64::from(kernel::PERF_SAMPLE_REGS_ABI_64) && self.has_registers())
                .then_some(registers),
        )
    }
}

/// The x86-64 encoding number of a general register in the numbering of
/// `asm/perf_regs.h`.
const fn encoding_of(number: u32) -> Option<usize> {
    Some(match number {
        kernel::PERF_REG_X86_AX => 0,
        kernel::PERF_REG_X86_CX => 1,
        kernel::PERF_REG_X86_DX => 2,
        kernel::PERF_REG_X86_BX => 3,
        kernel::PERF_REG_X86_SP => 4,
        kernel::PERF_REG_X86_BP => 5,
        kernel::PERF_REG_X86_SI => 6,
        kernel::PERF_REG_X86_DI => 7,
        kernel::PERF_REG_X86_R8..=kernel::PERF_REG_X86_R15 => {
            (number - kernel::PERF_REG_X86_R8) as usize + 8
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn registers_get_their_encoding_numbers() {
        let layout = SampleLayout {
            sample_type: (kernel::PERF_SAMPLE_IP | kernel::PERF_SAMPLE_REGS_USER).into(),
            user_registers: USER_REGISTERS,
            ..SampleLayout::default()
        };
        // ip, abi, then AX BX CX DX SI DI BP SP IP R8..R15.
        let words: Vec<u64> = [0x40, 2].into_iter().chain(100..117).collect();
        let registers = layout.parse(&body(&words)).unwrap().registers.unwrap();
        assert_eq!(
            registers.general[..8],
            [100, 102, 103, 101, 107, 106, 104, 105]
        );
        assert_eq!(registers.ip, CodeAddress(108));
        assert_eq!(
            registers.general[8..],
            [109, 110, 111, 112, 113, 114, 115, 116]
        );
    }

    #[test]
    fn code_of_32_bits_and_partial_masks_have_no_registers() {
        let mut layout = SampleLayout {
            sample_type: (kernel::PERF_SAMPLE_REGS_USER).into(),
            user_registers: USER_REGISTERS,
            ..SampleLayout::default()
        };
        let words: Vec<u64> = [1].into_iter().chain(0..17).collect();
        assert_eq!(layout.parse(&body(&words)).unwrap().registers, None);
        layout.user_registers = 0x1ff;
        let words: Vec<u64> = [2].into_iter().chain(0..9).collect();
        assert_eq!(layout.parse(&body(&words)).unwrap().registers, None);
    }

    #[test]
    fn every_optional_part_is_skipped_by_its_own_length() {
        let layout = SampleLayout {
            sample_type: (kernel::PERF_SAMPLE_IDENTIFIER
                | kernel::PERF_SAMPLE_READ
                | kernel::PERF_SAMPLE_CALLCHAIN
                | kernel::PERF_SAMPLE_RAW
                | kernel::PERF_SAMPLE_BRANCH_STACK
                | kernel::PERF_SAMPLE_STACK_USER
                | kernel::PERF_SAMPLE_WEIGHT_STRUCT
                | kernel::PERF_SAMPLE_DATA_SRC)
                .into(),
            read_format: 0b1111, // group, id, both times
            branch_sample_type: 1 << 17,
            user_registers: 0,
        };
        let words = [
            77, // identifier
            2,
            0,
            0,
            5,
            6,
            5,
            6, // two counters with times and ids
            3,
            1,
            2,
            3, // call chain
            4, // raw: size 4, four bytes
            1,
            9,
            1,
            2,
            3, // one branch with hardware index
            8,
            0,
            8,                // stack: 8 bytes, dynamic size
            0xdead_0000_0015, // weight: latency 0x15 in the lower half
            0x1234,
        ];
        let sample = layout.parse(&body(&words)).unwrap();
        // 0xdead of the upper half is another field of the structure.
        assert_eq!(sample.weight, Some(0x15));
        assert_eq!(sample.data_source, Some(0x1234));
    }

    #[test]
    fn a_length_beyond_the_record_is_no_sample() {
        for (field, claim) in [
            (kernel::PERF_SAMPLE_CALLCHAIN, u64::MAX),
            (kernel::PERF_SAMPLE_CALLCHAIN, u64::MAX / 8 + 2),
            (kernel::PERF_SAMPLE_BRANCH_STACK, u64::MAX / 24 + 1),
            (kernel::PERF_SAMPLE_STACK_USER, u64::MAX),
            (kernel::PERF_SAMPLE_RAW, u64::MAX),
        ] {
            let layout = SampleLayout {
                sample_type: field.into(),
                ..SampleLayout::default()
            };
            assert_eq!(layout.parse(&body(&[claim, 0, 0])), None, "{field:#x}");
        }
    }
}
