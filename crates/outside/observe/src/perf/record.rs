//! Parses the bytes of the ring into events. A record with another layout than the sampler requests
//! is left out and counted, never trusted.

use crate::perf_event::{
    Inodes, Record, Records, Sample, SampleLayout, USER_REGISTERS, event_of, kernel,
};
use crate::{Event, RawSample};
use sunder_access::{ProcessId, ThreadId, Time};

/// The fields of each sample. With `sample_id_all`, all other records end with thread, time and
/// CPU, too.
pub(super) const LAYOUT: SampleLayout = SampleLayout {
    sample_type: (kernel::PERF_SAMPLE_IP
        | kernel::PERF_SAMPLE_TID
        | kernel::PERF_SAMPLE_TIME
        | kernel::PERF_SAMPLE_CPU
        | kernel::PERF_SAMPLE_PERIOD
        | kernel::PERF_SAMPLE_REGS_USER) as u64,
    read_format: 0,
    branch_sample_type: 0,
    user_registers: USER_REGISTERS,
};

/// The parsed records of a part of the ring.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    /// Events by their time.
    pub events: Vec<(Time, Event)>,
    /// Samples without 64-bit user registers, which cannot be decoded.
    pub without_registers: u64,
    /// Records that are not laid out as they must be.
    pub malformed: u64,
    inodes: Inodes,
}

/// Parses all records in `bytes` and appends them to `out`.
pub(super) fn parse(bytes: &[u8], out: &mut Parsed) {
    let mut records = Records::new(bytes);
    for record in &mut records {
        if one(&record, out).is_none() {
            out.malformed += 1;
        }
    }
    out.malformed += u64::from(!records.rest().is_empty());
}

/// One record; `None` if it is too short for its kind.
fn one(record: &Record<'_>, out: &mut Parsed) -> Option<()> {
    if record.kind == kernel::PERF_RECORD_SAMPLE {
        match raw_sample(&LAYOUT.parse(record.body)?) {
            Some(sample) => out.events.push((sample.time, Event::Sample(sample))),
            None => out.without_registers += 1,
        }
        return Some(());
    }
    let trailer = LAYOUT.trailer_time(record.body).map(Time);
    let event = event_of(record, trailer.unwrap_or_default(), &mut out.inodes);
    if let Some(event) = event.ok()? {
        out.events.push((event.time().or(trailer)?, event));
    }
    Some(())
}

/// `None` without the registers of 64-bit user code.
fn raw_sample(sample: &Sample) -> Option<RawSample> {
    // With `exclude_kernel` the clock samples user mode only, where both addresses are the same. If
    // they differ, the registers are those of the entry into the kernel, and their instruction
    // pointer is the address after the call.
    let registers = sample
        .registers
        .filter(|user| Some(user.ip.0) == sample.ip)?;
    Some(RawSample {
        time: Time(sample.time?),
        process: ProcessId(sample.process?),
        thread: ThreadId(sample.thread?),
        cpu: sample.cpu?,
        period_ns: sample.period?,
        registers,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::{Address, CodeAddress, Span};

    const ABI_64: u64 = 2;

    fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend(misc.to_le_bytes());
        bytes.extend((body.len() as u16 + 8).to_le_bytes());
        bytes.extend(body);
        bytes
    }

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    const TASK: u64 = 7 | 8 << 32;

    #[test]
    fn a_sample_puts_registers_in_encoding_order() {
        // Register i of the kernel's numbering holds 100 + i; ip is number 8.
        let mut body = words(&[108, TASK, 55, 3, 250_000, ABI_64]);
        body.extend(words(&(100..109).collect::<Vec<_>>()));
        body.extend(words(&(116..124).collect::<Vec<_>>()));
        let mut out = Parsed::default();
        parse(&record(9, 2, &body), &mut out);
        let [(Time(55), Event::Sample(sample))] = out.events[..] else {
            panic!("{out:?}");
        };
        assert_eq!((sample.process.0, sample.thread.0, sample.cpu), (7, 8, 3));
        assert_eq!(sample.period_ns, 250_000);
        assert_eq!(sample.registers.ip, CodeAddress(108));
        // rax rcx rdx rbx rsp rbp rsi rdi = AX CX DX BX SP BP SI DI.
        assert_eq!(
            sample.registers.general[..8],
            [100, 102, 103, 101, 107, 106, 104, 105]
        );
        assert_eq!(
            sample.registers.general[8..],
            [116, 117, 118, 119, 120, 121, 122, 123]
        );
    }

    #[test]
    fn a_sample_without_registers_is_counted_and_left_out() {
        let mut out = Parsed::default();
        parse(
            &record(9, 2, &words(&[1, TASK, 55, 3, 250_000, 0])),
            &mut out,
        );
        assert_eq!(
            (out.events.len(), out.without_registers, out.malformed),
            (0, 1, 0)
        );
    }

    #[test]
    fn a_mapping_has_its_path_and_rights() {
        let mut body = words(&[TASK, 0x40_0000, 0x2000, 0x1000, 0, 99, 0]);
        body.extend(words(&[5 | 2 << 32])); // PROT_READ | PROT_EXEC, MAP_PRIVATE
        body.extend(b"/bin/x\0\0");
        body.extend(words(&[TASK, 77, 0]));
        let mut out = Parsed::default();
        parse(&record(10, 0, &body), &mut out);
        let [
            (
                Time(77),
                Event::Map {
                    process, mapping, ..
                },
            ),
        ] = &out.events[..]
        else {
            panic!("{out:?}");
        };
        assert_eq!(process.0, 7);
        assert_eq!(mapping.span, Span::new(Address(0x40_0000), 0x2000));
        assert_eq!((mapping.file_offset, mapping.inode), (0x1000, 99));
        assert_eq!(mapping.path, "/bin/x");
        assert!(mapping.read && mapping.execute && !mapping.write && !mapping.shared);
    }

    #[test]
    fn truncated_and_unknown_records_do_no_harm() {
        let good = record(4, 0, &words(&[TASK, TASK, 5, 0, 5, 0]));
        let mut bytes = record(250, 0, &words(&[1]));
        bytes.extend(record(10, 0, &words(&[1])));
        bytes.extend(&good);
        bytes.extend(&good[..20]);
        let mut out = Parsed::default();
        parse(&bytes, &mut out);
        assert_eq!((out.events.len(), out.malformed), (1, 2));
        // A size of zero would loop for ever.
        parse(&[0; 64], &mut Parsed::default());
    }
}
