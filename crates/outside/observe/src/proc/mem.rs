//! `mem`: the memory of a process.

use super::living_number;
use std::fs::File;
use std::io;
use std::sync::OnceLock;
use sunder_access::ProcessId;

/// What memory is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryUse {
    /// It is read.
    Read,
    /// It is read and written.
    Write,
}

/// Memory that was opened before this process gave up the rights for it. There is at most one
/// such process, as rights are given up once.
static HELD: OnceLock<(ProcessId, MemoryUse, File)> = OnceLock::new();

/// The memory of a process, open. Of a process that hides its memory that is what it had when
/// [`hold_memory`] was called; once it executes another program, nothing of it can be read.
///
/// # Errors
/// If the process is gone, or the kernel refuses access.
pub fn memory(process: ProcessId, used: MemoryUse) -> io::Result<File> {
    let write = used == MemoryUse::Write;
    let path = format!("/proc/{}/mem", living_number(process));
    let opened = File::options().read(true).write(write).open(path);
    let is_refused = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    match HELD.get() {
        Some((of, held_for, held)) if *of == process && (!write || *held_for == used) => opened
            .or_else(|error| match is_refused(&error) {
                true => held.try_clone(),
                false => Err(error),
            }),
        _ => opened,
    }
}

/// Keeps the memory of a process open for later calls of [`memory`].
pub fn hold_memory(process: ProcessId, used: MemoryUse, memory: File) {
    // A second process can't have been chosen: what was given up can't be had back.
    let _ = HELD.set((process, used, memory));
}
