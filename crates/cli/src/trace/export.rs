//! `sunder trace export`: writes a trace as tables, for other engines and for replays on a cluster.

use crate::args::Export;
use crate::output::note;
use crate::{confined, progress};
use anyhow::{Context, Result};
use sunder_replay::open;
use sunder_tables::{Cut, MAX_BUCKETS, Target, export};

/// Writes the tables.
///
/// # Errors
/// If the file is no trace, or the tables can't be written.
pub fn run(options: &Export) -> Result<u8> {
    let cut = Cut::new(options.granule, options.buckets).with_context(|| {
        format!(
            "a trace can't be cut into {} buckets by lines of {} bytes: 1 to {MAX_BUCKETS} buckets, and a \
             power of two from 8 to 1048576 bytes",
            options.buckets, options.granule
        )
    })?;
    // All files are open before others' bytes are read, but for those that a long trace needs beside.
    let target = Target::create(&options.output, cut)?;
    let may = confined::to_files_and_new_ones(&options.output);
    let target = target.may_make_files(may);
    let trace = open(&options.file, None)?;
    let events = trace.threads().iter().map(|thread| thread.events).sum();
    let reading = progress::of_replays(options.quiet).reading(1, events);
    let show = |events: usize| reading.add(events as u64);
    let done = export(&trace, target, options.order.into(), &show)?;
    drop(reading);
    let each = |bytes: u64| bytes as f64 / done.accesses.max(1) as f64;
    note(&format!(
        "{}: {} accesses in {} rows, {:.1} bytes an access, and {} KiB beside them",
        options.output.display(),
        done.accesses,
        done.rows,
        each(done.bytes),
        done.beside >> 10
    ));
    if let Some(why) = done.partial {
        note(&format!(
            "{} is partial: {why}; what is readable was written",
            options.file.display()
        ));
    }
    Ok(0)
}
