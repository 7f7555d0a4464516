//! What pointers in memory were worth at the time of a sample, for accesses of
//! which the decoder knows only the [`Slot`] that they go through. Fed with each
//! sample of a living process and, after a batch of them, told to read; then
//! asked for the batch's slots. Must not stop the process.
//!
//! The slot is read between samples, not with them. A value counts for a sample
//! if the last readings before it and the first after it agree, so that the
//! pointer probably stayed in between. The two can agree although the slot held
//! something else at the sample (ABA):
//!
//! - *The pointer moved and came back.* Then it is still a value that this
//!   thread keeps in this variable, and the instruction does use it, at another
//!   time. Variables that their function stores to in more than one place name
//!   no slot at all (see the decoder).
//! - *The stack slot belongs to another function at the time of the readings.*
//!   So a value counts only if nearly all of the thread's samples are in the
//!   frame that holds the slot ([`AT_HOME`]), because readings are taken where
//!   samples are: at any time when the thread runs. With nine tenths at home and
//!   three readings, all in the other tenth, that is one in a thousand.
//! - *The thread sleeps at the readings*, in one and the same function each time,
//!   while samples are taken only when it runs. So a sleeping thread's slots are
//!   not read.
//!
//! What remains is a thread that waits for a CPU with a foreign value in the
//! slot, again and again. This reasoning holds in probability only; the
//! addresses of the decoder itself are certain.

use crate::decode::{Decoded, Slot};
use crate::{NearAccess, RawSample};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use sunder_access::{Address, CodeAddress, ProcessId, ThreadId, Time};

/// Slots that are kept in mind at most; new ones wait until old ones are
/// forgotten.
const MAX_SLOTS: usize = 4096;
/// Slots and threads that no sample asked for so long are forgotten, in ns.
const FORGET_AFTER: u64 = 1_000_000_000;
/// Pieces of memory read at a time; each costs the kernel about 0.7 us.
const MAX_PIECES: usize = 32;
/// Slots closer than this are read as one piece, in bytes.
const PIECE: u64 = 256;
/// Pieces that turned out not to be mapped, after which a reading ends.
const MAX_HOLES: usize = 4;
/// Threads whose state is looked at; each costs a file descriptor.
const MAX_THREADS: usize = 64;

/// Equal readings that a slot outside the stack needs: one before the sample and
/// one after it.
const READINGS: u32 = 2;
/// Equal readings that a slot on the stack needs.
const STACK_READINGS: u32 = 3;
/// What part of a thread's samples must be in the frame that holds the slot, in
/// percent.
const AT_HOME: u32 = 90;
/// Samples needed to tell that part, and how many are remembered.
const HOME_SAMPLES: std::ops::Range<u32> = 8..64;
/// Frames counted for a thread; more mean that it is at home nowhere.
const FRAMES: usize = 8;
/// What lies that close above the stack pointer is taken for the stack.
const STACK: u64 = 8 << 20;
/// Bytes below the stack pointer that functions use (System V ABI, red zone).
const RED_ZONE: u64 = 128;
const RSP: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    process: ProcessId,
    /// A slot is read for each thread anew: what one thread's samples need says
    /// nothing about another's.
    thread: ThreadId,
    address: u64,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    time: Time,
    value: u64,
}

#[derive(Debug)]
struct Known {
    asked: Time,
    /// By samples since the last reading.
    asks: u32,
    last: Option<Reading>,
    /// Readings up to the last that agree.
    equal: u32,
    /// When the first of them was.
    since: Time,
}

/// A function at a depth of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    function: CodeAddress,
    stack_pointer: u64,
}

#[derive(Debug, Default)]
struct Thread {
    seen: Time,
    frames: Vec<(Frame, u32)>,
    samples: u32,
    /// Tells whether it runs; kept open because opening costs ten times as much
    /// as reading.
    state: Option<File>,
}

impl Thread {
    fn sampled(&mut self, frame: Option<Frame>) {
        self.samples += 1;
        let Some(frame) = frame else { return };
        let has_room = self.frames.len() < FRAMES;
        match self.frames.iter_mut().find(|(known, _)| *known == frame) {
            Some((_, count)) => *count += 1,
            None if has_room => self.frames.push((frame, 1)),
            None => {}
        }
        if self.samples >= HOME_SAMPLES.end {
            self.samples /= 2;
            self.frames.iter_mut().for_each(|(_, count)| *count /= 2);
            self.frames.retain(|(_, count)| *count > 0);
        }
    }

    fn is_at_home(&self, frame: Frame) -> bool {
        let count = self.frames.iter().find(|(known, _)| *known == frame);
        let count = count.map_or(0, |(_, count)| *count);
        self.samples >= HOME_SAMPLES.start && count * 100 >= self.samples * AT_HOME
    }

