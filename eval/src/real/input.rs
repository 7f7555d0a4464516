//! The inputs of the real programs, the same on every machine: text, a film, a query, sources. Made
//! anew for every benchmark.

use crate::limited::Folder;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use sunder_workloads::given;

const TEXT_BYTES: usize = 16_000_000;
const FRAMES: usize = 60;
const ROUNDS_OF_PYTHON: u32 = 600;

const QUERY: &str = "pragma threads=2;
create table t(a integer, b text);
with recursive n(i) as (values(1) union all select i+1 from n where i<400000)
  insert into t select (i*2654435761)%1000003, 'row '||i from n;
create index x on t(b, a);
select count(*), sum(a), min(b), max(b) from t;
select a, b from t order by a*7%1009, b limit 20;
";

const RUST: &str = "use std::collections::BTreeMap;
fn main() {
    let mut words: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for i in 0..1000u64 { words.entry(format!(\"{}\", i % 37)).or_default().push(i * i); }
    for (word, all) in &words { println!(\"{word}: {}\", all.iter().sum::<u64>()); }
}
";

/// Makes the folder of inputs and the programs of our own in it.
///
/// # Errors
/// If they can't be written or compiled.
pub fn prepare() -> Result<Folder> {
    let made = Folder::new()?;
    let folder = made.path();
    fs::write(folder.join("text"), given::text(TEXT_BYTES))?;
    fs::write(folder.join("video.y4m"), given::film(FRAMES))?;
    fs::write(folder.join("query.sql"), QUERY)?;
    fs::write(folder.join("threads.py"), given::python(ROUNDS_OF_PYTHON))?;
    fs::write(folder.join("program.rs"), RUST)?;
    sources(folder)?;
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cli/tests/programs/sqlite_threads.c");
    let compiled = Command::new("gcc")
        .args(["-O2", "-g", "-pthread", "-o"])
        .arg(folder.join("sqlite_threads"))
        .arg(source)
        .arg("-lsqlite3")
        .status()
        .context("cannot run gcc")?;
    ensure!(
        compiled.success(),
        "sqlite_threads does not compile; libsqlite3-dev is needed"
    );
    Ok(made)
}

fn sources(folder: &Path) -> Result<()> {
    let mut declared = String::new();
    for i in 0..4 {
        writeln!(declared, "int part{i}(int n);")?;
        let source = format!(
            "#include <stdio.h>\n#include <string.h>\nint part{i}(int n) {{\n    char b[256];\n    \
             int s = 0;\n    for (int k = 0; k < n; k++) {{\n        snprintf(b, sizeof b, \"%d\", \
             k * {i});\n        s += (int)strlen(b);\n    }}\n    return s;\n}}\n"
        );
        fs::write(folder.join(format!("part{i}.c")), source)?;
    }
    let main = "int main(void) { return (part0(5) + part1(6) + part2(7) + part3(8)) & 1; }\n";
    fs::write(folder.join("main.c"), declared + main)?;
    Ok(())
}
