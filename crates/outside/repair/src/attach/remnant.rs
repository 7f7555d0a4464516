//! What an earlier Sunder has left in a program because it was killed there: takes it out, so that
//! the program can be repaired again. Called by `attach`. Whatever is read here was written by
//! Sunder, or by a program that pretends to be left so; that can only have done to it what it might
//! do itself.

use super::leave::Left;
use super::ledger::{Ledger, MOST_BYTES};
use super::presence::Presence;
use crate::control::{CONTROL_NAME, ControlFile};
use anyhow::{Context, Result, bail, ensure};
use std::fmt;
use std::mem::offset_of;
use sunder_access::{Mapping, ProcessId};
use sunder_observe::proc::{self, Folder};
use sunder_stop::Memory;
use sunder_wire::remap::{Control, MAGIC, VERSION};

/// Takes out what is left in the process; whether there was anything.
///
/// # Errors
/// Says why it can't be taken out; the program is then as it was.
pub fn take_out(process: ProcessId) -> Result<bool> {
    // Why it can't be looked at is said by whoever wants to repair it.
    let mappings = proc::mappings(process).unwrap_or_default();
    let Some(mapping) = mappings.iter().find(|m| is_control(m)) else {
        return Ok(false);
    };
    let taken = ledger(process, mapping).and_then(|ledger| {
        let file = ControlFile::unshared()?;
        let mut presence = Presence::new(process, ledger)?;
        presence.is_copied = true;
        // From here on an earlier Sunder that was only thought dead does nothing more.
        presence.refresh(&file)?;
        presence.set(&file, &file.control().tool, std::process::id())?;
        let left = presence.take_out(&file);
        // Lets go of threads that did not stop in time.
        let _ = sunder_stop::exit(process);
        match left {
            Left::Nothing | Left::Gone => Ok(()),
            Left::Memory(why) => bail!("{why}"),
        }
    });
    let left = || {
        format!(
            "there is a library of Sunder's in process {process}, which can't be taken out; try again, \
             or start the program anew"
        )
    };
    match taken {
        Err(error) if error.is::<AtWork>() => Err(error),
        taken => taken.with_context(left).map(|()| true),
    }
}

/// It is no remnant: another Sunder uses it.
#[derive(Debug)]
struct AtWork {
    /// The process of that.
    tool: u32,
    /// The program's.
    process: ProcessId,
}

impl fmt::Display for AtWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tool, process } = self;
        // SIGTERM, as a Sunder that a script has started in the background ignores SIGINT.
        write!(
            f,
            "another Sunder (process {tool}) is at work in process {process}; end it first (kill {tool})"
        )
    }
}

impl std::error::Error for AtWork {}

fn is_control(mapping: &Mapping) -> bool {
    mapping.shared && mapping.file_offset == 0 && mapping.path.starts_with(CONTROL_NAME)
}

/// What was written down, if nobody else is at work there.
fn ledger(process: ProcessId, mapping: &Mapping) -> Result<Ledger> {
    let memory = Memory::of(process).context("its memory can't be written to")?;
    let control = mapping.span.start.0;
    let word = |offset: usize| -> Result<u64> {
        let words = memory.words(control + offset as u64, 1);
        let words = words.context("its memory can't be read")?;
        Ok(words[0])
    };
    let half = |offset: usize| word(offset).map(|word| word as u32);
    let magic = word(offset_of!(Control, magic))?;
    ensure!(
        magic == MAGIC && half(offset_of!(Control, version))? == VERSION,
        "another version of Sunder has put it there"
    );
    let of = half(offset_of!(Control, process))?;
    ensure!(
        of == 0 || of == process.0,
        "it is for process {of}, of which this one was forked"
    );
    let tool = half(offset_of!(Control, tool))?;
    if has_mapped(ProcessId(tool), mapping) {
        bail!(AtWork { tool, process });
    }
    let at = word(offset_of!(Control, ledger))?;
    ensure!(at != 0, "the program has loaded it at its start");
    let len = memory.words(at, 1).context("its memory can't be read")?[0];
    ensure!(len <= MOST_BYTES, "what is written down is too long");
    let bytes = memory.read(at, len as usize);
    let mut ledger = Ledger::read(&bytes.context("its memory can't be read")?)?;
    ledger.control = control;
    Ok(ledger)
}

/// Whether a process has mapped the same control file.
fn has_mapped(process: ProcessId, mapping: &Mapping) -> bool {
    let its = proc::mappings_in(Folder::Process(process));
    its.is_ok_and(|its| {
        its.iter()
            .any(|m| is_control(m) && m.inode == mapping.inode)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell has programs that it starts in the background ignore SIGINT.
    #[test]
    fn a_sunder_at_work_is_to_be_ended_by_the_signal_that_always_ends_it() {
        let at_work = AtWork {
            tool: 12,
            process: ProcessId(7),
        };
        let said = at_work.to_string();
        assert!(said.ends_with("end it first (kill 12)"), "{said}");
    }
}
