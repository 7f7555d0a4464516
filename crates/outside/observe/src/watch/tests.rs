//! From hits to accesses, without a kernel; the live test is `tests/watch.rs`.

use super::*;
use sunder_access::{CodeAddress, Kind};

const LINE: u64 = 0x8000;

/// Every instruction is a store of 8 bytes to the address in rdi, except that the one at 0 cannot
/// be decoded.
struct StoresToRdi;

impl HitDecoder for StoresToRdi {
    fn access_before(&mut self, trap: &Trap) -> Option<TrappedAccess> {
        (trap.registers.ip != CodeAddress(0)).then_some(TrappedAccess {
            instruction: trap.registers.ip,
            address: Address(trap.registers.general[7]),
            width: 8,
            kind: Kind::Write,
            exact: trap.registers.general[0] == 0,
        })
    }
}

fn burst(words: &[u64]) -> Burst {
    Burst {
        accesses: Vec::new(),
        watched: words.iter().map(|&word| Address(word)).collect(),
        started: Time(100),
        ended: Time(200),
        complete_until: Time(200),
        hits: 0,
        suppressed: 0,
        guessed: 0,
        threads: 2,
        skipped: 0,
    }
}

fn hit(time: u64, word: u64, rdi: u64, ip: u64) -> Sample {
    let mut registers = Registers {
        ip: CodeAddress(ip),
        ..Registers::default()
    };
    registers.general[7] = rdi;
    Sample {
        time: Some(time),
        address: Some(word),
        registers: Some(registers),
        ..Sample::default()
    }
}

#[test]
fn an_access_over_two_words_is_one_access() {
    let mut burst = burst(&[LINE, LINE + 8]);
    let hits = [
        hit(110, LINE, LINE + 4, 7),
        hit(110, LINE + 8, LINE + 4, 7),
        // The same instruction again, with equal registers: it is a new access, because the same
        // word is reported again.
        hit(120, LINE, LINE + 4, 7),
        hit(120, LINE + 8, LINE + 4, 7),
    ];
    burst.add_thread(ThreadId(1), &hits, 10, &mut StoresToRdi);
    let seen: Vec<_> = burst
        .accesses
        .iter()
        .map(|a| (a.time.0, a.address.0))
        .collect();
    assert_eq!(seen, [(110, LINE + 4), (120, LINE + 4)]);
    assert_eq!(burst.suppressed, 2);
}

#[test]
fn undecoded_hits_and_guesses_are_counted() {
    let mut burst = burst(&[LINE]);
    let mut guess = hit(120, LINE, LINE, 7);
    if let Some(registers) = &mut guess.registers {
        registers.general[0] = 1;
    }
    let hits = [hit(110, LINE, LINE, 0), guess];
    burst.add_thread(ThreadId(1), &hits, 10, &mut StoresToRdi);
    assert_eq!(
        (burst.accesses.len(), burst.suppressed, burst.guessed),
        (1, 1, 1)
    );
    assert_eq!(burst.accesses[0].provenance, Provenance::Watched);
}

#[test]
fn the_complete_part_ends_where_the_first_watchpoint_was_used_up() {
    let mut burst = burst(&[LINE, LINE + 8]);
    // Thread 1 uses up its three hits on the second word at 130.
    let first: Vec<_> = [110, 120, 130]
        .map(|time| hit(time, LINE + 8, LINE + 8, 7))
        .into();
    let second: Vec<_> = [90, 115, 125, 135]
        .map(|time| hit(time, LINE, LINE, 9))
        .into();
    burst.add_thread(ThreadId(1), &first, 3, &mut StoresToRdi);
    burst.add_thread(ThreadId(2), &second[..2], 3, &mut StoresToRdi);
    burst.accesses.sort_by_key(|access| access.time);
    assert_eq!(burst.complete_until, Time(130));
    // 90 is from before all watchpoints were set.
    let times: Vec<_> = burst.complete().iter().map(|a| a.time.0).collect();
    assert_eq!(times, [110, 115, 120, 130]);
}

#[test]
fn bad_requests_are_refused_before_anything_is_touched() {
    let mut request = BurstRequest {
        words: vec![Address(LINE + 4)],
        threads: vec![ThreadId(1)],
        max_hits_per_thread: 10,
        max_duration: Duration::from_millis(1),
    };
    assert!(matches!(
        checked_words(&request),
        Err(WatchError::Unaligned(_))
    ));
    request.words.clear();
    assert!(matches!(checked_words(&request), Err(WatchError::Empty)));
    request.words = (0..8).map(|i| Address(LINE + 8 * i)).collect();
    assert_eq!(checked_words(&request).unwrap().len(), SLOTS);
    request.max_hits_per_thread = 0;
    assert!(matches!(checked_words(&request), Err(WatchError::Empty)));
}

#[test]
fn the_cpu_time_of_this_process_grows_and_of_no_process_is_unknown() {
    let own = cpu_time(ProcessId(std::process::id())).unwrap();
    assert!(own > Duration::ZERO);
    // Above the kernel's highest process id (PID_MAX_LIMIT, 4,194,304).
    assert_eq!(cpu_time(ProcessId(5_000_000)), None);
}
