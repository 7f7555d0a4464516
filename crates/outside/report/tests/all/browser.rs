//! The HTML pages in a real browser, if there is one: a page of scripts (`browser.js`) opens them in
//! frames as wide as a phone, a tablet and a desk, uses their controls, and says what does not hold.

use crate::html::{advised, cells, changed, everything, hostile};
use std::path::Path;
use std::process::{Command, Output};
use sunder_findings::{Findings, examples};
use sunder_fleet::examples as fleets;
use sunder_report::{fleet_html, html};

/// A page in the browser after its scripts ran, and the browser's console.
struct Seen {
    dom: String,
    console: Vec<String>,
}

/// A browser without a window, on `url`. Each run has a profile of its own, which is removed.
fn start(browser: &str, url: &str, options: &[&str]) -> Result<Output, String> {
    let profile = tempfile::tempdir().map_err(|e| e.to_string())?;
    Command::new("timeout")
        .arg("300")
        .arg(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--enable-logging=stderr",
        ])
        .args(options)
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(url)
        .output()
        .map_err(|e| e.to_string())
}

fn browse(browser: &str, url: &str, options: &[&str]) -> Result<Seen, String> {
    let options = [&["--window-size=1600,2200", "--dump-dom"], options].concat();
    let out = start(browser, url, &options)?;
    let log = String::from_utf8_lossy(&out.stderr);
    Ok(Seen {
        dom: String::from_utf8_lossy(&out.stdout).into_owned(),
        console: log
            .lines()
            .filter(|l| l.contains("CONSOLE"))
            .map(str::to_owned)
            .collect(),
    })
}

/// A PNG file of what the browser shows; the options say how large its window is.
pub fn screenshot(browser: &str, url: &str, options: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder for a picture");
    let file = folder.path().join("seen.png");
    let to = format!("--screenshot={}", file.display());
    let scale = [
        "--force-device-scale-factor=1",
        "--force-color-profile=srgb",
    ];
    let options = [&[to.as_str()], &scale[..], options].concat();
    let out = start(browser, url, &options).expect("it ran a moment ago");
    std::fs::read(&file)
        .unwrap_or_else(|e| panic!("no picture: {e}: {}", String::from_utf8_lossy(&out.stderr)))
}

/// The option for dark pages.
pub fn scheme(dark: bool) -> Option<&'static str> {
    dark.then_some("--blink-settings=preferredColorScheme=0")
}

/// The command of a browser that runs here and whose console can be read.
pub fn browser() -> Option<&'static str> {
    const PROBE: &str = "data:text/html,<p>probe</p><script>console.error('heard')</script>";
    let mut why = "no chromium in PATH".to_owned();
    for name in ["chromium", "chromium-browser", "google-chrome"] {
        match browse(name, PROBE, &[]) {
            Ok(seen) if !seen.dom.contains("<p>probe</p>") => {
                why = format!("{name} shows no page here");
            }
            Ok(seen) if !seen.console.iter().any(|l| l.contains("heard")) => {
                why = format!("{name}'s console can't be read");
            }
            Ok(_) => return Some(name),
            Err(error) => why = format!("{name}: {error}"),
        }
    }
    println!("SKIP: {why}; the HTML pages were not looked at in a browser");
    None
}

/// axe-core, a checker of accessibility, where `setup/axe-core` put it.
fn axe() -> Option<String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let script = target.map(|folder| folder.join("axe-core/axe.min.js"));
    let text = std::fs::read_to_string(script.unwrap_or_default());
    if text.is_err() {
        println!(
            "SKIP: setup/axe-core has not fetched axe-core; nothing checked how accessible the pages are"
        );
    }
    text.ok()
}

