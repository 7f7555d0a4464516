//! `contrib/release/version`, on a copy of the three files that it writes.

use super::{repository, run, said};
use crate::support::copy_program;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const FILES: [&str; 3] = ["Cargo.toml", "Cargo.lock", "CHANGELOG.md"];

/// A small workspace whose changelog has `unreleased` in its section of that name.
fn workspace(unreleased: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let scripts = folder.path().join("contrib/release");
    fs::create_dir_all(&scripts).expect("a folder");
    copy_program(
        &repository().join("contrib/release/version"),
        &scripts.join("version"),
    );
    let texts = [
        "[workspace.package]\nversion = \"0.3.0\"\n\n[workspace.dependencies]\n\
         sunder-access = { version = \"0.3.0\", path = \"access\" }\nother = { version = \"0.3.0\" }\n"
            .to_owned(),
        "[[package]]\nname = \"other\"\nversion = \"0.3.0\"\nsource = \"registry\"\n\n\
         [[package]]\nname = \"sunder-access\"\nversion = \"0.3.0\"\n"
            .to_owned(),
        format!("# Changelog\n\n## [Unreleased]\n\n### Added\n\n{unreleased}\n## [0.3.0] - 2026-01-01\n"),
    ];
    for (name, text) in FILES.iter().zip(texts) {
        fs::write(folder.path().join(name), text).expect("written");
    }
    folder
}

fn texts(folder: &Path) -> [String; 3] {
    FILES.map(|name| fs::read_to_string(folder.join(name)).expect("it is there"))
}

fn version(folder: &Path, version: &str) -> Output {
    run(Command::new(folder.join("contrib/release/version")).args([version, "2026-02-03"]))
}

#[test]
fn our_crates_and_the_changelog_get_the_version() {
    let folder = workspace("- News.\n");
    let out = version(folder.path(), "0.4.0");
    assert!(out.status.success(), "{}", said(&out));
    let [manifest, lock, changes] = texts(folder.path());
    assert_eq!(
        manifest,
        "[workspace.package]\nversion = \"0.4.0\"\n\n[workspace.dependencies]\n\
         sunder-access = { version = \"0.4.0\", path = \"access\" }\nother = { version = \"0.3.0\" }\n"
    );
    assert_eq!(
        lock,
        "[[package]]\nname = \"other\"\nversion = \"0.3.0\"\nsource = \"registry\"\n\n\
         [[package]]\nname = \"sunder-access\"\nversion = \"0.4.0\"\n"
    );
    assert_eq!(
        changes,
        "# Changelog\n\n## [Unreleased]\n\n## [0.4.0] - 2026-02-03\n\n### Added\n\n- News.\n\n\
         ## [0.3.0] - 2026-01-01\n"
    );
}

#[test]
fn what_cannot_be_released_is_refused_and_nothing_changes() {
    let refused = [
        ("- News.\n", "0.2.9", "older than 0.3.0"),
        ("- News.\n", "0.3.0", "has 0.3.0 already"),
        ("- News.\n", "0.4", "no version of three numbers"),
        ("", "0.4.0", "nothing is listed"),
    ];
    for (unreleased, wanted, why) in refused {
        let folder = workspace(unreleased);
        let before = texts(folder.path());
        let out = version(folder.path(), wanted);
        assert_eq!(out.status.code(), Some(1), "{wanted}: {}", said(&out));
        assert!(said(&out).contains(why), "{wanted}: {}", said(&out));
        assert_eq!(texts(folder.path()), before, "{wanted}");
    }
}

/// The repository's own files have the form that the script expects.
#[test]
fn the_next_version_can_be_made_of_these_sources() {
    let folder = workspace("");
    for name in FILES {
        fs::copy(repository().join(name), folder.path().join(name)).expect("copied");
    }
    let out = version(folder.path(), "99.0.0");
    assert!(out.status.success(), "{}", said(&out));
    let [manifest, lock, changes] = texts(folder.path());
    let old = format!("\"{}\"", env!("CARGO_PKG_VERSION"));
    for line in manifest.lines().filter(|line| line.starts_with("sunder")) {
        assert!(!line.contains(&old), "{line}");
    }
    for package in lock
        .split("[[package]]")
        .filter(|p| !p.contains("source ="))
    {
        assert!(!package.contains(&old), "{package}");
    }
    assert!(changes.contains("\n## [Unreleased]\n\n## [99.0.0] - 2026-02-03\n"));
}
