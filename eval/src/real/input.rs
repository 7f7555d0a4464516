//! The inputs of the real programs, the same on every machine: text, a film, a
//! query, sources. Made anew for every benchmark.

use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Numbers without a pattern (Knuth's MMIX constants).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }
}

const TEXT_BYTES: usize = 16_000_000;

const QUERY: &str = "pragma threads=2;
create table t(a integer, b text);
with recursive n(i) as (values(1) union all select i+1 from n where i<400000)
  insert into t select (i*2654435761)%1000003, 'row '||i from n;
create index x on t(b, a);
select count(*), sum(a), min(b), max(b) from t;
select a, b from t order by a*7%1009, b limit 20;
";

const PYTHON: &str = "import hashlib, threading, zlib
out = [None] * 4
def work(n):
    digest = hashlib.sha256()
    for i in range(600):
        digest.update(zlib.compress(bytes((i * j + n) % 251 for j in range(4000)) * 20, 6))
    out[n] = digest.hexdigest()
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(*out, sep='\\n')
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
pub fn prepare() -> Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("sunder-real-{}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(folder.join("text"), text())?;
    fs::write(folder.join("video.y4m"), video())?;
    fs::write(folder.join("query.sql"), QUERY)?;
    fs::write(folder.join("threads.py"), PYTHON)?;
    fs::write(folder.join("program.rs"), RUST)?;
    sources(&folder)?;
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
    Ok(folder)
}

fn text() -> Vec<u8> {
    let mut numbers = Numbers(20_261_121);
    let mut all = String::with_capacity(TEXT_BYTES + 200);
    while all.len() < TEXT_BYTES {
        for _ in 0..8 {
            let number = u64::from(numbers.next() % 5000);
            let _ = write!(all, "{} ", number * number);
        }
        all.push('\n');
    }
    all.into_bytes()
}

/// Sixty frames of noise that moves.
fn video() -> Vec<u8> {
    const WIDTH: usize = 320;
    const HEIGHT: usize = 176;
    let mut numbers = Numbers(5);
    let noise: Vec<u8> = (0..WIDTH * HEIGHT * 2)
        .map(|_| numbers.next() as u8)
        .collect();
    let mut all = format!("YUV4MPEG2 W{WIDTH} H{HEIGHT} F25:1 C420\n").into_bytes();
    for frame in 0..60usize {
        all.extend_from_slice(b"FRAME\n");
        all.extend_from_slice(&noise[frame * 7..frame * 7 + WIDTH * HEIGHT]);
        all.resize(all.len() + WIDTH * HEIGHT / 2, 128 + frame as u8);
    }
    all
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
