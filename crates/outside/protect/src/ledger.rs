//! Adds up what commits changed: how often threads took turns on a line, and which threads wrote
//! private copies of which page (SHERIFF, sections 4.1 and 4.3). Fed by `commits`; must not decide
//! anything.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use sunder_access::{Address, LINE, PAGE, Span};
use sunder_findings::{PageState, PageWriter, PrivatePage};
use sunder_wire::commits::{Record, kind};
use sunder_wire::isolation::{BESIDE, COSTLY, Control, PAGES, SLOTS};
use sunder_wire::tracking::{SHARED, page};

/// The most pages that are kept: all that can be private at a time. The program can write any
/// address into the log.
const MOST_PAGES: usize = PAGES + SHARED;
/// The most writers of a page that are kept apart; what others wrote is not counted by thread.
const MOST_WRITERS: usize = SLOTS;
const LINES: usize = (PAGE / LINE) as usize;

/// SHERIFF's status of a line.
#[derive(Clone, Copy, Debug, Default)]
struct LineStatus {
    last_writer: Option<u32>,
    interleaved_writes: u64,
}

#[derive(Debug)]
struct PageStatus {
    lines: [LineStatus; LINES],
    /// What each thread wrote, with the time of its last commit.
    writers: Vec<(u64, PageWriter)>,
}

impl PageStatus {
    const fn new() -> Self {
        Self {
            lines: [LineStatus {
                last_writer: None,
                interleaved_writes: 0,
            }; LINES],
            writers: Vec::new(),
        }
    }

    fn wrote(&mut self, record: &Record) {
        let bytes = u64::from(record.bytes.count_ones());
        let known = self.writers.iter().position(|w| w.1.id == record.thread);
        let at = match known {
            Some(at) => at,
            None if self.writers.len() < MOST_WRITERS => {
                let writer = PageWriter {
                    id: record.thread,
                    ..PageWriter::default()
                };
                self.writers.push((0, writer));
                self.writers.len() - 1
            }
            None => return,
        };
        let (last, writer) = &mut self.writers[at];
        writer.commits += u64::from(*last != record.time);
        *last = record.time;
        writer.bytes += bytes;
    }
}

/// What commits changed, by page.
#[derive(Debug, Default)]
pub struct Ledger(HashMap<Address, PageStatus>);

impl Ledger {
    /// Adds a record of the log. Records of one thread come in the order of time.
    pub fn add(&mut self, record: &Record) {
        if record.kind != kind::CHANGE || record.bytes == 0 {
            return;
        }
        let address = Address(record.address);
        let base = page_of(address);
        if self.0.len() >= MOST_PAGES && !self.0.contains_key(&base) {
            return;
        }
        let page = self.0.entry(base).or_insert_with(PageStatus::new);
        let line = &mut page.lines[(address.0 % PAGE / LINE) as usize];
        let other = line.last_writer.is_some_and(|w| w != record.thread);
        line.interleaved_writes += u64::from(other);
        line.last_writer = Some(record.thread);
        page.wrote(record);
    }

    /// The interleaved writes on the lines on which these bytes lie.
    pub fn interleaved_writes(&self, bytes: &[Span]) -> u64 {
        let on = |base: &Address, line: usize| is_on(*base, line, bytes);
        let lines = self.0.iter().flat_map(|(base, page)| {
            let lines = page.lines.iter().enumerate();
            lines.filter(move |(at, _)| on(base, *at))
        });
        lines.map(|(_, line)| line.interleaved_writes).sum()
    }

    /// Other data lie in these bytes from here on: their lines begin anew (SHERIFF, section 4.5).
    pub fn clean(&mut self, bytes: &[Span]) {
        for (base, page) in &mut self.0 {
            for (at, line) in page.lines.iter_mut().enumerate() {
                if is_on(*base, at, bytes) {
                    *line = LineStatus::default();
                }
            }
        }
    }

    /// All pages of which isolated threads had private copies, by address, with what the control
    /// file says of them.
    pub fn pages(&self, control: &Control) -> Vec<PrivatePage> {
        let mut states = states(control);
        for address in self.0.keys() {
            states.entry(*address).or_insert(PageState::Released);
        }
        let mut pages: Vec<PrivatePage> = states
            .into_iter()
            .map(|(address, state)| {
                let status = self.0.get(&address);
                let mut threads: Vec<PageWriter> = status
                    .iter()
                    .flat_map(|page| page.writers.iter().map(|(_, writer)| writer.clone()))
                    .collect();
                threads.sort_by_key(|w| (std::cmp::Reverse(w.commits), w.id));
                let lines = status.iter().flat_map(|page| &page.lines);
                PrivatePage {
                    address,
                    state,
                    interleaved_writes: lines.map(|line| line.interleaved_writes).sum(),
                    threads,
                }
            })
            .collect();
        pages.sort_by_key(|page| page.address);
        pages
    }
}

/// Whether some of these bytes lie on a line of a page, which is the line's number there.
fn is_on(page: Address, line: usize, bytes: &[Span]) -> bool {
    let line = Span::new(page.offset(line as i64 * LINE as i64), LINE);
    bytes.iter().any(|span| span.overlaps(line))
}

