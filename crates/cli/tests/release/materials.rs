//! `contrib/release/materials`: what it lists of the program under test.

use super::{run, said, script};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

fn list<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of[name].as_array().into_iter().flatten()
}

fn text<'a>(of: &'a Value, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_default()
}

#[test]
fn the_bill_of_materials_has_what_is_linked_and_is_the_same_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = ["one", "two"].map(|name| {
        let file = folder.path().join(name);
        let out = run(script("materials").arg(&file));
        assert!(out.status.success(), "{}", said(&out));
        fs::read_to_string(file).expect("it was written")
    });
    assert_eq!(made[0], made[1]);
    let bill: Value = serde_json::from_str(&made[0]).expect("it is JSON");
    assert_eq!(text(&bill, "bomFormat"), "CycloneDX");
    let root = &bill["metadata"]["component"];
    assert_eq!(text(root, "version"), env!("CARGO_PKG_VERSION"));
    let mut known = BTreeSet::from([text(root, "bom-ref")]);
    let mut names = BTreeSet::new();
    for part in list(&bill, "components") {
        assert!(list(part, "licenses").count() > 0, "no licence: {part}");
        assert!(known.insert(text(part, "bom-ref")), "twice: {part}");
        names.insert(text(part, "name"));
        // What comes from the registry has the checksum by which it was fetched.
        if !text(part, "purl").is_empty() {
            let sum = list(part, "hashes").next().expect("a checksum");
            assert_eq!(text(sum, "content").len(), 64, "{part}");
        }
    }
    // Linked, carried in a library for programs, and of the machine; not a macro or a test's crate.
    for name in ["clap", "zstd-sys", "sunder-heap", "sunder-tracer", "glibc"] {
        assert!(names.contains(name), "{name} is missing");
    }
    for name in ["serde_derive", "assert_cmd", "sunder-workloads"] {
        assert!(!names.contains(name), "{name} is not linked");
    }
    for edge in list(&bill, "dependencies") {
        for to in list(edge, "dependsOn") {
            assert!(known.contains(to.as_str().expect("a name")), "{edge}");
        }
    }
}