    /// Whether it runs or could run. A thread that can't be asked does not.
    fn runs(&mut self, process: ProcessId, thread: ThreadId) -> bool {
        let path = || format!("/proc/{process}/task/{thread}/syscall");
        if self.state.is_none() {
            self.state = File::open(path()).ok();
        }
        let Some(file) = &self.state else {
            return false;
        };
        let mut text = [0; 8];
        match file.read_at(&mut text, 0) {
            // Otherwise the number of the system call, or -1 in a page fault.
            Ok(read) => text[..read].starts_with(b"running"),
            Err(_) => {
                self.state = None;
                false
            }
        }
    }
}

/// See the module's head.
#[derive(Debug, Default)]
pub struct SlotReader {
    slots: HashMap<Key, Known>,
    threads: HashMap<(ProcessId, ThreadId), Thread>,
    refused: Option<io::Error>,
    /// When the last reading began.
    read_at: Time,
    swept: Time,
}

impl SlotReader {
    /// A reader that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note of a sample and of the slots that it needs.
    pub fn sampled(&mut self, sample: &RawSample, decoded: &Decoded) {
        if self.refused.is_some() {
            return;
        }
        let of = (sample.process, sample.thread);
        let thread = self.threads.entry(of).or_default();
        thread.seen = sample.time;
        thread.sampled(frame(sample, decoded));
        for slot in decoded.near.iter().filter_map(|near| near.through) {
            let key = key(sample, slot);
            if self.slots.len() >= MAX_SLOTS && !self.slots.contains_key(&key) {
                continue;
            }
            let known = self.slots.entry(key).or_insert(Known {
                asked: sample.time,
                asks: 0,
                last: None,
                equal: 0,
                since: sample.time,
            });
            known.asked = sample.time;
            known.asks += 1;
        }
    }

    /// Reads the slots that samples since the last call need. `now` must not be
    /// before any of them.
    pub fn read(&mut self, now: Time) {
        self.read_at = now;
        if self.refused.is_some() {
            return;
        }
        for (process, keys) in self.wanted() {
            if let Err(error) = self.read_process(process, &keys, now) {
                self.refused = Some(error);
                self.slots = HashMap::new();
                self.threads = HashMap::new();
                return;
            }
        }
        if now.since(self.swept) >= FORGET_AFTER {
            self.swept = now;
            let is_old = |time: Time| now.since(time) > FORGET_AFTER;
            self.slots.retain(|_, known| !is_old(known.asked));
            self.threads.retain(|_, thread| !is_old(thread.seen));
        }
    }

    /// Where an access of `sample` through a slot was, if the last readings tell.
    pub fn resolve(
        &self,
        sample: &RawSample,
        decoded: &Decoded,
        near: &NearAccess,
    ) -> Option<Address> {
        let slot = near.through?;
        let known = self.slots.get(&key(sample, slot))?;
        let last = known.last.filter(|last| last.time == self.read_at)?;
        let between = known.since < sample.time && sample.time <= last.time;
        let top = sample.registers.general[RSP].wrapping_sub(RED_ZONE);
        let steady = if slot.address.0.wrapping_sub(top) < STACK {
            let thread = self.threads.get(&(sample.process, sample.thread))?;
            known.equal >= STACK_READINGS && thread.is_at_home(frame(sample, decoded)?)
        } else {
            known.equal >= READINGS
        };
        (between && steady).then(|| Address(last.value).offset(slot.add))
    }

    /// The process is gone, or became another program.
    pub fn forget(&mut self, process: ProcessId) {
        self.slots.retain(|key, _| key.process != process);
        self.threads.retain(|of, _| of.0 != process);
    }

    /// Why nothing is read any more.
    pub const fn refusal(&self) -> Option<&io::Error> {
        self.refused.as_ref()
    }

    /// What samples asked for since the last reading, in order of addresses.
    fn wanted(&mut self) -> Vec<(ProcessId, Vec<Key>)> {
        let asked = self.slots.iter_mut().filter(|(_, known)| known.asks > 0);
        let mut asked: Vec<(u32, Key)> = asked
            .map(|(key, known)| (std::mem::take(&mut known.asks), *key))
            .collect();
        // Slots of a frame lie in one piece, so there may be more of them.
        let most = MAX_PIECES * 4;
        if asked.len() > most {
            asked.select_nth_unstable_by_key(most, |(asks, key)| (std::cmp::Reverse(*asks), *key));
            asked.truncate(most);
        }
        asked.sort_unstable_by_key(|(_, key)| (key.process, key.address, key.thread));
        let mut all: Vec<(ProcessId, Vec<Key>)> = Vec::new();
        for (_, key) in asked {
            match all.last_mut().filter(|last| last.0 == key.process) {
                Some((_, keys)) => keys.push(key),
                None => all.push((key.process, vec![key])),
            }
        }
        all
    }

