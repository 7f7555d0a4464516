//! Executes random loops unchanged and with a moved page. The page is protected, each fault is
//! answered by a copy of the loop, and registers, flags and memory must be the same in the end.

pub(crate) mod machine;
pub(crate) mod program;

use machine::{
    AGAIN, compare, compare_deep, compare_far, compare_source, compare_through, compare_with_all,
};
use program::{
    CHANGES, FAR, KERNEL, LEAF, OF_FUNCTIONS, RESTORES, RETURNS, RETURNS_BY_POINTER, STORES, Step,
    THROUGH, WANDERS, WANDERS_BEYOND, WAYS, Way, framed,
};
use proptest::prelude::*;

fn steps(most: usize, kinds: u32) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((0..kinds, 0u32..64, 0u32..6), 0..most)
}

/// The number of cases, which `PROPTEST_CASES` sets.
fn cases() -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|n| n.parse().ok()).unwrap_or(160)
}

/// Two ways of calls, at least one of which is through a pointer.
fn ways() -> impl Strategy<Value = [Way; 2]> {
    let through = prop::sample::select(THROUGH);
    let ends = prop::sample::select(&WAYS[..]);
    let direct = prop::sample::select(&[Way::Direct, Way::Ends][..]);
    prop_oneof![
        (through, direct).prop_map(|(way, within)| [way, within]),
        ends.prop_map(|within| [Way::Direct, within]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_loop_with_a_moved_page_has_the_same_result(body in steps(10, RETURNS), leaf in steps(5, OF_FUNCTIONS), inner in steps(4, OF_FUNCTIONS), ways in ways()) {
        if compare_through([&body, &leaf, &inner], ways, 9).is_none() {
            println!("SKIP: there is no assembler");
        }
    }

    #[test]
    fn a_loop_that_compares_each_address_has_the_same_result(body in steps(10, RETURNS), leaf in steps(5, OF_FUNCTIONS)) {
        if compare_with_all([&body, &leaf, &[]], 9).is_none() {
            println!("SKIP: there is no assembler");
        }
    }

    #[test]
    fn a_function_with_a_frame_has_the_same_result(body in steps(8, crate::support::framed::KINDS), rounds in 3u32..12) {
        if compare_source(&framed(&body, rounds), LEAF).is_none() {
            println!("SKIP: there is no assembler");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    /// Operands that a copy does not reach, and a thread that a signal stops anywhere on the way to them.
    /// The first step is about bytes that moved, and the second one's operand is relative to rip.
    #[test]
    fn a_loop_far_from_its_copies_has_the_same_result(body in steps(4, 17), at in 0u32..64, each in 1u64..9) {
        let body = [&[(0, at, at), FAR][..], &body].concat();
        if compare_far(&body, 9, (each, 60)).is_none() {
            println!("SKIP: there is no assembler");
        }
    }
}

#[test]
fn pointers_in_a_frame_are_followed() {
    // Without an address of the frame; the last case has pointers that are exchanged.
    for kinds in [&[0][..], &[1, 2], &[3, 0, 5], &[11, 9], &[12, 13], &[4, 0]] {
        let body: Vec<Step> = kinds.iter().map(|&kind| (kind, 1, 0)).collect();
        let Some(faults) = compare_source(&framed(&body, 300), LEAF) else {
            println!("SKIP: there is no assembler");
            return;
        };
        assert!(faults <= 2, "{kinds:?}: {faults}");
    }
}

#[test]
fn an_invariant_operand_faults_once() {
    // For any number of rounds: what follows from facts needs no second fault.
    let Some(faults) = compare(&[(0, 0, 0), (1, 1, 1), (6, 2, 2)], &[], 300) else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert_eq!(faults, 1);
}

#[test]
fn a_leaf_function_stays_in_the_copy_of_its_caller() {
    let Some(faults) = compare(&[(16, 0, 0)], &[(0, 0, 0), (6, 2, 2)], 300) else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert_eq!(faults, 1);
}

#[test]
fn a_called_function_is_copied_into_the_loop_that_calls_it() {
    // Faults occur in the loop itself, and then in the called function.
    let Some(faults) = compare(&[(0, 0, 0)], &[(6, 2, 2), (16, 0, 0)], 300) else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert_eq!(faults, 1);
}

#[test]
fn an_operand_that_varies_within_a_group_faults_once() {
    let Some(faults) = compare(&[(11, 0, 0), (16, 0, 0)], &[], 300) else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert_eq!(faults, 1);
}

#[test]
fn a_pointer_from_memory_is_guarded() {
    let Some(faults) = compare(&[(8, 0, 0)], &[], 300) else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert_eq!(faults, 1);
}

#[test]
fn one_fault_is_enough_for_operands_that_can_be_predicted() {
    let kinds = [
        ("a pointer from a pointer in memory", 24, 0),
        ("a pointer that the loop puts into memory itself", 25, 1),
        ("an index in memory", 27, 2),
        ("an index of 32 bits in memory", 28, 0),
        ("an index that is masked", 29, 1),
        ("an address that is multiplied and divided", 30, 2),
        ("an address that is multiplied by what is in memory", 31, 0),
        ("a pointer that walks over the group", 32, 1),
        ("an index that counts up to a bound", 33, 3),
        ("a pointer that may be one of two", 37, 0),
        ("an index that a comparison bounds", 38, 3),
        ("an index that is negated and masked", 39, 3),
        ("behind a jump through a table", 40, 1),
    ];
    for (what, kind, offset) in kinds {
        let Some(faults) = compare(&[(kind, offset, 0)], &[], 300) else {
            println!("SKIP: there is no assembler");
            return;
        };
        assert_eq!(faults, 1, "{what}");
    }
}

#[test]
fn functions_within_functions_are_copied_into_the_loop() {
    // The fault occurs in the innermost function, and in the loop.
    for body in [&[(16, 0, 0)][..], &[(0, 0, 0)]] {
        let Some(faults) = compare_deep([body, &[(6, 2, 2)], &[(0, 1, 2), (1, 2, 3)]], 300) else {
            println!("SKIP: there is no assembler");
            return;
        };
        assert_eq!(faults, 1);
    }
}

/// Ways on which registers are restored are left out of copies at first, so each round that takes one
/// faults after it, until a copy with all ways is asked for.
#[test]
fn a_register_that_some_rounds_restore_is_known_in_the_others() {
    // The registers that are saved, and how they are used then.
    for (offset, uses) in [(0, 0), (1, 6), (2, 0), (3, 6)] {
        let body = [(16, 0, 0), (uses, 1, 2)];
        let Some(faults) = compare(&body, &[(RESTORES, offset, 1)], 300) else {
            println!("SKIP: there is no assembler");
            return;
        };
        let is_left = (2..=AGAIN).contains(&faults);
        assert!(is_left, "{offset} {uses}: {faults}");
    }
}

#[test]
fn functions_that_change_their_return_address_return_there() {
    for kind in [RETURNS, RETURNS_BY_POINTER] {
        for around in [&[(STORES, 1, 1)][..], &[(0, 0, 0), (STORES, 0, 2)]] {
            let leaf = [&[(kind, 0, 1)], around].concat();
            for parts in [
                [&[(0, 1, 0)][..], &leaf, &[]],
                [&[(0, 1, 0)], around, &leaf],
            ] {
                if compare_deep(parts, 9).is_none() {
                    println!("SKIP: there is no assembler");
                    return;
                }
            }
        }
    }
}

#[test]
fn a_function_with_stores_of_its_own_stays_in_the_copy() {
    let Some(faults) = compare(&[(0, 0, 0)], &[(STORES, 1, 1), (0, 1, 2)], 300) else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert_eq!(faults, 1);
}

#[test]
fn a_function_that_a_pointer_leads_to_stays_in_the_copy() {
    for way in THROUGH {
        // The fault occurs in the loop, and in the function.
        for parts in [
            [&[(0, 0, 0)][..], &[(16, 0, 0)], &[]],
            [&[(16, 0, 0)], &[(0, 0, 0)], &[]],
        ] {
            let Some(faults) = compare_through(parts, [*way, Way::Direct], 300) else {
                println!("SKIP: there is no assembler");
                return;
            };
            assert_eq!(faults, 1, "{way:?}");
        }
    }
}

#[test]
fn a_function_that_ends_in_another_stays_in_the_copy() {
    for way in [Way::Ends, Way::EndsThroughSlot] {
        for parts in [
            [&[(0, 0, 0)][..], &[(16, 0, 0)], &[(6, 2, 2)]],
            [&[(16, 0, 0)], &[(16, 1, 0)], &[(0, 1, 2)]],
        ] {
            let Some(faults) = compare_through(parts, [Way::Direct, way], 300) else {
                println!("SKIP: there is no assembler");
                return;
            };
            assert_eq!(faults, 1, "{way:?}");
        }
    }
}

#[test]
fn a_pointer_that_leads_to_one_function_and_then_to_another_stays_in_the_copy() {
    for way in THROUGH {
        let parts = [&[(0, 0, 0), (CHANGES, 0, 0)][..], &[(0, 1, 2)], &[]];
        let Some(faults) = compare_through(parts, [*way, Way::Direct], 300) else {
            println!("SKIP: there is no assembler");
            return;
        };
        // Neither function is known before the pointer has led there.
        assert!((2..=8).contains(&faults), "{way:?}: {faults}");
    }
}

#[test]
fn a_pointer_that_wanders_over_groups_of_one_distance_faults_a_few_times() {
    // Values that a table of bits holds, and values for which it can't be read.
    for kind in [WANDERS, WANDERS_BEYOND] {
        let Some(faults) = compare(&[(kind, 0, 0)], &[], 300) else {
            println!("SKIP: there is no assembler");
            return;
        };
        // After two groups were met, all are expected.
        assert!((2..=3).contains(&faults), "{faults}");
    }
}

#[test]
fn a_kernel_call_without_pointers_stays_in_the_copy() {
    let Some(faults) = compare(&[(0, 0, 0), (KERNEL, 0, 0)], &[(KERNEL, 0, 0)], 300) else {
        println!("SKIP: there is no assembler");
        return;
    };
    assert_eq!(faults, 1);
}
