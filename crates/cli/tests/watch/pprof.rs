//! Findings as a profile, read by the real `pprof` of Go.

use crate::records::{can_watch, target};
use crate::support::installed::go;
use crate::support::sunder;
use crate::support::targets::side_by_side;
use std::process::Command;
use sunder_workloads::Variant;

#[test]
fn pprof_shows_object_field_and_line() {
    let Some(go) = go().filter(|_| can_watch()) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sunder.pb.gz");
    side_by_side("a profile", || {
        let shared = target("thread_stats", Variant::Shared);
        let mut command = sunder();
        command.args(["watch", "--quiet", "--once", "4s", "--pid", &shared.id()]);
        command.arg("--pprof").arg(&file).assert().success();
        drop(shared);
        let shown = |how: &str| {
            let shown = Command::new(&go)
                .args(["tool", "pprof", how])
                .arg(&file)
                .env("PPROF_TMPDIR", folder.path())
                .env("GOTOOLCHAIN", "local")
                .output()
                .expect("it starts");
            assert!(shown.status.success(), "{shown:?}");
            String::from_utf8_lossy(&shown.stdout).into_owned()
        };
        let (tags, top) = (shown("-tags"), shown("-top"));
        let wanted = [
            ("object:", &tags),
            ("stats (struct thread_stats", &tags),
            ("field:", &tags),
            ("thread_stats.c:", &tags),
            ("Type: false_sharing", &top),
            ("stats (struct thread_stats", &top),
        ];
        for (wanted, shown) in wanted {
            if !shown.contains(wanted) {
                return Err(format!("no {wanted}: {tags}\n{top}"));
            }
        }
        Ok(())
    });
}
