//! Writes the stream of `--commits` to its file or pipe. A thread of its own writes, so that a
//! reader that is slow, or gone, never holds up the keeper, for which the program may wait. What the
//! thread has no room for is counted and dropped. Called by `commits`.

use super::format::{self, RECORD_BYTES, added};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel,
};
use std::time::{Duration, Instant};
use sunder_wire::commits::Record;

/// The most batches that wait for the writing thread. A batch has at most as many records as the
/// log has room for.
const BATCHES: usize = 8;
/// The most bytes of records that must not be dropped (names of objects, the end) and that wait.
const MOST_KEPT: usize = 1 << 20;
/// How long a reader may take nothing before it is left, once the program has ended.
const PATIENCE: Duration = Duration::from_secs(10);

/// A stream that is being written.
#[derive(Debug)]
pub struct Stream {
    path: PathBuf,
    /// The file, until the writing thread has it.
    file: Option<File>,
    writer: Option<Writer>,
    /// Records that must not be dropped and have not been handed to the thread.
    kept: Vec<u8>,
    /// Records that are dropped, and not told yet.
    lost: u64,
}

#[derive(Debug)]
struct Writer {
    batches: SyncSender<Vec<u8>>,
    /// The outcome, when the thread ends.
    done: Receiver<std::io::Result<()>>,
}

impl Writer {
    /// Starts the thread. Not before the tool handles signals: a thread inherits the mask.
    fn start(mut file: File) -> Option<Self> {
        let (batches, waiting) = sync_channel::<Vec<u8>>(BATCHES);
        let (told, done) = channel();
        let write = move || {
            let written = waiting.iter().try_for_each(|batch| file.write_all(&batch));
            // Nobody waits for it if the tool has given up.
            let _ = told.send(written);
        };
        let named = std::thread::Builder::new().name("commits".into());
        named.spawn(write).ok()?;
        Some(Self { batches, done })
    }
}

impl Stream {
    /// Opens or makes the file. A pipe is waited for until it has a reader.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn create(path: &Path) -> std::io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            file: Some(File::create(path)?),
            writer: None,
            kept: Vec::new(),
            lost: 0,
        })
    }

    /// Writes the head; the program's process is this one.
    pub fn begin(&mut self, process: u32) {
        self.kept.extend(format::head(process));
    }

    /// Writes all of it for a program that ran natively, for this reason, and ended with this wait
    /// status. As [`Stream::end`].
    pub fn of_native(mut self, process: u32, why: &str, status: i32) -> Option<String> {
        self.begin(process);
        let record = |kind, detail| Record {
            kind,
            detail,
            ..Record::default()
        };
        self.keep(&record(added::CLOSED, 0), why);
        self.keep(&record(added::EXIT, status as u32), "");
        self.end()
    }

    /// Adds a record that must not be dropped.
    pub fn keep(&mut self, record: &Record, text: &str) {
        if self.kept.len() < MOST_KEPT {
            format::append(&mut self.kept, record, text);
        } else {
            self.lost += 1;
        }
    }

    /// Hands these records to the thread, after what was kept. `lost` more were lost after them.
    pub fn write(&mut self, records: &[Record], lost: u64) {
        if records.is_empty() && self.kept.is_empty() && self.lost + lost == 0 {
            return;
        }
        let mut batch = self.kept.clone();
        batch.reserve((records.len() + 2) * RECORD_BYTES);
        append_lost(&mut batch, self.lost);
        for record in records {
            format::append(&mut batch, record, "");
        }
        append_lost(&mut batch, lost);
        match self.send(batch) {
            Ok(()) => {
                self.kept.clear();
                self.lost = 0;
            }
            Err(_) => self.lost += records.len() as u64 + lost,
        }
    }

    /// # Errors
    /// If the thread has no room for the batch, or has ended.
    fn send(&mut self, batch: Vec<u8>) -> Result<(), TrySendError<Vec<u8>>> {
        if let Some(file) = self.file.take() {
            self.writer = Writer::start(file);
        }
        match &self.writer {
            Some(writer) => writer.batches.try_send(batch),
            None => Err(TrySendError::Disconnected(batch)),
        }
    }

    /// Writes the rest. To be called when the program has ended; says why if not all could be
    /// written.
    pub fn end(mut self) -> Option<String> {
        let until = Instant::now() + PATIENCE;
        self.finish(until).err().map(|why| {
            let path = self.path.display();
            format!("not all commits could be written to {path}: {why}")
        })
    }

    /// # Errors
    /// Says why not all was written by then.
    fn finish(&mut self, until: Instant) -> Result<(), String> {
        const SLOW: &str = "its reader takes nothing";
        let mut rest = Vec::new();
        append_lost(&mut rest, self.lost);
        rest.append(&mut self.kept);
        while let Err(TrySendError::Full(back)) = self.send(rest) {
            if Instant::now() >= until {
                return Err(SLOW.into());
            }
            rest = back;
            std::thread::sleep(Duration::from_millis(5));
        }
        let Some(Writer { batches, done }) = self.writer.take() else {
            return Err("no thread could be started".into());
        };
        drop(batches);
        match done.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(written) => written.map_err(|error| error.to_string()),
            Err(RecvTimeoutError::Timeout) => Err(SLOW.into()),
            Err(RecvTimeoutError::Disconnected) => Err("its thread has ended".into()),
        }
    }
}

