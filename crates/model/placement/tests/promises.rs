//! The promises of each policy, for any sequence of requests.

use proptest::prelude::*;
use std::collections::BTreeMap;
use sunder_access::{Address, LINE, PAGE, ThreadId};
use sunder_placement::{CallSite, Placed, PlacementError, Placer, Policy, Request};

/// The call sites that are padded in some of the tests.
const PADDED: [CallSite; 2] = [CallSite(1), CallSite(4)];

#[derive(Clone, Copy, Debug)]
enum Step {
    Place(Request),
    /// Frees one of the live objects.
    Free(usize),
}

fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0u64..300,
        3 => prop::sample::select(vec![8u64, 24, 40, 64, 100, 1000]),
        2 => 300u64..9000,
        1 => 9000u64..40_000,
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let align = prop_oneof![6 => Just(8u64), 1 => (4u32..14).prop_map(|log| 1 << log)];
    (0u32..4, sizes(), align, 0u64..6).prop_map(|(thread, size, align, site)| Request {
        thread: ThreadId(thread),
        size,
        align,
        site: CallSite(site),
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => request().prop_map(Step::Place),
        2 => any::<usize>().prop_map(Step::Free),
    ];
    prop::collection::vec(step, 1..200)
}

fn policies() -> impl Strategy<Value = Policy> {
    prop::sample::select(Policy::ALL.to_vec())
}

type Live = BTreeMap<Address, Request>;

/// Steps between two checks of all live objects. With enough cases, every state is checked in
/// some of them.
const CHECKED: usize = 29;

/// Carries out the steps. `check` gets the live objects after every [`CHECKED`] steps and at
/// the end.
fn play(placer: &mut Placer, steps: &[Step], mut check: impl FnMut(&Live)) -> Live {
    let mut live = Live::new();
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Place(request) => {
                let placed = placer.place(request).expect("there is room");
                let old = live.insert(placed.address, request);
                assert!(old.is_none(), "{} was handed out twice", placed.address);
            }
            Step::Free(which) if !live.is_empty() => {
                let address = *live.keys().nth(which % live.len()).expect("in range");
                live.remove(&address);
                placer.free(address).expect("it was live");
            }
            Step::Free(_) => {}
        }
        if number % CHECKED == 0 || number + 1 == steps.len() {
            check(&live);
        }
    }
    live
}

/// The end of the bytes that no other object may have. An object of no bytes still has an
/// address.
fn end(address: Address, request: &Request) -> u64 {
    address.0 + request.size.max(1)
}

fn no_overlap_and_aligned(live: &Live) {
    let mut last = 0;
    for (address, request) in live {
        assert!(address.0 >= last, "two objects overlap at {address}");
        assert_eq!(
            address.0 % request.align.max(16),
            0,
            "{request:?} at {address}"
        );
        last = end(*address, request);
    }
}

/// Every granule holds only objects with the same result of `of`.
fn alike<K: PartialEq + std::fmt::Debug>(live: &Live, granule: u64, of: impl Fn(&Request) -> K) {
    let mut seen: BTreeMap<u64, K> = BTreeMap::new();
    for (address, request) in live {
        for granule in address.0 / granule..=(end(*address, request) - 1) / granule {
            let key = of(request);
            if let Some(other) = seen.get(&granule) {
                assert_eq!(*other, key, "in granule {granule:#x}");
            }
            seen.insert(granule, key);
        }
    }
}

fn keeps_its_promise(policy: Policy, live: &Live) {
    match policy {
        Policy::General => {}
        Policy::Hoard => alike(live, LINE, |r| r.thread),
        Policy::Sized => alike(live, PAGE, |r| r.size),
        Policy::CallSite => alike(live, PAGE, |r| r.site),
        Policy::SizedCallSite => alike(live, PAGE, |r| (r.size, r.site)),
    }
}

