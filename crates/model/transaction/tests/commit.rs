//! Commits and refreshes, compared with a plain loop over bytes.

use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use sunder_transaction::{
    Change, Mask, Page, Shared, WORDS, commit, commit_each, differing_bytes, refresh,
};

fn page(bytes: &[u8]) -> Box<Page> {
    let mut page = Box::new(Page([0; WORDS]));
    for (word, chunk) in page.0.iter_mut().zip(bytes.chunks(8)) {
        *word = u64::from_le_bytes(chunk.try_into().expect("pages are whole words"));
    }
    page
}

fn shared(bytes: &[u8]) -> Box<Shared> {
    let words: Vec<AtomicU64> = page(bytes).0.iter().map(|w| AtomicU64::new(*w)).collect();
    words.into_boxed_slice().try_into().expect("a page")
}

fn bytes_of(shared: &Shared) -> Vec<u8> {
    let words = shared.iter().map(|w| w.load(Ordering::Relaxed));
    words.flat_map(u64::to_le_bytes).collect()
}

fn in_mask(mask: &Mask, byte: usize) -> bool {
    mask[byte / 8] >> (byte % 8) & 1 != 0
}

/// Twin, own bytes, others' bytes and mask: pages that differ in some places only.
fn pages() -> impl Strategy<Value = (Vec<u8>, Vec<u8>, Vec<u8>, Mask)> {
    let base = proptest::collection::vec(any::<u8>(), 4096);
    let edits = || proptest::collection::vec((0..4096usize, any::<u8>()), 0..60);
    let masked = proptest::collection::vec(0..4096usize, 0..40);
    (base, edits(), edits(), masked).prop_map(|(twin, own, others, masked)| {
        let edited = |edits: Vec<(usize, u8)>| {
            let mut page = twin.clone();
            for (at, byte) in edits {
                page[at] = byte;
            }
            page
        };
        let mut mask = [0; WORDS];
        for byte in masked {
            mask[byte / 8] |= 1 << (byte % 8);
        }
        (twin.clone(), edited(own), edited(others), mask)
    })
}

proptest! {
    #[test]
    fn a_commit_reports_each_word_and_the_bytes_that_both_changed((twin, own, others, _) in pages()) {
        let memory = shared(&others);
        let mut changes = Vec::new();
        let moved = commit_each(&page(&own), &page(&twin), &memory, &[u8::MAX; WORDS], |change| changes.push(change));
        let mut expected = Vec::new();
        let mut left = others.clone();
        for word in 0..WORDS {
            let (mut bytes, mut both) = (0, 0);
            for i in 0..8 {
                let at = word * 8 + i;
                if own[at] != twin[at] {
                    left[at] = own[at];
                    bytes |= 1 << i;
                    both |= u8::from(others[at] != twin[at]) << i;
                }
            }
            if bytes != 0 {
                expected.push(Change { word, bytes, both });
            }
        }
        let all: u32 = expected.iter().map(|c| c.bytes.count_ones()).sum();
        prop_assert_eq!((moved.bytes, moved.beside), (all, 0));
        prop_assert_eq!(changes, expected);
        prop_assert_eq!(bytes_of(&memory), left);
    }

    #[test]
    fn a_commit_writes_the_bytes_that_changed_and_no_others((twin, own, others, mask) in pages()) {
        let memory = shared(&others);
        let moved = commit(&page(&own), &page(&twin), &memory, &mask);
        let mut expected = others;
        let (mut bytes, mut beside) = (0, 0);
        for i in 0..4096 {
            if own[i] != twin[i] {
                expected[i] = own[i];
                bytes += 1;
                beside += u32::from(!in_mask(&mask, i));
            }
        }
        prop_assert_eq!(bytes_of(&memory), expected);
        prop_assert_eq!((moved.bytes, moved.beside), (bytes, beside));
    }

    #[test]
    fn a_refresh_copies_everything_and_counts_the_changed_bytes((_twin, own, others, mask) in pages()) {
        let memory = shared(&others);
        let (mut mine, mut twin) = (page(&own), page(&own));
        let moved = refresh(&mut mine, &mut twin, &memory, &mask);
        let differs = |i: &usize| own[*i] != others[*i];
        let bytes = (0..4096).filter(differs).count();
        let beside = (0..4096).filter(differs).filter(|i| !in_mask(&mask, *i)).count();
        prop_assert_eq!(&mine.0[..], &page(&others).0[..]);
        prop_assert_eq!(&twin.0[..], &mine.0[..]);
        prop_assert_eq!((moved.bytes as usize, moved.beside as usize), (bytes, beside));
    }

    #[test]
    fn differences_are_found_as_by_a_loop_over_bytes(a in any::<u64>(), b in any::<u64>(), same in any::<u8>()) {
        // Equal bytes are rare in random words, so some bytes are made equal.
        let keep = (0..8).filter(|i| same >> i & 1 != 0).fold(0u64, |m, i| m | 0xff << (8 * i));
        let b = b & !keep | a & keep;
        let bytes = (0..8).filter(|i| a.to_le_bytes()[*i] != b.to_le_bytes()[*i]);
        prop_assert_eq!(differing_bytes(a, b), bytes.fold(0, |m, i| m | 1 << i));
    }
}

/// Two threads that write disjoint bytes of the same words, one of them through
/// transactions: nothing is lost.
#[test]
fn bytes_of_others_in_the_same_word_are_not_lost() {
    let memory = shared(&[0; 4096]);
    let memory = &memory;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut own, mut twin) = (page(&[0; 4096]), page(&[0; 4096]));
            for round in 1..=20_000u64 {
                for word in &mut own.0[..4] {
                    *word = *word & !0xffff_ffff | round;
                }
                commit(&own, &twin, memory, &[0x0f; WORDS]);
                let moved = refresh(&mut own, &mut twin, memory, &[0xf0; WORDS]);
                assert_eq!(moved.beside, 0, "no other thread writes the lower halves");
            }
        });
        for round in 1..=20_000u32 {
            for word in &memory[..4] {
                // Half a word is written by a plain store, as programs do.
                let upper = word.as_ptr().cast::<u32>().wrapping_add(1);
                // SAFETY: the upper half of a word that lives long enough; it is
                // aligned, and volatile keeps the compiler from merging stores.
                unsafe { upper.write_volatile(round) };
            }
        }
    });
    for word in &memory[..4] {
        assert_eq!(word.load(Ordering::Relaxed), 20_000 << 32 | 20_000);
    }
}
