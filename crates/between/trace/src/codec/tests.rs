//! Round trips of the codec, its handling of loops, and damaged input.

use super::SLOTS;
use super::decode::{Columns, Decoder};
use super::encode::{Encoder, Of};
use crate::block::{BlockHeader, HEADER_BYTES};
use crate::slot::{Key, Slot, tag};
use crate::zstandard;
use proptest::prelude::*;

const OF: Of = Of {
    thread: 1,
    tid: 100,
    sequence: 0,
    end: 1 << 40,
    clock: 0,
};

fn unpack(block: &[u8]) -> (BlockHeader, Vec<u8>) {
    let (header, _) = BlockHeader::from_bytes(block[..HEADER_BYTES].try_into().unwrap()).unwrap();
    let payload = zstandard::decompress(&block[HEADER_BYTES..], header.unpacked as usize);
    (header, payload.unwrap())
}

fn decode(block: &[u8]) -> Vec<(u64, Slot)> {
    let (header, payload) = unpack(block);
    let mut decoder = Decoder::new(&header, 0, payload).unwrap();
    let slots = std::iter::from_fn(|| decoder.next_slot()).collect();
    assert!(!decoder.is_damaged());
    slots
}

fn read(address: u64, instruction: u64) -> Slot {
    Slot::new(address, Key::new(tag::READ, 8, instruction))
}

#[test]
fn a_loop_over_two_arrays_takes_little_room() {
    let mut slots = vec![Slot::stamp(5)];
    for i in 0..16_000 {
        slots.push(read(0x7000_0000 + 8 * i, 0x1000));
        slots.push(read(0x8000_0000 + 4 * i, 0x1010));
    }
    let mut encoder = Encoder::boxed().unwrap();
    let (block, counts) = encoder.pack(&slots, &OF).unwrap();
    assert_eq!((counts.accesses, counts.others), (32_000, 0));
    assert!(block.len() < HEADER_BYTES + 100, "{} bytes", block.len());
    let back: Vec<Slot> = decode(block).into_iter().map(|(_, slot)| slot).collect();
    assert_eq!(back, slots[1..]);
}

#[test]
fn time_is_spread_evenly_between_stamps_and_never_reaches_the_next() {
    let slots = [
        Slot::stamp(100),
        read(1, 1),
        read(2, 1),
        Slot::stamp(200),
        read(3, 1),
        Slot::stamp(201),
        read(4, 1),
        read(5, 1),
    ];
    let mut encoder = Encoder::boxed().unwrap();
    let of = Of { end: 211, ..OF };
    let (block, _) = encoder.pack(&slots, &of).unwrap();
    let times: Vec<u64> = decode(block).into_iter().map(|(time, _)| time).collect();
    assert_eq!(times, [100, 150, 200, 201, 206]);
}

#[test]
fn a_clock_that_goes_back_repeats_its_last_time() {
    let slots = [Slot::stamp(100), read(1, 1), Slot::stamp(50), read(2, 1)];
    let mut encoder = Encoder::boxed().unwrap();
    let of = Of { end: 40, ..OF };
    let (block, _) = encoder.pack(&slots, &of).unwrap();
    let times: Vec<u64> = decode(block).into_iter().map(|(time, _)| time).collect();
    assert_eq!(times, [100, 100]);
}

#[test]
fn a_block_has_room_for_its_number_of_largest_slots() {
    let slot = |i: u64| {
        let noise = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Slot::new(
            noise ^ noise << 31,
            Key::new(noise as u8 | 64, i as u8, noise.rotate_left(9)),
        )
    };
    let mut slots: Vec<Slot> = (1..=SLOTS as u64).map(slot).collect();
    slots.retain(|s| s.key.tag() != tag::STAMP);
    while slots.len() < SLOTS {
        slots.push(read(7, 7));
    }
    let mut encoder = Encoder::boxed().unwrap();
    let (block, _) = encoder.pack(&slots, &OF).unwrap();
    let back: Vec<Slot> = decode(block).into_iter().map(|(_, slot)| slot).collect();
    assert_eq!(back, slots);
    slots.push(read(7, 7));
    assert!(encoder.pack(&slots, &OF).is_none());
    // The second block has nothing of the first.
    let (block, _) = encoder.pack(&slots[..2], &OF).unwrap();
    assert_eq!(decode(block).len(), 2);
}

