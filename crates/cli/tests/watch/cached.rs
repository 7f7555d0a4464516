//! Answers of debug information that are kept from look to look.

use crate::always::wait_for;
use crate::once::watch;
use crate::records::{can_watch, findings, records, target};
use crate::support::targets::{as_expected, side_by_side};
use crate::support::{Ended, plain_sunder};
use std::os::unix::fs::PermissionsExt;
use sunder_workloads::Variant;

#[test]
fn a_further_look_at_the_same_build_tells_the_same() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path().join("made").join("by us");
    let kept = cache.join("answers");
    let shared = target("thread_stats", Variant::Shared);
    // The first look learns, the second knows, and the third finds a damaged file.
    for turn in ["learns", "knows", "damaged"] {
        side_by_side(turn, || {
            if turn == "damaged" {
                let mut bytes = std::fs::read(&kept).unwrap_or_default();
                let middle = bytes.len() / 2;
                if let Some(byte) = bytes.get_mut(middle) {
                    *byte ^= 1;
                }
                std::fs::write(&kept, bytes).expect("ours");
            }
            let folder = cache.to_string_lossy();
            let told = watch(&["--once", "4s", "--pid", &shared.id(), "--cache", &folder]);
            let told = records(&told);
            let found = findings(&told);
            let found = found.first().ok_or("not found")?;
            as_expected(&found.finding, "thread_stats")?;
            let facts = std::fs::metadata(&kept).expect("it is made");
            assert_eq!(facts.permissions().mode() & 0o777, 0o600);
            assert!(facts.len() > 64, "{turn}: it has learned something");
            Ok(())
        });
    }
}

#[test]
fn two_watches_do_not_write_to_one_cache() {
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path().to_string_lossy().into_owned();
    let file = folder.path().join("records.jsonl");
    let mut command = plain_sunder();
    command.args(["watch", "--quiet", "--pid", "1", "--cache", &cache]);
    command.arg("--json").arg(&file);
    let first = Ended::new(&mut command);
    wait_for(&file, |records| !records.is_empty()).expect("a first status");
    let mut second = plain_sunder();
    second.args(["watch", "--once", "1s", "--cache", &cache]);
    let refused = second.output().expect("it starts");
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(125), "{told}");
    assert!(told.contains("another watch has it open"), "{told}");
    drop(first);
}
