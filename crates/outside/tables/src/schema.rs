//! Which tables there are, with which columns, and what each column is. `schema.md`, which every
//! export has, is made from this.

use crate::about::{FORMAT, VERSION};
use crate::row::RowKind;
use crate::table::{Column, Holds, Packed};
use std::fmt::Write as _;

const fn column(name: &'static str, holds: Holds, packed: Packed, is: &'static str) -> Column {
    Column {
        name,
        holds,
        packed,
        is,
    }
}

/// The columns of the accesses. How each is written was measured: see `docs/design/tables.md`.
pub const ACCESSES: [Column; 10] = [
    column(
        "ord",
        Holds::Long,
        Packed::Differences,
        "place in the order of the whole trace: unique, rising in every file",
    ),
    column(
        "time",
        Holds::Long,
        Packed::Differences,
        "nanoseconds in that order; in the parallel order an access takes one",
    ),
    column(
        "thread",
        Holds::Int,
        Packed::Dictionary,
        "the thread, `threads.thread`",
    ),
    column("address", Holds::Long, Packed::Dictionary, "the first byte"),
    column(
        "size",
        Holds::Int,
        Packed::Dictionary,
        "bytes, all in one line",
    ),
    column(
        "kind",
        Holds::Int,
        Packed::Dictionary,
        "what it does, see below",
    ),
    column(
        "rest",
        Holds::Int,
        Packed::Dictionary,
        "1 or 2: the rest of the access with the `ord` before, which crossed the end of a line or of 512 \
         bytes; 2 if that began in a heap block; else 0",
    ),
    column(
        "instruction",
        Holds::Long,
        Packed::Dictionary,
        "address of the instruction",
    ),
    column(
        "block",
        Holds::Long,
        Packed::Dictionary,
        "the heap block that was live there, `blocks.block`; 0: none",
    ),
    column(
        "site",
        Holds::Int,
        Packed::Dictionary,
        "the call stack that allocated it, `sites.site`; 0: none or unknown",
    ),
];

/// The columns of the heap blocks.
pub const BLOCKS: [Column; 11] = [
    column(
        "block",
        Holds::Long,
        Packed::Differences,
        "its number, from 1 in the order of allocation",
    ),
    column("address", Holds::Long, Packed::Split, "its first byte"),
    column("size", Holds::Long, Packed::Dictionary, "requested bytes"),
    column(
        "align",
        Holds::Long,
        Packed::Dictionary,
        "requested alignment; 1: none; -1: not recorded",
    ),
    column(
        "thread",
        Holds::Int,
        Packed::Dictionary,
        "the thread that allocated it",
    ),
    column(
        "site",
        Holds::Int,
        Packed::Dictionary,
        "the call stack that allocated it, `sites.site`; 0: unknown",
    ),
    column(
        "allocated",
        Holds::Long,
        Packed::Differences,
        "`ord` of the allocation",
    ),
    column(
        "allocated_time",
        Holds::Long,
        Packed::Differences,
        "its time",
    ),
    column(
        "freed",
        Holds::Long,
        Packed::Split,
        "`ord` of the free; -1: never",
    ),
    column(
        "freed_time",
        Holds::Long,
        Packed::Split,
        "its time; -1: never",
    ),
    column(
        "replaced",
        Holds::Long,
        Packed::Split,
        "`ord` of the first later block that took some of its bytes; -1: none",
    ),
];

/// The columns of the call sites.
pub const SITES: [Column; 5] = [
    column(
        "site",
        Holds::Int,
        Packed::Dictionary,
        "number of a call stack that allocated something",
    ),
    column(
        "depth",
        Holds::Int,
        Packed::Dictionary,
        "frame of it, from 0 for the innermost",
    ),
    column(
        "address",
        Holds::Long,
        Packed::Dictionary,
        "return address of the frame",
    ),
    column(
        "module",
        Holds::Text,
        Packed::Dictionary,
        "file that the address lies in; empty: none",
    ),
    column(
        "offset",
        Holds::Long,
        Packed::Dictionary,
        "address less `modules.base` of that file, as `addr2line -e FILE` takes it",
    ),
];

