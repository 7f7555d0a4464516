//! The HTML report: self-contained, complete, and safe against hostile names. What it does in a
//! browser is in `browser.rs`.

use sunder_findings::{Finding, Findings, Limit, examples};
use sunder_report::{comparison_html, html};

const HOSTILE: &str = "</script><script>alert(1)</script><b onclick='x'>\"&\u{202e}\u{7}";

pub(crate) fn advised(findings: Vec<Finding>) -> Findings {
    let mut all = examples::result(findings);
    for finding in &mut all.findings {
        finding.advice = sunder_plan::advise(finding, all.machine.line_size);
    }
    all
}

/// A result in which every text is hostile to the page.
pub(crate) fn hostile() -> Findings {
    let bad = || HOSTILE.to_owned();
    let mut finding = examples::linear_regression();
    finding.object.name = Some(bad());
    finding.object.type_name = Some(bad());
    for frame in &mut finding.object.allocation {
        frame.function = bad();
        frame.file = Some(bad());
        frame.module = Some(bad());
    }
    for site in &mut finding.sites {
        site.function = bad();
        site.file = Some(bad());
        site.source = Some(bad());
        for line in &mut site.excerpt {
            line.text = bad();
        }
        site.fields = vec![bad()];
        site.line = None;
    }
    for line in &mut finding.lines {
        for word in &mut line.words {
            word.field = Some(bad());
            word.threads[0].name = Some(bad());
        }
    }
    let mut all = advised(vec![finding]);
    all.tool = bad();
    all.program.command = vec![bad()];
    all.program.path = Some(bad());
    all.machine.cpu = bad();
    all.machine.kernel = bad();
    all.run.observer = bad();
    all.limits = vec![Limit::Text(bad())];
    all
}

pub(crate) fn everything() -> Findings {
    let mut minor = examples::true_sharing();
    minor.cost_percent = 0.5;
    let mut all = advised(vec![
        examples::linear_regression(),
        examples::global_array(),
        examples::heap_pair(),
        examples::mixed(),
        minor,
        examples::one_writer(),
        examples::latent(),
        examples::no_debug_info(),
        examples::long_names(),
    ]);
    all.limits.push(Limit::Text("A second limit.".into()));
    all
}

/// Cells that the heat maps must have: one for each word and thread.
pub(crate) fn cells(all: &Findings) -> usize {
    let lines = all.findings.iter().flat_map(|f| &f.lines);
    lines.flat_map(|l| &l.words).map(|w| w.threads.len()).sum()
}

#[test]
fn names_stay_text() {
    let page = html(&hostile());
    assert_eq!(page.matches("<script").count(), 1, "only the page's own");
    assert_eq!(page.matches("</script>").count(), 1);
    assert!(!page.contains("<b onclick"));
    assert!(
        !page.contains("onclick='x'"),
        "a quote must not end an attribute"
    );
    assert!(!page.contains('\u{202e}') && !page.contains('\u{7}'));
}

