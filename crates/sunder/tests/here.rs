//! False sharing is found in a function of the program that asks, as a test or a benchmark does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use sunder::findings::Sharing;

/// Two counters of one thread each on one line.
#[repr(align(64))]
struct Shared([AtomicU64; 2]);

/// The same on lines of their own.
#[repr(align(64))]
struct Padded(AtomicU64);

static SHARED: Shared = Shared([AtomicU64::new(0), AtomicU64::new(0)]);
static PADDED: [Padded; 2] = [Padded(AtomicU64::new(0)), Padded(AtomicU64::new(0))];

/// Two threads count until the time is over.
fn count(counters: [&AtomicU64; 2], time: Duration) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for counter in counters {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    for _ in 0..100 {
                        counter.fetch_add(1, Relaxed);
                    }
                }
            });
        }
        std::thread::sleep(time);
        is_over.store(true, Relaxed);
    });
}

/// What is found in `function`; none if this machine forbids to look.
fn observed(function: impl FnOnce() + Send) -> Option<sunder::Findings> {
    match sunder::observe(function) {
        Ok(((), found)) => Some(found),
        Err(sunder::Error::Refused(why)) => {
            println!("SKIP: {why}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn is_false(found: &sunder::Findings, name: &str) -> bool {
    found.findings.iter().any(|finding| {
        !finding.latent
            && finding.sharing == Sharing::False
            && finding.object.short_name().contains(name)
    })
}

/// One test, as the whole program is observed.
#[test]
fn counters_on_one_line_are_found_and_padded_ones_are_not() {
    let begin = Instant::now();
    // On a busy machine the threads may not run side by side at once.
    loop {
        let [a, b] = &SHARED.0;
        let Some(found) = observed(|| count([a, b], Duration::from_millis(500))) else {
            return;
        };
        if is_false(&found, "SHARED") {
            break;
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        if cpus < 2 {
            println!("SKIP: threads take turns on one CPU");
            return;
        }
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "not found: {:?}",
            found.findings
        );
    }
    let [a, b] = &PADDED;
    let found = observed(|| count([&a.0, &b.0], Duration::from_millis(500))).expect("as before");
    assert!(!is_false(&found, "PADDED"), "{:?}", found.findings);
}

#[test]
fn the_value_of_the_function_is_returned() {
    // Takes no part in the observation of the other test: it is over at once.
    if let Ok((value, _)) = sunder::observe(|| 7) {
        assert_eq!(value, 7);
    }
}

#[test]
fn errors_name_the_missing_program_or_file() {
    let missing = sunder::Detect::new("./no-such-program").run();
    assert!(
        matches!(&missing, Err(sunder::Error::Execute { program, .. }) if program.contains("no-such-program")),
        "{missing:?}"
    );
    let nobody = sunder::Attach::new(u32::MAX / 2).run();
    assert!(nobody.is_err());
    let file = sunder::open("/no/such/file.json").expect_err("there is no such file");
    assert!(file.to_string().contains("/no/such/file.json"), "{file}");
}
