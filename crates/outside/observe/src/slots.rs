//! The values that pointers in memory had at the time of a sample, for accesses of which the
//! decoder knows only the [`Slot`] that holds their pointer. The caller passes each sample of a
//! living process, reads after a batch of them, and then asks for the addresses of the batch's
//! slots. Must not stop the process.
//!
//! A slot is read between samples, not with them. A value counts for a sample if the last readings
//! before it and the first after it agree, because the pointer then probably stayed the same in
//! between. They can agree although the slot held another value at the sample (ABA):
//!
//! - *The pointer changed and changed back.* Then it is still a value that this thread keeps in
//!   this variable, and the instruction does use it, at another time. The decoder names no slot for
//!   a variable that its function stores to in more than one place.
//! - *The stack slot belongs to another function at the time of the readings.* So a value counts
//!   only if nearly all of the thread's samples are in the frame that holds the slot
//!   (`SHARE_IN_FRAME`): readings, like samples, come at any time at which the thread runs. With
//!   nine tenths of the samples in the frame, three readings all fall into the other tenth once in
//!   a thousand times.
//! - *The thread sleeps at the readings*, always in the same function, while samples are taken only
//!   when it runs. So the slots of a sleeping thread are not read.
//!
//! One case remains: a thread waits for a CPU again and again, each time with the same foreign
//! value in the slot. This reasoning holds only in probability; the decoder's own addresses are
//! certain.

use crate::decode::{Decoded, Slot};
use crate::pending::PendingRead;
use crate::proc::SyscallFile;
use crate::{NearAccess, RawSample};
use std::collections::HashMap;
use std::io;
use std::time::Duration;
use sunder_access::{Address, CodeAddress, ProcessId, ThreadId, Time};

/// The most slots that are known at a time; new ones wait until old ones are forgotten.
const MAX_SLOTS: usize = 4096;
/// Slots and threads that no sample has needed for this time are forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(1);
/// How many pieces of memory are read at a time; each costs the kernel about 0.7 us.
const MAX_PIECES: usize = 32;
/// Slots closer than this are read as one piece, in bytes.
const PIECE: u64 = 256;
/// After this many pieces that are not mapped, a reading ends.
const MAX_HOLES: usize = 4;
/// How many threads have their state checked; each costs a file descriptor.
const MAX_THREADS: usize = 64;

/// How many equal readings a slot outside the stack needs: one before the sample and one after it.
const READINGS: u32 = 2;
/// How many equal readings a slot on the stack needs.
const STACK_READINGS: u32 = 3;
/// The share of a thread's samples, in percent, that must be in the frame that holds the slot.
const SHARE_IN_FRAME: u32 = 90;
/// How many samples are needed to know that share, and how many are remembered.
const SAMPLES_FOR_SHARE: std::ops::Range<u32> = 8..64;
/// How many frames are counted for a thread; with more, none has the necessary share.
const FRAMES: usize = 8;
/// Addresses that close above the stack pointer are taken for the stack, in bytes.
const STACK: u64 = 8 << 20;
/// Bytes below the stack pointer that functions use (System V ABI, red zone).
const RED_ZONE: u64 = 128;
const RSP: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    process: ProcessId,
    /// Each thread's reading of a slot is separate: agreeing readings for one thread's samples show
    /// nothing about another's.
    thread: ThreadId,
    address: u64,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    time: Time,
    value: u64,
}

