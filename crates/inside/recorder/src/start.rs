//! The description of a recording, and the trace file's first block. Contexts: normal, before any
//! thread is recorded.

use crate::file::{self, File};
use crate::memory::map;
use crate::refusal::Refusal;
use crate::ticks::Ticks;
use sunder_guest::system;
use sunder_trace::block::{BlockHeader, Kind};
use sunder_trace::meta::{Clock, HeaderParts, Progress, Via};

/// The trace file, and the description of the program.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The file's path, absolute and with a final zero byte. The file must be empty or not exist.
    pub path: &'a [u8],
    /// The kind of recorder.
    pub via: Via,
    /// Size of the machine's cache line in bytes; 0 if it is not known.
    pub line_size: u32,
    /// The program's file and its arguments, each with a final zero byte; `None` stands for those
    /// of this process.
    pub program: Option<(&'a [u8], &'a [u8])>,
}

/// Writes the first block: the machine, the program and the clocks.
pub(crate) fn write_header(file: &File, start: &Start<'_>, clock: Clock) -> Result<(), Refusal> {
    const SCRATCH: usize = 256 << 10;
    let memory = map(SCRATCH, sunder_access::PAGE_SIZE).ok_or(Refusal::Memory)?;
    // SAFETY: new zeroed memory that no other thread has. It is never unmapped, because a
    // process writes one header only.
    let scratch = unsafe { core::slice::from_raw_parts_mut(memory.as_ptr(), SCRATCH) };
    let (program, rest) = scratch.split_at_mut(8 << 10);
    let (arguments, payload) = rest.split_at_mut(96 << 10);
    let (program, arguments) = match start.program {
        Some(known) => known,
        None => own_program(program, arguments),
    };
    let parts = HeaderParts {
        via: start.via,
        clock,
        line_size: start.line_size,
        process: system::process_id(),
        ticks: clock.before(),
        monotonic: system::clock(libc::CLOCK_MONOTONIC),
        realtime: system::clock(libc::CLOCK_REALTIME),
        program,
        arguments,
    };
    let bytes = parts.write(payload).ok_or(Refusal::Memory)?;
    let payload = payload.get(..bytes).unwrap_or_default();
    let header = BlockHeader {
        first: parts.ticks,
        last: parts.ticks,
        clock: parts.monotonic,
        ..BlockHeader::plain(Kind::Header, bytes as u32, 1)
    };
    file.write_start(&Progress::default().prefix())
        .and_then(|()| file.append(&[&header.encoded(payload), payload]))
        .map_err(Refusal::File)
}

/// The program and the arguments of this process.
fn own_program<'a>(program: &'a mut [u8], arguments: &'a mut [u8]) -> (&'a [u8], &'a [u8]) {
    let length = system::read_link(c"/proc/self/exe", program);
    let mut read = 0;
    if let Ok(fd) = file::open(b"/proc/self/cmdline\0", libc::O_RDONLY) {
        read = file::read(fd, arguments);
        system::close(fd);
    }
    (
        program.get(..length).unwrap_or_default(),
        arguments.get(..read).unwrap_or_default(),
    )
}