#[test]
fn nothing_is_loaded_from_elsewhere() {
    let page = html(&everything());
    for reference in ["http:", "https:", "src=", "@import", "url(", "//cdn"] {
        assert!(!page.contains(reference), "{reference} in the page");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn every_finding_has_its_parts() {
    let all = everything();
    let page = html(&all);
    for finding in &all.findings {
        assert!(page.contains(&format!("id=\"finding-{}\"", finding.rank)));
        assert!(page.contains(&format!("href=\"#finding-{}\"", finding.rank)));
    }
    assert_eq!(page.matches("class=\"cell ").count(), cells(&all));
    for part in [
        "71 %",
        "args-&gt;SXX += args-&gt;points",
        "linear_regression.c:133",
        "Interleavings over time",
        "aligned_alloc(64, 256)",
        "A second limit.",
        "AMD EPYC 9B14",
        "Also show 1 truly shared object below 1 %",
        "sunder diff before.json after.json",
    ]
    .map(|p| p.replace("&gt;", ">"))
    {
        let escaped = part.replace('>', "&#62;");
        assert!(
            page.contains(&part) || page.contains(&escaped),
            "{part:?} is missing"
        );
    }
}

#[test]
fn instructions_are_shown_in_their_source() {
    let mut finding = examples::linear_regression();
    finding.sites.truncate(1);
    finding.sites[0].line = Some(40);
    finding.sites[0].excerpt = [(39, "\tif (x)"), (40, "\t\tadd(x);"), (41, "\telse")]
        .map(|(line, text)| sunder_findings::SourceLine {
            line,
            text: text.into(),
        })
        .to_vec();
    let page = html(&advised(vec![finding]));
    let row = |number: &str, text: &str| {
        let at = page.find(&format!(">{number}</a></td>")).expect(number);
        let source = page[at..].find("class=\"source\">").expect("a cell") + at + 15;
        let after = &page[source..];
        let expected = format!("{text}</td>");
        assert!(after.starts_with(&expected), "{number}: {}", &after[..60]);
    };
    row("39", "if (x)");
    row("40", "        add(x);");
    row("41", "else");
    assert_eq!(page.matches("class=\"context\"").count(), 2);
}

#[test]
fn lock_calls_are_listed_apart_from_sampled_code() {
    let page = html(&advised(vec![examples::linear_regression()]));
    assert!(!page.contains("Lock calls"));
    let mut finding = examples::linear_regression();
    let mut call = finding.sites[0].clone();
    call.function = "take_turn".into();
    call.calls = Some("pthread_mutex_lock".into());
    (call.accesses, call.threads) = (0, Vec::new());
    finding.sites.insert(0, call);
    let page = html(&advised(vec![finding]));
    let (sampled, calls) = page.split_once("Lock calls (found").expect("a heading");
    assert!(sampled.contains("Code that touches it"));
    assert!(!sampled.contains("take_turn"));
    for part in ["take_turn", "kind-calls", ">pthread_mutex_lock</td>"] {
        assert!(calls.contains(part), "{part}");
    }
    // The row has an empty share of the samples, not one of 0 %.
    let row = &calls[calls.find("kind-calls").expect("the row")..];
    let share = row.find("class=\"number\">").expect("a cell");
    assert!(row[share..].starts_with("class=\"number\"></td>"), "{row}");
}

#[test]
fn limits_show_code_and_a_folded_overview_has_no_head() {
    let mut minor = examples::true_sharing();
    minor.cost_percent = 0.5;
    let mut all = advised(vec![minor]);
    all.limits = vec![Limit::Text("Build with `-g` for more.".into())];
    let page = html(&all);
    assert!(page.contains("Build with <code>-g</code> for more."));
    assert!(page.contains("class=\"overview folded\""));
    let page = html(&everything());
    assert!(page.contains("class=\"overview\""));
}

#[test]
fn empty_result_is_stated() {
    let page = html(&advised(vec![]));
    assert!(page.contains("No false sharing found"));
    assert!(
        !page.contains("To check a change"),
        "there is nothing to change"
    );
    assert!(page.contains("12,801 samples of 9 threads"));
    assert!(!page.contains("id=\"overview\""));
}

/// The page of a comparison.
pub(crate) fn changed(old: &Findings, new: &Findings) -> String {
    comparison_html(&sunder_findings::compare(old, new), old, new)
}

#[test]
fn a_comparison_has_bars_before_and_after() {
    let old = advised(vec![examples::linear_regression(), examples::mixed()]);
    let mut grown = examples::mixed();
    grown.cost_percent = 60.0;
    let new = advised(vec![grown, examples::global_array()]);
    let page = changed(&old, &new);
    assert!(page.contains("<h1>More false sharing than before: 1 appeared, 1 grew, 1 gone.</h1>"));
    let change = |subject: &str| {
        let at = page.find(subject).unwrap_or_else(|| panic!("no {subject}"));
        let rest = &page[at..];
        rest[..rest.find("</div>").expect("an end")].to_owned()
    };
    // Of mixed sharing, 38 % of the interleavings are false: 5.7 of 15 points, then 22.8 of 60.
    let mixed = change("q (queue)");
    assert!(
        mixed.contains("width:5.7%") && mixed.contains("width:22.8%"),
        "{mixed}"
    );
    assert!(
        mixed.contains("class=\"todo\""),
        "what grew has advice: {mixed}"
    );
    let gone = change("lreg_args[4]");
    assert!(
        gone.contains("width:0.0%\"></i></span> not found"),
        "{gone}"
    );
    assert!(
        !gone.contains("class=\"todo\""),
        "what is gone needs none: {gone}"
    );
}

#[test]
fn names_stay_text_in_a_comparison() {
    for page in [
        changed(&hostile(), &advised(vec![])),
        changed(&advised(vec![]), &hostile()),
    ] {
        assert!(!page.contains("<script") && !page.contains("<b onclick"));
        assert!(!page.contains('\u{202e}') && !page.contains('\u{7}'));
    }
}

#[test]
fn nonsense_renders() {
    let mut odd = Finding::default();
    odd.lines.push(Default::default());
    odd.lines[0].words.push(sunder_findings::Word {
        offset: u32::MAX,
        size: u32::MAX,
        ..Default::default()
    });
    odd.lines[0].words[0].threads.push(Default::default());
    odd.lines[0].words[0].threads[0].updates = u64::MAX;
    odd.cost_percent = f64::NAN;
    odd.interleavings_per_second = f64::INFINITY;
    odd.timeline = vec![f64::NAN, -1.0, 1e300];
    let mut all = Findings {
        findings: vec![odd],
        ..Findings::default()
    };
    for line_size in [0, 64, u32::MAX] {
        all.machine.line_size = line_size;
        let page = html(&all);
        assert!(page.contains("finding-0"));
        let shown = page.split("<script>").next().unwrap_or_default();
        assert!(!shown.contains("NaN"), "no such figure for people");
        assert!(!shown.contains("inf"), "no such figure for people");
    }
}