/// What `browser.js` found wrong with these pages, and how many checks it made. `extra` is a script
/// that it may use.
fn drive(browser: &str, pages: &[(&str, String)], extra: &str, dark: bool) -> (Vec<String>, usize) {
    let folder = tempfile::tempdir().expect("a folder for pages");
    for (name, page) in pages {
        let file = folder.path().join(format!("{name}.html"));
        std::fs::write(&file, page).expect("the page can be written");
    }
    let names: Vec<&str> = pages.iter().map(|(name, _)| *name).collect();
    let driver = format!(
        "<!doctype html><meta charset=utf-8><body><script>const pages = {}; const extra = {};</script><script>{}</script>",
        serde_json::json!(names),
        // Nothing in it may end the script element.
        serde_json::json!(extra).to_string().replace('<', "\\u003c"),
        include_str!("browser.js")
    );
    let file = folder.path().join("driver.html");
    std::fs::write(&file, driver).expect("written");
    let mut options = vec![
        "--allow-file-access-from-files",
        "--virtual-time-budget=100000",
    ];
    options.extend(scheme(dark));
    let url = format!("file://{}", file.display());
    let seen = browse(browser, &url, &options).expect("it ran a moment ago");
    let result = seen.dom.split("<pre id=\"wrong\">").nth(1);
    let result = result.and_then(|r| r.split("</pre>").next());
    let result = result.unwrap_or_else(|| {
        panic!("the scripts did not end: {:?}", seen.console);
    });
    let (checks, wrong) = result.split_once('\n').unwrap_or((result, ""));
    let scheme = format!("scheme {}", if dark { "dark" } else { "light" });
    assert!(seen.dom.contains(&scheme), "the pages are not {scheme}");
    let wrong = wrong.lines().map(str::to_owned);
    (wrong.collect(), checks.parse().expect("a number"))
}

/// Sixty findings, which are those of [`everything`] again and again.
fn sixty() -> Findings {
    let mut all = everything();
    let some = std::mem::take(&mut all.findings);
    all.findings = some.iter().cycle().take(60).cloned().collect();
    for (at, finding) in all.findings.iter_mut().enumerate() {
        finding.rank = at as u32 + 1;
    }
    all
}

fn pages() -> Vec<(&'static str, String)> {
    vec![
        ("report", html(&everything())),
        ("hostile", html(&hostile())),
        ("sixty", html(&sixty())),
        ("one", html(&advised(vec![examples::linear_regression()]))),
        ("nothing", html(&advised(vec![]))),
        (
            "changed",
            changed(&advised(vec![examples::mixed()]), &hostile()),
        ),
        ("fleet", fleet_html(&fleets::fleet())),
        ("fleet-hostile", fleet_html(&fleets::hostile())),
        ("fleet-nothing", fleet_html(&fleets::nothing())),
    ]
}

#[test]
fn pages_fit_their_screens_and_their_controls_work() {
    let Some(browser) = browser() else { return };
    let (wrong, checks) = drive(browser, &pages(), "", false);
    assert_eq!(wrong, [""; 0]);
    assert!(checks >= 60, "only {checks} checks were made");
}

#[test]
fn pages_are_accessible_in_light_and_dark() {
    let (Some(browser), Some(axe)) = (browser(), axe()) else {
        return;
    };
    for dark in [false, true] {
        // Sixty findings are made as one is. A page without scripts must admit the checker's.
        let pages = pages().into_iter().filter(|(name, _)| *name != "sixty");
        let admit =
            |page: String| page.replace("style-src", "script-src 'unsafe-inline'; style-src");
        let pages: Vec<_> = pages.map(|(name, page)| (name, admit(page))).collect();
        let (wrong, checks) = drive(browser, &pages, &axe, dark);
        assert_eq!(wrong, [""; 0], "dark: {dark}");
        assert!(checks >= 12, "only {checks} checks were made");
    }
}

#[test]
fn browser_shows_the_report_without_errors() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().expect("a folder for pages");
    for (name, all) in [("usual", everything()), ("hostile", hostile())] {
        let file = folder.path().join(format!("{name}.html"));
        std::fs::write(&file, html(&all)).expect("the page can be written");
        let url = format!("file://{}#finding-1", file.display());
        let seen = browse(browser, &url, &[]).expect("it ran a moment ago");
        assert!(seen.console.is_empty(), "{name}: {:?}", seen.console);
        assert!(
            seen.dom.contains("data-script=\"ready\""),
            "{name}: the script did not end: {}",
            seen.dom.chars().take(500).collect::<String>()
        );
        assert_eq!(seen.dom.matches("<h1>").count(), 1, "{name}");
        assert_eq!(
            seen.dom.matches("<h2 class=\"subject\">").count(),
            all.findings.len(),
            "{name}: a heading a finding"
        );
        assert_eq!(
            seen.dom.matches("class=\"cell ").count(),
            cells(&all),
            "{name}: a cell for each word and thread"
        );
        assert_eq!(seen.dom.matches("<script").count(), 1, "{name}");
        assert!(!seen.dom.contains("<b onclick"), "{name}");
    }
}
