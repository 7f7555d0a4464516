//! The processes of a session by their numbers. Called by `session`; it must not judge or name
//! anything.

use crate::process::Process;
use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use sunder_access::ProcessId;
use sunder_observe::foreign::ForeignFiles;
use sunder_recording::Recorder;
use sunder_sharing::Config;

/// The processes that have not ended.
pub struct Processes {
    by_id: HashMap<ProcessId, Process>,
    /// They are those of a recording: other processes may have their numbers today.
    recorded: bool,
    /// Those that had ended before they were looked at. Their numbers may be others' by now.
    unseen: HashSet<ProcessId>,
    /// The files of the process that was added first.
    first: Option<Arc<ForeignFiles>>,
    config: Config,
    /// The recording into which they write, if there is one.
    pub recorder: Option<Recorder>,
}

impl Processes {
    /// No processes, of a recording or alive.
    pub fn new(config: Config, recorded: bool) -> Self {
        Self {
            by_id: HashMap::new(),
            recorded,
            unseen: HashSet::new(),
            first: None,
            config,
            recorder: None,
        }
    }

    /// A process that has gone before it was added is taken to have had `files`.
    pub fn begin_with(&mut self, files: Arc<ForeignFiles>) {
        self.first = Some(files);
    }

    /// The process `id` has ended, and must not be looked at.
    pub fn has_ended_before(&mut self, id: ProcessId) {
        if !self.by_id.contains_key(&id) {
            self.unseen.insert(id);
        }
    }

    /// The number `id` is that of a new process.
    pub fn begins(&mut self, id: ProcessId) {
        self.unseen.remove(&id);
    }

    /// The process `id` lives, and has these files, which are used if it is not known.
    pub fn lives(&mut self, id: ProcessId, files: ForeignFiles) {
        self.unseen.remove(&id);
        let new = || {
            let mut new = Process::new(id, self.config, files);
            new.recorder.clone_from(&self.recorder);
            new
        };
        let process = self.by_id.entry(id).or_insert_with(new);
        self.first.get_or_insert_with(|| Arc::clone(&process.files));
    }

    /// The processes that may be looked at.
    pub fn living(&self) -> impl Iterator<Item = ProcessId> {
        let all = self.by_id.keys().copied();
        all.filter(|id| !self.unseen.contains(id))
    }

    /// The process `id`, which is added if it is not known. If it has gone already, its files are
    /// opened as those of the process that was added first.
    pub fn enter(&mut self, id: ProcessId) -> &mut Process {
        let process = self.by_id.entry(id).or_insert_with(|| {
            if self.recorded {
                return Process::recorded(id, self.config);
            }
            let mut new = if self.unseen.contains(&id) {
                Process::gone(id, self.config, ForeignFiles::of_all(self.first.as_deref()))
            } else {
                let files = ForeignFiles::of(id).or_those_of(self.first.as_deref());
                Process::new(id, self.config, files)
            };
            new.recorder.clone_from(&self.recorder);
            new
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_one_that_has_ended_is_not_looked_at() {
        let config = Config::new(sunder_access::Granule::new(64).expect("a size")).expect("valid");
        let own = ProcessId(std::process::id());
        let mut processes = Processes::new(config, false);
        processes.has_ended_before(own);
        for _ in 0..2 {
            assert!(!processes.enter(own).files.is_alive(), "it may be another");
            assert_eq!(processes.living().count(), 0);
            // As at a new image under the same number.
            processes.by_id.remove(&own);
        }
        processes.lives(own, ForeignFiles::of(own));
        assert!(processes.enter(own).files.is_alive());
        assert_eq!(processes.living().collect::<Vec<_>>(), [own]);
        processes.has_ended_before(own);
        assert!(processes.enter(own).files.is_alive(), "it was seen before");
    }
}
