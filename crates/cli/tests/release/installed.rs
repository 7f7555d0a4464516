//! The .deb in a root folder of Debian that `setup/root` made: it is installed, each command runs a program
//! as it runs alone, and after its removal no file is left. The program in it is the one under test.
//! What needs threads side by side is left to `contrib/release/try` without `--quick`.

use super::{repository, run, said, script};
use crate::support::installed;
use std::fs;
use std::path::Path;
use std::process::Command;

/// What `contrib/release/try` ends with where it can't enter root folders.
const CANNOT: i32 = 77;

#[test]
fn the_package_works_in_a_clean_system_and_leaves_nothing() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let roots = folder.parent().map(|target| target.join("roots"));
    let roots = roots.and_then(|roots| fs::read_dir(roots).ok());
    let roots: Vec<_> = roots.into_iter().flatten().flatten().collect();
    if roots.is_empty() {
        println!("SKIP: setup/root has made no root folder; no package was installed");
        return;
    }
    if installed::installed("dpkg-deb").is_none() {
        return;
    }
    let own = tempfile::tempdir_in(folder).expect("a folder");
    let demo = own.path().join("demo");
    let source = repository().join("workloads/demo/demo.c");
    let out = run(Command::new("gcc")
        .args(["-O2", "-g", "-pthread", "-o"])
        .arg(&demo)
        .arg(source));
    assert!(out.status.success(), "{}", said(&out));
    // Symbols are most of a debug build.
    let program = own.path().join("sunder");
    let out = run(Command::new("strip")
        .arg(env!("CARGO_BIN_EXE_sunder"))
        .arg("-o")
        .arg(&program));
    assert!(out.status.success(), "{}", said(&out));
    let packages = own.path().join("packages");
    let out = run(script("packages")
        .args([&program, &packages])
        .arg("deb")
        .env("DPKG_DEB_COMPRESSOR_TYPE", "none"));
    assert!(out.status.success(), "{}", said(&out));
    let deb = packages.join(format!("sunder_{}_amd64.deb", env!("CARGO_PKG_VERSION")));
    for root in roots {
        let out = run(script("try")
            .arg("--quick")
            .arg(root.path())
            .args([&deb, own.path()]));
        if out.status.code() == Some(CANNOT) {
            println!("SKIP: {}", said(&out).trim());
            return;
        }
        assert!(out.status.success(), "{}", said(&out));
        assert!(said(&out).contains("removed: no file is left"));
    }
}
