//! A fleet as page, text and Markdown: complete, honest where nothing was seen, and safe against names of
//! others. What the page does in a browser is in `browser.rs`.

use sunder_findings::WatchStatus;
use sunder_fleet::Fleet;
use sunder_fleet::examples::{fleet, hostile, nothing, status_of, sum_up};
use sunder_report::{TextOptions, fleet_html, fleet_markdown, fleet_text};

fn plain(fleet: &Fleet) -> String {
    fleet_text(fleet, &TextOptions::default())
}

#[test]
fn names_stay_text() {
    let page = fleet_html(&hostile());
    assert!(
        !page.contains("<script") && !page.contains("<b onclick"),
        "{page}"
    );
    assert!(
        !page.contains("onclick='x'"),
        "a quote must not end an attribute"
    );
    assert_eq!(page.matches("</style>").count(), 1);
    for text in [page, plain(&hostile()), fleet_markdown(&hostile())] {
        for bad in ['\u{1b}', '\u{7}', '\u{202e}'] {
            assert!(!text.contains(bad), "{bad:?}");
        }
    }
    let markdown = fleet_markdown(&hostile());
    assert!(
        !markdown.contains("<b") && !markdown.contains("@all"),
        "{markdown}"
    );
    // A table of which a name ends no cell.
    let rows = markdown.lines().filter(|line| line.starts_with("| "));
    let cells: Vec<usize> = rows
        .map(|row| row.replace("\\|", "").matches('|').count())
        .collect();
    assert_eq!(cells, [9, 9, 4, 4]);
}

#[test]
fn nothing_is_loaded_from_elsewhere() {
    let page = fleet_html(&fleet());
    for reference in ["http:", "https:", "src=", "@import", "url(", "//cdn"] {
        assert!(!page.contains(reference), "{reference} in the page");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn page_and_text_tell_objects_builds_machines_and_what_was_lost() {
    for text in [fleet_html(&fleet()), plain(&fleet())] {
        for wanted in [
            // 30,000 s and 5,400 s; 35,400 s.
            "2 objects are shared falsely, on 3 of 5 machines. They cost 9.8 h of CPU time.",
            "8.3 h",
            "90 min",
            "12 %",
            "30 %",
            "4.1.0 8c1f09…",
            "appeared with this build",
            "not there any more",
            "2026-03-02 08:01",
            "gone from all of them",
            "web2",
            "nothing found",
            "nothing could be seen",
            "No process was looked at closely",
            "db1",
            "3f1c9d2e7a8b",
            "have no known address",
            "Watching took",
            "0 of 40 close looks failed",
        ] {
            assert!(text.contains(wanted), "{wanted} is not in:\n{text}");
        }
    }
}

#[test]
fn looks_that_are_named_by_symbols_are_told() {
    let text = |looks_by_symbols| {
        plain(&sum_up(&[status_of(WatchStatus {
            host: "web1".into(),
            time_unix_ns: 1,
            samples: 10,
            looks: 3,
            looks_by_symbols,
            ..WatchStatus::default()
        })]))
    };
    let told = text(2).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        told.contains(
            "Debug information took too much in 2 looks, whose findings are named by symbols."
        ),
        "{told}"
    );
    assert!(!text(0).contains("by symbols"));
}

#[test]
fn where_nobody_looked_nothing_found_is_not_said() {
    assert!(
        plain(&nothing()).starts_with(
            "Nothing that is shared falsely was found on 1 machine; on 1 machine nothing would have been"
        ),
        "{}",
        plain(&nothing())
    );
    let blind = sum_up(&[status_of(WatchStatus {
        host: "web1".into(),
        time_unix_ns: 1,
        ..WatchStatus::default()
    })]);
    for text in [plain(&blind), fleet_html(&blind), fleet_markdown(&blind)] {
        assert!(text.contains("and nothing would have been"), "{text}");
        assert!(text.contains("Nothing was sampled"), "{text}");
    }
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [40, 80, 120] {
        for fleet in [fleet(), hostile(), nothing()] {
            let options = TextOptions {
                width,
                ascii: true,
                all: true,
                ..TextOptions::default()
            };
            let text = fleet_text(&fleet, &options);
            assert!(text.is_ascii(), "{text}");
            let longest = text.lines().map(str::len).max();
            assert!(longest <= Some(width), "{longest:?} of {width}:\n{text}");
        }
    }
}