/// The readings of a slot, and the samples that need it.
#[derive(Debug)]
struct SlotState {
    /// The time of the latest sample that needs it.
    needed_at: Time,
    /// How many samples have needed it since the last reading.
    needed_by: u32,
    last: Option<Reading>,
    /// How many readings agree, counted back from the last.
    equal: u32,
    /// The time of the first of them.
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
    /// The file that shows whether the thread runs; kept open because opening costs ten times as
    /// much as reading.
    state: Option<SyscallFile>,
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
        if self.samples >= SAMPLES_FOR_SHARE.end {
            self.samples /= 2;
            self.frames.iter_mut().for_each(|(_, count)| *count /= 2);
            self.frames.retain(|(_, count)| *count > 0);
        }
    }

    fn is_mostly_in(&self, frame: Frame) -> bool {
        let count = self.frames.iter().find(|(known, _)| *known == frame);
        let count = count.map_or(0, |(_, count)| *count);
        self.samples >= SAMPLES_FOR_SHARE.start && count * 100 >= self.samples * SHARE_IN_FRAME
    }

    /// Whether the thread runs or could run. False if its state can't be read.
    fn runs(&mut self, process: ProcessId, thread: ThreadId) -> bool {
        if self.state.is_none() {
            self.state = SyscallFile::open(process, thread).ok();
        }
        let Some(file) = &self.state else {
            return false;
        };
        match file.runs() {
            Ok(runs) => runs,
            Err(_) => {
                self.state = None;
                false
            }
        }
    }
}

/// The values of slots. See the module's head.
#[derive(Debug, Default)]
pub struct SlotReader {
    slots: HashMap<Key, SlotState>,
    threads: HashMap<(ProcessId, ThreadId), Thread>,
    refused: Option<io::Error>,
    /// The start of the last reading.
    read_at: Time,
    swept: Time,
}

impl SlotReader {
    /// A reader without samples.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a sample and the slots that it needs.
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
            let known = self.slots.entry(key).or_insert(SlotState {
                needed_at: sample.time,
                needed_by: 0,
                last: None,
                equal: 0,
                since: sample.time,
            });
            known.needed_at = sample.time;
            known.needed_by += 1;
        }
    }

    /// Reads the slots that samples since the last call need. `now` must not be before any of these
    /// samples.
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
            self.slots.retain(|_, known| !is_old(known.needed_at));
            self.threads.retain(|_, thread| !is_old(thread.seen));
        }
    }

    /// The address that `sample` accessed through a slot, if enough readings agree.
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
            known.equal >= STACK_READINGS && thread.is_mostly_in(frame(sample, decoded)?)
        } else {
            known.equal >= READINGS
        };
        (between && steady).then(|| Address(last.value).offset(slot.add))
    }

    /// Forgets a process that has ended or executes another program.
    pub fn forget(&mut self, process: ProcessId) {
        self.slots.retain(|key, _| key.process != process);
        self.threads.retain(|of, _| of.0 != process);
    }

    /// The error after which nothing is read any more.
    pub const fn refusal(&self) -> Option<&io::Error> {
        self.refused.as_ref()
    }

    /// The slots that samples have needed since the last reading, by address.
    fn wanted(&mut self) -> Vec<(ProcessId, Vec<Key>)> {
        let needed = self
            .slots
            .iter_mut()
            .filter(|(_, known)| known.needed_by > 0);
        let mut needed: Vec<(u32, Key)> = needed
            .map(|(key, known)| (std::mem::take(&mut known.needed_by), *key))
            .collect();
        // The slots of one frame share a piece, so there may be more slots than pieces.
        let most = MAX_PIECES * 4;
        if needed.len() > most {
            needed.select_nth_unstable_by_key(most, |(needed_by, key)| {
                (std::cmp::Reverse(*needed_by), *key)
            });
            needed.truncate(most);
        }
        needed.sort_unstable_by_key(|(_, key)| (key.process, key.address, key.thread));
        let mut all: Vec<(ProcessId, Vec<Key>)> = Vec::new();
        for (_, key) in needed {
            match all.last_mut().filter(|last| last.0 == key.process) {
                Some((_, keys)) => keys.push(key),
                None => all.push((key.process, vec![key])),
            }
        }
        all
    }

    /// # Errors
    /// If we may not read that process's memory.
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

/// Reads the pieces; those that are not mapped stay empty.
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
        // Skips the piece that could not be read as a whole.
        next += 1;
    }
    Ok(())
}

/// How many bytes of `pieces`, in their order, could be read; none if the process has ended.
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
    let _reading = PendingRead::begin(process);
    let from = |process: ProcessId| {
        // SAFETY: each local vector lies within a buffer of its own, which no other code uses
        // meanwhile; the kernel checks the foreign addresses.
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
