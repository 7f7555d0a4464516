//! How the target learns of the runtime and the segment: two environment
//! variables, which the runtime takes away again before the program sees them.

#[cfg(feature = "tool")]
pub(crate) use tool::{Change, changes};

/// Names the segment's file.
pub const SEGMENT_VARIABLE: &str = "SUNDER_SEGMENT";
/// The dynamic linker's list of libraries to load first. Ours is always its
/// first entry; a colon after it says that the user had a value, even if an
/// empty one.
pub const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

#[cfg(feature = "tool")]
mod tool {
    use super::{PRELOAD_VARIABLE, SEGMENT_VARIABLE};
    use crate::Segment;
    use std::ffi::{OsStr, OsString};
    use std::path::{Path, PathBuf};

    /// A variable's name with its new value, or without one to remove it.
    pub type Change = (OsString, Option<OsString>);

    impl Segment {
        /// What to change in the target's environment. `runtime` is the library's path,
        /// which must hold neither a colon nor a space (the dynamic linker knows no
        /// escape); `user_preload` is `LD_PRELOAD` as the user had it.
        pub fn environment(&self, runtime: &Path, user_preload: Option<&OsStr>) -> Vec<Change> {
            changes(runtime, user_preload, self.fd_path())
        }
    }

    /// The same for the file that the runtime is to find.
    pub fn changes(runtime: &Path, user_preload: Option<&OsStr>, file: PathBuf) -> Vec<Change> {
        let mut preload = runtime.as_os_str().to_owned();
        if let Some(user) = user_preload {
            preload.push(":");
            preload.push(user);
        }
        vec![
            (PRELOAD_VARIABLE.into(), Some(preload)),
            (SEGMENT_VARIABLE.into(), Some(file.into())),
        ]
    }
}
