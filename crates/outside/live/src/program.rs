//! What the file of a program tells before it is started: where it is, how it is linked, and
//! whether a library can be preloaded into it. Used by everything that starts a program. It
//! reads files; it must not execute anything.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The reason why no library should be preloaded into `program`, if there is one. The
/// sanitizers' runtimes insist on being the first library, the loader of a 32-bit program
/// would complain on the program's standard error, and that of another C library than glibc would
/// not find what our libraries need, and so not start the program.
pub fn preload_hindrance(program: &OsStr) -> Option<&'static str> {
    let path = interpreter_of(&resolve(program)?);
    let mut class = [0; 5];
    let file = File::open(&path).ok()?;
    file.read_exact_at(&mut class, 0).ok()?;
    if class.starts_with(b"\x7fELF") && class[4] != ELFCLASS64 {
        return Some("it is a 32-bit program");
    }
    let facts = sunder_objects::inspect(&path)?;
    if facts.loader.as_ref().is_some_and(|l| !l.ends_with(LOADER)) {
        return Some("it uses another C library than glibc");
    }
    let sanitized = |library: &String| {
        ["libasan", "libtsan", "liblsan", "libhwasan", "libclang_rt"]
            .iter()
            .any(|name| library.starts_with(name))
    };
    let sanitized = facts.has_thread_sanitizer || facts.needed.iter().any(sanitized);
    sanitized.then_some("a sanitizer watches its memory")
}

/// Why no library of ours can be in `program`, which then runs natively: as [`preload_hindrance`],
/// or because of how it is linked.
pub fn cannot_be_loaded(program: &OsStr) -> Option<&'static str> {
    if let Some(why) = preload_hindrance(program) {
        return Some(why);
    }
    let path = find(program);
    if path.as_ref().is_some_and(|p| p.ends_with(LOADER_FILE)) {
        return Some("it is the dynamic loader: name the program itself, without it");
    }
    match path.map(|path| linkage(&path)) {
        Some(Linkage::Static) => Some("it is statically linked"),
        Some(Linkage::Privileged) => Some("it has set-user-id or other privileges"),
        _ => None,
    }
}

/// Whether `program` would only hand our library's name down to what it executes, as another user perhaps, who
/// can't open it; the dynamic loader complains of that. Root's statically linked programs that execute others do
/// so to give up rights (`gosu`, `su-exec`), and no library of ours in them sees it.
pub fn hands_down_in_vain(program: &OsStr) -> bool {
    // SAFETY: no arguments, cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    is_root && find(program).is_some_and(|path| linkage(&path) == Linkage::Static)
}

/// How glibc's dynamic loader is called, wherever it is.
const LOADER: &str = "/ld-linux-x86-64.so.2";
const LOADER_FILE: &str = "ld-linux-x86-64.so.2";

/// `e_ident[EI_CLASS]` of 64-bit files.
const ELFCLASS64: u8 = 2;

/// The file that `execvp` would execute.
fn resolve(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| std::fs::metadata(file).is_ok_and(|m| m.is_file() && m.mode() & 0o111 != 0))
}

/// The interpreter of a script; any other file itself.
fn interpreter_of(path: &Path) -> PathBuf {
    let mut head = [0; 256];
    let read = File::open(path).and_then(|file| file.read_at(&mut head, 0));
    let line = match read {
        Ok(len) if head.starts_with(b"#!") => &head[2..len],
        _ => return path.to_owned(),
    };
    let name = line
        .split(|b| b.is_ascii_whitespace())
        .find(|word| !word.is_empty());
    name.map_or_else(|| path.to_owned(), |n| OsStr::from_bytes(n).into())
}

/// The file that a shell would execute for this program name.
pub fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return std::fs::canonicalize(program).ok();
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// How a program is linked, which tells why it may not have loaded the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// With a dynamic loader.
    Dynamic,
    /// Without a dynamic loader.
    Static,
    /// With a dynamic loader that ignores preloaded libraries, as the file gives privileges.
    Privileged,
}

/// How the program at `path` is linked, as far as its file tells. The path must be one that the user
/// names, since it is opened with our own rights.
pub fn linkage(path: &Path) -> Linkage {
    match std::fs::metadata(path) {
        // It need not be readable.
        Ok(about) if gives_privileges(&about) => Linkage::Privileged,
        // Opening anything else may wait.
        Ok(about) if about.is_file() => {
            File::open(path).map_or(Linkage::Dynamic, |file| linkage_of(&file))
        }
        _ => Linkage::Dynamic,
    }
}

/// The same of a program's open file.
pub fn linkage_of(file: &File) -> Linkage {
    if file.metadata().is_ok_and(|about| gives_privileges(&about)) {
        return Linkage::Privileged;
    }
    match sunder_objects::has_dynamic_loader(file) {
        Some(false) => Linkage::Static,
        _ => Linkage::Dynamic,
    }
}

fn gives_privileges(about: &Metadata) -> bool {
    about.mode() & 0o6000 != 0
}
