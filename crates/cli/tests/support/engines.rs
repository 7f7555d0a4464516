//! Engines that read exported traces: a Python with the packages of `setup/engines`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A Python that has all of `modules`; `None`, with a notice, if there is none.
pub fn python_with(modules: &[&str]) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let own = target.map(|target| target.join("engines/bin/python"));
    let imports = format!("import {}", modules.join(", "));
    let has_all = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", &imports]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let found = own
        .into_iter()
        .chain([PathBuf::from("python3")])
        .find(has_all);
    if found.is_none() {
        println!(
            "SKIP: no Python has {}; setup/engines installs it",
            modules.join(" and ")
        );
    }
    found
}
