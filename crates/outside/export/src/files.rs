//! Files in folders in which others may have put something: a link is not followed, a pipe is not waited
//! for, and a file of somebody else is not taken for ours. Paths are followed once, and their folders kept
//! open: nothing here may follow the path of a folder again. Used by `textfile`, `pprof` and `spool`, and by
//! the program for what it writes at its end.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::fs::{fstat, openat, renameat, statat, unlinkat};
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file's name in a folder that is kept open: if somebody puts another folder in its place, nothing goes
/// there.
#[derive(Debug)]
pub struct Place {
    folder: File,
    name: OsString,
}

impl Place {
    /// Where the path leads now. A link that has the file's own name is not followed: it is the place.
    ///
    /// # Errors
    /// If there is no such folder, or the path ends without a name.
    pub fn of(path: &Path) -> io::Result<Self> {
        let name = path.file_name();
        let name = name.ok_or_else(|| io::Error::other("its path ends with no name"))?;
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        // Only its names are needed, so it need not be readable.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            folder: openat(CWD, folder, flags, Mode::empty())?.into(),
            name: name.to_owned(),
        })
    }

    /// Where the path leads now, after all links.
    ///
    /// # Errors
    /// If there is no such folder, or the path ends without a name.
    pub fn after_links(path: &Path) -> io::Result<Self> {
        let mut whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        // A link may lead to a file that is to be made.
        if let Ok(to) = whole.read_link() {
            whole = whole.parent().unwrap_or_else(|| Path::new("")).join(to);
        }
        Self::of(&whole)
    }

    /// Opens or makes the file, as `flags` say. It is not behind a link.
    ///
    /// # Errors
    /// If it can't be opened.
    pub fn open(&self, flags: OFlags) -> io::Result<File> {
        open(&self.folder, &self.name, flags)
    }

    /// See [`put_whole`].
    ///
    /// # Errors
    /// If they can't be written.
    pub fn put_whole(&self, bytes: &[u8]) -> io::Result<()> {
        put_whole(&self.folder, &self.name, bytes)
    }

    /// Writes a new file with these bytes, by the name with this ending first, which nothing must have, and
    /// puts it in the place of what has the name.
    ///
    /// # Errors
    /// If they can't be written.
    pub fn replace(&self, ending: &str, bytes: &[u8]) -> io::Result<()> {
        replace(&self.folder, &self.name, &with(&self.name, ending), bytes)
    }
}

fn open(folder: &File, name: &OsStr, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::from_raw_mode(0o666))?.into())
}

fn with(name: &OsStr, ending: &str) -> OsString {
    let mut name = name.to_owned();
    name.push(ending);
    name
}

fn replace(folder: &File, name: &OsStr, aside: &OsStr, bytes: &[u8]) -> io::Result<()> {
    // A file that is made anew is behind no link.
    let made = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let mut file = open(folder, aside, made)?;
    let written = file.write_all(bytes);
    let written = written.and_then(|()| Ok(renameat(folder, aside, folder, name)?));
    if written.is_err() {
        // A full disk has taken a part.
        let _ = remove(folder, aside);
    }
    written
}

