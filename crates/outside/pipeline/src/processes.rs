//! The processes of a session by their numbers. Called by `session`; it must not judge or name
//! anything.

use crate::process::Process;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use sunder_access::ProcessId;
use sunder_observe::foreign::ForeignFiles;
use sunder_sharing::Config;

/// The processes that have not ended.
pub struct Processes {
    by_id: HashMap<ProcessId, Process>,
    /// They are those of a recording: other processes may have their numbers today.
    recorded: bool,
    /// The files of the process that was added first.
    first: Option<Arc<ForeignFiles>>,
    config: Config,
}

impl Processes {
    /// No processes, of a recording or alive.
    pub fn new(config: Config, recorded: bool) -> Self {
        Self {
            by_id: HashMap::new(),
            recorded,
            first: None,
            config,
        }
    }

    /// A process that has gone before it was added is taken to have had `files`.
    pub fn begin_with(&mut self, files: Arc<ForeignFiles>) {
        self.first = Some(files);
    }

    /// The process `id`, which is added if it is not known. If it has gone already, its files are
    /// opened as those of the process that was added first.
    pub fn enter(&mut self, id: ProcessId) -> &mut Process {
        let process = self.by_id.entry(id).or_insert_with(|| {
            if self.recorded {
                return Process::recorded(id, self.config);
            }
            let files = ForeignFiles::of(id).or_those_of(self.first.as_deref());
            Process::new(id, self.config, files)
        });
        self.first.get_or_insert_with(|| Arc::clone(&process.files));
        process
    }
}

impl Deref for Processes {
    type Target = HashMap<ProcessId, Process>;

    fn deref(&self) -> &Self::Target {
        &self.by_id
    }
}

impl DerefMut for Processes {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.by_id
    }
}
