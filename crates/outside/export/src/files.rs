//! Files in folders in which others may have put something: a link is not followed, a pipe is not waited
//! for, and a file of somebody else is not taken for ours. Used by `textfile`, `pprof` and `spool`.

use rustix::fs::OFlags;
use rustix::process::geteuid;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Puts `bytes` in the place of what has this path, at once: whoever reads it meanwhile sees the old
/// contents or the new ones, whole.
///
/// # Errors
/// If they can't be written.
pub fn put_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let aside = PathBuf::from(aside);
    // A run that was killed may have left it, or somebody else has put it there.
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A file that is made anew is behind no link.
    let mut file = File::options().write(true).create_new(true).open(&aside)?;
    let written = file.write_all(bytes);
    let written = written.and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        // A full disk has taken a part.
        let _ = fs::remove_file(&aside);
    }
    written
}

/// Reads a file of `size` bytes that [`put_whole`] has written.
///
/// # Errors
/// If it is not there, or another one.
pub fn read_whole(path: &Path, size: u64) -> io::Result<Vec<u8>> {
    let neither_follow_nor_wait = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = File::options();
    options.read(true);
    options.custom_flags(neither_follow_nor_wait.bits() as i32);
    let file = options.open(path)?;
    let found = file.metadata()?;
    if !is_ours(&found) || found.len() != size {
        return Err(io::Error::other("it is another file"));
    }
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether a file is a plain one of this user's, with no second name.
pub fn is_ours(file: &Metadata) -> bool {
    file.is_file() && file.nlink() == 1 && file.uid() == geteuid().as_raw()
}

/// Whether a folder, or the link that stands for it, belongs to somebody who could put anything there in
/// our name: neither to this user nor to root.
///
/// # Errors
/// If the folder can't be examined.
pub fn is_of_another(folder: &Path) -> io::Result<bool> {
    let is_anothers = |one: &Metadata| ![0, geteuid().as_raw()].contains(&one.uid());
    Ok(is_anothers(&fs::symlink_metadata(folder)?) || is_anothers(&fs::metadata(folder)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::os::unix::fs::{lchown, symlink};

    fn text(path: &Path) -> String {
        fs::read_to_string(path).expect("it is there")
    }

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("page.prom");
        for page in ["a long page\n", "short\n"] {
            put_whole(&path, page.as_bytes()).expect("it is written");
            assert_eq!(text(&path), page);
            let read = read_whole(&path, page.len() as u64);
            assert_eq!(read.expect("it is ours"), page.as_bytes());
        }
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 1);
        assert!(put_whole(Path::new("/nowhere/page.prom"), b"").is_err());
    }

    /// What another user may do in a folder of its own into which root's watch writes.
    #[test]
    fn links_and_pipes_are_replaced_and_neither_followed_nor_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name| folder.path().join(name);
        let (path, aside, other) = (at("page"), at("page.new"), at("other"));
        fs::write(&other, "of another").expect("written");
        symlink(&other, &aside).expect("made");
        put_whole(&path, b"one").expect("it is written");
        mknodat(CWD, &aside, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        put_whole(&path, b"two").expect("it is written");
        assert_eq!(text(&path), "two");
        fs::remove_file(&path).expect("ours");
        symlink(&other, &path).expect("made");
        assert!(read_whole(&path, 10).is_err(), "a link");
        put_whole(&path, b"three").expect("it is written");
        assert_eq!(text(&path), "three");
        assert_eq!(text(&other), "of another");
        fs::hard_link(&other, at("second")).expect("made");
        assert!(read_whole(&at("second"), 10).is_err(), "a second name");
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        assert!(read_whole(&at("pipe"), 0).is_err());
        assert!(read_whole(&path, 4).is_err(), "another size");
    }

    #[test]
    fn a_folder_is_another_users_if_it_or_the_link_to_it_is() {
        let ours = tempfile::tempdir().expect("a folder");
        let link = ours.path().join("link");
        symlink(ours.path(), &link).expect("made");
        assert!(!is_of_another(&link).expect("it is there"));
        if !geteuid().is_root() {
            println!("SKIP: only root may give a file away");
            return;
        }
        lchown(&link, Some(65534), None).expect("root may");
        assert!(is_of_another(&link).expect("it is there"));
        assert!(!is_of_another(ours.path()).expect("it is there"));
        let theirs = ours.path().join("theirs");
        fs::create_dir(&theirs).expect("made");
        lchown(&theirs, Some(65534), None).expect("root may");
        assert!(is_of_another(&theirs).expect("it is there"));
    }
}
