//! The layout of `PERF_RECORD_SAMPLE`, as `linux/perf_event.h` documents it.
//!
//! The watchpoints, the PMU sampler and the import of files parse their samples here. It must not
//! trust a length in a record: files come from anywhere. A record that contradicts its layout is
//! no sample.

use crate::Registers;
use crate::machine::perf_event::sample;
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

/// Little-endian numbers from the front of a record.
pub(crate) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    /// Skips `count` elements of `size` bytes.
    fn skip(&mut self, count: u64, size: u64) -> Option<()> {
        let bytes = usize::try_from(count.checked_mul(size)?).ok()?;
        self.bytes(bytes).map(drop)
    }
}

impl SampleLayout {
    pub(crate) const fn has(&self, field: u64) -> bool {
        self.sample_type & field != 0
    }

    /// Whether every sample has all general registers and the instruction pointer.
    pub(crate) const fn has_registers(&self) -> bool {
        use crate::machine::perf_event::USER_REGISTERS;
        self.has(sample::REGS_USER) && self.user_registers & USER_REGISTERS == USER_REGISTERS
    }

    /// Reads the body of a sample (without the record's header). `None` if it is
    /// shorter than its fields say.
    pub(crate) fn parse(&self, body: &[u8]) -> Option<Sample> {
        let mut rest = Fields(body);
        let mut found = Sample::default();
        self.parse_fixed(&mut rest, &mut found)?;
        if self.has(sample::READ) && self.read_format == 0 {
            found.count = Some(rest.u64()?);
        } else if self.has(sample::READ) {
            self.skip_counts(&mut rest)?;
        }
        if self.has(sample::CALLCHAIN) {
            let frames = rest.u64()?;
            rest.skip(frames, 8)?;
        }
        if self.has(sample::RAW) {
            let bytes = rest.u32()?;
            rest.skip(bytes.into(), 1)?;
        }
        if self.has(sample::BRANCH_STACK) {
            self.skip_branches(&mut rest)?;
        }
        if self.has(sample::REGS_USER) {
            found.registers = self.parse_registers(&mut rest)?;
        }
        if self.has(sample::STACK_USER) {
            let bytes = rest.u64()?;
            rest.skip(bytes, 1)?;
            if bytes != 0 {
                rest.u64()?;
            }
        }
        if self.has(sample::WEIGHT | sample::WEIGHT_STRUCT) {
            let weight = rest.u64()?;
            // In the divided form the lowest 32 bits are the latency, in the undivided one all are.
            found.weight = Some(if self.has(sample::WEIGHT_STRUCT) {
                weight & 0xffff_ffff
            } else {
                weight
            });
        }
        if self.has(sample::DATA_SRC) {
            found.data_source = Some(rest.u64()?);
        }
        Some(found)
    }

    /// The samples in `records`, which are whole; malformed ones are left out.
    pub(crate) fn samples(&self, mut records: &[u8]) -> Vec<Sample> {
        const HEADER: usize = 8;
        const SAMPLE: u32 = 9;
        let mut found = Vec::new();
        while let Some((&[k0, k1, k2, k3, _, _, s0, s1], _)) = records.split_first_chunk() {
            let size = usize::from(u16::from_le_bytes([s0, s1]));
            let Some(body) = records.get(HEADER..size) else {
                break;
            };
            if u32::from_le_bytes([k0, k1, k2, k3]) == SAMPLE {
                found.extend(self.parse(body));
            }
            records = &records[size..];
        }
        found
    }

    fn parse_fixed(&self, rest: &mut Fields<'_>, found: &mut Sample) -> Option<()> {
        if self.has(sample::IDENTIFIER) {
            rest.u64()?;
        }
        if self.has(sample::IP) {
            found.ip = Some(rest.u64()?);
        }
        if self.has(sample::TID) {
            found.process = Some(rest.u32()?);
            found.thread = Some(rest.u32()?);
        }
        if self.has(sample::TIME) {
            found.time = Some(rest.u64()?);
        }
        if self.has(sample::ADDR) {
            found.address = Some(rest.u64()?);
        }
        if self.has(sample::ID) {
            rest.u64()?;
        }
        if self.has(sample::STREAM_ID) {
            rest.u64()?;
        }
        if self.has(sample::CPU) {
            found.cpu = Some(rest.u32()?);
            rest.u32()?;
        }
        if self.has(sample::PERIOD) {
            found.period = Some(rest.u64()?);
        }
        Some(())
    }

