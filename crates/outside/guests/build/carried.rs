//! The sources of the guests, if this crate comes from a registry: a package holds one crate, so this
//! one's has the others as files (`contrib/release/crates` puts them there), with other names for
//! their manifests.

use std::fs;
use std::path::{Path, PathBuf};

/// How a manifest is called in the package.
const MANIFEST: &str = "Cargo.toml.carried";

/// Copies the sources that the package in the folder `here` carries into `out`, and returns where
/// they are then, as a workspace; `None` in a checkout of the repository, which has them already.
pub fn unpack(here: &Path, out: &Path) -> Option<PathBuf> {
    let carried = here.join("sources");
    if !carried.exists() {
        return None;
    }
    let workspace = out.join("sources");
    copy(&carried, &workspace);
    Some(workspace)
}

fn copy(from: &Path, to: &Path) {
    let broken = |e: std::io::Error| -> ! { panic!("cannot copy {}: {e}", from.display()) };
    fs::create_dir_all(to).unwrap_or_else(|e| broken(e));
    for entry in fs::read_dir(from).unwrap_or_else(|e| broken(e)) {
        let entry = entry.unwrap_or_else(|e| broken(e));
        let name = entry.file_name();
        if entry.path().is_dir() {
            copy(&entry.path(), &to.join(name));
        } else {
            let name = if name == MANIFEST {
                "Cargo.toml".into()
            } else {
                name
            };
            fs::copy(entry.path(), to.join(name)).unwrap_or_else(|e| broken(e));
        }
    }
}
