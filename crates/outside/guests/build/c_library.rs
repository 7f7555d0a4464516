//! Stand-ins for glibc, against which guests are linked in place of the build machine's own. A
//! linker takes the newest version of each symbol that it finds, and a library with such symbols is
//! refused by each older glibc, in a container for example. The stand-ins have the versions of
//! `glibc.txt` alone. They are for the linker: nothing in them is ever executed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Symbol, version and library, each line.
const TABLE: &str = include_str!("glibc.txt");

/// What old versions of glibc lack.
const MISSING: &str = include_str!("missing.c");

/// The stand-ins, by the name for `-l`, with the names that the loader looks for.
const LIBRARIES: [(&str, &str); 3] = [
    ("c", "libc.so.6"),
    ("pthread", "libpthread.so.0"),
    ("dl", "libdl.so.2"),
];

/// Makes the stand-ins in `folder`, which is created. A folder in which they are is left alone.
pub fn make(folder: &Path) {
    let done = folder.join("done");
    if fs::read_to_string(&done).is_ok_and(|was| was == contents()) {
        return;
    }
    fs::create_dir_all(folder).unwrap_or_else(|e| panic!("cannot make {}: {e}", folder.display()));
    let write = |name: &str, text: &str| {
        let file = folder.join(name);
        fs::write(&file, text).unwrap_or_else(|e| panic!("cannot write {}: {e}", file.display()));
        file
    };
    for (name, loaded) in LIBRARIES {
        let (code, map) = stand_in(name);
        let code = write(&format!("{name}.s"), &code);
        let map = write(&format!("{name}.map"), &map);
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-nostdlib", &format!("-Wl,-soname,{loaded}")])
            .arg(format!("-Wl,--version-script,{}", map.display()))
            .arg(code)
            .arg("-o");
        // `libc.so` is what `-lc` finds: the stand-in, and what it lacks.
        let file = if name == "c" {
            loaded.into()
        } else {
            format!("lib{name}.so")
        };
        crate::run(cc.arg(folder.join(file)));
    }
    let mut cc = Command::new("cc");
    cc.args(["-c", "-O2", "-fPIC", "-fno-stack-protector"]);
    cc.arg(write("missing.c", MISSING));
    crate::run(cc.arg("-o").arg(folder.join("missing.o")));
    let both = ["missing.o", "libc.so.6"].map(|name| folder.join(name).display().to_string());
    write("libc.so", &format!("INPUT({})\n", both.join(" ")));
    write("done", &contents());
}

fn contents() -> String {
    format!("{TABLE}{MISSING}")
}

/// The assembly and the version script of one library.
fn stand_in(library: &str) -> (String, String) {
    let mut versions: BTreeMap<Vec<u32>, Vec<&str>> = BTreeMap::new();
    let mut code = String::from(".section .note.GNU-stack,\"\",@progbits\n.data\n");
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let [symbol, version, at] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("glibc.txt: `{line}` is not: symbol version library");
        };
        if at != library {
            continue;
        }
        let numbers = version.split('.').map(|n| n.parse().expect("a number"));
        versions.entry(numbers.collect()).or_default().push(symbol);
        // `environ` is a variable, and the only one.
        let kind = if symbol == "environ" {
            "object"
        } else {
            "function"
        };
        let _ = writeln!(
            code,
            ".globl {symbol}\n.type {symbol},@{kind}\n.size {symbol},8\n{symbol}: .quad 0"
        );
    }
    let mut map = String::new();
    for (version, symbols) in versions {
        let numbers: Vec<String> = version.iter().map(u32::to_string).collect();
        let all = symbols.join("; ");
        let _ = writeln!(map, "GLIBC_{} {{ {all}; }};", numbers.join("."));
    }
    (code, map)
}