    fn skip_counts(&self, rest: &mut Fields<'_>) -> Option<()> {
        const TIME_ENABLED: u64 = 1 << 0;
        const TIME_RUNNING: u64 = 1 << 1;
        const ID: u64 = 1 << 2;
        const GROUP: u64 = 1 << 3;
        const LOST: u64 = 1 << 4;
        let bits = |mask: u64| u64::from((self.read_format & mask).count_ones());
        let times = bits(TIME_ENABLED | TIME_RUNNING);
        let each = 1 + bits(ID | LOST);
        let counters = if self.read_format & GROUP != 0 {
            rest.u64()?
        } else {
            1
        };
        rest.skip(times, 8)?;
        rest.skip(counters, each * 8)
    }

    fn skip_branches(&self, rest: &mut Fields<'_>) -> Option<()> {
        const HW_INDEX: u64 = 1 << 17;
        const COUNTERS: u64 = 1 << 19;
        let branches = rest.u64()?;
        if self.branch_sample_type & HW_INDEX != 0 {
            rest.u64()?;
        }
        rest.skip(branches, 24)?;
        if self.branch_sample_type & COUNTERS != 0 {
            rest.skip(branches, 8)?;
        }
        Some(())
    }

    fn parse_registers(&self, rest: &mut Fields<'_>) -> Option<Option<Registers>> {
        /// `PERF_SAMPLE_REGS_ABI_NONE`: the sample hit a kernel thread.
        const ABI_NONE: u64 = 0;
        const ABI_64: u64 = 2;
        let abi = rest.u64()?;
        if abi == ABI_NONE {
            return Some(None);
        }
        let mut registers = Registers::default();
        for number in (0..64).filter(|number| self.user_registers >> number & 1 == 1) {
            let value = rest.u64()?;
            if number == REGISTER_IP {
                registers.ip = CodeAddress(value);
            } else if let Some(encoding) = encoding_of(number) {
                registers.general[encoding] = value;
            }
        }
        Some((abi == ABI_64 && self.has_registers()).then_some(registers))
    }
}

/// `PERF_REG_X86_IP`.
const REGISTER_IP: usize = 8;

/// The x86-64 encoding number of a general register in the numbering of
/// `asm/perf_regs.h`.
const fn encoding_of(number: usize) -> Option<usize> {
    /// AX BX CX DX SI DI BP SP.
    const LEGACY: [usize; 8] = [0, 3, 1, 2, 6, 7, 5, 4];
    match number {
        0..8 => Some(LEGACY[number]),
        16..24 => Some(number - 8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::perf_event::USER_REGISTERS;

    fn body(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn registers_get_their_encoding_numbers() {
        let layout = SampleLayout {
            sample_type: sample::IP | sample::REGS_USER,
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
            sample_type: sample::REGS_USER,
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
            sample_type: sample::IDENTIFIER
                | sample::READ
                | sample::CALLCHAIN
                | sample::RAW
                | sample::BRANCH_STACK
                | sample::STACK_USER
                | sample::WEIGHT_STRUCT
                | sample::DATA_SRC,
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
            (sample::CALLCHAIN, u64::MAX),
            (sample::CALLCHAIN, u64::MAX / 8 + 2),
            (sample::BRANCH_STACK, u64::MAX / 24 + 1),
            (sample::STACK_USER, u64::MAX),
            (sample::RAW, u64::MAX),
        ] {
            let layout = SampleLayout {
                sample_type: field,
                ..SampleLayout::default()
            };
            assert_eq!(layout.parse(&body(&[claim, 0, 0])), None, "{field:#x}");
        }
    }
}
