//! `contrib/release/packing-cc`: a program that is linked by it has a grammar's tables as another linker leaves
//! them, and its file is much smaller.

use super::{run, said, script};
use crate::support::installed;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Prints a number that depends on every byte of the three grammars' large tables.
const PROGRAM: &str = r#"
#include <stdint.h>
#include <stdio.h>
/* As in tree_sitter/parser.h, of the versions 14 and 15 of its binary interface. */
struct language {
    uint32_t version, symbols, aliases, tokens, external, states, large, productions, fields;
    uint16_t longest;
    const uint16_t *table, *small;
    const uint32_t *map;
};
extern const struct language *tree_sitter_c(void), *tree_sitter_cpp(void), *tree_sitter_rust(void);
static void say(const struct language *it) {
    uint64_t sum = it->version;
    for (size_t i = 0; i < (size_t)it->large * it->symbols; i++) sum = sum * 31 + it->table[i];
    for (size_t i = 0; i < it->states - it->large; i++) sum = sum * 31 + it->map[i] + it->small[it->map[i]];
    printf("%u %u %llx\n", it->version, it->states, (unsigned long long)sum);
}
int main(void) {
    say(tree_sitter_c());
    say(tree_sitter_cpp());
    say(tree_sitter_rust());
    say(tree_sitter_cpp());
}
"#;

/// The newest file in the folders `folders` whose name begins with `begin` and ends with `end`.
fn newest(folders: &[PathBuf], begin: &str, end: &str) -> Option<PathBuf> {
    let files = folders.iter().flat_map(fs::read_dir).flatten().flatten();
    let files = files.filter(|file| {
        let name = file.file_name();
        let name = name.to_string_lossy();
        name.starts_with(begin) && name.ends_with(end)
    });
    let newest = files.max_by_key(|file| file.metadata().and_then(|m| m.modified()).ok());
    newest.map(|file| file.path())
}

#[test]
fn grammars_are_the_same_after_they_were_packed() {
    if installed::installed("zstd").is_none() {
        return;
    }
    // Those that the program under test was linked from.
    let profile = Path::new(env!("CARGO_BIN_EXE_sunder")).parent();
    let profile = profile.expect("it lies in a folder");
    let mut libraries = Vec::new();
    for grammar in ["c", "cpp", "rust"] {
        let begin = format!("libtree_sitter_{grammar}-");
        libraries.extend(newest(&[profile.join("deps")], &begin, ".rlib"));
    }
    let builds = fs::read_dir(profile.join("build")).expect("cargo's folder");
    let builds: Vec<PathBuf> = builds.flatten().map(|b| b.path().join("out")).collect();
    let zstandard = newest(&builds, "libzstd.a", "");
    let (3, Some(zstandard)) = (libraries.len(), zstandard) else {
        println!("SKIP: cargo keeps its files elsewhere; no grammar was packed");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("grammars.c");
    fs::write(&source, PROGRAM).expect("written");
    let made = |linker: &mut Command, name: &str| {
        let file = folder.path().join(name);
        let out = run(linker
            .arg(&source)
            .arg("-o")
            .arg(&file)
            .args(&libraries)
            .arg(&zstandard));
        assert!(out.status.success(), "{}", said(&out));
        let out = run(Command::new("strip").arg(&file));
        assert!(out.status.success(), "{}", said(&out));
        let says = said(&run(&mut Command::new(&file)));
        (says, fs::metadata(&file).expect("it was made").len())
    };
    let (plain, large) = made(&mut Command::new("cc"), "plain");
    let (packed, small) = made(&mut script("packing-cc"), "packed");
    assert_eq!(plain.lines().count(), 4, "{plain}");
    assert_eq!(packed, plain);
    // Parse tables are mostly runs of the same numbers; functions are left as they are.
    assert!(small < large / 2, "{small} of {large} bytes");
}
