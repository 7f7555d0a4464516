//! Parses the bytes of the ring into events. Knows the layout of the records that the sampler
//! requests. A record with another layout is left out and counted, never trusted.

use crate::machine::perf_event::{USER_REGISTERS, sample};
use crate::{Event, RawSample, Registers};
use sunder_access::{Address, CodeAddress, Mapping, ProcessId, Span, ThreadId, Time};

/// The fields of each sample. With `sample_id_all`, all other records end with thread, time and
/// CPU, too.
pub(super) const SAMPLE_TYPE: u64 =
    sample::IP | sample::TID | sample::TIME | sample::CPU | sample::PERIOD | sample::REGS_USER;

/// Bytes of the `sample_id` after a record that is no sample: thread, time, CPU.
const TRAILER: usize = 24;

/// `perf_event_header`: type, misc, size.
const HEADER: usize = 8;

/// `PERF_RECORD_MISC_COMM_EXEC`.
const MISC_COMM_EXEC: u16 = 1 << 13;

/// `PERF_SAMPLE_REGS_ABI_64`; 0 means no user registers, 1 a 32-bit program.
const ABI_64: u64 = 2;

/// By its number in `asm/perf_regs.h`, the x86-64 encoding number of a general
/// register: ax bx cx dx si di bp sp.
const ENCODING: [usize; 8] = [0, 3, 1, 2, 6, 7, 5, 4];

/// The parsed records of a part of the ring.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    /// Events by their time.
    pub events: Vec<(Time, Event)>,
    /// Samples without 64-bit user registers, which cannot be decoded.
    pub without_registers: u64,
    /// Records that are not laid out as they must be.
    pub malformed: u64,
}

/// Parses all records in `bytes` and appends them to `out`.
pub(super) fn parse(mut bytes: &[u8], out: &mut Parsed) {
    while let Some(header) = bytes.get(..HEADER) {
        let kind = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let misc = u16::from_le_bytes([header[4], header[5]]);
        let size = usize::from(u16::from_le_bytes([header[6], header[7]]));
        let Some(body) = bytes.get(HEADER..size) else {
            out.malformed += 1;
            return;
        };
        bytes = &bytes[size..];
        if one(kind, misc, body, out).is_none() {
            out.malformed += 1;
        }
    }
}

/// One record; `None` if it is too short for its kind.
fn one(kind: u32, misc: u16, body: &[u8], out: &mut Parsed) -> Option<()> {
    match kind {
        2 => lost(body, out),
        3 => comm(misc, body, out),
        4 => task(body, false, out),
        7 => task(body, true, out),
        9 => user_sample(body, out),
        10 => mmap2(body, out),
        // Throttling, and records that newer kernels add, are not needed.
        _ => Some(()),
    }
}

fn user_sample(body: &[u8], out: &mut Parsed) -> Option<()> {
    let mut fields = Fields(body);
    let ip = fields.u64()?;
    let process = ProcessId(fields.u32()?);
    let thread = ThreadId(fields.u32()?);
    let time = Time(fields.u64()?);
    let cpu = fields.u32()?;
    let _reserved = fields.u32()?;
    let period_ns = fields.u64()?;
    if fields.u64()? != ABI_64 {
        out.without_registers += 1;
        return Some(());
    }
    let mut general = [0; 16];
    for number in ENCODING {
        general[number] = fields.u64()?;
    }
    let user_ip = fields.u64()?;
    for register in &mut general[8..] {
        *register = fields.u64()?;
    }
    // With `exclude_kernel` the clock samples user mode only, where both are the same. If they
    // differ, the registers are those of the entry into the kernel, and `user_ip` is the address
    // after the call.
    if ip != user_ip {
        out.without_registers += 1;
        return Some(());
    }
    let sample = RawSample {
        time,
        process,
        thread,
        cpu,
        period_ns,
        registers: Registers {
            general,
            ip: CodeAddress(ip),
        },
    };
    out.events.push((time, Event::Sample(sample)));
    Some(())
}

fn mmap2(body: &[u8], out: &mut Parsed) -> Option<()> {
    let (body, time) = split_trailer(body)?;
    let mut fields = Fields(body);
    let process = ProcessId(fields.u32()?);
    let _thread = fields.u32()?;
    let (start, len, file_offset) = (fields.u64()?, fields.u64()?, fields.u64()?);
    let _device = fields.u64()?;
    let inode = fields.u64()?;
    let _generation = fields.u64()?;
    let (protection, flags) = (fields.u32()? as i32, fields.u32()? as i32);
    let path = match fields.text() {
        anonymous if anonymous == "//anon" => String::new(),
        path => path,
    };
    let mapping = Mapping {
        span: Span::new(Address(start), len),
        file_offset,
        path,
        inode,
        read: protection & libc::PROT_READ != 0,
        write: protection & libc::PROT_WRITE != 0,
        execute: protection & libc::PROT_EXEC != 0,
        shared: flags & libc::MAP_SHARED != 0,
    };
    let event = Event::Map {
        process,
        time,
        mapping,
    };
    out.events.push((time, event));
    Some(())
}

fn comm(misc: u16, body: &[u8], out: &mut Parsed) -> Option<()> {
    let (body, time) = split_trailer(body)?;
    let mut fields = Fields(body);
    let event = Event::ThreadName {
        process: ProcessId(fields.u32()?),
        thread: ThreadId(fields.u32()?),
        time,
        name: fields.text(),
        exec: misc & MISC_COMM_EXEC != 0,
    };
    out.events.push((time, event));
    Some(())
}

fn task(body: &[u8], start: bool, out: &mut Parsed) -> Option<()> {
    let mut fields = Fields(body);
    let process = ProcessId(fields.u32()?);
    let parent = ProcessId(fields.u32()?);
    let thread = ThreadId(fields.u32()?);
    let _creator = fields.u32()?;
    let time = Time(fields.u64()?);
    let event = if start {
        Event::ThreadStart {
            process,
            parent,
            thread,
            time,
        }
    } else {
        Event::ThreadEnd {
            process,
            thread,
            time,
        }
    };
    out.events.push((time, event));
    Some(())
}

fn lost(body: &[u8], out: &mut Parsed) -> Option<()> {
    let (body, time) = split_trailer(body)?;
    let mut fields = Fields(body);
    let _event = fields.u64()?;
    out.events.push((time, Event::Lost(fields.u64()?)));
    Some(())
}

/// Separates the `sample_id` from a record and reads its time.
fn split_trailer(body: &[u8]) -> Option<(&[u8], Time)> {
    let (record, trailer) = body.split_at_checked(body.len().checked_sub(TRAILER)?)?;
    let mut fields = Fields(trailer);
    let _task = fields.u64()?;
    Some((record, Time(fields.u64()?)))
}

/// Reads little-endian fields from the front.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*field))
    }

    fn u64(&mut self) -> Option<u64> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*field))
    }

    /// Text up to the first zero byte or the end.
    fn text(&self) -> String {
        let end = self.0.iter().position(|&byte| byte == 0);
        String::from_utf8_lossy(&self.0[..end.unwrap_or(self.0.len())]).into_owned()
    }
}

/// The registers of the samples are those that `ENCODING` and the order of
/// `user_sample` read.
const _: () = assert!(USER_REGISTERS == 0x1ff | 0xff << 16);

#[cfg(test)]
mod tests {
    use super::*;

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
