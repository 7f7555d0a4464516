//! The memory that an object lies in, and whether the object is still there. What may go away is
//! isolated only as long as it is. Called by `choose`. Only reads.

use std::collections::HashSet;
use sunder_access::{Address, LINE, Mapping, PAGE, Span, ThreadId, Time};
use sunder_findings::{Object, ObjectKind};
use sunder_observe::proc::{self, AnonymousShared, Fields, Folder};
use sunder_pipeline::Process;
use sunder_sharing::Verdict;

/// The reason for refusing an object that is there no more; not reported, as it tells a user nothing.
pub const GONE: &str = "it is gone";

/// The memory that an object lies in.
#[derive(Clone)]
pub enum Lasting {
    /// That of a module, which stays.
    Global,
    /// A heap block that was allocated then, at the earliest.
    Heap(Time),
    /// Memory that the program has mapped.
    Mapped(Mapping),
    /// A frame of a thread that waits, and that has been taken off its CPU so often.
    Frame(ThreadId, u64),
}

impl Lasting {
    /// That of an object that lies in `span`, if on a stack then on that of the thread `owner`. `verdict`
    /// is what was seen of it.
    ///
    /// # Errors
    /// Says why it can't be isolated.
    pub fn of(
        process: &Process,
        object: &Object,
        (span, owner): (Span, Option<ThreadId>),
        verdict: &Verdict,
    ) -> Result<Self, String> {
        match object.kind {
            ObjectKind::Heap => birth(process, span, verdict).map(Self::Heap),
            ObjectKind::Mapping if object.module.is_some() => {
                Err("it is not known which data of a file it is".into())
            }
            ObjectKind::Mapping => mapped(process, span).map(Self::Mapped),
            ObjectKind::Stack => frame(
                process,
                owner.ok_or("it is not known whose stack it lies on")?,
            ),
            _ => Ok(Self::Global),
        }
    }

    /// The object, of which `span` is the name's, in parts; the first one has `line`. The kernel shows
    /// private mappings that lie side by side as one, and frames move, so of such memory only `seen` lines
    /// are the object: in a frame those that adjoin `line`, in a mapping those on its page.
    pub fn parts(&self, span: Span, line: u64, seen: &HashSet<u64>) -> Vec<Span> {
        match self {
            Self::Mapped(_) if self.is_private_mapping() => runs_on_page(line, seen, span),
            Self::Frame(..) => vec![lines_around(line, seen, span)],
            _ => vec![span],
        }
    }

    /// Whether it is a private mapping: memory of which the kernel does not tell where an object ends.
    pub const fn is_private_mapping(&self) -> bool {
        matches!(self, Self::Mapped(mapping) if !mapping.shared)
    }

    /// Whether it was mapped with `MAP_SHARED`.
    pub const fn is_common(&self) -> bool {
        matches!(self, Self::Mapped(mapping) if mapping.shared)
    }

    /// Whether it may go away without the library's knowledge, when its thread runs.
    pub const fn is_in_a_frame(&self) -> bool {
        matches!(self, Self::Frame(..))
    }

    /// Whether the object that begins at `start` is still the one that was seen.
    pub fn is_there(&self, process: &Process, start: u64) -> bool {
        match self {
            Self::Global => true,
            Self::Heap(born) => {
                let heap = process.heap();
                let still = heap.and_then(|h| h.segment.block_at(Address(start)));
                still.is_some_and(|b| b.freed.is_none() && b.born.earliest == *born)
            }
            Self::Mapped(before) => {
                mapped(process, Span::new(Address(start), 1)).is_ok_and(|now| now == *before)
            }
            Self::Frame(owner, before) => switches(process, *owner) == Some(*before),
        }
    }
}

/// The anonymous mapping that is this object, if no other process has it.
///
/// # Errors
/// Says why it must stay shared.
fn mapped(process: &Process, span: Span) -> Result<Mapping, String> {
    let mappings = proc::mappings(process.id).map_err(|_| GONE)?;
    let mappings = process.restored(mappings);
    let mapping = mappings.at(span.start).ok_or(GONE)?;
    let private = mapping.path.is_empty() || mapping.path.starts_with("[anon:");
    if mapping.shared {
        let memory = AnonymousShared::at(process.id, span.start).map_err(|_| GONE)?;
        memory
            .ok_or("other processes may share its memory")?
            .is_of_one_process()?;
    } else if !private {
        return Err("it is a file's".into());
    } else if process.makes_stacks_in(mapping) {
        return Err("the program keeps stacks there that it made itself".into());
    }
    Ok(mapping.clone())
}

/// A frame of this thread, which must wait. As long as it does not run, none of its frames ends, and none
/// of its jumps, exceptions and switches of the stack happens.
///
/// # Errors
/// Says why it must stay shared.
fn frame(process: &Process, owner: ThreadId) -> Result<Lasting, String> {
    let switches = switches(process, owner);
    let switches = switches.ok_or("it lies on the stack of a thread that does not wait")?;
    Ok(Lasting::Frame(owner, switches))
}

