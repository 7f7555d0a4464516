//! The two environment variables by which the target finds the runtime and the segment. The
//! runtime removes them before the program sees them.

#[cfg(feature = "tool")]
pub(crate) use tool::{Change, changes};

/// Names the segment's file.
pub const SEGMENT_VARIABLE: &str = "SUNDER_SEGMENT";
/// The dynamic linker's list of libraries to load first. Our library is always the first entry.
/// A colon after it shows that the user had set the variable, even if to nothing.
pub const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

#[cfg(feature = "tool")]
mod tool {
    use super::{PRELOAD_VARIABLE, SEGMENT_VARIABLE};
    use crate::segment::Segment;
    use std::ffi::{OsStr, OsString};
    use std::path::{Path, PathBuf};

    /// A variable's name with its new value, or without one to remove it.
    pub type Change = (OsString, Option<OsString>);

    impl Segment {
        /// The changes to the target's environment. `runtime` is the library's path, which must
        /// contain neither a colon nor a space (the dynamic linker has no escape for them).
        /// `user_preload` is the user's value of `LD_PRELOAD`.
        pub fn environment(&self, runtime: &Path, user_preload: Option<&OsStr>) -> Vec<Change> {
            changes(runtime, user_preload, self.fd_path())
        }
    }

    /// The same changes, for a runtime that is to find `file`.
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