    /// # Errors
    /// If we may not read that process.
    fn read_process(&mut self, process: ProcessId, keys: &[Key], now: Time) -> io::Result<()> {
        let mut running: HashMap<ThreadId, bool> = HashMap::new();
        let mut keys = keys.to_vec();
        keys.retain(|key| {
            let may_ask = running.len() < MAX_THREADS;
            *running.entry(key.thread).or_insert_with(|| {
                let thread = self.threads.get_mut(&(process, key.thread));
                may_ask && thread.is_some_and(|thread| thread.runs(process, key.thread))
            })
        });
        let mut pieces: Vec<Piece> = Vec::new();
        for key in &keys {
            let end = key.address.saturating_add(8);
            let is_full = pieces.len() == MAX_PIECES;
            match pieces.last_mut() {
                Some(piece) if end - piece.start <= PIECE => {
                    piece.len = (end - piece.start) as usize;
                }
                _ if is_full => break,
                _ => pieces.push(Piece {
                    start: key.address,
                    len: 8,
                    bytes: None,
                }),
            }
        }
        read_pieces(process, &mut pieces)?;
        for key in &keys {
            let value = pieces.iter().find_map(|piece| piece.value(key.address));
            if let (Some(value), Some(known)) = (value, self.slots.get_mut(key)) {
                let last = known.last.replace(Reading { time: now, value });
                if last.is_some_and(|last| last.value == value) {
                    known.equal += 1;
                } else {
                    known.equal = 1;
                    known.since = now;
                }
            }
        }
        Ok(())
    }
}

fn key(sample: &RawSample, slot: Slot) -> Key {
    Key {
        process: sample.process,
        thread: sample.thread,
        address: slot.address.0,
    }
}

fn frame(sample: &RawSample, decoded: &Decoded) -> Option<Frame> {
    Some(Frame {
        function: decoded.function?,
        stack_pointer: sample.registers.general[RSP],
    })
}

/// Some memory of a process, at most [`PIECE`] bytes.
struct Piece {
    start: u64,
    len: usize,
    bytes: Option<[u8; PIECE as usize]>,
}

impl Piece {
    fn value(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.as_ref()?.get(..self.len)?;
        let bytes = bytes.get(offset..offset.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

/// Fills in the bytes of what is mapped.
fn read_pieces(process: ProcessId, pieces: &mut [Piece]) -> io::Result<()> {
    let mut buffers = vec![[0_u8; PIECE as usize]; pieces.len()];
    let mut next = 0;
    for _ in 0..=MAX_HOLES {
        if next >= pieces.len() {
            break;
        }
        let read = read_into(process, &pieces[next..], &mut buffers[next..])?;
        let mut left = read;
        while next < pieces.len() && left >= pieces[next].len {
            left -= pieces[next].len;
            pieces[next].bytes = Some(buffers[next]);
            next += 1;
        }
        // The one that could not be read as a whole.
        next += 1;
    }
    Ok(())
}

/// How many bytes of `pieces`, in their order, could be read. Nothing, if the
/// process is gone.
fn read_into(
    process: ProcessId,
    pieces: &[Piece],
    buffers: &mut [[u8; PIECE as usize]],
) -> io::Result<usize> {
    let vectors = |piece: &Piece, base: *mut libc::c_void| libc::iovec {
        iov_base: base,
        iov_len: piece.len,
    };
    let mut local = Vec::with_capacity(pieces.len());
    let mut foreign = Vec::with_capacity(pieces.len());
    for (piece, buffer) in pieces.iter().zip(buffers) {
        local.push(vectors(piece, buffer.as_mut_ptr().cast()));
        foreign.push(vectors(piece, piece.start as *mut libc::c_void));
    }
    let count = local.len() as libc::c_ulong;
    let from = |process: ProcessId| {
        // SAFETY: each local vector is within a buffer of its own, which nothing
        // else uses meanwhile; the kernel checks the foreign addresses.
        unsafe {
            libc::process_vm_readv(
                process.0 as i32,
                local.as_ptr(),
                count,
                foreign.as_ptr(),
                count,
                0,
            )
        }
    };
    let mut read = from(process);
    if read < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
        read = from(crate::proc::living_number(process));
    }
    usize::try_from(read).or_else(|_| {
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EFAULT | libc::ESRCH | libc::ENOMEM) => Ok(0),
            _ => Err(error),
        }
    })
}
