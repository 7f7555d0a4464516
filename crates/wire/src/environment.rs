//! How the target learns of the runtime and the segment: two environment
//! variables, which the runtime takes away again before the program sees them.

use crate::Segment;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Names the segment's file.
pub const SEGMENT_VARIABLE: &str = "SUNDER_SEGMENT";
/// The dynamic linker's list of libraries to load first. Ours is always its
/// first entry; a colon after it says that the user had a value, even if an
/// empty one.
pub const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

impl Segment {
    /// What to change in the target's environment: a name with its new value,
    /// or without one to remove it. `runtime` is the library's path, which must
    /// hold neither a colon nor a space (the dynamic linker knows no escape);
    /// `user_preload` is `LD_PRELOAD` as the user had it.
    pub fn environment(
        &self,
        runtime: &Path,
        user_preload: Option<&OsStr>,
    ) -> Vec<(OsString, Option<OsString>)> {
        let mut preload = runtime.as_os_str().to_owned();
        if let Some(user) = user_preload {
            preload.push(":");
            preload.push(user);
        }
        vec![
            (PRELOAD_VARIABLE.into(), Some(preload)),
            (SEGMENT_VARIABLE.into(), Some(self.fd_path().into())),
        ]
    }
}
