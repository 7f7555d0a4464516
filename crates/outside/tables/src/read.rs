//! Reads the accesses of a bucket back, also from files that another engine wrote. Order is checked
//! and not trusted: an engine that wrote a bucket with two threads may have mixed its rows, and
//! replays would then agree on wrong counts. Nothing else of the rows is trusted either.

use crate::bucket::Cut;
use crate::error::TableError;
use crate::row::Row;
use crate::schema::ACCESSES;
use crate::table::Reader;
use std::path::{Path, PathBuf};

/// What to do with rows that are not in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disorder {
    /// Refuse them.
    #[default]
    Refuse,
    /// Sort them in memory: some 80 bytes for each row of the bucket.
    Sort,
}

/// The rows of one bucket, in the order of `ord`. A bucket may have several files; each is in order,
/// or is sorted.
pub struct Rows {
    cut: Cut,
    bucket: u32,
    /// Those that have been begun and have rows left.
    files: Vec<OfFile>,
    /// The others, with the number of their first row; the last is begun first.
    waiting: Vec<(i64, PathBuf)>,
    /// The number of the last row, and the file that it came from.
    last: Option<i64>,
    count: u64,
}

impl Rows {
    /// Opens all Parquet files in `folder`, which is bucket `bucket` of a trace that was cut as `cut`
    /// says.
    ///
    /// # Errors
    /// If one can't be read.
    pub fn open(
        folder: &Path,
        cut: Cut,
        bucket: u32,
        disorder: Disorder,
    ) -> Result<Self, TableError> {
        let failed = |error| TableError::read(folder, error);
        let mut paths: Vec<PathBuf> = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            // What begins so is not data: Spark's notes and checksums.
            let is_data = !name.starts_with(['_', '.']);
            if is_data && path.extension().is_some_and(|e| e == "parquet") {
                paths.push(path);
            }
        }
        paths.sort();
        let (mut files, mut waiting) = (Vec::new(), Vec::new());
        for path in paths {
            let mut file = OfFile::open(&path, disorder)?;
            match (disorder, file.first()?) {
                (_, None) => {}
                (Disorder::Refuse, Some(first)) => waiting.push((first, path)),
                (Disorder::Sort, Some(_)) => files.push(file),
            }
        }
        waiting.sort_by_key(|&(first, _)| std::cmp::Reverse(first));
        Ok(Self {
            cut,
            bucket,
            files,
            waiting,
            last: None,
            count: 0,
        })
    }

    /// How many rows were read.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The next row; `None` at the end.
    ///
    /// # Errors
    /// If a file can't be read, is not in order, or has a row that no exporter writes.
    pub fn next_row(&mut self) -> Result<Option<Row>, TableError> {
        let Some((number, ord)) = self.next_file()? else {
            return Ok(None);
        };
        let file = &mut self.files[number];
        if self.last == Some(ord) {
            let path = file.reader.path().to_owned();
            return Err(TableError::Twice { path, ord });
        }
        let row = file.take(self.cut, self.bucket)?;
        self.last = Some(ord);
        self.count += 1;
        Ok(Some(row))
    }

    /// The file with the next row, and the number of that row; begins files as their rows come.
    fn next_file(&mut self) -> Result<Option<(usize, i64)>, TableError> {
        loop {
            let mut next: Option<(usize, i64)> = None;
            let mut over = None;
            for (number, file) in self.files.iter_mut().enumerate() {
                match file.ord()? {
                    Some(ord) if next.is_none_or(|(_, least)| ord < least) => {
                        next = Some((number, ord));
                    }
                    Some(_) => {}
                    None => over = Some(number),
                }
            }
            if let Some(over) = over {
                self.files.remove(over);
                continue;
            }
            let comes =
                |&mut (first, _): &mut (i64, PathBuf)| next.is_none_or(|(_, ord)| first <= ord);
            match self.waiting.pop_if(comes) {
                Some((_, path)) => self.files.push(OfFile::open(&path, Disorder::Refuse)?),
                None => return Ok(next),
            }
        }
    }
}

const COLUMNS: usize = ACCESSES.len();

/// A file of a bucket.
struct OfFile {
    reader: Reader,
    /// The row group that is being read, by the columns of [`ACCESSES`].
    columns: [Vec<i64>; COLUMNS],
    /// The next row in it.
    at: usize,
    /// The number of that row in the file.
    row: u64,
    last: Option<i64>,
}

impl OfFile {
    fn open(path: &Path, disorder: Disorder) -> Result<Self, TableError> {
        let mut new = Self {
            reader: Reader::open(path)?,
            columns: Default::default(),
            at: 0,
            row: 0,
            last: None,
        };
        if disorder == Disorder::Sort {
            new.sort()?;
        }
        Ok(new)
    }

