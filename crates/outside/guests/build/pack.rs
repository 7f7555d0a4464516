//! Packs the guests for the program that carries them: one compressed frame, since they have much
//! in common, such as Rust's library, and the place of each within. That is a sixth of their bytes.
//! Those that programs wait for at their start are carried as they are: to unpack two took 2.5 ms.

use std::env;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// Writes the frame `guests.zst` and the table of places `places.rs` into `out`, from the files
/// there, each with the name of its constant. What is unpacked most often comes first, as a frame
/// is unpacked from its start.
///
/// The `plain` files are not packed, and the table has the bytes of each.
pub fn pack(out: &Path, plain: &[(&str, &str)], files: &[(&str, &str)]) {
    let [all, packed, places] =
        ["guests.all", "guests.zst", "places.rs"].map(|name| out.join(name));
    let mut bytes = Vec::new();
    let mut table = String::new();
    for (constant, name) in plain {
        let file = out.join(name);
        let _ = writeln!(
            table,
            "/// `{name}` as it is.\npub static {constant}: &[u8] = include_bytes!({file:?});"
        );
    }
    for (constant, name) in files {
        let from = bytes.len();
        let file = fs::read(out.join(name)).unwrap_or_else(|e| panic!("cannot read {name}: {e}"));
        bytes.extend(file);
        let _ = writeln!(
            table,
            "/// Where `{name}` is.\npub const {constant}: Range<usize> = {from}..{};",
            bytes.len()
        );
    }
    let write = |file: &Path, bytes: &[u8]| {
        fs::write(file, bytes).unwrap_or_else(|e| panic!("cannot write {}: {e}", file.display()));
    };
    write(&places, table.as_bytes());
    write(&all, &bytes);

    let program = out.join("pack");
    let source =
        Path::new(&env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("build/pack.c");
    let mut cc = Command::new("cc");
    cc.arg("-O2").arg(source).arg("-o").arg(&program);
    let root = env::var_os("DEP_ZSTD_ROOT").map(|root| Path::new(&root).join("libzstd.a"));
    match root.filter(|library| library.exists()) {
        Some(library) => cc.arg(library),
        // The system's.
        None => cc.arg("-lzstd"),
    };
    crate::run(cc.arg("-pthread"));
    // The highest level takes seconds, which only what others install is worth.
    let shipped = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let open = |result: std::io::Result<File>| result.expect("cargo's folder can be used");
    crate::run(
        Command::new(program)
            .arg(if shipped { "19" } else { "3" })
            .stdin(open(File::open(&all)))
            .stdout(open(File::create(&packed))),
    );
    let _ = fs::remove_file(all);
}
