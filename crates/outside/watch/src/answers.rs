//! Answers of debug information, kept in a file from look to look and from watch to watch, so that a second
//! look at the same build need not read it again. The file is a list of records, one for each look that
//! learned something; when it is full, the oldest go.
//!
//! The caller opens the folder before it gives up its rights. After that only what is open is written to.
//! Whoever owns the folder may have written the file: lengths are bounded, each record has a checksum, and
//! what comes after a damaged one is dropped. A wrong answer makes a wrong name, and nothing else.

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use sunder_objects::Memory;

/// The file in the folder.
const NAME: &str = "answers";
/// Bytes that a file holds at most.
const MOST: u64 = 8 << 20;
/// Bytes of one record at most.
const LONGEST: u64 = 4 << 20;
/// Length and checksum before each record.
const HEAD: u64 = 8;

/// The first bytes of a file: other versions of the tool may answer otherwise.
fn magic() -> Vec<u8> {
    const FORMAT: u32 = 1;
    let mut magic = format!("sunder answers {FORMAT} {}", env!("CARGO_PKG_VERSION")).into_bytes();
    magic.resize(64, b'\n');
    magic
}

/// A file of answers.
#[derive(Clone, Debug)]
pub struct Answers {
    file: Arc<File>,
    most: u64,
}

/// What a look has learned about files.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    /// By file, then by question.
    files: HashMap<String, HashMap<String, String>>,
}

impl Answers {
    /// Opens the file in `folder`, or makes it. What is damaged in it, or of another version, is dropped.
    ///
    /// # Errors
    /// If it can't be opened, is no regular file of this user's with one name, or belongs to another
    /// watch that goes on.
    pub fn open(folder: &Path) -> io::Result<Self> {
        Self::open_with(folder, MOST)
    }

    fn open_with(folder: &Path, most: u64) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // A pipe in its place is not waited for.
        let flags = flags | OFlags::NONBLOCK;
        let path = folder.join(NAME);
        let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        if found.nlink() != 1 || found.uid() != geteuid().as_raw() {
            return Err(io::Error::other(
                "it has another owner or a second name, and would be overwritten",
            ));
        }
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| io::Error::new(e.kind(), "another watch has it open"))?;
        let answers = Self {
            file: Arc::new(file),
            most,
        };
        let magic = magic();
        let mut first = vec![0; magic.len()];
        if answers.file.read_exact_at(&mut first, 0).is_err() || first != magic {
            answers.file.set_len(0)?;
            answers.file.write_all_at(&magic, 0)?;
        }
        let whole = answers.records(&mut |_| {});
        answers.file.set_len(whole)?;
        Ok(answers)
    }

    /// All that is known. For a process that ends soon: it takes several times the memory of the file.
    pub fn read(&self) -> Arc<Known> {
        let mut files: HashMap<String, HashMap<String, String>> = HashMap::new();
        self.records(&mut |record| {
            for (file, answers) in record.files {
                files.entry(file).or_default().extend(answers);
            }
        });
        Arc::new(Known {
            files,
            learned: Mutex::default(),
        })
    }

    /// Adds what [`Known::learned`] has told. The oldest records go if there is no room.
    ///
    /// # Errors
    /// If it can't be written. What was there before stays.
    pub fn add(&self, learned: &[u8]) -> io::Result<()> {
        let room = learned.len() as u64 + HEAD;
        if learned.is_empty() || learned.len() as u64 > LONGEST {
            return Ok(());
        }
        let mut end = self.file.metadata()?.len();
        if end + room > self.most {
            end = self.drop_oldest()?;
        }
        let mut bytes = Vec::with_capacity(room as usize);
        bytes.extend_from_slice(&(learned.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(learned).to_le_bytes());
        bytes.extend_from_slice(learned);
        let written = self.file.write_all_at(&bytes, end);
        if written.is_err() {
            // No space is left: what comes next must not stand behind half a record.
            let _ = self.file.set_len(end);
        }
        written
    }

    /// Moves the newer half of the records to the front; the new end.
    fn drop_oldest(&self) -> io::Result<u64> {
        let end = self.file.metadata()?.len();
        let first = magic().len() as u64;
        let (mut from, mut to) = (first, first);
        while end - from > self.most / 2 {
            match self.head(from) {
                Some((length, _)) if from + HEAD + length <= end => from += HEAD + length,
                // Nobody but us writes it, so this does not happen.
                _ => from = end,
            }
        }
        let mut chunk = vec![0; 1 << 16];
        while from < end {
            let count = (chunk.len() as u64).min(end - from) as usize;
            self.file.read_exact_at(&mut chunk[..count], from)?;
            self.file.write_all_at(&chunk[..count], to)?;
            (from, to) = (from + count as u64, to + count as u64);
        }
        self.file.set_len(to)?;
        Ok(to)
    }

    /// Length and checksum of the record at `at`.
    fn head(&self, at: u64) -> Option<(u64, u32)> {
        let mut head = [0; HEAD as usize];
        self.file.read_exact_at(&mut head, at).ok()?;
        let number = |at: usize| head[at..at + 4].try_into().map(u32::from_le_bytes);
        let (length, checksum) = (number(0).ok()?, number(4).ok()?);
        let length = u64::from(length);
        (length > 0 && length <= LONGEST).then_some((length, checksum))
    }

    /// Passes on the records up to the first damaged one; the place of their end.
    fn records(&self, sink: &mut dyn FnMut(Record)) -> u64 {
        let mut at = magic().len() as u64;
        let mut bytes = Vec::new();
        while at < self.most
            && let Some((length, checksum)) = self.head(at)
        {
            bytes.resize(length as usize, 0);
            if self.file.read_exact_at(&mut bytes, at + HEAD).is_err()
                || crc32fast::hash(&bytes) != checksum
            {
                break;
            }
            let Ok(record) = serde_json::from_slice(&bytes) else {
                break;
            };
            sink(record);
            at += HEAD + length;
        }
        at
    }
}

