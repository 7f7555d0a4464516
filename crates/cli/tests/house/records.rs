//! Holds the records of measurements in `eval/runs` against the history: a figure is worth what can be
//! looked up, so each record names a commit that exists.

use std::path::Path;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// What a record's README names in its line `- commit: …`.
fn commit(readme: &str) -> Option<&str> {
    let line = readme
        .lines()
        .find_map(|line| line.strip_prefix("- commit: "))?;
    let end = line.find(|c: char| !c.is_ascii_hexdigit());
    let name = &line[..end.unwrap_or(line.len())];
    (name.len() >= 7).then_some(name)
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(["-C", ROOT])
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.trim().to_owned())
}

#[test]
fn every_record_names_a_commit_of_the_history() {
    if git(&["rev-parse", "--is-shallow-repository"]).as_deref() != Some("false") {
        println!("SKIP: this is no checkout with its whole history");
        return;
    }
    let folders = std::fs::read_dir(Path::new(ROOT).join("eval/runs")).expect("records");
    let mut wrong = Vec::new();
    for folder in folders {
        let folder = folder.expect("an entry").path();
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let readme = std::fs::read_to_string(folder.join("README.md"));
        let readme = readme.unwrap_or_default();
        match commit(&readme) {
            None => wrong.push(format!("{name} has no line `- commit: …`")),
            // A commit that is in the clone by chance does not count.
            Some(commit) if git(&["merge-base", "--is-ancestor", commit, "HEAD"]).is_none() => {
                wrong.push(format!("{name}: there is no commit {commit}"));
            }
            Some(_) => {}
        }
    }
    wrong.sort();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_commit_is_read_from_its_line() {
    assert_eq!(commit("# a\n\n- commit: 16a428f with b\n"), Some("16a428f"));
    assert_eq!(commit("- commit: 4c11212, release build"), Some("4c11212"));
    assert_eq!(commit("the commit: 4c11212"), None);
    assert_eq!(commit("- commit: that of yesterday"), None);
}