    /// Reads the whole file and sorts its rows.
    fn sort(&mut self) -> Result<(), TableError> {
        let mut all: [Vec<i64>; COLUMNS] = Default::default();
        while self.group()? {
            for (all, columns) in all.iter_mut().zip(&self.columns) {
                all.extend_from_slice(columns);
            }
        }
        let mut places: Vec<usize> = (0..all[0].len()).collect();
        places.sort_by_key(|&place| all[0][place]);
        for (sorted, all) in self.columns.iter_mut().zip(&mut all) {
            sorted.clear();
            sorted.extend(places.iter().map(|&place| all[place]));
            *all = Vec::new();
        }
        self.at = 0;
        Ok(())
    }

    /// Reads the next row group; false at the end.
    fn group(&mut self) -> Result<bool, TableError> {
        let Some(group) = self.reader.group()? else {
            return Ok(false);
        };
        for (column, to) in ACCESSES.iter().zip(&mut self.columns) {
            group.numbers(column.name, to)?;
        }
        self.at = 0;
        Ok(true)
    }

    /// The number of the next row; `None` at the end.
    #[inline]
    fn ord(&mut self) -> Result<Option<i64>, TableError> {
        while self.at == self.columns[0].len() {
            if !self.group()? {
                return Ok(None);
            }
        }
        let ord = self.columns[0][self.at];
        match self.last {
            Some(before) if ord == before => Err(TableError::Twice {
                path: self.reader.path().to_owned(),
                ord,
            }),
            Some(before) if ord < before => Err(TableError::Order {
                path: self.reader.path().to_owned(),
                row: self.row,
                ord,
                before,
            }),
            _ => Ok(Some(ord)),
        }
    }

    /// The number of the first row.
    fn first(&mut self) -> Result<Option<i64>, TableError> {
        while self.columns[0].is_empty() {
            let Some(group) = self.reader.group()? else {
                return Ok(None);
            };
            group.numbers(ACCESSES[0].name, &mut self.columns[0])?;
        }
        Ok(Some(self.columns[0][0]))
    }

    /// Takes the next row, which [`Self::ord`] has found.
    #[inline]
    fn take(&mut self, cut: Cut, bucket: u32) -> Result<Row, TableError> {
        let at = self.at;
        let column = |number: usize| self.columns[number][at];
        let narrow = |number: usize| i32::try_from(column(number)).ok();
        let row = || {
            Some(Row {
                ord: column(0),
                time: column(1),
                thread: narrow(2)?,
                address: column(3),
                size: narrow(4)?,
                kind: narrow(5)?,
                rest: narrow(6)?,
                instruction: column(7),
                block: column(8),
                site: narrow(9)?,
            })
        };
        let row = row().filter(|row| {
            let address = row.address as u64;
            row.thread > 0
                && row.row_kind().is_some()
                && (0..=2).contains(&row.rest)
                && (1..=64).contains(&row.size)
                && cut.in_row(address, row.size as u32) == row.size as u32
                && row.ord >= 0
                && row.time >= 0
        });
        let Some(row) = row else {
            return Err(TableError::Row {
                path: self.reader.path().to_owned(),
                row: self.row,
                what: "its numbers are none that an export has".into(),
            });
        };
        let belongs = cut.bucket(row.address as u64);
        if belongs != bucket {
            return Err(TableError::Bucket {
                path: self.reader.path().to_owned(),
                row: self.row,
                bucket: belongs,
            });
        }
        self.last = Some(row.ord);
        self.at += 1;
        self.row += 1;
        Ok(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Values, Writer};
    use parquet::basic::Compression;
    use parquet::errors::ParquetError;
    use std::fs::File;

    /// Writes rows as an exporter does, but in any order and with any numbers.
    fn write(path: &Path, groups: &[Vec<Row>]) {
        let file = File::create(path).expect("a file");
        write_with(
            Writer::new(file, path, &ACCESSES, &[]).expect("a table"),
            groups,
        );
    }

    fn write_with(mut writer: Writer, groups: &[Vec<Row>]) {
        for rows in groups {
            let long = |of: fn(&Row) -> i64| rows.iter().map(of).collect::<Vec<i64>>();
            let int = |of: fn(&Row) -> i32| rows.iter().map(of).collect::<Vec<i32>>();
            writer
                .rows(&[
                    Values::Long(&long(|r| r.ord)),
                    Values::Long(&long(|r| r.time)),
                    Values::Int(&int(|r| r.thread)),
                    Values::Long(&long(|r| r.address)),
                    Values::Int(&int(|r| r.size)),
                    Values::Int(&int(|r| r.kind)),
                    Values::Int(&int(|r| r.rest)),
                    Values::Long(&long(|r| r.instruction)),
                    Values::Long(&long(|r| r.block)),
                    Values::Int(&int(|r| r.site)),
                ])
                .expect("rows");
        }
        writer.close().expect("closed");
    }

    fn read(folder: &Path, disorder: Disorder) -> Result<Vec<Row>, TableError> {
        let cut = Cut::new(64, 1).expect("a cut");
        let mut rows = Rows::open(folder, cut, 0, disorder)?;
        let mut all = Vec::new();
        while let Some(row) = rows.next_row()? {
            all.push(row);
        }
        assert_eq!(rows.count(), all.len() as u64);
        Ok(all)
    }

    fn rows(ords: impl Iterator<Item = i64>) -> Vec<Row> {
        ords.map(Row::example).collect()
    }

    #[test]
    fn files_in_order_are_read_as_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        write(&at("b.parquet"), &[rows(0..10), rows(20..25)]);
        write(&at("a.parquet"), &[rows(10..20), vec![], rows(25..40)]);
        std::fs::write(at("_SUCCESS"), "").expect("a note of an engine");
        let seen = read(folder.path(), Disorder::Refuse).expect("in order");
        assert_eq!(seen, rows(0..40));
    }

