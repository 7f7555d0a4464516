//! Judges a kept run again: a recording of `sunder detect --record` is another source of events. Its
//! steps go to the same [`Session`] functions as those of a running program, in the same order, so
//! that the same options give the same result. Called by the command line.
//!
//! Nothing is read of a process. Files are opened by the recorded paths, and only if they still are
//! the files that were mapped.

use crate::kept::{Bounds, KeptFiles, MOST_SEGMENTS, Made, convert, damaged};
use crate::observer::{Observer, take_rest};
use crate::result::Observed;
use crate::session::{Follow, Session, judge_config};
use crate::told::Told;
use convert::mapping;
use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::rc::Rc;
use sunder_access::{Address, CodeAddress, Mappings, ProcessId, Span, ThreadId, Time};
use sunder_findings::{Findings, Limit};
use sunder_observe::Event;
use sunder_observe::watch::Executions;
use sunder_recording::{Begin, End, Error, Reader, Step};
use sunder_sharing::Burst;
use sunder_wire::{Claim, Origin, Segment};

/// The result of a kept run.
#[derive(Debug)]
pub struct Rejudged {
    /// The result, without gains.
    pub findings: Findings,
    /// What was measured of gains, as it was given to [`Session::keep_measured`].
    pub measured: Option<String>,
}

/// Judges the run in `file` again: with lines of `line_size` bytes, by default those of the run, and
/// with `threshold`, by default that of the run.
///
/// # Errors
/// If the file is no recording, or is damaged. There is never half a result.
pub fn rejudge(
    file: &File,
    line_size: Option<u32>,
    threshold: Option<f64>,
) -> anyhow::Result<Rejudged> {
    let parts = Parts::read(file)?;
    let line = line_size.map_or(parts.begin.line, u64::from);
    let mut config = judge_config(line, None)?;
    config.transfer_ns = parts.begin.transfer_ns;
    let follow = match parts.begin.only {
        Some(only) => Follow::Only(ProcessId(only)),
        None => Follow::All,
    };
    let mut session = Session::kept(config, follow, parts.files);
    let mut run = KeptRun {
        reader: Reader::open(file.try_clone()?)?,
        segments: parts.segments,
        bounds: Bounds::default(),
    };
    take_rest(&mut run, &mut session)?;
    for (process, began, functions) in parts.generated {
        session.made_functions(process, began, functions);
    }
    let told: Told = serde_json::from_str(&parts.end.observed)
        .map_err(|error| Error::Damaged(format!("its last step can't be read: {error}")))?;
    let mut observed: Observed = told.into();
    observed.machine.line_size = line as u32;
    if let Some(threshold) = threshold {
        observed.run.threshold_percent = threshold;
    }
    if line != parts.begin.line {
        observed.limits.push(Limit::OtherLineSize(parts.begin.line));
    }
    let (start, end) = (Time(parts.end.start), Time(parts.end.end));
    Ok(Rejudged {
        findings: session.finish(start, end, observed),
        measured: parts.end.measured,
    })
}

/// What is at the end of a recording and needed from its beginning on.
struct Parts {
    begin: Begin,
    end: End,
    segments: HashMap<u32, Rc<Segment>>,
    files: KeptFiles,
    generated: Vec<(ProcessId, Time, Made)>,
}

impl Parts {
    fn read(file: &File) -> anyhow::Result<Self> {
        let mut reader = Reader::open(file.try_clone()?)?;
        let (mut begin, mut ended) = (None, None);
        let mut segments: HashMap<u32, Rc<Segment>> = HashMap::new();
        let mut files = KeptFiles::default();
        let mut generated = Vec::new();
        while let Some(step) = reader.next_step()? {
            match step {
                Step::Begin(found) => begin = Some(found),
                Step::End(found) => ended = Some(found),
                Step::File(file) => files.add(&file),
                Step::Segment {
                    image,
                    offset,
                    bytes,
                } => {
                    if !segments.contains_key(&image) {
                        if segments.len() >= MOST_SEGMENTS {
                            return Err(damaged("it has more program images than can be kept"));
                        }
                        segments.insert(image, Rc::new(Segment::of_recording()?));
                    }
                    let is_inside = segments.get(&image).is_some_and(|s| s.put(offset, &bytes));
                    if !is_inside {
                        return Err(damaged("records of a heap lie outside of their place"));
                    }
                }
                Step::Generated {
                    process,
                    began,
                    functions,
                } => {
                    let span = |(start, len, name)| (Span::new(Address(start), len), name);
                    let made = functions.into_iter().map(span).collect();
                    generated.push((ProcessId(process), Time(began), made));
                }
                _ => {}
            }
        }
        // The reader returns nothing without these two.
        let (Some(begin), Some(end)) = (begin, ended) else {
            return Err(Error::CutShort.into());
        };
        Ok(Self {
            begin,
            end,
            segments,
            files,
            generated,
        })
    }
}

/// A recording whose steps are taken in their order.
struct KeptRun {
    reader: Reader<BufReader<File>>,
    /// The segments of its images, as they were at the end.
    segments: HashMap<u32, Rc<Segment>>,
    bounds: Bounds,
}

impl Observer for KeptRun {
    type Error = anyhow::Error;

    fn drain(&mut self, session: &mut Session) -> anyhow::Result<()> {
        while let Some(step) = self.reader.next_step()? {
            self.bounds.take(&step)?;
            self.take(step, session)?;
        }
        Ok(())
    }
}

