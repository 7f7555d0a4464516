//! Writes the rows of one bucket, to further files if there are many: what a file's end says of its row groups
//! is kept in memory until then.

use crate::error::TableError;
use crate::row::Row;
use crate::schema;
use crate::table::{Values, Writer};
use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;

/// The first file of a bucket. Further ones have a number behind `accesses`.
pub const FIRST_FILE: &str = "accesses.parquet";

/// See the module's head.
pub struct BucketWriter<'a> {
    notes: &'a [(&'static str, String)],
    /// The file that is being written.
    path: PathBuf,
    writer: Writer,
    groups: usize,
    /// The most row groups of a file, if there may be further ones.
    most: Option<usize>,
    files: u32,
    /// Bytes of the files that are written.
    bytes: u64,
}

impl<'a> BucketWriter<'a> {
    /// Begins with `file`, which is empty and called `path`. `most`: the most row groups of a file; `None` if
    /// there may be no other.
    pub fn new(
        file: File,
        path: PathBuf,
        notes: &'a [(&'static str, String)],
        most: Option<usize>,
    ) -> Result<Self, TableError> {
        Ok(Self {
            writer: Writer::new(file, &path, &schema::ACCESSES, notes)?,
            notes,
            path,
            groups: 0,
            most,
            files: 1,
            bytes: 0,
        })
    }

    /// Adds a row group.
    pub fn rows(&mut self, columns: &Columns) -> Result<(), TableError> {
        if self.most.is_some_and(|most| self.groups >= most.max(1)) {
            self.go_on()?;
        }
        self.groups += 1;
        self.writer.rows(&columns.values())
    }

    /// Goes on in a further file, if one can be made.
    fn go_on(&mut self) -> Result<(), TableError> {
        let name = format!("accesses-{:04}.parquet", self.files + 1);
        let path = self.path.with_file_name(name);
        // The confinement of the command allows nothing else.
        let file = match File::options().write(true).create_new(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                self.most = None;
                return Ok(());
            }
            Err(error) => return Err(TableError::write(&path, error)),
        };
        let next = Writer::new(file, &path, &schema::ACCESSES, self.notes)?;
        self.bytes += std::mem::replace(&mut self.writer, next).close()?;
        self.path = path;
        self.files += 1;
        self.groups = 0;
        Ok(())
    }

    /// Ends the last file. How many bytes all of them have.
    pub fn close(self) -> Result<u64, TableError> {
        Ok(self.bytes + self.writer.close()?)
    }
}

/// Rows of one bucket, by columns.
#[derive(Default)]
pub struct Columns {
    pub ord: Vec<i64>,
    time: Vec<i64>,
    thread: Vec<i32>,
    address: Vec<i64>,
    size: Vec<i32>,
    kind: Vec<i32>,
    rest: Vec<i32>,
    instruction: Vec<i64>,
    block: Vec<i64>,
    site: Vec<i32>,
}

impl Columns {
    #[inline]
    /// Adds a row.
    pub fn push(&mut self, row: &Row) {
        self.ord.push(row.ord);
        self.time.push(row.time);
        self.thread.push(row.thread);
        self.address.push(row.address);
        self.size.push(row.size);
        self.kind.push(row.kind);
        self.rest.push(row.rest);
        self.instruction.push(row.instruction);
        self.block.push(row.block);
        self.site.push(row.site);
    }

    /// In the order of [`schema::ACCESSES`].
    fn values(&self) -> [Values<'_>; schema::ACCESSES.len()] {
        [
            Values::Long(&self.ord),
            Values::Long(&self.time),
            Values::Int(&self.thread),
            Values::Long(&self.address),
            Values::Int(&self.size),
            Values::Int(&self.kind),
            Values::Int(&self.rest),
            Values::Long(&self.instruction),
            Values::Long(&self.block),
            Values::Int(&self.site),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::Cut;
    use crate::read::{Disorder, Rows};

    #[test]
    fn many_row_groups_go_to_several_files_that_are_read_as_one() {
        for (most, wanted) in [(Some(2), 3), (Some(0), 5), (None, 1)] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join(FIRST_FILE);
            let file = File::create_new(&path).expect("a file");
            let mut writer = BucketWriter::new(file, path, &[], most).expect("a table");
            for group in 0..5 {
                let mut columns = Columns::default();
                (group * 10..group * 10 + 10).for_each(|ord| columns.push(&Row::example(ord)));
                writer.rows(&columns).expect("written");
            }
            let bytes = writer.close().expect("written");
            let files: Vec<_> = std::fs::read_dir(folder.path())
                .expect("a folder")
                .collect();
            let sizes = files.iter().map(|file| {
                let file = file.as_ref().expect("a file");
                file.metadata().expect("a file").len()
            });
            assert_eq!((files.len(), sizes.sum::<u64>()), (wanted, bytes));
            for disorder in [Disorder::Refuse, Disorder::Sort] {
                let cut = Cut::new(64, 1).expect("a cut");
                let mut rows = Rows::open(folder.path(), cut, 0, disorder).expect("files");
                for ord in 0..50 {
                    assert_eq!(rows.next_row().expect("a row"), Some(Row::example(ord)));
                }
                assert_eq!(rows.next_row().expect("the end"), None);
            }
        }
    }

    #[test]
    fn a_further_file_never_takes_the_place_of_one_that_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FIRST_FILE);
        let other = folder.path().join("accesses-0002.parquet");
        std::fs::write(&other, "somebody's").expect("written");
        let file = File::create_new(&path).expect("a file");
        let mut writer = BucketWriter::new(file, path, &[], Some(1)).expect("a table");
        let mut columns = Columns::default();
        columns.push(&Row::example(1));
        writer.rows(&columns).expect("written");
        assert!(matches!(
            writer.rows(&columns),
            Err(TableError::File { what: "write", .. })
        ));
        assert_eq!(std::fs::read(&other).expect("it is there"), b"somebody's");
    }
}
