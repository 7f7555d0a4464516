//! Whether code that a program made at run time is still what it was when a sample was taken. It
//! is read some milliseconds after the sample. If the program has overwritten it in between, the
//! wrong instructions would be decoded. So a page counts only if it read the same before the
//! sample as it reads now.
//!
//! Called by [`super::ProcessCode`] for code without a file. A page that is changed and changed
//! back between two readings goes unnoticed.

use crate::remote;
use std::collections::HashMap;
use sunder_access::{Address, PAGE, ProcessId, Span, Time};

/// How many pages are remembered; when there are more, all are forgotten.
const MOST: usize = 4096;

/// The pages of one address space that hold code made at run time.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages(HashMap<u64, Reading>);

#[derive(Clone, Copy, Debug)]
struct Reading {
    hash: u64,
    /// The time of the first reading with this content.
    since: Time,
}

impl Pages {
    /// Whether `code` reads the same now, at `now`, as at a reading before `taken`.
    pub(super) fn are_settled(
        &mut self,
        process: ProcessId,
        code: Span,
        taken: Time,
        now: Time,
    ) -> bool {
        if self.0.len() > MOST {
            self.0.clear();
        }
        let last = code.end().0.saturating_sub(1) / PAGE;
        // Every page is read, also after a changed one, so that the time of each is known.
        (code.start.0 / PAGE..=last)
            .map(|page| self.is_settled(process, page, taken, now))
            .fold(true, |all, one| all & one)
    }

    fn is_settled(&mut self, process: ProcessId, page: u64, taken: Time, now: Time) -> bool {
        let Some(bytes) = remote::read(process, Address(page * PAGE), PAGE as usize) else {
            return false;
        };
        let new = Reading {
            hash: hash(&bytes),
            since: now,
        };
        let known = self.0.entry(page).or_insert(new);
        if known.hash != new.hash {
            *known = new;
        }
        known.since <= taken
    }
}

/// Tells contents apart; it need not resist attacks.
fn hash(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (hash.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_of_a_page_counts_from_the_first_reading_of_its_contents() {
        let mut memory = vec![0x90u8; 3 * PAGE as usize];
        let process = ProcessId(std::process::id());
        let at = Address(memory.as_ptr() as u64 + PAGE);
        let code = Span::new(at, 100);
        let mut pages = Pages::default();
        let mut settled = |taken, now| pages.are_settled(process, code, Time(taken), Time(now));
        assert!(!settled(5, 10), "never read before");
        assert!(settled(15, 20), "the same before and after");
        assert!(!settled(9, 30), "taken before the first reading");
        memory[PAGE as usize + 8] = 0xcc;
        std::hint::black_box(&memory);
        assert!(!settled(35, 40), "changed since");
        assert!(settled(45, 50));
    }
}
