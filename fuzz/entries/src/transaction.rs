//! Commits of pages, compared with a loop over their bytes.

use crate::input::Input;
use std::sync::atomic::{AtomicU64, Ordering};
use sunder_transaction::{Page, Shared, WORDS, commit, refresh};

/// Reads the bytes as edits of a page by its owner and by others, commits and refreshes.
///
/// # Panics
/// If the result is not that of writing byte by byte.
pub fn transaction(bytes: &[u8]) {
    let mut input = Input(bytes);
    let fill = input.byte();
    let twin = vec![fill; WORDS * 8];
    let (mut own, mut others) = (twin.clone(), twin.clone());
    while !input.is_empty() {
        let at = input.number(2) as usize;
        let to = if at & 0x8000 == 0 {
            &mut own
        } else {
            &mut others
        };
        let byte = input.byte();
        if let Some(place) = to.get_mut(at & 0xfff) {
            *place = byte;
        }
    }
    let memory = shared(&others);
    let (mut page, mut old) = (page(&own), page(&twin));
    commit(&page, &old, &memory, &[u8::MAX; WORDS]);
    let expected: Vec<u8> = own
        .iter()
        .zip(&twin)
        .zip(&others)
        .map(|((own, twin), other)| if own == twin { *other } else { *own })
        .collect();
    assert_eq!(bytes_of(&memory), expected);
    refresh(&mut page, &mut old, &memory, &[u8::MAX; WORDS]);
    let own: Vec<u8> = page.0.iter().flat_map(|w| w.to_le_bytes()).collect();
    assert_eq!(own, expected);
    assert!(page.0 == old.0);
}

fn page(bytes: &[u8]) -> Box<Page> {
    let mut page = Box::new(Page([0; WORDS]));
    for (word, chunk) in page.0.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = chunk.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b));
    }
    page
}

fn shared(bytes: &[u8]) -> Box<Shared> {
    let words = page(bytes).0.map(AtomicU64::new);
    Box::new(words)
}

fn bytes_of(memory: &Shared) -> Vec<u8> {
    let words = memory.iter().map(|w| w.load(Ordering::Relaxed));
    words.flat_map(u64::to_le_bytes).collect()
}