    /// DuckDB and Arrow write Snappy unless they are told otherwise.
    #[test]
    fn what_engines_write_is_read_or_the_way_to_write_it_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.parquet");
        for packing in [Compression::SNAPPY, Compression::UNCOMPRESSED] {
            let file = File::create(&path).expect("a file");
            let writer = Writer::packed(file, &path, &ACCESSES, &[], packing).expect("a table");
            write_with(writer, &[rows(0..40)]);
            let seen = read(folder.path(), Disorder::Refuse).expect("in order");
            assert_eq!(seen, rows(0..40));
        }
        // So the library says it.
        let unread = ParquetError::General("Disabled feature at compile time: lz4".into());
        let said = TableError::parquet(&path, unread).to_string();
        assert!(said.contains("packed with lz4"), "{said}");
    }

    #[test]
    fn an_order_that_does_not_rise_is_refused_or_sorted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mixed.parquet");
        write(&path, &[rows((0..10).chain(20..30)), rows(10..20)]);
        let error = read(folder.path(), Disorder::Refuse).expect_err("no order");
        let TableError::Order {
            row, ord, before, ..
        } = error
        else {
            panic!("{error}");
        };
        assert_eq!((row, ord, before), (20, 10, 29));
        let sorted = read(folder.path(), Disorder::Sort).expect("sorted");
        assert_eq!(sorted, rows(0..30));
    }

    #[test]
    fn a_row_that_is_there_twice_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["a.parquet", "b.parquet"] {
            write(&folder.path().join(name), &[rows(0..3)]);
            let one_file = name == "a.parquet";
            let seen = read(folder.path(), Disorder::Sort);
            let is_twice = matches!(seen, Err(TableError::Twice { ord: 0, .. }));
            assert_eq!(is_twice, !one_file, "{name}");
        }
        std::fs::remove_file(folder.path().join("b.parquet")).expect("it is there");
        write(
            &folder.path().join("a.parquet"),
            &[rows([0, 1, 1].into_iter())],
        );
        let seen = read(folder.path(), Disorder::Refuse);
        assert!(matches!(seen, Err(TableError::Twice { ord: 1, .. })));
    }

    #[test]
    fn rows_that_no_exporter_writes_are_refused() {
        let wrong: [fn(&mut Row); 8] = [
            |row| row.thread = 0,
            |row| row.kind = 6,
            |row| row.size = 0,
            |row| row.size = 65,
            |row| row.address = 0x103c,
            |row| row.rest = 3,
            |row| row.ord = -1,
            |row| row.time = -1,
        ];
        for (number, wrong) in wrong.into_iter().enumerate() {
            let folder = tempfile::tempdir().expect("a folder");
            let mut damaged = Row::example(5);
            wrong(&mut damaged);
            write(&folder.path().join("a.parquet"), &[vec![damaged]]);
            let seen = read(folder.path(), Disorder::Refuse);
            assert!(matches!(seen, Err(TableError::Row { .. })), "{number}");
        }
        // A row of another bucket.
        let folder = tempfile::tempdir().expect("a folder");
        write(&folder.path().join("a.parquet"), &[rows(0..1)]);
        let cut = Cut::new(64, 2).expect("a cut");
        let other = 1 - cut.bucket(0x1000);
        let mut rows = Rows::open(folder.path(), cut, other, Disorder::Refuse).expect("a file");
        assert!(matches!(rows.next_row(), Err(TableError::Bucket { .. })));
    }

    #[test]
    fn a_pipe_among_the_files_is_refused_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.parquet");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).expect("a pipe");
        let error = read(folder.path(), Disorder::Refuse).expect_err("no file");
        assert!(error.to_string().contains("no regular file"), "{error}");
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.parquet");
        write(&path, &[rows(0..100)]);
        let whole = std::fs::read(&path).expect("bytes");
        // Behind checksums there are none in this format: any damaged byte must end in rows or an
        // error.
        for at in (0..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x55;
            std::fs::write(&path, damaged).expect("written");
            let _ = read(folder.path(), Disorder::Refuse);
        }
        for length in [0, 4, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).expect("written");
            let seen = read(folder.path(), Disorder::Refuse);
            assert!(matches!(seen, Err(TableError::Parquet { .. })), "{length}");
        }
    }
}
