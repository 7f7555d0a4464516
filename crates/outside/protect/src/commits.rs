//! Takes what isolated threads log of their commits ([`sunder_wire::commits`]): adds it up in the
//! [`Ledger`], and writes it to a [`Stream`] if the caller asked for one. Called by the keeper under
//! `protect`, and by the tap under the observer. It must not decide anything.

pub mod format;
mod stream;

pub use stream::Stream;

use crate::ledger::Ledger;
use crate::shared::Shared;
use format::added;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use sunder_access::Span;
use sunder_wire::commits::{RECORDS, Record};

/// The most objects that are told of in a stream.
const MOST_OBJECTS: usize = 4096;

/// The log of one process; see the head of this file.
pub struct CommitLog {
    shared: Rc<Shared>,
    /// What was added up.
    pub ledger: Ledger,
    stream: Option<Stream>,
    /// The count of lost records when it was last looked at.
    lost: u64,
    /// The objects that the stream has.
    objects: BTreeSet<Span>,
    is_closed: bool,
}

impl CommitLog {
    /// Of the threads that this control file is for.
    pub fn new(shared: Rc<Shared>) -> Self {
        Self {
            shared,
            ledger: Ledger::default(),
            stream: None,
            lost: 0,
            objects: BTreeSet::new(),
            is_closed: false,
        }
    }

    /// Also writes everything to this stream. To be called before the program starts.
    pub fn write_to(&mut self, mut stream: Stream) {
        self.shared.log.all.store(1, Relaxed);
        stream.begin(self.shared.process.load(Relaxed));
        self.stream = Some(stream);
    }

    /// Takes the records that have arrived, in the order of time.
    pub fn take(&mut self) -> Vec<Record> {
        let log = &self.shared.log;
        // A hostile program could make records appear for ever.
        let records = (0..RECORDS).map_while(|_| log.take());
        let mut records: Vec<Record> = records.collect();
        // Records of one thread keep their order.
        records.sort_by_key(|record| (record.time, record.thread));
        for record in &records {
            self.ledger.add(record);
        }
        let lost = log.lost.load(Relaxed);
        let more = lost.saturating_sub(self.lost);
        self.lost = lost;
        if let Some(stream) = &mut self.stream {
            stream.write(&records, more);
        }
        records
    }

    /// The number of records that were lost because the program wrote faster than we took them.
    pub fn lost(&self) -> u64 {
        self.shared.log.lost.load(Relaxed)
    }

    /// An object's pages are about to be private. `name` is empty if it is not known.
    pub fn object(&mut self, bytes: Span, name: &str) {
        if let Some(stream) = &mut self.stream
            && self.objects.len() < MOST_OBJECTS
            && self.objects.insert(bytes)
        {
            let record = Record {
                kind: added::OBJECT,
                address: bytes.start.0,
                bytes: bytes.len,
                ..Record::default()
            };
            stream.keep(&record, name);
        }
    }

    /// The process executes another program.
    pub fn another_program(&mut self) {
        self.take();
        self.ledger = Ledger::default();
        self.objects.clear();
        self.keep(added::PROGRAM, 0, "");
    }

    /// No thread is isolated any more, for this reason.
    pub fn close(&mut self, why: &str) {
        if !self.is_closed {
            self.is_closed = true;
            self.take();
            self.keep(added::CLOSED, 0, why);
        }
    }

    /// The program has ended with this wait status. Says why if the stream is not complete.
    pub fn end(&mut self, status: i32) -> Option<String> {
        self.take();
        self.keep(added::EXIT, status as u32, "");
        self.stream.take()?.end()
    }

    fn keep(&mut self, kind: u32, detail: u32, text: &str) {
        if let Some(stream) = &mut self.stream {
            let record = Record {
                kind,
                detail,
                ..Record::default()
            };
            stream.keep(&record, text);
        }
    }
}