fn placer(policy: Policy) -> Placer {
    Placer::new(policy, PAGE, LINE).expect("possible sizes")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn objects_do_not_overlap_and_share_pages_only_within_a_bucket(policy in policies(), steps in steps()) {
        play(&mut placer(policy), &steps, |live| {
            no_overlap_and_aligned(live);
            keeps_its_promise(policy, live);
        });
    }

    #[test]
    fn padded_objects_share_no_line(policy in policies(), steps in steps()) {
        let mut placer = placer(policy).padding(PADDED);
        play(&mut placer, &steps, |live| {
            no_overlap_and_aligned(live);
            let mut owner: BTreeMap<u64, (Address, bool)> = BTreeMap::new();
            for (address, request) in live {
                let padded = PADDED.contains(&request.site);
                for line in address.0 / LINE..=(end(*address, request) - 1) / LINE {
                    if let Some((other, other_padded)) = owner.insert(line, (*address, padded)) {
                        assert!(
                            !padded && !other_padded,
                            "{other} and {address} share a line"
                        );
                    }
                }
            }
        });
    }

    /// Equation (5), and that placing agrees with the equations: without frees, a bucket
    /// reaches the pages that its blocks fill, with at most one page begun.
    #[test]
    fn additional_pages_are_no_more_than_buckets(
        policy in policies(),
        requests in prop::collection::vec(request(), 1..300),
    ) {
        let mut placer = placer(policy);
        let mut fill: BTreeMap<usize, u64> = BTreeMap::new();
        let mut sum = 0;
        for request in &requests {
            // These sizes need no rounding for the ABI's alignment. So the equations, which have no
            // alignment, hold for the blocks too.
            let request = Request { size: request.size.div_ceil(16).max(1) * 16, align: 16, ..*request };
            let Placed { bucket, .. } = placer.place(request).expect("there is room");
            *fill.entry(bucket).or_default() += request.size;
            sum += request.size;
        }
        let stats = placer.stats();
        let expected: u64 = fill.values().map(|bytes| bytes.div_ceil(PAGE)).sum();
        prop_assert_eq!(stats.pages.buckets, fill.len() as u64);
        prop_assert_eq!(stats.pages.with_buckets, expected);
        prop_assert_eq!(stats.pages.general(), sum.div_ceil(PAGE));
        prop_assert!(stats.pages.additional() <= stats.pages.buckets);
        if matches!(policy, Policy::Sized | Policy::CallSite | Policy::SizedCallSite) {
            prop_assert_eq!(stats.reached_pages, expected);
            prop_assert!(stats.reached_pages <= stats.pages.general() + stats.pages.buckets);
        }
    }

    #[test]
    fn freed_memory_is_used_again(policy in policies(), steps in steps()) {
        let mut placer = placer(policy);
        let live = play(&mut placer, &steps, |_| {});
        for address in live.keys() {
            placer.free(*address).expect("it was live");
        }
        let before = placer.stats();
        prop_assert_eq!(before.live_bytes, 0);
        // The largest request always finds the gap that it, or a larger one, has left. Sorted
        // by size, so do all others.
        let requests = steps.iter().filter_map(|step| match step {
            Step::Place(request) => Some(*request),
            Step::Free(_) => None,
        });
        for request in requests {
            let placed = placer.place(request).expect("there is room");
            placer.free(placed.address).expect("it is live");
        }
        prop_assert_eq!(placer.stats().reached_pages, before.reached_pages);
    }
}

#[test]
fn freeing_an_object_that_is_not_live_is_an_error() {
    let mut placer = placer(Policy::Sized);
    let placed = placer
        .place(Request {
            size: 40,
            ..Request::default()
        })
        .expect("there is room");
    let inside = placed.address.offset(8);
    assert_eq!(placer.free(inside), Err(PlacementError::NotLive(inside)));
    assert_eq!(placer.free(placed.address).map(|span| span.len), Ok(40));
    assert_eq!(
        placer.free(placed.address),
        Err(PlacementError::NotLive(placed.address))
    );
}

#[test]
fn impossible_requests_are_refused() {
    let ask = |size, align| {
        let request = Request {
            size,
            align,
            ..Request::default()
        };
        placer(Policy::General).place(request).map(|p| p.address)
    };
    assert_eq!(ask(8, 24), Err(PlacementError::Alignment(24)));
    assert_eq!(ask(8, 1 << 40), Err(PlacementError::Alignment(1 << 40)));
    assert_eq!(ask(u64::MAX, 8), Err(PlacementError::TooLarge(u64::MAX)));
    for (page, line) in [(4096, 48), (4095, 64), (64, 128), (4096, 8)] {
        assert!(Placer::new(Policy::General, page, line).is_err());
    }
}

/// The paper's Figure 4 in numbers: two sizes from two call sites each make four buckets, each
/// of which begins on a page of its own.
#[test]
fn sized_call_site_keeps_four_kinds_on_four_pages() {
    let mut placer = placer(Policy::SizedCallSite);
    let mut pages = std::collections::BTreeSet::new();
    for round in 0..10 {
        for (size, site) in [(48, 1), (48, 2), (112, 1), (112, 2)] {
            let placed = placer.place(Request {
                thread: ThreadId(round),
                size,
                align: 8,
                site: CallSite(site),
            });
            pages.insert(placed.expect("there is room").address.0 / PAGE);
        }
    }
    let stats = placer.stats();
    assert_eq!(pages.len(), 4);
    assert_eq!((stats.pages.buckets, stats.pages.with_buckets), (4, 4));
    // 40 objects with 3,200 bytes in all would fit on one page.
    assert_eq!((stats.pages.general(), stats.pages.additional()), (1, 3));
}
