//! What a session does for recordings: it begins one, ends it, and takes the steps of one.

use super::{Follow, Session};
use crate::kept::{Keeper, KeptCode, KeptFiles, Made, key};
use crate::process::Process;
use crate::processes::Processes;
use crate::result::Observed;
use crate::slots::Held;
use crate::told::Told;
use std::collections::HashSet;
use sunder_access::{ProcessId, ThreadId, Time};
use sunder_observe::ProcessCode;
use sunder_recording::{Begin, End, Recorder, Resolved, Step};
use sunder_sharing::{Burst, Config};

impl Session {
    /// From now on everything that this session takes goes into a recording, too. Call it before the
    /// session takes anything.
    pub fn keep(&mut self, recorder: Recorder) {
        recorder.add(&Step::Begin(Begin {
            only: match self.follow {
                Follow::Only(only) => Some(only.0),
                Follow::All => None,
            },
            line: self.config.granule().bytes(),
            transfer_ns: self.config.transfer_ns,
        }));
        self.processes.recorder = Some(recorder.clone());
        self.keeper = Some(Box::new(Keeper::new(recorder)));
    }

    /// Keeps what was measured of gains, in words of the one who measures. To be called before the
    /// result is made.
    pub fn keep_measured(&mut self, measured: String) {
        if let Some(keeper) = &mut self.keeper {
            keeper.measured = Some(measured);
        }
    }

    /// A session of a kept run, whose names come from `files`.
    pub(crate) fn kept(config: Config, follow: Follow, files: KeptFiles) -> Self {
        Self {
            code: ProcessCode::of_recording(),
            processes: Processes::new(config, true),
            held: Some(Held::of_recording()),
            kept_code: Some(KeptCode::default()),
            kept_files: Some(files),
            ..Self::new(config, follow)
        }
    }

    /// The code of a kept run.
    pub(crate) fn kept_code(&mut self) -> &mut KeptCode {
        self.kept_code.get_or_insert_default()
    }

    /// Takes the pointers that were read for the held samples. Returns whether there are such
    /// samples.
    pub(crate) fn resolve(&mut self, all: &[Resolved]) -> bool {
        let done = self.held.as_mut().is_some_and(|held| held.resolve(all));
        self.pass_on();
        done
    }

    /// Sets the functions that a runtime had made in the image that began at `began`.
    pub(crate) fn made_functions(&mut self, process: ProcessId, began: Time, made: Made) {
        let mut all = self.past.iter_mut().chain(self.processes.values_mut());
        let image = all.find(|image| image.id == process && image.began == began);
        if let Some(image) = image {
            image.made_functions(made);
        }
    }

    /// A thread that `/proc` shows, and its name.
    pub fn exists(&mut self, process: ProcessId, thread: ThreadId, name: Option<String>) {
        if let Some(keeper) = &self.keeper {
            keeper.recorder.add(&Step::Thread {
                process: process.0,
                thread: thread.0,
                name: name.clone(),
            });
        }
        let threads = &mut self.process(process).threads;
        threads.started(thread);
        if let Some(name) = name {
            threads.name(thread, name);
        }
    }

    /// Judges the accesses that watchpoints trapped in `process`.
    pub fn watched(&mut self, process: ProcessId, burst: &Burst<'_>) {
        if let Some(keeper) = &self.keeper {
            keeper.watched(process, burst);
        }
        self.process(process).burst(burst);
    }

    /// Writes what a recording has at its end, and ends it.
    pub(super) fn keep_end(&mut self, start: Time, end: Time, observed: &Observed) {
        let Some(keeper) = self.keeper.take() else {
            return;
        };
        self.processes.recorder = None;
        for (&image, heap) in &self.images {
            keeper.segment(image, &heap.segment);
        }
        let all = || self.past.iter().chain(self.processes.values());
        let mut told = HashSet::new();
        for process in all() {
            let code = process.mappings().iter();
            for mapping in code.filter(|m| m.is_file() && m.execute) {
                if told.insert(key(mapping))
                    && let Some(file) = self.files.identity_of(&process.files, mapping)
                {
                    keeper.recorder.add(&Step::File(file));
                }
            }
        }
        for process in all() {
            keep_made(&keeper.recorder, process);
        }
        let told = Told::from(observed);
        keeper.recorder.end(End {
            start: start.0,
            end: end.0,
            observed: serde_json::to_string(&told).unwrap_or_default(),
            measured: keeper.measured,
        });
    }

    /// Gives the files of a kept run to the names of all processes, also of those whose mappings came
    /// one by one.
    pub(super) fn give_kept_files(&mut self) {
        let Some(files) = &self.kept_files else {
            return;
        };
        for process in self.past.iter_mut().chain(self.processes.values_mut()) {
            let mappings = process.mappings().clone();
            files.give(&mappings, &mut process.names);
        }
    }
}

fn keep_made(recorder: &Recorder, process: &Process) {
    let functions: Vec<_> = process.functions_made().collect();
    if functions.is_empty() {
        return;
    }
    let function = |(span, name): (sunder_access::Span, String)| (span.start.0, span.len, name);
    recorder.add(&Step::Generated {
        process: process.id.0,
        began: process.began.0,
        functions: functions.into_iter().map(function).collect(),
    });
}
