//! The format of the stream that `sunder protect --commits` writes: a head of 64 bytes, then
//! records. `include/sunder.h` describes it for C. Numbers are little-endian.
//!
//! A record begins with its kind and its size, so that a reader can skip what it does not know:
//! later versions may add kinds, and fields behind those of this one. The version is raised by a
//! change that an older reader can't follow.

use std::io::{self, Read};
use sunder_access::{LINE, PAGE};
use sunder_wire::commits::{Record, kind};

/// The first eight bytes of a stream.
pub const MAGIC: [u8; 8] = *b"sundcomm";
/// The version that is written and read.
pub const VERSION: u32 = 1;
/// Bytes of the head, and of a record without text.
pub const RECORD_BYTES: usize = 64;
/// The most bytes of a record with its text.
pub const LONGEST: usize = 4096;

/// Kinds of records that the tool adds to those of [`kind`].
pub mod added {
    /// An object whose pages are to be private: address, size in bytes (in `bytes`), name (in the
    /// text; empty if it is not known).
    pub const OBJECT: u32 = 16;
    /// The process executes another program: earlier addresses mean nothing any more.
    pub const PROGRAM: u32 = 17;
    /// So many records (in `bytes`) are missing here.
    pub const LOST: u32 = 18;
    /// No thread is isolated from here on. The text says why.
    pub const CLOSED: u32 = 19;
    /// The program has ended, with the wait status in `detail`. The last record of each stream that
    /// is complete.
    pub const EXIT: u32 = 20;
}

/// The head of a stream about this process.
pub fn head(process: u32) -> [u8; RECORD_BYTES] {
    let mut head = [0; RECORD_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    let numbers = [
        VERSION,
        RECORD_BYTES as u32,
        RECORD_BYTES as u32,
        LINE as u32,
        PAGE as u32,
        process,
    ];
    for (to, number) in head[8..].chunks_exact_mut(4).zip(numbers) {
        to.copy_from_slice(&number.to_le_bytes());
    }
    head
}

/// Appends a record with its text to a stream.
pub fn append(to: &mut Vec<u8>, record: &Record, text: &str) {
    let mut cut = text.len().min(LONGEST - RECORD_BYTES);
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    let bytes = text.as_bytes().get(..cut).unwrap_or_default();
    let size = RECORD_BYTES + bytes.len().next_multiple_of(8);
    for number in [record.kind, size as u32, record.thread, record.detail] {
        to.extend(number.to_le_bytes());
    }
    for number in [
        record.time,
        record.since,
        record.address,
        record.bytes,
        record.both,
        record.instruction,
    ] {
        to.extend(number.to_le_bytes());
    }
    to.extend(bytes);
    to.resize(to.len().next_multiple_of(8), 0);
}

/// What a stream tells. Times are of the monotonic clock, in ns; threads are the kernel's ids.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A commit wrote bytes of a line that the thread had changed.
    Change {
        /// The thread.
        thread: u32,
        /// When it was committed.
        time: u64,
        /// When the thread committed before, or its episode began. The bytes were written after
        /// that.
        since: u64,
        /// The address of the line, of 64 bytes.
        line: u64,
        /// A bit for each changed byte, the lowest for the first.
        bytes: u64,
        /// Those that others changed too after `since`: nothing that a worker sees ordered the two.
        both: u64,
        /// The instruction that first wrote to the page, if that write was to this line and pages
        /// are found by faults (`--eager`).
        instruction: Option<u64>,
    },
    /// A thread's episode begins.
    Begin {
        /// The thread.
        thread: u32,
        /// When.
        time: u64,
    },
    /// A thread's episode ends; everything is committed.
    End {
        /// The thread.
        thread: u32,
        /// When.
        time: u64,
        /// Why: one of `SUNDER_END_…` of `include/sunder.h`.
        why: u32,
    },
    /// A thread has a private copy of a page, until its episode ends.
    Private {
        /// The thread.
        thread: u32,
        /// Since when.
        time: u64,
        /// The page's address.
        page: u64,
    },
    /// A page is shared again by all threads.
    Shared {
        /// The thread that noticed it.
        thread: u32,
        /// When.
        time: u64,
        /// The page's address.
        page: u64,
        /// Why: 1 if bytes beside the isolated objects changed, 2 if two threads changed the same
        /// bytes, 0 if this thread did not see why.
        why: u32,
    },
    /// A thread's first write to a page whose writers are looked for (`--eager`).
    Write {
        /// The thread.
        thread: u32,
        /// When.
        time: u64,
        /// The address of the byte.
        address: u64,
        /// The instruction.
        instruction: u64,
    },
    /// An object whose pages are to be private.
    Object {
        /// Its first byte.
        address: u64,
        /// Its size.
        bytes: u64,
        /// Its name; empty if it is not known.
        name: String,
    },
    /// The process executes another program: earlier addresses mean nothing any more.
    Program,
    /// Records are missing here, because there was no room for them.
    Lost(u64),
    /// No thread is isolated from here on, for this reason.
    Closed(String),
    /// The program has ended with this wait status. The last event of a complete stream.
    Exit(u32),
}