fn append_lost(to: &mut Vec<u8>, lost: u64) {
    if lost > 0 {
        let record = Record {
            kind: added::LOST,
            bytes: lost,
            ..Record::default()
        };
        format::append(to, &record, "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commits::format::{Event, Reader};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::OpenOptionsExt;
    use sunder_wire::commits::kind;
    use tempfile::TempDir;

    /// Records of a batch: four times what a pipe holds.
    const RECORDS: u64 = 4096;
    /// More batches than the thread and its queue hold.
    const MANY: u64 = BATCHES as u64 * 2;

    /// A stream to a named pipe, and the pipe's other end, from which nothing is read yet.
    fn piped() -> (TempDir, Stream, File) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("commits");
        let name = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("no zero");
        // SAFETY: the name is a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let reader = File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(&path)
            .expect("a pipe");
        // SAFETY: sets the flags of our own descriptor.
        let flags = unsafe {
            use std::os::fd::AsRawFd;
            libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, 0)
        };
        assert_eq!(flags, 0);
        let mut stream = Stream::create(&path).expect("it has a reader");
        stream.begin(77);
        (folder, stream, reader)
    }

    fn exit() -> Record {
        Record {
            kind: added::EXIT,
            ..Record::default()
        }
    }

    /// Writes [`MANY`] batches of changes with ascending times.
    fn write_many(stream: &mut Stream) {
        for batch in 0..MANY {
            let record = |n| Record {
                kind: kind::CHANGE,
                time: batch * RECORDS + n,
                bytes: 1,
                ..Record::default()
            };
            let records: Vec<Record> = (0..RECORDS).map(record).collect();
            stream.write(&records, 0);
        }
    }

    #[test]
    fn a_slow_reader_is_told_how_many_records_it_misses_and_where() {
        let (_folder, mut stream, reader) = piped();
        // This would not return if it waited for the reader.
        write_many(&mut stream);
        assert!(stream.lost > 0);
        stream.keep(&exit(), "");
        let read = std::thread::spawn(move || {
            let events = Reader::new(reader).expect("a head");
            events.map(|e| e.expect("whole")).collect::<Vec<_>>()
        });
        assert_eq!(stream.end(), None);
        let events = read.join().expect("no panic");
        let mut next = 0;
        for event in &events {
            match *event {
                Event::Change { time, .. } => {
                    assert_eq!(time, next, "nothing is missing before it");
                    next += 1;
                }
                Event::Lost(records) => next += records,
                _ => assert_eq!(Some(event), events.last()),
            }
        }
        assert_eq!(next, MANY * RECORDS, "all are there, or counted");
        assert_eq!(events.last(), Some(&Event::Exit(0)));
    }

    #[test]
    fn a_reader_that_takes_nothing_is_left() {
        let (_folder, mut stream, reader) = piped();
        write_many(&mut stream);
        stream.keep(&exit(), "");
        let soon = Instant::now() + Duration::from_millis(20);
        assert_eq!(stream.finish(soon), Err("its reader takes nothing".into()));
        drop(reader);
    }

    #[test]
    fn a_reader_that_has_gone_is_told_of() {
        let (_folder, mut stream, reader) = piped();
        drop(reader);
        write_many(&mut stream);
        stream.keep(&exit(), "");
        let why = stream.end().expect("it can't be written");
        assert!(why.contains("Broken pipe"), "{why}");
    }

    #[test]
    fn what_must_not_be_dropped_has_a_bound() {
        let (_folder, mut stream, _reader) = piped();
        let name = "n".repeat(4000);
        for _ in 0..1000 {
            stream.keep(&exit(), &name);
        }
        assert!(stream.kept.len() < MOST_KEPT + format::LONGEST);
        assert!(stream.lost > 0);
    }
}
