//! Two threads that write neighbouring words share falsely.
use sunder_access::*;
use sunder_sharing::*;

#[test]
fn neighbouring_counters_share_falsely() {
    let mut judge = Judge::new(Config::default());
    for i in 0..400u64 {
        for t in 0..2u64 {
            let access = Access {
                time: Time(0),
                thread: ThreadId(0),
                instruction: CodeAddress(0x400),
                address: Address(0x1000 + 8 * t),
                width: 8,
                kind: Kind::Update,
                provenance: Provenance::Sampled,
                weight: 1.0,
            };
            judge.sample(&Sample {
                time: Time(1_000_000 * i + 300_000 * t),
                thread: ThreadId(10 + t as u32),
                period_ns: 1_000_000,
                accesses: &[(access, 0)],
                near: &[],
            });
        }
    }
    judge.check_invariants();
    let all = judge.verdicts();
    assert_eq!(all.len(), 1);
    println!("{:#?}", all[0]);
    assert_eq!(all[0].sharing, Sharing::False);
    assert!(all[0].cost_share > 0.95);
}