/// Reads a stream of commits from a file or a pipe, as the events come.
///
/// Iteration ends with the stream. It yields an error, once, where the stream is no such stream, or
/// is cut off within a record. A stream that ended without [`Event::Exit`] is not complete: the tool
/// was killed.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    process: u32,
    has_failed: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the head of a stream.
    ///
    /// # Errors
    /// If it can't be read, is of something else, or of a version that can't be followed.
    pub fn new(mut from: R) -> io::Result<Self> {
        let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let mut head = [0; RECORD_BYTES];
        from.read_exact(&mut head)?;
        if head[..8] != MAGIC {
            return Err(wrong("this is no stream of commits".into()));
        }
        let number = |at: usize| u32_at(&head, at);
        let (version, bytes) = (number(8), number(12) as usize);
        if version != VERSION {
            return Err(wrong(format!(
                "the stream of commits has version {version}; this reader knows {VERSION}"
            )));
        }
        if !(RECORD_BYTES..=LONGEST).contains(&bytes) {
            return Err(wrong("the head of the stream is damaged".into()));
        }
        skip(&mut from, bytes - RECORD_BYTES)?;
        Ok(Self {
            from,
            process: number(28),
            has_failed: false,
        })
    }

    /// The number of the program's process.
    pub const fn process(&self) -> u32 {
        self.process
    }

    /// The next event of a kind that is known; `None` at the end.
    fn read(&mut self) -> io::Result<Option<Event>> {
        loop {
            let mut head = [0; RECORD_BYTES];
            let mut filled = 0;
            while filled < RECORD_BYTES {
                match self.from.read(&mut head[filled..]) {
                    Ok(0) if filled == 0 => return Ok(None),
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(read) => filled += read,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
            let size = u32_at(&head, 4) as usize;
            if !(RECORD_BYTES..=LONGEST).contains(&size) {
                let what = "a record of the stream has no valid size";
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            let mut text = vec![0; size - RECORD_BYTES];
            self.from.read_exact(&mut text)?;
            if let Some(event) = event(&head, &text) {
                return Ok(Some(event));
            }
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = io::Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let next = self.read();
        self.has_failed = next.is_err();
        next.transpose()
    }
}

fn skip(from: &mut impl Read, bytes: usize) -> io::Result<()> {
    let mut rest = vec![0; bytes];
    from.read_exact(&mut rest)
}

fn u32_at(record: &[u8; RECORD_BYTES], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&record[at..at + 4]);
    u32::from_le_bytes(bytes)
}

fn u64_at(record: &[u8; RECORD_BYTES], at: usize) -> u64 {
    u64::from(u32_at(record, at)) | u64::from(u32_at(record, at + 4)) << 32
}

/// The event of a record; `None` if its kind is not known.
fn event(record: &[u8; RECORD_BYTES], text: &[u8]) -> Option<Event> {
    let [thread, detail] = [8, 12].map(|at| u32_at(record, at));
    let [time, since, address, bytes, both, instruction] =
        [16, 24, 32, 40, 48, 56].map(|at| u64_at(record, at));
    let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
    let text = || String::from_utf8_lossy(&text[..end]).into_owned();
    Some(match u32_at(record, 0) {
        kind::CHANGE => Event::Change {
            thread,
            time,
            since,
            line: address,
            bytes,
            both,
            instruction: (instruction != 0).then_some(instruction),
        },
        kind::BEGIN => Event::Begin { thread, time },
        kind::END => Event::End {
            thread,
            time,
            why: detail,
        },
        kind::PRIVATE => Event::Private {
            thread,
            time,
            page: address,
        },
        kind::SHARED => Event::Shared {
            thread,
            time,
            page: address,
            why: detail,
        },
        kind::WRITE => Event::Write {
            thread,
            time,
            address,
            instruction,
        },
        added::OBJECT => Event::Object {
            address,
            bytes,
            name: text(),
        },
        added::PROGRAM => Event::Program,
        added::LOST => Event::Lost(bytes),
        added::CLOSED => Event::Closed(text()),
        added::EXIT => Event::Exit(detail),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32) -> Record {
        Record {
            kind,
            detail: 2,
            thread: 3,
            time: 4,
            since: 5,
            address: 6,
            bytes: 7,
            both: 8,
            instruction: 9,
        }
    }

    fn all(stream: &[u8]) -> Vec<io::Result<Event>> {
        Reader::new(stream).expect("a head").collect()
    }

    fn whole() -> Vec<u8> {
        let mut stream = head(77).to_vec();
        append(&mut stream, &record(kind::CHANGE), "");
        append(&mut stream, &record(added::OBJECT), "slots\u{e9}");
        append(&mut stream, &record(added::EXIT), "");
        stream
    }

    #[test]
    fn what_is_written_is_read() {
        let stream = whole();
        let reader = Reader::new(&stream[..]).expect("a head");
        assert_eq!(reader.process(), 77);
        let events: Vec<Event> = reader.map(|e| e.expect("whole")).collect();
        let expected = [
            Event::Change {
                thread: 3,
                time: 4,
                since: 5,
                line: 6,
                bytes: 7,
                both: 8,
                instruction: Some(9),
            },
            Event::Object {
                address: 6,
                bytes: 7,
                name: "slots\u{e9}".into(),
            },
            Event::Exit(2),
        ];
        assert_eq!(events, expected);
    }

    /// A later version may add kinds, and fields to records and to the head.
    #[test]
    fn what_a_later_version_adds_is_skipped() {
        let mut stream = head(77).to_vec();
        stream[12] = 72;
        stream.extend([1; 8]);
        append(&mut stream, &record(1000), "something new");
        append(&mut stream, &record(kind::BEGIN), "a longer record");
        let events: Vec<_> = all(&stream).into_iter().map(Result::unwrap).collect();
        assert_eq!(events, [Event::Begin { thread: 3, time: 4 }]);
    }

    #[test]
    fn a_stream_that_is_not_one_is_refused() {
        assert!(Reader::new(&b"short"[..]).is_err());
        let mut other = head(1);
        other[0] = b'x';
        assert!(Reader::new(&other[..]).is_err());
        let mut newer = head(1);
        newer[8] = 2;
        let why = Reader::new(&newer[..]).expect_err("a newer version");
        assert!(why.to_string().contains("version 2"), "{why}");
        for bytes in [0, 63, 255] {
            let mut damaged = head(1);
            (damaged[12], damaged[13]) = (bytes, if bytes == 255 { 255 } else { 0 });
            assert!(Reader::new(&damaged[..]).is_err(), "{bytes}");
        }
    }

    /// Every shorter stream is seen to be cut off: by an error within a record, by the missing exit
    /// between two.
    #[test]
    fn a_stream_that_is_cut_off_shows_it() {
        let stream = whole();
        for length in RECORD_BYTES..stream.len() {
            let events = all(&stream[..length]);
            let fails = events.iter().filter(|e| e.is_err()).count();
            assert!(!matches!(events.last(), Some(Ok(Event::Exit(_)))));
            let between = [64, 128, 200].contains(&length);
            assert_eq!(fails, usize::from(!between), "{length}");
        }
    }

    #[test]
    fn damaged_sizes_are_errors_and_take_no_memory() {
        for size in [0, 8, 63, LONGEST as u32 + 1, u32::MAX] {
            let mut stream = whole();
            stream[RECORD_BYTES + 4..RECORD_BYTES + 8].copy_from_slice(&size.to_le_bytes());
            let events = all(&stream);
            assert!(matches!(&events[..], [Err(_)]), "{size}: {events:?}");
        }
    }

    /// Whatever is in the file, reading it ends, with no more events than it has room for.
    #[test]
    fn damage_anywhere_is_read_to_an_end() {
        let stream = whole();
        for at in 0..stream.len() {
            for value in [0, 1, 63, 64, 72, 127, 128, 255] {
                let mut damaged = stream.clone();
                damaged[at] = value;
                if let Ok(reader) = Reader::new(&damaged[..]) {
                    let events: Vec<_> = reader.collect();
                    assert!(events.len() <= 3, "{at} {value}: {events:?}");
                    let first_error = events.iter().position(Result::is_err);
                    assert!(first_error.is_none_or(|first| first + 1 == events.len()));
                }
            }
        }
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut stream = head(1).to_vec();
        append(
            &mut stream,
            &record(added::CLOSED),
            &"\u{20ac}".repeat(2000),
        );
        assert!(stream.len() <= RECORD_BYTES + LONGEST);
        let events = all(&stream);
        let [Ok(Event::Closed(why))] = &events[..] else {
            panic!("{events:?}");
        };
        assert!(why.chars().all(|c| c == '\u{20ac}') && why.len() > 4000);
    }
}
