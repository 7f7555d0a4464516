//! What `contrib/release` makes: a package that is installed in a clean system, used there and removed,
//! the bill of materials, the version that a release gets, and the tables that its linker packs.

#[path = "../support/mod.rs"]
mod support;

mod installed;
mod materials;
mod packed;
mod version;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder of the repository.
fn repository() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository")
}

/// A script of `contrib/release`.
fn script(name: &str) -> Command {
    Command::new(repository().join("contrib/release").join(name))
}

fn run(command: &mut Command) -> Output {
    let out = command.output();
    out.unwrap_or_else(|e| panic!("{command:?} cannot be run: {e}"))
}

/// Both streams, for messages.
fn said(out: &Output) -> String {
    [&out.stdout, &out.stderr]
        .map(|stream| String::from_utf8_lossy(stream))
        .concat()
}
