//! Copies a folder with everything in it: links stay links, and times stay, so that `make` builds
//! again only what changed.

use crate::error::PatchError;
use std::fs;
use std::path::Path;

/// What was copied.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Copied {
    pub(super) bytes: u64,
    /// Whether a build folder of CMake is in it, whose files name the original folder.
    pub(super) has_cmake_cache: bool,
}

/// Copies `from`, a folder, to `to`, which is made. Sockets and the like are left out.
pub(super) fn folder(from: &Path, to: &Path) -> Result<Copied, PatchError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| PatchError::File { path, source }
    };
    let mut copied = Copied::default();
    fs::create_dir_all(to).map_err(at(to))?;
    for entry in fs::read_dir(from).map_err(at(from))? {
        let entry = entry.map_err(at(from))?;
        let (old, new) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(at(&old))?;
        if kind.is_dir() {
            let inside = folder(&old, &new)?;
            copied.bytes += inside.bytes;
            copied.has_cmake_cache |= inside.has_cmake_cache;
        } else if kind.is_symlink() {
            let target = fs::read_link(&old).map_err(at(&old))?;
            std::os::unix::fs::symlink(target, &new).map_err(at(&new))?;
        } else if kind.is_file() {
            copied.bytes += fs::copy(&old, &new).map_err(at(&old))?;
            copied.has_cmake_cache |= entry.file_name() == "CMakeCache.txt";
            let modified = entry.metadata().and_then(|m| m.modified());
            // Without its time a file is built again, which costs time only.
            if let (Ok(time), Ok(file)) = (modified, fs::File::options().append(true).open(&new)) {
                let _ = file.set_modified(time);
            }
        }
    }
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_modes_and_times_stay() {
        let scratch = tempfile::tempdir().expect("a folder");
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        fs::create_dir_all(from.join("sub")).expect("made");
        fs::write(from.join("sub/a"), "text").expect("written");
        std::os::unix::fs::symlink("sub/a", from.join("link")).expect("made");
        let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        let file = fs::File::options().append(true).open(from.join("sub/a"));
        file.and_then(|f| f.set_modified(old)).expect("set");
        let copied = folder(&from, &to).expect("copied");
        assert_eq!(copied.bytes, 4);
        assert!(!copied.has_cmake_cache);
        let target = fs::read_link(to.join("link")).expect("a link");
        assert_eq!(target, Path::new("sub/a"));
        let time = fs::metadata(to.join("sub/a")).and_then(|m| m.modified());
        assert_eq!(time.expect("known"), old);
    }
}
