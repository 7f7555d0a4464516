//! Measures the export of a trace: `export_speed TRACE FOLDER [BUCKETS [GRANULE]]`. Prints accesses a
//! second of CPU time, all threads together, and bytes an access.

use std::path::Path;
use std::time::Instant;
use sunder_tables::{Cut, Order, Target, export};
use sunder_trace::Trace;

fn cpu_seconds() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [trace, folder, numbers @ ..] = arguments.as_slice() else {
        return Err("export_speed TRACE FOLDER [BUCKETS [GRANULE]]".into());
    };
    let number = |place: usize| numbers.get(place).map(|n| n.parse::<u64>()).transpose();
    let (buckets, granule) = (number(0)?.unwrap_or(64), number(1)?.unwrap_or(64));
    let cut = Cut::new(granule, buckets as u32).ok_or("no such cut")?;
    let trace = Trace::open(Path::new(trace))?;
    let target = Target::create(Path::new(folder), cut)?;
    let begin = (Instant::now(), cpu_seconds());
    let done = export(&trace, target, Order::Parallel, &|_| {})?;
    let (wall, cpu) = (begin.0.elapsed().as_secs_f64(), cpu_seconds() - begin.1);
    let accesses = done.accesses as f64;
    println!(
        "{:.1} million accesses, {:.2} bytes each: {:.1} s, {:.1} s of CPU time, {:.2} million a second of it",
        accesses / 1e6,
        done.bytes as f64 / accesses,
        wall,
        cpu,
        accesses / 1e6 / cpu
    );
    Ok(())
}
