//! Writes a Parquet file from columns of numbers and texts, and reads such columns back, also where
//! another engine made them nullable. Which tables there are is not known here.

use crate::error::TableError;
use parquet::basic::{
    Compression, ConvertedType, Encoding, Repetition, Type as Physical, ZstdLevel,
};
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The type of a column. Numbers are signed, because engines turn unsigned ones into decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// 32 bits.
    Int,
    /// 64 bits.
    Long,
    /// UTF-8.
    Text,
}

/// How the values of a column are written, before they are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packed {
    /// By their numbers in a list of the different values.
    Dictionary,
    /// By their differences.
    Differences,
    /// All first bytes, then all second bytes, and so on.
    Split,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub holds: Holds,
    /// How it is written.
    pub packed: Packed,
    /// What it is, for the reader of `schema.md`.
    pub is: &'static str,
}

/// Values of one column.
pub enum Values<'a> {
    /// Of a column of [`Holds::Int`].
    Int(&'a [i32]),
    /// Of a column of [`Holds::Long`].
    Long(&'a [i64]),
    /// Of a column of [`Holds::Text`].
    Text(&'a [ByteArray]),
}

/// The most bytes of a list of different values: those of a whole row group may be different.
const DICTIONARY_BYTES: usize = 4 << 20;

/// A Parquet file that is being written.
pub struct Writer {
    path: PathBuf,
    file: SerializedFileWriter<File>,
}

impl Writer {
    /// Begins a table in `file`, which is empty; errors call it `path`. `notes` are pairs that the
    /// file's end says beside the schema.
    pub fn new(
        file: File,
        path: &Path,
        columns: &[Column],
        notes: &[(&str, String)],
    ) -> Result<Self, TableError> {
        let level = ZstdLevel::try_new(1).unwrap_or_default();
        Self::packed(file, path, columns, notes, Compression::ZSTD(level))
    }

    /// As [`Self::new`], with pages packed as an engine may have chosen.
    pub(crate) fn packed(
        file: File,
        path: &Path,
        columns: &[Column],
        notes: &[(&str, String)],
        packing: Compression,
    ) -> Result<Self, TableError> {
        let failed = |error| TableError::parquet(path, error);
        let fields = columns.iter().map(|column| field(column).map(Arc::new));
        let fields = fields.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        let schema = Type::group_type_builder("rows").with_fields(fields).build();
        let schema = schema.map_err(failed)?;
        let properties = properties(columns, notes, packing);
        let file = SerializedFileWriter::new(file, Arc::new(schema), properties);
        Ok(Self {
            path: path.to_owned(),
            file: file.map_err(failed)?,
        })
    }

    /// Adds rows, given by columns of equal length.
    pub fn rows(&mut self, columns: &[Values<'_>]) -> Result<(), TableError> {
        let path = &self.path;
        write_group(&mut self.file, columns).map_err(|error| TableError::parquet(path, error))
    }

    /// Ends the table. How many bytes the file has.
    pub fn close(mut self) -> Result<u64, TableError> {
        let path = self.path;
        let failed = |error| TableError::parquet(&path, error);
        self.file.finish().map_err(failed)?;
        Ok(self.file.bytes_written() as u64)
    }
}

fn write_group(
    file: &mut SerializedFileWriter<File>,
    columns: &[Values<'_>],
) -> Result<(), ParquetError> {
    let mut group = file.next_row_group()?;
    for values in columns {
        let Some(mut column) = group.next_column()? else {
            return Err(ParquetError::General(
                "more columns than the schema has".into(),
            ));
        };
        match values {
            Values::Int(all) => column.typed::<Int32Type>().write_batch(all, None, None)?,
            Values::Long(all) => column.typed::<Int64Type>().write_batch(all, None, None)?,
            Values::Text(all) => column
                .typed::<ByteArrayType>()
                .write_batch(all, None, None)?,
        };
        column.close()?;
    }
    group.close()?;
    Ok(())
}

fn field(column: &Column) -> Result<Type, ParquetError> {
    let (physical, converted) = match column.holds {
        Holds::Int => (Physical::INT32, ConvertedType::NONE),
        Holds::Long => (Physical::INT64, ConvertedType::NONE),
        Holds::Text => (Physical::BYTE_ARRAY, ConvertedType::UTF8),
    };
    Type::primitive_type_builder(column.name, physical)
        .with_repetition(Repetition::REQUIRED)
        .with_converted_type(converted)
        .build()
}

fn properties(
    columns: &[Column],
    notes: &[(&str, String)],
    packing: Compression,
) -> Arc<WriterProperties> {
    let notes = notes
        .iter()
        .map(|(key, value)| KeyValue::new((*key).to_owned(), value.clone()));
    let mut properties = WriterProperties::builder()
        // Pages of version 2 are not read by all engines; the encodings are.
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_compression(packing)
        .set_dictionary_page_size_limit(DICTIONARY_BYTES)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_key_value_metadata(Some(notes.collect()));
    for column in columns {
        let path = ColumnPath::from(column.name);
        let by_list = column.packed == Packed::Dictionary;
        properties = properties.set_column_dictionary_enabled(path.clone(), by_list);
        properties = match (column.packed, column.holds) {
            (_, Holds::Text) => properties,
            (Packed::Differences, _) => {
                properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED)
            }
            // Also for a list that got too long.
            (Packed::Split | Packed::Dictionary, _) => {
                properties.set_column_encoding(path, Encoding::BYTE_STREAM_SPLIT)
            }
        };
    }
    Arc::new(properties.build())
}

/// A Parquet file that is being read, one row group after another.
pub struct Reader {
    path: PathBuf,
    file: SerializedFileReader<File>,
    groups: usize,
    next: usize,
}

impl Reader {
    /// Opens the file at `path`.
    pub fn open(path: &Path) -> Result<Self, TableError> {
        let failed = |error| TableError::read(path, error);
        // Opening a pipe would wait for whoever writes to it.
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let file = File::options().read(true).custom_flags(nonblock).open(path);
        let file = file.map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        if !about.is_file() {
            return Err(failed(std::io::Error::other("it is no regular file")));
        }
        let bytes = about.len();
        let file = caught(|| SerializedFileReader::new(file));
        let file = file.map_err(|error| TableError::parquet(path, error))?;
        if !has_possible_places(&file, bytes) {
            let what = "its end names parts that it does not have";
            return Err(TableError::parquet(
                path,
                ParquetError::General(what.into()),
            ));
        }
        Ok(Self {
            path: path.to_owned(),
            groups: file.num_row_groups(),
            file,
            next: 0,
        })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next row group; `None` after the last.
    pub fn group(&mut self) -> Result<Option<Group<'_>>, TableError> {
        if self.next == self.groups {
            return Ok(None);
        }
        let group = caught(|| self.file.get_row_group(self.next));
        self.next += 1;
        let group = group.map_err(|error| TableError::parquet(&self.path, error))?;
        Ok(Some(Group {
            path: &self.path,
            group,
        }))
    }
}

/// What the library returns, or an error where it panics, as it does on some damaged files.
fn caught<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    // What it was reading is given up then.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
    result.unwrap_or_else(|_| {
        let what = "the library for such files could not cope with it";
        Err(ParquetError::General(what.into()))
    })
}

/// Whether all parts that the file's end names lie within its `bytes`. The library asserts that.
fn has_possible_places(file: &SerializedFileReader<File>, bytes: u64) -> bool {
    let groups = file.metadata().row_groups().iter();
    groups.clone().all(|group| group.num_rows() >= 0)
        && groups.flat_map(|group| group.columns()).all(|column| {
            let start = match column.dictionary_page_offset() {
                Some(dictionary) => dictionary,
                None => column.data_page_offset(),
            };
            let (start, len) = (
                u64::try_from(start),
                u64::try_from(column.compressed_size()),
            );
            let (Ok(start), Ok(len)) = (start, len) else {
                return false;
            };
            column.num_values() >= 0 && start.checked_add(len).is_some_and(|end| end <= bytes)
        })
}

/// A row group of a file.
pub struct Group<'a> {
    path: &'a Path,
    group: Box<dyn RowGroupReader + 'a>,
}

impl Group<'_> {
    /// How many rows it has.
    fn rows(&self) -> usize {
        usize::try_from(self.group.metadata().num_rows()).unwrap_or(0)
    }

    fn place(
        &self,
        name: &str,
        wanted: &'static str,
    ) -> Result<(usize, Physical, bool), TableError> {
        let metadata = self.group.metadata();
        let schema = metadata.schema_descr();
        let all = schema.columns().iter();
        let found = all
            .enumerate()
            .find(|(_, column)| column.path().parts() == [name] && column.max_rep_level() == 0);
        let Some((place, column)) = found else {
            return Err(TableError::Column {
                path: self.path.to_owned(),
                column: name.to_owned(),
                wanted,
            });
        };
        Ok((place, column.physical_type(), column.max_def_level() > 0))
    }

    /// The numbers of column `name`, of 32 or 64 bits, into `to`, which is emptied before. An engine
    /// may have made the column nullable or wider, but every row must have a value.
    pub fn numbers(&self, name: &str, to: &mut Vec<i64>) -> Result<(), TableError> {
        const WANTED: &str = "whole numbers";
        let (place, physical, nullable) = self.place(name, WANTED)?;
        to.clear();
        let reader = caught(|| self.group.get_column_reader(place));
        let reader = reader.map_err(|error| TableError::parquet(self.path, error))?;
        let rows = self.rows();
        let mut levels = Vec::new();
        let read = match physical {
            Physical::INT64 => caught(|| {
                let mut reader = get_typed_column_reader::<Int64Type>(reader);
                reader.read_records(rows, nullable.then_some(&mut levels), None, to)
            }),
            Physical::INT32 => caught(|| {
                let mut narrow = Vec::new();
                let mut reader = get_typed_column_reader::<Int32Type>(reader);
                let read =
                    reader.read_records(rows, nullable.then_some(&mut levels), None, &mut narrow);
                to.extend(narrow.into_iter().map(i64::from));
                read
            }),
            _ => {
                return Err(TableError::Column {
                    path: self.path.to_owned(),
                    column: name.to_owned(),
                    wanted: WANTED,
                });
            }
        };
        read.map_err(|error| TableError::parquet(self.path, error))?;
        if to.len() == rows {
            return Ok(());
        }
        let empty = levels.iter().position(|&level| level == 0);
        Err(TableError::Row {
            path: self.path.to_owned(),
            row: empty.unwrap_or(to.len()) as u64,
            what: format!("it has no '{name}'"),
        })
    }
}