/// Puts `bytes` in the place of what has this name in the folder, at once: whoever reads it meanwhile sees
/// the old contents or the new ones, whole.
///
/// # Errors
/// If they can't be written.
pub fn put_whole(folder: &File, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
    let aside = with(name, ".new");
    // A run that was killed may have left it, or somebody else has put it there.
    match remove(folder, &aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    replace(folder, name, &aside, bytes)
}

/// Reads a file of `size` bytes that [`put_whole`] has written.
///
/// # Errors
/// If it is not there, or another one.
pub fn read_whole(folder: &File, name: &OsStr, size: u64) -> io::Result<Vec<u8>> {
    let file = open(folder, name, OFlags::RDONLY | OFlags::NONBLOCK)?;
    if our_size(&fstat(&file)?) != Some(size) {
        return Err(io::Error::other("it is another file"));
    }
    let mut bytes = Vec::new();
    file.take(size).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Removes a file from a folder.
///
/// # Errors
/// If it can't be removed.
pub fn remove(folder: &File, name: &OsStr) -> io::Result<()> {
    Ok(unlinkat(folder, name, AtFlags::empty())?)
}

/// How many bytes a file in a folder has; `None` if it is no plain one of this user's, or has a second name.
pub fn size_of_ours(folder: impl AsFd, name: &OsStr) -> Option<u64> {
    our_size(&statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?)
}

fn our_size(file: &Stat) -> Option<u64> {
    let is_plain = FileType::from_raw_mode(file.st_mode) == FileType::RegularFile;
    let is_ours = is_plain && file.st_nlink == 1 && file.st_uid == geteuid().as_raw();
    is_ours.then_some(file.st_size as u64)
}

/// Whether a folder, or the link that stands for it, belongs to somebody who could put anything there in
/// our name: neither to this user nor to root.
///
/// # Errors
/// If the folder can't be examined.
pub fn is_of_another(folder: &Path) -> io::Result<bool> {
    Ok(is_anothers(&fs::symlink_metadata(folder)?) || is_anothers(&fs::metadata(folder)?))
}

/// Whether it belongs neither to this user nor to root.
pub fn is_anothers(one: &Metadata) -> bool {
    ![0, geteuid().as_raw()].contains(&one.uid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mknodat;
    use std::os::unix::fs::{lchown, symlink};

    fn text(path: &Path) -> String {
        fs::read_to_string(path).expect("it is there")
    }

    fn read(path: &Path, size: u64) -> io::Result<Vec<u8>> {
        let place = Place::of(path).expect("a folder");
        read_whole(&place.folder, &place.name, size)
    }

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("page.prom");
        for page in ["a long page\n", "short\n"] {
            let place = Place::of(&path).expect("a folder");
            place.put_whole(page.as_bytes()).expect("it is written");
            assert_eq!(text(&path), page);
            let read = read(&path, page.len() as u64);
            assert_eq!(read.expect("it is ours"), page.as_bytes());
        }
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 1);
        assert!(Place::of(Path::new("/nowhere/page.prom")).is_err());
        assert!(Place::of(&folder.path().join("..")).is_err());
    }

    /// What another user may do in a folder of its own into which root's watch writes.
    #[test]
    fn links_and_pipes_are_replaced_and_neither_followed_nor_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name| folder.path().join(name);
        let (path, aside, other) = (at("page"), at("page.new"), at("other"));
        let place = Place::of(&path).expect("a folder");
        fs::write(&other, "of another").expect("written");
        symlink(&other, &aside).expect("made");
        place.put_whole(b"one").expect("it is written");
        mknodat(CWD, &aside, FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        place.put_whole(b"two").expect("it is written");
        assert_eq!(text(&path), "two");
        fs::remove_file(&path).expect("ours");
        symlink(&other, &path).expect("made");
        assert!(read(&path, 10).is_err(), "a link");
        place.put_whole(b"three").expect("it is written");
        assert_eq!(text(&path), "three");
        assert_eq!(text(&other), "of another");
        fs::hard_link(&other, at("second")).expect("made");
        assert!(read(&at("second"), 10).is_err(), "a second name");
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RWXU, 0).expect("a pipe");
        assert!(read(&at("pipe"), 0).is_err());
        assert!(read(&path, 4).is_err(), "another size");
    }

    /// What another user may do in a folder of its own, in which the folder lies into which root's watch writes.
    #[test]
    fn a_folder_that_is_put_in_the_place_of_ours_gets_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name| folder.path().join(name);
        for one in ["ours", "other"] {
            fs::create_dir(at(one)).expect("made");
        }
        fs::write(at("other/page.new"), "of another").expect("written");
        fs::write(at("other/page"), "of another").expect("written");
        let place = Place::of(&at("ours/page")).expect("a folder");
        fs::rename(at("ours"), at("moved")).expect("ours");
        symlink(at("other"), at("ours")).expect("made");
        place.put_whole(b"one").expect("it is written");
        assert_eq!(text(&at("moved/page")), "one");
        place.replace(".7", b"two").expect("it is written");
        assert_eq!(text(&at("moved/page")), "two");
        let made = place.open(OFlags::WRONLY | OFlags::TRUNC);
        made.and_then(|mut file| file.write_all(b"three"))
            .expect("it is written");
        assert_eq!(text(&at("moved/page")), "three");
        for name in ["other/page", "other/page.new"] {
            assert_eq!(text(&at(name)), "of another");
        }
        assert_eq!(fs::read_dir(at("moved")).expect("it is there").count(), 1);
        assert_eq!(fs::read_dir(at("other")).expect("it is there").count(), 2);
    }

    #[test]
    fn a_link_is_the_place_or_leads_to_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (link, file) = (folder.path().join("link"), folder.path().join("file"));
        symlink("file", &link).expect("made");
        let put = |place: io::Result<Place>| place.and_then(|place| place.put_whole(b"one"));
        put(Place::after_links(&link)).expect("it is written");
        assert!(link.is_symlink() && !file.is_symlink());
        put(Place::of(&link)).expect("it is written");
        assert!(!link.is_symlink());
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
