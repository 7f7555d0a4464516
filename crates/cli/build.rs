//! Builds the runtime library and leaves it where `embed.rs` includes it, so
//! that one `cargo run` yields one self-contained program.
//!
//! The nested build has a target folder of its own: with the outer one it would
//! wait forever for the lock that the outer cargo holds.

use std::{env, path::PathBuf, process::Command};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let crates = here.parent().expect("the crate lies in crates/");
    for part in ["runtime", "wire", "access"] {
        println!("cargo::rerun-if-changed={}", crates.join(part).display());
    }
    println!("cargo::rerun-if-env-changed=SUNDER_RUNTIME");
    let library = match env::var_os("SUNDER_RUNTIME") {
        Some(ready) => PathBuf::from(ready),
        None => build(&crates.join("runtime/Cargo.toml"), &out.join("runtime")),
    };
    std::fs::copy(&library, out.join("libsunder_runtime.so"))
        .unwrap_or_else(|e| panic!("cannot copy the runtime library {}: {e}", library.display()));
}

fn build(manifest: &std::path::Path, target: &std::path::Path) -> PathBuf {
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"));
    cargo
        .args(["build", "--release", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(target)
        // It travels inside the program and into others' memory.
        .env("CARGO_PROFILE_RELEASE_STRIP", "true");
    // Flags meant for the outer build (sanitizers, coverage, clippy's wrapper)
    // must not reach code that is loaded into other people's programs.
    for inherited in [
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_BUILD_TARGET",
        "CLIPPY_ARGS",
    ] {
        cargo.env_remove(inherited);
    }
    let status = cargo.status().expect("cargo can be started");
    assert!(status.success(), "building the runtime library failed");
    target.join("release/libsunder_runtime.so")
}