impl KeptRun {
    fn take(&self, step: Step, session: &mut Session) -> anyhow::Result<()> {
        match step {
            Step::Code(range) => session.kept_code().add(range),
            Step::Sample(sample) => {
                if !session.kept_code().now_at(sample.ip, sample.code) {
                    return Err(damaged("a sample has code that is not there"));
                }
                session.sample(&convert::raw(&sample));
            }
            Step::Access {
                process,
                access,
                hitm,
            } => session.event(Event::Access {
                process: ProcessId(process),
                access: convert::access(access),
                hitm,
            }),
            Step::Map {
                process,
                time,
                mapping: mapped,
            } => session.event(Event::Map {
                process: ProcessId(process),
                time: Time(time),
                mapping: mapping(mapped),
            }),
            Step::ThreadStart {
                process,
                parent,
                thread,
                time,
            } => session.event(Event::ThreadStart {
                process: ProcessId(process),
                parent: ProcessId(parent),
                thread: ThreadId(thread),
                time: Time(time),
            }),
            Step::ThreadName {
                process,
                thread,
                time,
                name,
                exec,
            } => session.event(Event::ThreadName {
                process: ProcessId(process),
                thread: ThreadId(thread),
                time: Time(time),
                name,
                exec,
            }),
            Step::ThreadEnd {
                process,
                thread,
                time,
            } => session.event(Event::ThreadEnd {
                process: ProcessId(process),
                thread: ThreadId(thread),
                time: Time(time),
            }),
            Step::Lost(count) => session.event(Event::Lost(count)),
            Step::Lives(process) => drop(session.process(ProcessId(process))),
            Step::Anew(process) => session.begin_anew(ProcessId(process)),
            Step::Claim(claim) => session.claim(&self.claim(claim)?, claim.is_only_report),
            Step::Mappings { process, mappings } => {
                let mut all = Mappings::new();
                mappings
                    .into_iter()
                    .map(mapping)
                    .for_each(|m| all.insert(m));
                session.set_mappings(ProcessId(process), all);
            }
            Step::Thread {
                process,
                thread,
                name,
            } => session.exists(ProcessId(process), ThreadId(thread), name),
            Step::ThreadLocals(read) => {
                let process = session.process(ProcessId(read.process));
                process.kept_thread_locals(&read);
            }
            Step::Resolved(all) => {
                if !session.resolve(&all) {
                    return Err(damaged("a pointer belongs to no sample"));
                }
            }
            Step::PassOn => session.pass_on(),
            Step::Owners { process, changes } => {
                let changes = changes.into_iter().map(convert::owner_change).collect();
                session.process(ProcessId(process)).owners_changed(changes);
            }
            Step::Watched(burst) => {
                let words: Vec<Address> = burst.words.into_iter().map(Address).collect();
                let accesses: Vec<_> = burst.accesses.into_iter().map(convert::access).collect();
                session.watched(
                    ProcessId(burst.process),
                    &Burst {
                        words: &words,
                        started: Time(burst.started),
                        ended: Time(burst.ended),
                        accesses: &accesses,
                    },
                );
            }
            Step::Executed(executed) => self.executed(executed, session)?,
            Step::Ended(process) => session.ended(ProcessId(process)),
            Step::Transfer(nanoseconds) => session.set_transfer(nanoseconds),
            Step::Begin(_)
            | Step::End(_)
            | Step::File(_)
            | Step::Segment { .. }
            | Step::Generated { .. } => {}
        }
        Ok(())
    }

    fn claim(&self, claim: sunder_recording::Claim) -> anyhow::Result<Claim> {
        let known = self.segments.get(&claim.image).cloned();
        let segment = match known {
            Some(segment) => segment,
            // Nothing was recorded in it.
            None => Rc::new(Segment::of_recording()?),
        };
        Ok(Claim {
            image: claim.image,
            process: ProcessId(claim.process),
            // The session leaves its own process out, as it left out the tool's.
            parent: ProcessId(claim.parent.unwrap_or_else(std::process::id)),
            time: Time(claim.time),
            origin: match claim.forked {
                Some((image, epoch)) => Origin::Fork { image, epoch },
                None => Origin::Program,
            },
            segment,
            refused: false,
        })
    }

    fn executed(
        &self,
        executed: sunder_recording::Executed,
        session: &mut Session,
    ) -> anyhow::Result<()> {
        let question = crate::blind::Question {
            at: CodeAddress(executed.at),
            suspects: executed.suspects.into_iter().map(CodeAddress).collect(),
            threads: executed.threads.into_iter().map(ThreadId).collect(),
        };
        let code = session.kept_code();
        code.clear_places();
        let mut burst = None;
        if let Some((instructions, hits)) = executed.burst {
            for hit in hits.iter().flat_map(|(_, hits)| hits) {
                if !code.also_at(hit.ip, hit.code) {
                    return Err(damaged("a breakpoint has code that is not there"));
                }
            }
            let samples = |(thread, hits): (u32, Vec<sunder_recording::Sample>)| {
                (ThreadId(thread), hits.iter().map(convert::raw).collect())
            };
            burst = Some(Executions {
                instructions: instructions.into_iter().map(CodeAddress).collect(),
                hits: hits.into_iter().map(samples).collect(),
            });
        }
        let (process, now) = (ProcessId(executed.process), Time(executed.now));
        session.executed(process, &question, now, burst.as_ref());
        Ok(())
    }
}
