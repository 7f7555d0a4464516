//! The source of the debug information of a system file: the package of Debian's package manager,
//! and the file's build ID for debuginfod. Called by [`crate::Names`] for files with findings; runs
//! no program and contacts no server.

use crate::options::NameOptions;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// The folder with the lists of installed files, one list per package.
const LISTS: &str = "/var/lib/dpkg/info";
/// The largest list that is read, in bytes.
const LARGEST_LIST: u64 = 16 << 20;
/// The most bytes that are read of all lists. Those of a system with everything that a desktop
/// needs have less than a tenth of it.
const MOST_READ: u64 = 512 << 20;
/// The most names in the folder that are looked at. A package has about four files there.
const MOST_NAMES: usize = 1 << 18;

/// Folders in which no package puts files (Filesystem Hierarchy Standard 3.0; Debian policy 9.1.2).
/// All lists would be read in vain for a program that was built there.
const WITHOUT_PACKAGES: [&str; 9] = [
    "/dev/",
    "/home/",
    "/media/",
    "/mnt/",
    "/proc/",
    "/run/",
    "/srv/",
    "/tmp/",
    "/usr/local/",
];

/// The packages of `files` of the target, by file; files in no package's list are left out.
pub(crate) fn packages_of(files: &[String], options: &NameOptions) -> HashMap<String, String> {
    packages_within(files, options, MOST_READ)
}

/// The same, for which at most `most` bytes of lists are read.
fn packages_within(files: &[String], options: &NameOptions, most: u64) -> HashMap<String, String> {
    let mut left = most;
    let may_be_of_one = |f: &&String| !WITHOUT_PACKAGES.iter().any(|folder| f.starts_with(folder));
    let wanted: HashMap<&[u8], &String> = (files.iter().filter(may_be_of_one))
        .map(|f| (merged(f.as_bytes()), f))
        .collect();
    let mut found = HashMap::new();
    if wanted.is_empty() {
        return found;
    }
    let lists = options.files.names_in(Path::new(LISTS), MOST_NAMES);
    for name in lists.unwrap_or_default() {
        if found.len() == wanted.len() || left == 0 {
            break;
        }
        let Some(package) = name.to_str().and_then(|n| n.strip_suffix(".list")) else {
            continue;
        };
        let Ok(list) = options.files.open(&Path::new(LISTS).join(&name)) else {
            continue;
        };
        let mut text = Vec::new();
        let read = list.take(LARGEST_LIST.min(left)).read_to_end(&mut text);
        left -= text.len() as u64;
        if read.is_err() {
            continue;
        }
        // `libfoo1:amd64.list` where several architectures can be installed.
        let package = package.split(':').next().unwrap_or(package);
        for line in text.split(|&b| b == b'\n') {
            if let Some(file) = wanted.get(merged(line)) {
                found.insert((*file).clone(), package.to_owned());
            }
        }
    }
    found
}

/// A path without `/usr` at its start: `/lib` is a link to `/usr/lib`, and lists use either.
fn merged(path: &[u8]) -> &[u8] {
    match path.strip_prefix(b"/usr") {
        Some(rest) if rest.starts_with(b"/") => rest,
        _ => path,
    }
}

/// How to get the debug information of `file`, in a sentence; `None` if no way is known.
pub(crate) fn remedy(
    file: &str,
    package: Option<&String>,
    build_id: Option<&[u8]>,
) -> Option<String> {
    let install = package.map(|package| {
        // The C library's package does not follow the naming scheme, which is younger.
        let debug = match package.as_str() {
            "libc6" => "libc6-dbg".to_owned(),
            other => format!("{other}-dbgsym"),
        };
        format!("install {debug} (Debian's archive of debug packages has it)")
    });
    let fetch = build_id.map(|id| {
        let id: String = id.iter().map(|b| format!("{b:02x}")).collect();
        format!("set DEBUGINFOD_URLS and run `debuginfod-find debuginfo {id}`, whose cache is read")
    });
    let ways = match (install, fetch) {
        (Some(install), Some(fetch)) => format!("{install}, or {fetch}"),
        (one, other) => one.or(other)?,
    };
    Some(format!(
        "Findings lie in {file}, whose debug information would add lines, fields and types: {ways}."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::OwnFiles;
    use std::sync::Arc;

    #[test]
    fn lists_are_read_up_to_a_number_of_bytes() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join(LISTS.trim_start_matches('/'));
        std::fs::create_dir_all(&folder).expect("a folder");
        for package in ["one:amd64", "two"] {
            let list = format!("/usr/lib/{}.so\n", &package[..3]);
            std::fs::write(folder.join(format!("{package}.list")), list).expect("written");
        }
        let options = NameOptions {
            files: Arc::new(OwnFiles {
                root: root.path().to_owned(),
            }),
            ..NameOptions::default()
        };
        let files = ["/lib/one.so".to_owned(), "/usr/lib/two.so".to_owned()];
        let found = |most| packages_within(&files, &options, most);
        let all = [("/lib/one.so", "one"), ("/usr/lib/two.so", "two")];
        let all = all.map(|(file, package)| (file.to_owned(), package.to_owned()));
        assert_eq!(found(MOST_READ), HashMap::from(all));
        // The first list that the folder has, and one byte of the other.
        assert_eq!(found(17).len(), 1);
        assert_eq!(found(0).len(), 0);
        let names = options.files.names_in(Path::new(LISTS), 1);
        assert_eq!(names.expect("readable").len(), 1);
    }

    /// What the administrator or a user put there is of no package, whatever a list says.
    #[test]
    fn no_list_is_read_for_what_no_package_may_hold() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join(LISTS.trim_start_matches('/'));
        std::fs::create_dir_all(&folder).expect("a folder");
        let list = "/usr/local/lib/own.so\n/usr/lib/own.so\n/opt/own/own.so\n";
        std::fs::write(folder.join("own.list"), list).expect("written");
        let options = NameOptions {
            files: Arc::new(OwnFiles {
                root: root.path().to_owned(),
            }),
            ..NameOptions::default()
        };
        let found = |file: &str| packages_of(&[file.to_owned()], &options).len();
        assert_eq!(found("/usr/local/lib/own.so"), 0);
        assert_eq!(found("/usr/lib/own.so"), 1);
        assert_eq!(found("/opt/own/own.so"), 1);
    }
}