/// What is known of files, and what is learned meanwhile.
#[derive(Debug)]
pub struct Known {
    files: HashMap<String, HashMap<String, String>>,
    learned: Mutex<Record>,
}

impl Known {
    /// What was learned, for [`Answers::add`]; nothing if it is too much.
    pub fn learned(&self) -> Vec<u8> {
        let learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        if learned.files.is_empty() {
            return Vec::new();
        }
        serde_json::to_vec(&*learned).unwrap_or_default()
    }
}

impl Memory for Known {
    fn recall(&self, file: &str, question: &str) -> Option<String> {
        self.files.get(file)?.get(question).cloned()
    }

    fn remember(&self, file: &str, question: String, answer: String) {
        let known = self.files.get(file).and_then(|of| of.get(&question));
        if known == Some(&answer) {
            return;
        }
        let mut learned = self.learned.lock().unwrap_or_else(PoisonError::into_inner);
        let of_file = learned.files.entry(file.to_owned()).or_default();
        of_file.insert(question, answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens the file again. What another test has started has it open and locked, too, until it executes its
    /// program.
    fn again(folder: &Path, most: u64) -> Answers {
        for _ in 0..1000 {
            match Answers::open_with(folder, most) {
                Err(locked) if locked.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                opened => return opened.expect("opened"),
            }
        }
        panic!("it stays locked");
    }

    fn with(answers: &Answers, file: &str, question: &str, answer: &str) {
        let known = answers.read();
        known.remember(file, question.into(), answer.into());
        answers.add(&known.learned()).expect("written");
    }

    fn told(answers: &Answers, file: &str, question: &str) -> Option<String> {
        answers.read().recall(file, question)
    }

    /// Only a file that nobody else can write or name is overwritten.
    #[test]
    fn what_has_a_second_name_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let other = folder.path().join("other");
        std::fs::write(&other, "not ours").expect("written");
        std::fs::hard_link(&other, folder.path().join(NAME)).expect("made");
        assert!(Answers::open(folder.path()).is_err());
        assert_eq!(std::fs::read_to_string(&other).expect("read"), "not ours");
    }

    #[test]
    fn what_was_learned_is_known_to_the_next_watch() {
        let folder = tempfile::tempdir().expect("a folder");
        let first = Answers::open(folder.path()).expect("made");
        with(&first, "a", "one", "1");
        with(&first, "b", "one", "2");
        with(&first, "a", "two", "3");
        // Another watch may not write it meanwhile.
        assert!(Answers::open(folder.path()).is_err());
        drop(first);
        let second = again(folder.path(), MOST);
        let all = [("a", "one"), ("b", "one"), ("a", "two"), ("b", "two")];
        let told = all.map(|(file, question)| told(&second, file, question));
        let text = |s: &str| Some(s.to_owned());
        assert_eq!(told, [text("1"), text("2"), text("3"), None]);
        // What is known is not written again.
        let known = second.read();
        known.remember("a", "one".into(), "1".into());
        assert!(known.learned().is_empty());
    }

    #[test]
    fn the_oldest_go_when_it_is_full() {
        let folder = tempfile::tempdir().expect("a folder");
        let most = 4096;
        let answers = Answers::open_with(folder.path(), most).expect("made");
        for number in 0..200 {
            with(&answers, "a", &format!("{number}"), "some words");
            let size = answers.file.metadata().expect("ours").len();
            assert!(size <= most, "{size}");
        }
        assert_eq!(told(&answers, "a", "0"), None);
        assert!(told(&answers, "a", "199").is_some());
        drop(answers);
        let newer = again(folder.path(), most);
        assert!(told(&newer, "a", "199").is_some());
    }

    #[test]
    fn damage_anywhere_costs_answers_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(NAME);
        let answers = Answers::open(folder.path()).expect("made");
        with(&answers, "a", "one", "1");
        with(&answers, "a", "two", "2");
        drop(answers);
        let whole = std::fs::read(&path).expect("ours");
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x41;
            std::fs::write(&path, &damaged).expect("ours");
            let answers = again(folder.path(), MOST);
            for (question, answer) in [("one", "1"), ("two", "2")] {
                let told = told(&answers, "a", question);
                assert!(told.is_none_or(|told| told == answer), "{at}");
            }
            // It goes on with what is whole.
            with(&answers, "a", "three", "3");
            assert_eq!(told(&answers, "a", "three"), Some("3".into()), "{at}");
        }
        for end in 0..whole.len() {
            std::fs::write(&path, &whole[..end]).expect("ours");
            let answers = again(folder.path(), MOST);
            with(&answers, "a", "three", "3");
            assert_eq!(told(&answers, "a", "three"), Some("3".into()), "{end}");
        }
    }

    /// The checksum of a hostile file is right.
    #[test]
    fn a_record_that_is_none_or_claims_gigabytes_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(NAME);
        let record = |length: u32, bytes: &[u8]| {
            let mut all = magic();
            all.extend(length.to_le_bytes());
            all.extend(crc32fast::hash(bytes).to_le_bytes());
            all.extend(bytes);
            all
        };
        let nested = "[".repeat(100_000);
        for (length, bytes) in [
            (u32::MAX, &b"{}"[..]),
            (0, b""),
            (2, b"[]"),
            (nested.len() as u32, nested.as_bytes()),
        ] {
            std::fs::write(&path, record(length, bytes)).expect("ours");
            let answers = again(folder.path(), MOST);
            assert_eq!(
                answers.file.metadata().expect("ours").len(),
                magic().len() as u64
            );
        }
        std::fs::remove_file(&path).expect("ours");
        std::os::unix::fs::symlink("/etc/passwd", &path).expect("made");
        assert!(Answers::open(folder.path()).is_err());
    }
}
