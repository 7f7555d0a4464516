//! Writes what a session takes into a recording. Called by the session and its processes, beside what
//! they do; it changes nothing about the result.

use super::convert;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use sunder_access::{Mappings, ProcessId};
use sunder_observe::decode::{CodeRange, CodeSource};
use sunder_observe::watch::Executions;
use sunder_observe::{Event, ProcessCode, RawSample};
use sunder_recording::{self as recording, Recorder, Step};
use sunder_sharing::Burst;
use sunder_wire::Segment;

/// Of code that may change, the most pieces of which is known that they were written.
const MOST_CHANGING: usize = 1 << 14;

/// Writes a recording.
#[derive(Debug)]
pub struct Keeper {
    /// The recording.
    pub recorder: Recorder,
    /// The numbers of pieces of code that never change, which are kept so that their places in
    /// memory stay theirs.
    stable: HashMap<*const CodeRange, (Arc<CodeRange>, u32)>,
    /// The numbers of others, by a hash of what they hold.
    changing: HashMap<u64, u32>,
    codes: u32,
    /// What was measured about gains.
    pub measured: Option<String>,
}

impl Keeper {
    /// Writes to `recorder`.
    pub fn new(recorder: Recorder) -> Self {
        Self {
            recorder,
            stable: HashMap::new(),
            changing: HashMap::new(),
            codes: 0,
            measured: None,
        }
    }

    /// The number of a piece of code, which is written first if it is new.
    fn code(&mut self, range: &Arc<CodeRange>) -> u32 {
        let known = if range.stable {
            self.stable.get(&Arc::as_ptr(range)).map(|known| known.1)
        } else {
            self.changing.get(&hash(range)).copied()
        };
        if let Some(number) = known {
            return number;
        }
        self.codes += 1;
        self.recorder.add(&Step::Code(convert::kept_code(range)));
        if range.stable {
            let entry = (Arc::clone(range), self.codes);
            self.stable.insert(Arc::as_ptr(range), entry);
        } else {
            if self.changing.len() >= MOST_CHANGING {
                self.changing.clear();
            }
            self.changing.insert(hash(range), self.codes);
        }
        self.codes
    }

    /// A sample that was decoded with `range`.
    pub fn sample(&mut self, sample: &RawSample, range: Option<&Arc<CodeRange>>) {
        let code = range.map_or(0, |range| self.code(range));
        let step = Step::Sample(convert::kept_sample(sample, code));
        self.recorder.add(&step);
    }

    /// An event other than a sample.
    pub fn event(&self, event: &Event) {
        let step = match event {
            Event::Sample(_) => return,
            Event::Access {
                process,
                access,
                hitm,
            } => Step::Access {
                process: process.0,
                access: convert::kept_access(access),
                hitm: *hitm,
            },
            Event::Map {
                process,
                time,
                mapping,
            } => Step::Map {
                process: process.0,
                time: time.0,
                mapping: convert::kept_mapping(mapping),
            },
            Event::ThreadStart {
                process,
                parent,
                thread,
                time,
            } => Step::ThreadStart {
                process: process.0,
                parent: parent.0,
                thread: thread.0,
                time: time.0,
            },
            Event::ThreadName {
                process,
                thread,
                time,
                name,
                exec,
            } => Step::ThreadName {
                process: process.0,
                thread: thread.0,
                time: time.0,
                name: name.clone(),
                exec: *exec,
            },
            Event::ThreadEnd {
                process,
                thread,
                time,
            } => Step::ThreadEnd {
                process: process.0,
                thread: thread.0,
                time: time.0,
            },
            Event::Lost(count) => Step::Lost(*count),
        };
        self.recorder.add(&step);
    }

    /// The mappings of a process, as `/proc` shows them.
    pub fn mappings(&self, process: ProcessId, mappings: &Mappings) {
        self.recorder.add(&Step::Mappings {
            process: process.0,
            mappings: mappings.iter().map(convert::kept_mapping).collect(),
        });
    }

    /// What the runtime of an image has recorded, before its segment is dropped.
    pub fn segment(&self, image: u32, segment: &Segment) {
        segment.pages(&mut |offset, bytes| {
            self.recorder.add(&Step::Segment {
                image,
                offset,
                bytes: bytes.to_vec(),
            });
        });
    }

    /// A burst of watchpoints.
    pub fn watched(&self, process: ProcessId, burst: &Burst<'_>) {
        self.recorder.add(&Step::Watched(recording::Burst {
            process: process.0,
            words: burst.words.iter().map(|word| word.0).collect(),
            started: burst.started.0,
            ended: burst.ended.0,
            accesses: burst.accesses.iter().map(convert::kept_access).collect(),
        }));
    }

    /// The hits of a burst of breakpoints, each with the number of its code.
    pub fn hits(
        &mut self,
        burst: &Executions,
        code: &mut ProcessCode,
    ) -> (Vec<u64>, recording::Hits) {
        let armed = burst.instructions.iter().map(|at| at.0).collect();
        let mut all = Vec::new();
        for (thread, hits) in &burst.hits {
            let mut of_thread = Vec::new();
            for hit in hits {
                let range = code.function(hit.process, hit.registers.ip);
                let number = range.map_or(0, |range| self.code(&range));
                of_thread.push(convert::kept_sample(hit, number));
            }
            all.push((thread.0, of_thread));
        }
        (armed, all)
    }
}

fn hash(range: &CodeRange) -> u64 {
    let mut hash = DefaultHasher::new();
    (range.start, &range.bytes, range.exact_start).hash(&mut hash);
    (&range.entries, range.tables_known).hash(&mut hash);
    hash.finish()
}

/// Notes which code a decoder was given.
pub struct Noting<'a> {
    /// The source of the code.
    pub code: &'a mut dyn CodeSource,
    /// What it gave last.
    pub last: Option<Arc<CodeRange>>,
}

impl CodeSource for Noting<'_> {
    fn function(
        &mut self,
        process: ProcessId,
        at: sunder_access::CodeAddress,
    ) -> Option<Arc<CodeRange>> {
        self.last = self.code.function(process, at);
        self.last.clone()
    }
}
