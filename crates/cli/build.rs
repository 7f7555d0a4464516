//! Builds the libraries that are loaded into programs, the runtime and the live
//! heap, and leaves them where `embed.rs` includes them, so that one `cargo run` yields one self-contained program.
//!
//! The nested build has a target folder of its own: with the outer one it would
//! wait forever for the lock that the outer cargo holds.

use std::{env, path::PathBuf, process::Command};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let crates = here.parent().expect("the crate lies in crates/");
    for part in ["runtime", "wire", "access", "heap", "placement"] {
        println!("cargo::rerun-if-changed={}", crates.join(part).display());
    }
    for (name, variable) in [
        ("runtime", "SUNDER_RUNTIME"),
        ("heap", "SUNDER_HEAP_LIBRARY"),
    ] {
        println!("cargo::rerun-if-env-changed={variable}");
        let file = format!("libsunder_{name}.so");
        let library = match env::var_os(variable) {
            Some(ready) => PathBuf::from(ready),
            None => {
                let target = out.join(name);
                build(&crates.join(name).join("Cargo.toml"), &target);
                target.join("release").join(&file)
            }
        };
        std::fs::copy(&library, out.join(&file))
            .unwrap_or_else(|e| panic!("cannot copy the library {}: {e}", library.display()));
    }
}

fn build(manifest: &std::path::Path, target: &std::path::Path) {
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"));
    cargo
        .args(["build", "--release", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(target)
        // It travels inside the program and into others' memory.
        .env("CARGO_PROFILE_RELEASE_STRIP", "true")
        // The fast paths of an allocator are worth one unit.
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_LTO", "fat");
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
    assert!(status.success(), "building {} failed", manifest.display());
}