/// The pages that the control file has for private, and what became of each. The program may have
/// written other numbers there.
fn states(control: &Control) -> HashMap<Address, PageState> {
    let count = control.page_count.load(Relaxed) as usize;
    let named = control.pages.iter().take(count).map(|page| {
        let state = match page.given_up.load(Relaxed) {
            0 => PageState::Private,
            BESIDE => PageState::OtherBytes,
            COSTLY => PageState::Costly,
            _ => PageState::Released,
        };
        (page.address.load(Relaxed), state)
    });
    let found = control.tracking.shared_pages().filter_map(|(_, shared)| {
        let state = match shared.state.load(Relaxed) {
            page::PRIVATE => PageState::Private,
            page::CONTENDED => PageState::SameBytes,
            page::AWAITED => PageState::Awaited,
            page::COSTLY => PageState::Costly,
            _ => return None,
        };
        Some((shared.address.load(Relaxed), state))
    });
    found
        .chain(named)
        .map(|(address, state)| (page_of(Address(address)), state))
        .collect()
}

fn page_of(address: Address) -> Address {
    Address(address.0 & !(PAGE - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::Shared;

    fn change(thread: u32, time: u64, address: u64, bytes: u64) -> Record {
        Record {
            kind: kind::CHANGE,
            thread,
            time,
            address,
            bytes,
            ..Record::default()
        }
    }

    fn span(start: u64, len: u64) -> Span {
        Span::new(Address(start), len)
    }

    #[test]
    fn turns_of_threads_on_a_line_are_interleaved_writes() {
        let mut ledger = Ledger::default();
        // Threads 1, 2, 2, 1 on the first line: two changes of thread. One thread on the second.
        for (time, thread) in [1, 2, 2, 1].into_iter().enumerate() {
            ledger.add(&change(thread, time as u64, 0x7000, 1));
            ledger.add(&change(3, time as u64, 0x7040, 1));
        }
        // Another line, on which two threads take one turn.
        ledger.add(&change(1, 9, 0x7080, 1));
        ledger.add(&change(2, 9, 0x7080, 1));
        assert_eq!(ledger.interleaved_writes(&[span(0x7000, 64)]), 2);
        assert_eq!(ledger.interleaved_writes(&[span(0x7040, 64)]), 0);
        assert_eq!(
            ledger.interleaved_writes(&[span(0x703f, 66)]),
            3,
            "all lines on which the bytes lie"
        );
        assert_eq!(ledger.interleaved_writes(&[span(0x8000, 64)]), 0);
        // A line in two spans counts once, and those between them don't.
        let same = [span(0x7000, 8), span(0x7008, 8), span(0x7f00, 8)];
        assert_eq!(ledger.interleaved_writes(&same), 2);
        ledger.clean(&[span(0x7010, 8)]);
        assert_eq!(ledger.interleaved_writes(&[span(0x7000, 4096)]), 1);
        // The first writer after that follows nobody.
        ledger.add(&change(2, 10, 0x7000, 1));
        assert_eq!(ledger.interleaved_writes(&[span(0x7000, 64)]), 0);
    }

    #[test]
    fn a_page_has_its_writers_with_commits_and_bytes() {
        let shared = Shared::new().expect("memory files exist");
        for (page, address) in shared.pages.iter().zip([0x9000, 0x7000]) {
            page.address.store(address, Relaxed);
        }
        shared.page_count.store(2, Relaxed);
        shared.pages[0].given_up.store(BESIDE, Relaxed);
        let mut ledger = Ledger::default();
        // A commit of two lines is one commit.
        ledger.add(&change(5, 1, 0x7000, 0xff));
        ledger.add(&change(5, 1, 0x7040, 0x3));
        ledger.add(&change(5, 2, 0x7040, 0x1));
        ledger.add(&change(4, 2, 0x7fc0, u64::MAX));
        // A page that made room for another in the control file.
        ledger.add(&change(4, 2, 0x5000, 1));
        let writer = |id, commits, bytes| PageWriter {
            id,
            name: None,
            commits,
            bytes,
        };
        let expected = [
            PrivatePage {
                address: Address(0x5000),
                state: PageState::Released,
                interleaved_writes: 0,
                threads: vec![writer(4, 1, 1)],
            },
            PrivatePage {
                address: Address(0x7000),
                state: PageState::Private,
                interleaved_writes: 0,
                threads: vec![writer(5, 2, 11), writer(4, 1, 64)],
            },
            PrivatePage {
                address: Address(0x9000),
                state: PageState::OtherBytes,
                ..PrivatePage::default()
            },
        ];
        assert_eq!(ledger.pages(&shared), expected);
    }

    /// The program can fill the log with any addresses and threads.
    #[test]
    fn what_is_kept_is_bounded() {
        let mut ledger = Ledger::default();
        for page in 0..MOST_PAGES as u64 * 2 {
            ledger.add(&change(1, page, page << 12, 1));
        }
        assert_eq!(ledger.0.len(), MOST_PAGES);
        for thread in 0..MOST_WRITERS as u32 * 2 {
            ledger.add(&change(thread, 1, 0, 1));
        }
        assert_eq!(ledger.0[&Address(0)].writers.len(), MOST_WRITERS);
        ledger.add(&change(1, u64::MAX, u64::MAX, u64::MAX));
    }
}
