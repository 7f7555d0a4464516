//! The kinds of misses, on traces short enough to check by hand, in the manner of the examples
//! of Dubois et al. (ISCA 1993, section 2) that show where the definitions differ. All use
//! blocks of four words of 4 bytes.

use sunder_coherence::{
    Address, CacheSize, Caches, Config, Kind, Miss, MissKind, Observer, Outcome, Protocol,
    Simulator,
};

/// The node, the kind, and the word of the block at address 0, or of a further block.
type Access = (u32, Kind, u64);

const READ: Kind = Kind::Read;
const WRITE: Kind = Kind::Write;

/// Every miss with the number of its access.
#[derive(Default)]
struct Misses(Vec<(usize, MissKind)>);

impl Observer for Misses {
    type Tag = usize;

    fn miss(&mut self, miss: &Miss<usize>) {
        self.0.push((miss.tag, miss.kind));
    }
}

fn machine() -> Config {
    Config {
        word: 4,
        ..Config::new(16, 3)
    }
}

fn run(config: Config, trace: &[Access]) -> Outcome<Misses> {
    let mut simulator = Simulator::with_observer(config, Misses::default()).expect("possible");
    for (number, &(node, kind, word)) in trace.iter().enumerate() {
        simulator
            .access(node, Address(word * 4), 4, kind, number)
            .expect("possible");
        simulator.check_invariants();
    }
    simulator.finish()
}

/// The kind of each access's miss; `-` for a hit.
fn kinds(config: Config, trace: &[Access]) -> String {
    let misses = run(config, trace).into_observer().0;
    let mut letters = vec!['-'; trace.len()];
    for (number, kind) in misses {
        assert_eq!(letters[number], '-', "one miss an access");
        letters[number] = match kind {
            MissKind::Cold => 'c',
            MissKind::Replacement => 'r',
            MissKind::TrueSharing => 't',
            MissKind::FalseSharing => 'f',
        };
    }
    letters.into_iter().collect()
}

#[test]
fn using_a_communicated_value_makes_the_miss_true_sharing() {
    // Node 0 writes word 0 and node 1 reads it. The second read of node 1 needs the second
    // write.
    let trace = [(0, WRITE, 0), (1, READ, 0), (0, WRITE, 0), (1, READ, 0)];
    assert_eq!(kinds(machine(), &trace), "cc-t");
}

#[test]
fn separate_words_make_all_misses_false_sharing() {
    // Node 0 uses only word 0, node 1 only word 3. After the first misses, neither needs
    // anything of the other.
    let trace = [
        (0, WRITE, 0),
        (1, WRITE, 3),
        (0, WRITE, 0),
        (1, WRITE, 3),
        (0, READ, 0),
        (1, READ, 3),
    ];
    // The last read hits: after node 1's write no node has written, because node 0 only read.
    assert_eq!(kinds(machine(), &trace), "ccfff-");
}

#[test]
fn a_later_access_in_the_copys_lifetime_can_make_the_miss_true_sharing() {
    // Node 0 misses on word 0, which no other node wrote. But before the copy is lost it reads
    // word 1, which node 1 wrote. Eggers looks only at the missing access and calls the miss
    // false.
    let trace = [(0, READ, 0), (1, WRITE, 1), (0, READ, 0), (0, READ, 1)];
    assert_eq!(kinds(machine(), &trace), "cct-");
    let totals = run(machine(), &trace).totals();
    assert_eq!((totals.true_sharing, totals.false_sharing), (1, 0));
    assert_eq!(totals.false_by_first_access, 1);
}

#[test]
fn a_use_after_the_invalidation_does_not_change_the_miss() {
    // Access 3 invalidates node 0's second copy (from access 2) before word 1 is read, so that
    // miss was useless. The third copy (from access 4) brings the value.
    let trace = [
        (0, READ, 0),
        (1, WRITE, 1),
        (0, READ, 0),
        (1, WRITE, 2),
        (0, READ, 1),
    ];
    // Node 1 wrote word 1 before node 0's second copy was fetched. What was pending then stays
    // pending, because the useless miss could have been omitted. By Eggers' definition the last
    // miss is false: since the loss only word 2 was written.
    assert_eq!(kinds(machine(), &trace), "ccf-t");
    assert_eq!(run(machine(), &trace).totals().false_by_first_access, 2);
}