fn any_slot() -> impl Strategy<Value = Slot> {
    let near = (0..20u64, 0..6u64).prop_map(|(a, i)| read(0x1000 + a * 8, 0x400 + i));
    let far = (any::<u64>(), 1..32u8, any::<u8>(), any::<u64>())
        .prop_map(|(value, tag, code, payload)| Slot::new(value, Key::new(tag, code, payload)));
    let stamp = (0..1u64 << 40).prop_map(Slot::stamp);
    prop_oneof![8 => near, 2 => far, 1 => stamp, 1 => Just(Slot::default())]
}

proptest! {
    #[test]
    fn slots_are_decoded_in_order_with_monotonic_times(
        slots in prop::collection::vec(any_slot(), 0..400),
    ) {
        let mut encoder = Encoder::boxed().unwrap();
        let (block, counts) = encoder.pack(&slots, &OF).unwrap();
        let back = decode(block);
        let kept: Vec<Slot> = slots
            .iter()
            .filter(|s| s.key.0 != 0 && s.key.tag() != tag::STAMP)
            .copied()
            .collect();
        prop_assert_eq!(counts.accesses + counts.others, kept.len() as u64);
        prop_assert!(back.windows(2).all(|w| w[0].0 <= w[1].0));
        prop_assert_eq!(back.into_iter().map(|(_, s)| s).collect::<Vec<_>>(), kept);
    }

    #[test]
    fn nonsense_in_a_payload_ends_the_block_and_nothing_else(
        slots in prop::collection::vec(any_slot(), 1..200),
        at in any::<prop::sample::Index>(),
        flip in 1..=255u8,
    ) {
        let mut encoder = Encoder::boxed().unwrap();
        let (block, _) = encoder.pack(&slots, &OF).unwrap();
        let (header, mut payload) = unpack(block);
        let at = at.index(payload.len());
        payload[at] ^= flip;
        if let Some(mut decoder) = Decoder::new(&header, 0, payload) {
            let mut count = 0;
            while let Some((time, _)) = decoder.next_slot() {
                prop_assert!((header.first..=header.last).contains(&time));
                count += 1;
            }
            prop_assert!(count == header.count || decoder.is_damaged());
        }
    }

    #[test]
    fn columns_equal_slots_decoded_one_by_one(
        parts in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any_slot(), 0..60),
                // A loop over some sites.
                (1..12u64, 1..80u64, 0..64u64).prop_map(|(sites, rounds, stride)| {
                    let slot = |n: u64| read(n / sites * stride + n % sites * 4096, 0x2000 + n % sites);
                    (0..sites * rounds).map(slot).collect()
                }),
            ],
            0..12,
        ),
        flip in prop::option::of((any::<prop::sample::Index>(), 1..=255u8)),
        most in 1..300usize,
    ) {
        let slots: Vec<Slot> = parts.concat();
        let mut encoder = Encoder::boxed().unwrap();
        let (block, _) = encoder.pack(&slots, &OF).unwrap();
        let (header, mut payload) = unpack(block);
        if let Some((at, flip)) = flip {
            let at = at.index(payload.len());
            payload[at] ^= flip;
        }
        let Some(mut slow) = Decoder::new(&header, 0, payload.clone()) else {
            return Ok(());
        };
        let mut fast = Decoder::new(&header, 0, payload).unwrap();
        let mut columns = Columns::default();
        loop {
            columns.clear();
            fast.fill(&mut columns, most);
            prop_assert!(columns.len() <= most);
            if columns.is_empty() {
                break;
            }
            for i in 0..columns.len() {
                let slot = Slot::new(columns.values[i], Key(columns.keys[i]));
                prop_assert_eq!(slow.next_slot(), Some((columns.ticks[i], slot)));
            }
        }
        prop_assert_eq!(slow.next_slot(), None);
        prop_assert_eq!(slow.is_damaged(), fast.is_damaged());
    }
}