/// How often a thread that waits has been taken off its CPU; `None` if it does not wait. If the number is
/// the same as before, the thread has not run since.
fn switches(process: &Process, thread: ThreadId) -> Option<u64> {
    let status = Fields::read(Folder::Thread(process.id, thread)).ok()?;
    let count = |name| status.number(name).map(u64::from);
    let waits = status.get("State").starts_with('S');
    waits.then_some(count("voluntary_ctxt_switches")? + count("nonvoluntary_ctxt_switches")?)
}

/// When the block that `verdict` is about was allocated.
///
/// # Errors
/// If that is not known, or another block lies there by now.
fn birth(process: &Process, span: Span, verdict: &Verdict) -> Result<Time, String> {
    let block = process
        .heap()
        .and_then(|heap| heap.segment.block_at(span.start))
        .ok_or("its block is not known")?;
    if block.span != span || block.freed.is_some() || verdict.first < block.born.earliest {
        return Err(GONE.into());
    }
    Ok(block.born.earliest)
}

/// The run of `seen` lines that `line` is in, as far as it lies `within` these bytes.
fn lines_around(line: u64, seen: &HashSet<u64>, within: Span) -> Span {
    let (mut start, mut end) = (line, line + LINE);
    while seen.contains(&(start.wrapping_sub(LINE))) {
        start -= LINE;
    }
    while seen.contains(&end) {
        end += LINE;
    }
    let start = start.max(within.start.0);
    let end = end.min(within.end().0);
    Span::new(Address(start), end.saturating_sub(start))
}

/// The runs of `seen` lines on the page of `line`, as far as they lie `within` these bytes. Runs may go
/// on on neighbouring pages. That with `line` comes first.
fn runs_on_page(line: u64, seen: &HashSet<u64>, within: Span) -> Vec<Span> {
    let mut all = vec![lines_around(line, seen, within)];
    let page = line & !(PAGE - 1);
    for other in (page..page + PAGE).step_by(LINE as usize) {
        let is_new = !all.iter().any(|run| run.contains(Address(other)));
        if seen.contains(&other) && within.contains(Address(other)) && is_new {
            all.push(lines_around(other, seen, within));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::ProcessId;

    /// A thread that waits is known not to have run, and one that ran since is known to have.
    #[test]
    fn a_thread_that_waits_has_not_run() {
        use std::sync::mpsc::channel;
        let ((tell, told), (ask, asked)) = (channel(), channel());
        let own = ProcessId(std::process::id());
        let process = Process::recorded(own, sunder_sharing::Config::default());
        let waits = std::thread::spawn(move || {
            // SAFETY: takes nothing, and can't fail.
            let own = unsafe { libc::gettid() };
            tell.send(ThreadId(own as u32)).expect("it is awaited");
            while asked.recv().is_ok() {
                tell.send(ThreadId(0)).expect("it is awaited");
            }
        });
        let thread = told.recv().expect("it was sent");
        let until_it_waits = || loop {
            if let Some(count) = switches(&process, thread) {
                return count;
            }
            std::thread::yield_now();
        };
        let before = until_it_waits();
        assert_eq!(switches(&process, thread), Some(before));
        ask.send(()).expect("it waits");
        told.recv().expect("it answers");
        assert_ne!(until_it_waits(), before);
        drop(ask);
        waits.join().expect("it ends");
    }

    #[test]
    fn of_memory_that_lies_beside_other_memory_only_what_was_seen_is_the_object() {
        let within = Span::new(Address(0x10_0000), 0x1000);
        let seen = |lines: &[u64]| lines.iter().map(|n| 0x10_0000 + n * LINE).collect();
        let run = |line: u64, lines: &[u64]| {
            let span = lines_around(0x10_0000 + line * LINE, &seen(lines), within);
            ((span.start.0 - 0x10_0000) / LINE, span.len / LINE)
        };
        assert_eq!(run(4, &[4]), (4, 1));
        assert_eq!(run(4, &[2, 4, 5, 6, 8]), (4, 3));
        assert_eq!(run(5, &[3, 4, 5, 6, 8]), (3, 4));
        let runs = |line: u64, lines: &[u64]| -> Vec<(u64, u64)> {
            let runs = runs_on_page(0x10_0000 + line * LINE, &seen(lines), within);
            let part = |run: &Span| ((run.start.0 - 0x10_0000) / LINE, run.len / LINE);
            runs.iter().map(part).collect()
        };
        assert_eq!(
            runs(5, &[2, 4, 5, 6, 8, 9, 64]),
            [(4, 3), (2, 1), (8, 2)],
            "not another page's"
        );
        // The mapping ends.
        assert_eq!(run(63, &[62, 63, 64, 65]), (62, 2));
    }
}
