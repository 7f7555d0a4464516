//! `sunder cargo` runs cargo so that Rust code is compiled with instrumentation hooks and our
//! runtime is linked into its programs, as `sunder cc` does for C. It is a thin wrapper:
//! everything goes through cargo's environment, into a target folder of its own.
//!
//! The hooks are those of `-Zsanitizer=thread`. A stable compiler has them too if
//! `RUSTC_BOOTSTRAP` is set. The precompiled standard library has no hooks, so the compiler
//! demands `unsafe-allow-abi-mismatch`; for this sanitizer the two fit together. A script
//! stands in for the linker, because only programs may get the runtime, not the libraries that
//! cargo links too.

use anyhow::{Context, Result, ensure};
use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use sunder_live::Notices;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The separator of the flags in `CARGO_ENCODED_RUSTFLAGS`.
const UNIT: &str = "\x1f";

/// Runs cargo with these arguments. Returns its exit status.
///
/// # Errors
/// If cargo can't be run, or there is no package.
pub fn run(arguments: &[OsString], notices: &dyn Notices) -> Result<ExitStatus> {
    let folder = target_folder(arguments)?.join("sunder");
    let linker =
        put_linker(&folder).with_context(|| format!("cannot write to {}", folder.display()))?;
    let target = variable("CARGO_BUILD_TARGET").unwrap_or_else(|| TARGET.into());
    let mut cargo = cargo();
    cargo
        .args(arguments)
        .env("CARGO_TARGET_DIR", &folder)
        .env("CARGO_BUILD_TARGET", &target)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(&linker)?);
    // The names of fields and lines need debug information. Variables that the user has set
    // win.
    for (name, value) in [
        ("RUSTC_BOOTSTRAP", "1"),
        ("CARGO_PROFILE_RELEASE_DEBUG", "true"),
    ] {
        if variable(name).is_none() {
            cargo.env(name, value);
        }
    }
    let exit = cargo.status().context("cannot run cargo")?;
    if exit.success() && arguments.iter().any(|a| a == "build" || a == "b") {
        notices.note(&format!(
            "programs to be recorded are in {}",
            folder.join(&target).display()
        ));
    }
    Ok(exit)
}

fn cargo() -> Command {
    Command::new(variable("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The folder into which cargo would build without us.
fn target_folder(arguments: &[OsString]) -> Result<PathBuf> {
    let mut command = cargo();
    // The toolchain (`+nightly`) must come first.
    let first = arguments.first();
    command.args(first.filter(|a| a.as_encoded_bytes().starts_with(b"+")));
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    if let Some(manifest) = manifest(arguments) {
        command.arg("--manifest-path").arg(manifest);
    }
    let output = command.output().context("cannot run cargo")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", said.trim());
    let known: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("cargo's metadata can't be read")?;
    let folder = known.get("target_directory").and_then(|f| f.as_str());
    Ok(folder.context("cargo names no target folder")?.into())
}

/// The value of the user's `--manifest-path`, if given.
fn manifest(arguments: &[OsString]) -> Option<OsString> {
    const NAME: &str = "--manifest-path";
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == NAME {
            return rest.next().cloned();
        }
        let joined = argument.to_str().and_then(|a| a.strip_prefix(NAME));
        if let Some(path) = joined.and_then(|a| a.strip_prefix('=')) {
            return Some(path.into());
        }
        if argument == "--" {
            break;
        }
    }
    None
}

/// Puts the runtime, and the script that links it, into `folder`. Returns the script's path.
/// Both names contain a hash of the runtime, so that cargo links again when it changes.
fn put_linker(folder: &Path) -> std::io::Result<PathBuf> {
    let tracer = sunder_guests::tracer();
    let mut hasher = DefaultHasher::new();
    tracer.hash(&mut hasher);
    let hash = hasher.finish();
    let object = folder.join(format!("runtime-{hash:016x}.o"));
    let linker = folder.join(format!("link-{hash:016x}"));
    std::fs::create_dir_all(folder)?;
    let script = format!(
        "#!/bin/sh\n\
         # Written by sunder cargo: programs get the runtime that records, libraries don't.\n\
         for a; do\n\
         \x20   if [ \"$a\" = -shared ]; then exec \"${{SUNDER_CC:-cc}}\" \"$@\"; fi\n\
         done\n\
         here=$(dirname \"$0\")\n\
         exec \"${{SUNDER_CC:-cc}}\" \"$@\" \"$here/runtime-{hash:016x}.o\" \\\n\
         \x20   '-Wl,--export-dynamic-symbol=__tsan_*'\n"
    );
    put(&object, &tracer, 0o644)?;
    put(&linker, script.as_bytes(), 0o755)?;
    Ok(linker)
}

/// Writes a file atomically, as another process may be reading it.
fn put(path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
    if std::fs::read(path).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    let aside = path.with_extension(format!("{}", std::process::id()));
    let mut options = std::fs::File::options();
    options.write(true).create(true).truncate(true).mode(mode);
    options.open(&aside)?.write_all(bytes)?;
    std::fs::rename(aside, path)
}

/// The user's compiler flags, followed by ours.
fn flags(linker: &Path) -> Result<OsString> {
    let text = |value: OsString| {
        let text = value.into_string();
        text.map_err(|_| anyhow::anyhow!("RUSTFLAGS is no text"))
    };
    let mut all: Vec<String> = match (variable("CARGO_ENCODED_RUSTFLAGS"), variable("RUSTFLAGS")) {
        (Some(encoded), _) => text(encoded)?.split(UNIT).map(str::to_owned).collect(),
        (None, Some(plain)) => text(plain)?.split_whitespace().map(str::to_owned).collect(),
        (None, None) => Vec::new(),
    };
    all.extend(
        [
            "-Zsanitizer=thread",
            // The linker script adds our runtime instead.
            "-Zexternal-clangrt",
            "-Cunsafe-allow-abi-mismatch=sanitizer",
            // Without this, a load has no hook if a store to the same place follows it.
            "-Cllvm-args=-tsan-instrument-read-before-write=1",
        ]
        .map(str::to_owned),
    );
    let mut joined = OsString::from(all.join(UNIT));
    joined.push(UNIT);
    joined.push("-Clinker=");
    joined.push(OsStr::new(linker));
    Ok(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_s_manifest_is_found_among_the_arguments() {
        for (command, expected) in [
            ("build --manifest-path a/Cargo.toml", Some("a/Cargo.toml")),
            (
                "build --manifest-path=b/Cargo.toml --release",
                Some("b/Cargo.toml"),
            ),
            ("run -- --manifest-path c", None),
            ("build", None),
        ] {
            let arguments: Vec<OsString> = command.split(' ').map(Into::into).collect();
            assert_eq!(manifest(&arguments), expected.map(Into::into), "{command}");
        }
    }
}
