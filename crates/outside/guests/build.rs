//! Builds what goes into other programs and leaves it where it is included: the
//! runtime, the live heap and the emulator's plugin, which are loaded (`lib.rs`),
//! and the runtime of instrumented programs, which is linked (by `sunder-record`). So one `cargo run`
//! yields one self-contained program.
//!
//! The nested builds have folders of their own beside those of the outer build's profiles,
//! which all of these share, as lints and tests do: what is built is the same for all.
//! With the outer build's they would wait forever for the lock that its cargo holds.

use std::path::{Path, PathBuf};
use std::{env, process::Command};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let crates = here
        .ancestors()
        .nth(2)
        .expect("the crate lies in crates/outside/");
    let inside = crates.join("inside");
    let shared = shared(&out);
    for part in [
        "inside/runtime",
        "between/wire",
        "model/access",
        "inside/heap",
        "model/placement",
        "between/trace",
        "inside/recorder",
        "inside/tracer",
        "inside/emulator",
        "inside/announce",
        "inside/isolate",
        "model/transaction",
        "inside/remap",
        "inside/hooks",
        "inside/guest",
    ] {
        println!("cargo::rerun-if-changed={}", crates.join(part).display());
    }
    for (name, file, variable) in [
        ("runtime", "libsunder_runtime.so", "SUNDER_RUNTIME"),
        ("heap", "libsunder_heap.so", "SUNDER_HEAP_LIBRARY"),
        ("tracer", "libsunder_tracer.a", "SUNDER_TRACER"),
        ("emulator", "libsunder_emulator.so", "SUNDER_EMULATOR"),
        ("announce", "libsunder_announce.so", "SUNDER_ANNOUNCE"),
        ("isolate", "libsunder_isolate.so", "SUNDER_ISOLATION"),
        ("remap", "libsunder_remap.so", "SUNDER_REMAP_LIBRARY"),
    ] {
        let library = ready(variable).unwrap_or_else(|| {
            // One folder: what several of them need is built once.
            let target = shared.join("nested");
            run(&mut nested(&inside.join(name), &target));
            target.join("release").join(file)
        });
        if name == "tracer" {
            let exports = inside.join("tracer/exports.txt");
            one_object(&library, &exports, &out.join("sunder_tracer.o"));
            continue;
        }
        copy(&library, &out.join(file));
    }
    let injected = ready("SUNDER_INJECTED_LIBRARY").unwrap_or_else(|| {
        let target = shared.join("injected");
        let machine = env::var("TARGET").expect("cargo sets TARGET");
        run(&mut injected(&inside.join("remap"), &target, &machine));
        target.join(machine).join("release/libsunder_remap.so")
    });
    copy(&injected, &out.join("libsunder_injected.so"));
}

/// The folder in which the folders of profiles lie, `target` unless told otherwise; the
/// build script's own folder `out` if cargo has arranged them in another way.
fn shared(out: &Path) -> PathBuf {
    let builds = out.ancestors().find(|folder| folder.ends_with("build"));
    let target = builds.and_then(|builds| builds.parent()?.parent());
    target.unwrap_or(out).to_path_buf()
}

/// A library that has been built before, which the variable names.
fn ready(variable: &str) -> Option<PathBuf> {
    println!("cargo::rerun-if-env-changed={variable}");
    env::var_os(variable).map(PathBuf::from)
}

fn copy(library: &Path, to: &Path) {
    std::fs::copy(library, to)
        .unwrap_or_else(|e| panic!("cannot copy the library {}: {e}", library.display()));
}

/// Makes one object of the archive, in which only what programs are to use is
/// visible: they may have another Zstandard or Rust library of their own.
fn one_object(archive: &Path, exports: &Path, to: &Path) {
    let list = std::fs::read_to_string(exports).expect("the list of exports can be read");
    let whole = to.with_extension("whole.o");
    let mut ld = Command::new("ld");
    // Groups are dissolved: a linker takes one of several of the same name, and ours
    // would be left out beside those of another Rust library.
    ld.args(["-r", "--gc-sections", "--force-group-allocation", "-o"])
        .arg(&whole);
    for name in list.lines().filter(|l| !l.starts_with('#')) {
        ld.args(["-u", name]);
    }
    run(ld.arg(archive));
    let mut objcopy = Command::new("objcopy");
    objcopy
        .arg("--strip-debug")
        .arg("--keep-global-symbols")
        .arg(exports);
    run(objcopy.arg(&whole).arg(to));
    let _ = std::fs::remove_file(whole);
}

fn run(command: &mut Command) {
    let status = command
        .status()
        .unwrap_or_else(|e| panic!("cannot run {command:?}: {e} (ld and objcopy are in binutils)"));
    assert!(status.success(), "{command:?} failed");
}

/// What the tool writes into the memory of a running program, where every page of it counts:
/// without the standard library, and without what serves to unwind, since nobody there
/// could find it.
fn injected(folder: &Path, target: &Path, machine: &str) -> Command {
    let mut cargo = nested(folder, target);
    cargo
        .arg("--no-default-features")
        // With a target named, flags are not for build scripts, which unwind.
        .args(["--target", machine])
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("RUSTFLAGS", "-C force-unwind-tables=no");
    cargo
}

/// The build of what lies in `folder`.
fn nested(folder: &Path, target: &Path) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"));
    cargo
        .args(["build", "--release", "--manifest-path"])
        .arg(folder.join("Cargo.toml"))
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
    cargo
}
