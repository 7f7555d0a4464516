//! A queue of batches that have to be sent: bounded, and on disk if a folder is given, so that a restart
//! loses nothing. A batch is a file; what is written is whole or not there.

use crate::files::{is_anothers, is_of_another, put_whole, read_whole, remove, size_of_ours};
use rustix::fs::{Dir, FlockOperation, flock};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The ending of a batch's file.
const ENDING: &str = "batch";

/// How long a queue waits for the one who uses its folder: a watch that was killed may have left a child
/// that is about to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// See the module's head.
#[derive(Debug)]
pub struct Spool {
    /// The folder, which stays the same one if another is put in its place. It is locked: two who send from
    /// it would send everything twice.
    folder: Option<File>,
    /// The oldest first: number, bytes, and the batch itself if it is in memory.
    batches: VecDeque<(u64, u64, Option<Vec<u8>>)>,
    next: u64,
    bytes: u64,
    most: u64,
    dropped: u64,
}

impl Spool {
    /// A queue in memory of `most` bytes.
    pub const fn in_memory(most: u64) -> Self {
        Self {
            folder: None,
            batches: VecDeque::new(),
            next: 0,
            bytes: 0,
            most,
            dropped: 0,
        }
    }

    /// A queue in a folder, with what an earlier run has left there.
    ///
    /// # Errors
    /// If the folder can't be made or read, or another queue goes on in it.
    pub fn in_folder(folder: &Path, most: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        if is_of_another(folder)? {
            return Err(io::Error::other("it belongs to another user"));
        }
        let folder = lock(folder)?;
        // It may be another one by now.
        if is_anothers(&folder.metadata()?) {
            return Err(io::Error::other("it belongs to another user"));
        }
        let mut found = Vec::new();
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            // Of what is no file of ours, nothing is sent.
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if let Some(number) = number_of(name)
                && let Some(size) = size_of_ours(&folder, name)
            {
                found.push((number, size, None));
            }
        }
        found.sort_by_key(|batch: &(u64, u64, _)| batch.0);
        let mut spool = Self {
            folder: Some(folder),
            next: found.last().map_or(0, |last| last.0 + 1),
            bytes: found.iter().map(|batch| batch.1).sum(),
            batches: found.into(),
            most,
            dropped: 0,
        };
        spool.make_room(0);
        Ok(spool)
    }

    /// Adds a batch. If there is no room, the oldest ones are dropped for it; one that is larger than all
    /// of the room is dropped itself. One that the disk does not take waits in memory.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub fn put(&mut self, batch: Vec<u8>) -> io::Result<()> {
        let size = batch.len() as u64;
        if size > self.most {
            self.dropped += 1;
            return Ok(());
        }
        self.make_room(size);
        let number = self.next;
        self.next += 1;
        self.bytes += size;
        self.batches.push_back((number, size, Some(batch)));
        self.keep()
    }

    /// Writes what waits in memory to the folder, if there is one.
    ///
    /// # Errors
    /// At the first batch that the disk does not take.
    pub fn keep(&mut self) -> io::Result<()> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        for (number, _, kept) in &mut self.batches {
            if let Some(batch) = kept {
                put_whole(folder, &name(*number), batch)?;
                *kept = None;
            }
        }
        Ok(())
    }

    /// Drops everything that waits.
    pub fn clear(&mut self) {
        while let Some(&(number, ..)) = self.batches.front() {
            self.dropped += 1;
            self.done(number);
        }
    }

    /// How many batches wait, and how many of them the folder has.
    pub fn waiting(&self) -> (u64, u64) {
        let in_memory = self.batches.iter().filter(|(_, _, kept)| kept.is_some());
        let all = self.batches.len() as u64;
        (all, all - in_memory.count() as u64)
    }

    /// The oldest batch; [`Self::done`] takes it away.
    pub fn first(&mut self) -> Option<(u64, Vec<u8>)> {
        while let Some((number, size, kept)) = self.batches.front() {
            let (number, size) = (*number, *size);
            let read = match (kept, &self.folder) {
                (Some(batch), _) => Some(batch.clone()),
                (None, Some(folder)) => read_whole(folder, &name(number), size).ok(),
                (None, None) => None,
            };
            match read {
                Some(batch) => return Some((number, batch)),
                // Somebody has taken the file away, or put another one there.
                None => {
                    self.dropped += 1;
                    self.done(number);
                }
            }
        }
        None
    }

    /// The batch has been sent, or is not wanted any more.
    pub fn done(&mut self, number: u64) {
        // It may have been dropped while it was being sent.
        if self.batches.front().is_some_and(|first| first.0 == number)
            && let Some((_, size, kept)) = self.batches.pop_front()
        {
            self.bytes -= size;
            if kept.is_none()
                && let Some(folder) = &self.folder
            {
                let _ = remove(folder, &name(number));
            }
        }
    }

    /// Batches that were dropped.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Bytes that wait.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    fn make_room(&mut self, size: u64) {
        while self.bytes + size > self.most
            && let Some(&(number, ..)) = self.batches.front()
        {
            self.dropped += 1;
            self.done(number);
        }
    }
}