#[test]
fn an_essential_miss_brings_all_pending_words() {
    // Access 3 makes the miss essential by word 1, and the miss brings word 2 as well. So when
    // node 0 loses the block because of word 3 and reads word 2, it reads a value that it
    // already had.
    let trace = [
        (0, READ, 0),
        (1, WRITE, 1),
        (1, WRITE, 2),
        (0, READ, 1),
        (1, WRITE, 3),
        (0, READ, 2),
    ];
    assert_eq!(kinds(machine(), &trace), "cc-t-f");
}

#[test]
fn a_cold_miss_brings_all_earlier_words() {
    // Node 1 comes after node 0's write to word 0 and reads only word 3. After the loss it
    // reads word 0, which was written before its cold miss and so is not new.
    let trace = [(0, WRITE, 0), (1, READ, 3), (0, WRITE, 1), (1, READ, 0)];
    assert_eq!(kinds(machine(), &trace), "cc-f");
}

#[test]
fn an_upgrade_does_not_end_the_lifetime() {
    // Node 0 fetches at 2, upgrades at 3, and reads what node 1 wrote at 4: one lifetime.
    let trace = [
        (0, READ, 0),
        (1, WRITE, 1),
        (0, READ, 0),
        (0, WRITE, 0),
        (0, READ, 1),
    ];
    assert_eq!(kinds(machine(), &trace), "cct--");
    assert_eq!(run(machine(), &trace).totals().upgrades, 1);
}

#[test]
fn overwriting_a_foreign_word_is_sharing_too() {
    // Both nodes store to word 0 and none loads it: moving neighbours away would not help.
    let trace = [(0, WRITE, 0), (1, WRITE, 0), (0, WRITE, 0), (1, WRITE, 0)];
    assert_eq!(kinds(machine(), &trace), "cctt");
}

#[test]
fn a_third_nodes_write_is_pending_for_both_others() {
    // Node 2 writes word 2. Node 0 uses it, node 1 does not.
    let trace = [
        (0, READ, 0),
        (1, READ, 1),
        (2, WRITE, 2),
        (0, READ, 2),
        (1, READ, 1),
    ];
    assert_eq!(kinds(machine(), &trace), "ccctf");
}

#[test]
fn coarse_words_join_neighbours() {
    // Words 0 and 1 are one word of 8 bytes.
    let trace = [(0, WRITE, 0), (1, WRITE, 1), (0, WRITE, 0)];
    assert_eq!(kinds(machine(), &trace), "ccf");
    let coarse = Config {
        word: 8,
        ..machine()
    };
    assert_eq!(kinds(coarse, &trace), "cct");
}

#[test]
fn a_replaced_copy_is_a_replacement_miss_whoever_wrote_meanwhile() {
    // The cache of each node holds one block, and word 4 is in the next block. Node 0 replaces
    // the first block by it (1), then node 1 writes the first block (2), and node 0 returns to
    // it (3): the copy would have been missing anyway. The miss brings word 1. So when node 0
    // loses the block by an invalidation (4) and reads word 1 again (5), nothing in it is new.
    let one_block = CacheSize { bytes: 16, ways: 1 };
    let small = Config {
        caches: Caches::Private {
            l1: one_block,
            l2: None,
        },
        ..machine()
    };
    let trace = [
        (0, READ, 0),
        (0, READ, 4),
        (1, WRITE, 1),
        (0, READ, 1),
        (1, WRITE, 2),
        (0, READ, 1),
    ];
    assert_eq!(kinds(small, &trace), "cccr-f");
    // With room for all there is no replacement, and the first return needs word 1.
    assert_eq!(kinds(machine(), &trace), "ccct-f");
}

#[test]
fn every_protocol_and_granule_form_classifies_alike() {
    // The same trace in a granule that is too large for masks. Nodes 0 and 1 share word 0 and
    // use words 1 and 2 alone. The words are 4 bytes of 1024.
    let trace = [
        (0, WRITE, 1),
        (1, WRITE, 2),
        (0, WRITE, 1),
        (1, WRITE, 0),
        (0, READ, 1),
        (0, READ, 0),
        (1, WRITE, 2),
        (0, READ, 1),
    ];
    for protocol in [Protocol::Msi, Protocol::Mesi, Protocol::Mesif] {
        for granule in [16, 1024] {
            let config = Config {
                protocol,
                granule,
                ..machine()
            };
            // Access 3 is useless for node 1, which overwrites word 0 that no other node wrote.
            // Access 4: node 0 then reads word 0, which is new. Access 7: only word 2 is new.
            assert_eq!(kinds(config, &trace), "ccfft--f", "{config:?}");
        }
    }
}
