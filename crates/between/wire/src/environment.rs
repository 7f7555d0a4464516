//! The two environment variables by which the target finds the runtime and the segment. The
//! runtime removes them before the program sees them.

#[cfg(feature = "tool")]
pub use tool::descriptor_path;
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
    use std::ffi::{OsStr, OsString};
    use std::path::{Path, PathBuf};

    /// A variable's name with its new value, or without one to remove it.
    pub type Change = (OsString, Option<OsString>);

    /// The path at which another process of the same user finds the file that `process` has open
    /// as `descriptor`. All such paths are equally long: the dynamic linker copies them to the
    /// program's heap, and the environment lies above its stack, so that the digits of our
    /// process number would decide which of the program's data share a line.
    pub fn descriptor_path(process: u32, descriptor: u32) -> PathBuf {
        // Linux has process numbers of up to 7 digits, and takes any number of slashes for one.
        format!("/proc/{process:/>7}/fd/{descriptor:/>4}").into()
    }

    /// The changes to the target's environment by which the library `runtime` finds `file`.
    /// `user_preload` is the user's value of `LD_PRELOAD`.
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

#[cfg(all(test, feature = "tool"))]
mod tests {
    use super::descriptor_path;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsRawFd;

    #[test]
    fn paths_of_descriptors_are_equally_long() {
        let short = descriptor_path(7, 3);
        assert_eq!(short.as_os_str(), "/proc///////7/fd////3");
        let long = descriptor_path(4_194_303, 9_999);
        assert_eq!(short.as_os_str().len(), long.as_os_str().len());
    }

    #[test]
    fn the_path_of_a_descriptor_opens_its_file() {
        let of_ours = File::open("/proc/version").expect("every Linux has it");
        let path = descriptor_path(std::process::id(), of_ours.as_raw_fd() as u32);
        let mut text = String::new();
        File::open(path)
            .and_then(|mut file| file.read_to_string(&mut text))
            .expect("the kernel takes many slashes for one");
        assert!(text.starts_with("Linux version"), "{text}");
    }
}