/// The folder, which nobody else locks until the file is closed.
fn lock(folder: &Path) -> io::Result<File> {
    let file = File::open(folder)?;
    let begun = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(io::Error::other("another `sunder watch` sends from it"));
            }
            // A file system without locks, as some networks have.
            Err(
                rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOLCK,
            ) => {
                return Ok(file);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The name of a batch's file.
fn name(number: u64) -> OsString {
    format!("{number:020}.{ENDING}").into()
}

/// The number of the batch whose file has this name.
fn number_of(file: &OsStr) -> Option<u64> {
    let file = Path::new(file);
    let is_batch = file.extension().is_some_and(|ending| ending == ENDING);
    let number = file.file_stem()?.to_str()?.parse().ok()?;
    // What has another form is not found again by its number.
    (is_batch && name(number) == file).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(spool: &mut Spool, batch: Vec<u8>) {
        spool.put(batch).expect("there is room on the disk");
    }

    fn take_all(spool: &mut Spool) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while let Some((number, batch)) = spool.first() {
            spool.done(number);
            all.push(batch);
        }
        all
    }

    #[test]
    fn batches_come_back_in_order_also_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut spool = Spool::in_folder(folder.path(), 100).expect("a queue");
        (0..5).for_each(|n| put(&mut spool, vec![n; 10]));
        let (number, first) = spool.first().expect("the oldest");
        assert_eq!(first, [0; 10]);
        spool.done(number);
        drop(spool);
        let mut spool = Spool::in_folder(folder.path(), 100).expect("a queue");
        put(&mut spool, vec![5; 10]);
        assert_eq!(spool.bytes(), 50);
        let all = take_all(&mut spool);
        assert_eq!(all, (1..6).map(|n| vec![n; 10]).collect::<Vec<_>>());
        assert_eq!((spool.bytes(), spool.dropped()), (0, 0));
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 0);
    }

    /// Root's watch would send it to whoever receives.
    #[test]
    fn what_is_no_file_of_ours_is_not_sent() {
        let folder = tempfile::tempdir().expect("a folder");
        let secret = folder.path().join("secret");
        fs::write(&secret, [7; 10]).expect("written");
        let planted = |number| folder.path().join(name(number));
        std::os::unix::fs::symlink(&secret, planted(0)).expect("made");
        let mut spool = Spool::in_folder(folder.path(), 100).expect("a queue");
        assert_eq!(spool.bytes(), 0);
        // While the queue goes on, too.
        for n in [1, 2] {
            put(&mut spool, vec![n; 10]);
        }
        assert_eq!(spool.waiting(), (2, 2));
        fs::remove_file(planted(0)).expect("ours");
        std::os::unix::fs::symlink(&secret, planted(0)).expect("made");
        assert_eq!(take_all(&mut spool), [vec![2; 10]]);
        assert_eq!(spool.dropped(), 1);
        assert_eq!(fs::read(&secret).expect("it is there"), [7; 10]);
    }

    #[test]
    fn a_folder_has_one_queue_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut first = Spool::in_folder(folder.path(), 100).expect("a queue");
        put(&mut first, vec![1; 10]);
        let refused = Spool::in_folder(folder.path(), 100).expect_err("it is in use");
        assert!(refused.to_string().contains("another `sunder watch`"));
        drop(first);
        let mut next = Spool::in_folder(folder.path(), 100).expect("a queue");
        assert_eq!(take_all(&mut next), [vec![1; 10]]);
    }

    #[test]
    fn the_oldest_make_room_and_are_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let on_disk = Spool::in_folder(folder.path(), 35).expect("a queue");
        for mut spool in [on_disk, Spool::in_memory(35)] {
            (0..5).for_each(|n| put(&mut spool, vec![n; 10]));
            put(&mut spool, vec![9; 36]);
            assert_eq!((spool.dropped(), spool.bytes()), (3, 30));
            let all = take_all(&mut spool);
            assert_eq!(all, [vec![2; 10], vec![3; 10], vec![4; 10]]);
        }
    }

    #[test]
    fn what_the_disk_does_not_take_waits_in_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let within = folder.path().join("queue");
        let mut spool = Spool::in_folder(&within, 100).expect("a queue");
        // A folder can't be written to as a file.
        let mut in_the_way = name(0);
        in_the_way.push(".new");
        let in_the_way = within.join(in_the_way);
        fs::create_dir(&in_the_way).expect("made");
        spool.put(vec![1; 10]).expect_err("there is a folder");
        assert_eq!(spool.waiting(), (1, 0));
        // It takes them again, later.
        fs::remove_dir(&in_the_way).expect("it was there");
        put(&mut spool, vec![2; 10]);
        assert_eq!(spool.waiting(), (2, 2));
        fs::remove_dir_all(&within).expect("ours");
        spool.put(vec![3; 10]).expect_err("the folder is gone");
        // What was in the folder is lost with it, and counted.
        assert_eq!(take_all(&mut spool), [vec![3; 10]]);
        assert_eq!((spool.dropped(), spool.bytes()), (2, 0));
    }

    /// What another user may do in a folder of its own, in which root's spool lies.
    #[test]
    fn a_folder_that_is_put_in_the_place_of_ours_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name| folder.path().join(name);
        fs::create_dir(at("other")).expect("made");
        let others = at("other").join(name(0));
        fs::write(&others, [7; 10]).expect("written");
        let mut spool = Spool::in_folder(&at("queue"), 100).expect("a queue");
        put(&mut spool, vec![0; 10]);
        fs::rename(at("queue"), at("moved")).expect("ours");
        std::os::unix::fs::symlink(at("other"), at("queue")).expect("made");
        put(&mut spool, vec![1; 10]);
        assert_eq!(spool.waiting(), (2, 2));
        assert_eq!(take_all(&mut spool), [vec![0; 10], vec![1; 10]]);
        assert_eq!(fs::read(&others).expect("it is there"), [7; 10]);
        assert_eq!(fs::read_dir(at("other")).expect("it is there").count(), 1);
        assert_eq!(fs::read_dir(at("moved")).expect("it is there").count(), 0);
    }
}
