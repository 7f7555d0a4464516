//! A measured gain takes the place of the cost wherever a reader looks first.

use sunder_findings::{Findings, GainPercent, OnMoreCpus, examples};
use sunder_report::{TextOptions, html, sarif, text};

const ON_MORE_CPUS: &str = "With a thread on each of 16 CPUs, the fix would make the program about 13 \
                            times as fast (6.0 to 25, by a model).";

fn measured() -> Findings {
    let mut all = examples::result(vec![examples::global_array()]);
    all.findings[0].gain_percent = Some(GainPercent {
        low: 60.4,
        likely: 67.0,
        high: 120.0,
        comparisons: 18,
    });
    all.findings[0].on_more_cpus = Some(OnMoreCpus {
        cpus: 16,
        times_as_fast: 12.7,
        low: 6.04,
        high: 25.4,
    });
    all
}

#[test]
fn the_text_says_what_a_fix_gains() {
    let report = text(&measured(), &TextOptions::default());
    let one_line = report.split_whitespace().collect::<Vec<_>>().join(" ");
    let answer = "False sharing in counters (counter[8]): taking it apart saves about 67 % (60 to \
                  100 %) of the program's time, as measured.";
    assert!(one_line.starts_with(answer), "{report}");
    assert!(
        one_line.contains("a fix saves 67 % (60 to 100 %)"),
        "{report}"
    );
    assert!(!one_line.contains("costs 24 %"), "{report}");
    assert!(one_line.contains(ON_MORE_CPUS), "{report}");
}

#[test]
fn what_nobody_would_notice_on_more_cpus_is_not_told() {
    let mut all = measured();
    if let Some(on) = &mut all.findings[0].on_more_cpus {
        (on.times_as_fast, on.low) = (1.02, 1.0);
    }
    let report = text(&all, &TextOptions::default());
    assert!(!report.contains("16 CPUs"), "{report}");
}

#[test]
fn so_do_the_page_and_the_message_for_code_scanning() {
    let page = html(&measured());
    assert!(page.contains("a fix saves 67 % (60 to 100 %)"));
    assert!(page.contains(ON_MORE_CPUS));
    let log = sarif(&measured());
    let message = "a fix saves 67 % (60 to 100 %) of the program's time.";
    assert!(log.contains(message), "{log}");
}