/// The columns of the threads.
pub const THREADS: [Column; 7] = [
    column(
        "thread",
        Holds::Int,
        Packed::Dictionary,
        "its number in the trace, from 1 in the order of creation",
    ),
    column(
        "id",
        Holds::Long,
        Packed::Dictionary,
        "its number in results",
    ),
    column("tid", Holds::Int, Packed::Dictionary, "the kernel's number"),
    column(
        "creator",
        Holds::Int,
        Packed::Dictionary,
        "the thread that created it; 0: unknown",
    ),
    column(
        "started",
        Holds::Long,
        Packed::Dictionary,
        "`ord` of its start; -1: not recorded",
    ),
    column(
        "ended",
        Holds::Long,
        Packed::Dictionary,
        "`ord` of its end; -1: not recorded",
    ),
    column("accesses", Holds::Long, Packed::Dictionary, "its accesses"),
];

/// The columns of the loaded files.
pub const MODULES: [Column; 8] = [
    column(
        "since",
        Holds::Long,
        Packed::Dictionary,
        "time of the list that it is in, in nanoseconds as recorded",
    ),
    column("path", Holds::Text, Packed::Dictionary, "the file"),
    column(
        "build_id",
        Holds::Text,
        Packed::Dictionary,
        "its build id, hexadecimal; empty: none",
    ),
    column(
        "base",
        Holds::Long,
        Packed::Dictionary,
        "what is added to the file's own addresses",
    ),
    column(
        "start",
        Holds::Long,
        Packed::Dictionary,
        "first address of a segment",
    ),
    column(
        "bytes",
        Holds::Long,
        Packed::Dictionary,
        "its bytes in memory",
    ),
    column(
        "file_offset",
        Holds::Long,
        Packed::Dictionary,
        "where it begins in the file",
    ),
    column(
        "flags",
        Holds::Int,
        Packed::Dictionary,
        "1 execute, 2 write, 4 read",
    ),
];

/// The columns of synchronisation.
pub const SYNCHRONISATION: [Column; 5] = [
    column(
        "ord",
        Holds::Long,
        Packed::Differences,
        "place in the order of the whole trace",
    ),
    column(
        "time",
        Holds::Long,
        Packed::Differences,
        "nanoseconds in that order",
    ),
    column("thread", Holds::Int, Packed::Dictionary, "the thread"),
    column(
        "kind",
        Holds::Text,
        Packed::Dictionary,
        "what it did, as `sunder trace dump` says it",
    ),
    column(
        "object",
        Holds::Long,
        Packed::Dictionary,
        "address of the object",
    ),
];

/// The text of `schema.md` for a trace that was cut into `buckets` buckets of lines of `granule`
/// bytes, in the order called `order`.
pub fn describe(granule: u64, buckets: u32, order: &str) -> String {
    let mut text = format!(
        "# A trace as tables\n\n\
         Written by `sunder trace export` ({FORMAT} {VERSION}). The accesses are in {buckets} folders \
         `bucket=NN`, one for each hash of the line of {granule} bytes. All accesses to a line are in \
         one bucket. In each file `ord` rises, and a replay needs that: write a bucket again with an \
         engine only in the order of `ord`. A bucket of a long trace has further files: \
         `accesses-0002.parquet` and so on.\n\n\
         The order is the {order} one. `ord` numbers all events of the trace, also those in \
         `synchronisation` and `blocks`. Addresses of 2^63 and more are negative. No column is ever \
         null. `trace.json` has what a replay of a bucket must know of the whole trace.\n"
    );
    let tables: [(&str, &str, &[Column]); 6] = [
        ("bucket=NN/accesses.parquet", "The accesses", &ACCESSES),
        ("blocks.parquet", "Heap blocks", &BLOCKS),
        ("sites.parquet", "Call stacks of allocations", &SITES),
        ("threads.parquet", "Threads", &THREADS),
        (
            "modules.parquet",
            "Loaded files, a row for each segment",
            &MODULES,
        ),
        (
            "synchronisation.parquet",
            "Locks, barriers and the like",
            &SYNCHRONISATION,
        ),
    ];
    for (file, title, columns) in tables {
        // Writing to a string can't fail.
        let _ = write!(
            text,
            "\n## {title}: `{file}`\n\n| column | type | is |\n|---|---|---|\n"
        );
        for column in columns {
            let holds = match column.holds {
                Holds::Int => "int32",
                Holds::Long => "int64",
                Holds::Text => "text",
            };
            let _ = writeln!(text, "| `{}` | {holds} | {} |", column.name, column.is);
        }
    }
    text.push_str("\nKinds of accesses:\n\n| number | is |\n|---|---|\n");
    for (kind, name) in RowKind::ALL {
        let _ = writeln!(text, "| {} | {name} |", kind as i32);
    }
    text
}
