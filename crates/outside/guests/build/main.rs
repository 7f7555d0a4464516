//! Builds the libraries of `crates/inside` and puts them where `lib.rs` includes them: those
//! that are loaded or injected into a target, and the runtime of instrumented programs, which
//! `sunder-record` links. One `cargo run` so yields one self-contained program.
//!
//! Cargo builds all guests in one invocation, in a folder beside those of the
//! outer build's profiles. All profiles, lints and tests share that folder, since the guests
//! are the same for all of them. It must not be the outer build's own folder: the nested cargo
//! would wait forever for the lock that the outer one holds.

mod c_library;
mod carried;
mod pack;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{env, fs, process::Command};

/// A library that runs inside other programs.
struct Guest {
    package: &'static str,
    file: &'static str,
    /// The environment variable that names a library that was built before; it is then used as
    /// it is.
    variable: &'static str,
}

/// The profile of what is loaded or linked: all crates of a guest are optimized together with the
/// standard library. So a guest has no code that it can't reach, needs fewer functions of the
/// target's C library, and its fast paths, which run for each allocation or access, are inlined.
/// The worker of `isolate` may call nothing outside of its library at all
/// (`crates/cli/tests/isolate/handler.rs`).
const PROFILE: &str = "guest";

const GUESTS: &[Guest] = &[
    Guest {
        package: "sunder-runtime",
        file: "libsunder_runtime.so",
        variable: "SUNDER_RUNTIME",
    },
    Guest {
        package: "sunder-heap",
        file: "libsunder_heap.so",
        variable: "SUNDER_HEAP_LIBRARY",
    },
    Guest {
        package: "sunder-tracer",
        file: TRACER,
        variable: "SUNDER_TRACER",
    },
    Guest {
        package: "sunder-emulator",
        file: "libsunder_emulator.so",
        variable: "SUNDER_EMULATOR",
    },
    Guest {
        package: "sunder-announce",
        file: "libsunder_announce.so",
        variable: "SUNDER_ANNOUNCE",
    },
    Guest {
        package: "sunder-isolate",
        file: "libsunder_isolate.so",
        variable: "SUNDER_ISOLATION",
    },
    Guest {
        package: "sunder-remap",
        file: "libsunder_remap.so",
        variable: "SUNDER_REMAP_LIBRARY",
    },
];

/// What guests are built for, whatever the program itself is linked with: most targets use glibc.
const MACHINE: &str = "x86_64-unknown-linux-gnu";

const TRACER: &str = "libsunder_tracer.a";

/// What `lib.rs` finds as it is, by the names of its constants: what most programs wait for at their
/// start.
const PLAIN: &[(&str, &str)] = &[
    ("RUNTIME", "libsunder_runtime.so"),
    ("ISOLATE", "libsunder_isolate.so"),
];

/// What it finds packed, in the order in which it is packed.
const PACKED: &[(&str, &str)] = &[
    ("INJECTED", "libsunder_injected.so"),
    ("REMAP", "libsunder_remap.so"),
    ("HEAP", "libsunder_heap.so"),
    ("ANNOUNCE", "libsunder_announce.so"),
    ("EMULATOR", "libsunder_emulator.so"),
    ("TRACER", "sunder_tracer.o"),
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    // Documentation is made without a network, and nobody runs what is built for it.
    if env::var_os("DOCS_RS").is_some() {
        for (_, file) in PLAIN.iter().chain(PACKED) {
            fs::write(out.join(file), []).expect("cargo's folder can be written");
        }
        pack::pack(&out, PLAIN, PACKED);
        return;
    }
    let carried = carried::unpack(&here, &out);
    let workspace = match &carried {
        Some(unpacked) => unpacked.as_path(),
        None => here
            .ancestors()
            .nth(3)
            .expect("it lies in crates/outside/guests"),
    };
    let target = shared(&out).join("guests");
    for file in [
        "main.rs",
        "carried.rs",
        "c_library.rs",
        "pack.rs",
        "pack.c",
        "glibc.txt",
        "missing.c",
    ] {
        println!("cargo::rerun-if-changed=build/{file}");
    }
    let missing: Vec<&Guest> = GUESTS
        .iter()
        .filter(|guest| ready(guest.variable).is_none())
        .collect();
    if !missing.is_empty() {
        let stand_ins = target.join("c-library");
        c_library::make(&stand_ins);
        let stand_ins = format!("-Lnative={}", stand_ins.display());
        // What is in none of them must not be used: the loader would refuse the library.
        let flags = [stand_ins.as_str(), "-Clink-arg=-Wl,-z,defs"];
        let mut cargo = nested(workspace, &target, PROFILE, &flags);
        take_zstandard(&mut cargo, &target);
        for guest in missing {
            cargo.args(["-p", guest.package]);
        }
        run(&mut cargo);
    }
    for guest in GUESTS {
        let library = ready(guest.variable).unwrap_or_else(|| {
            let library = target.join(MACHINE).join(PROFILE).join(guest.file);
            rerun_with_sources(workspace, &library);
            library
        });
        if guest.file == TRACER {
            let exports = workspace.join("crates/inside/tracer/exports.txt");
            println!("cargo::rerun-if-changed={}", exports.display());
            one_object(&library, &exports, &out.join("sunder_tracer.o"));
        } else {
            copy(&library, &out.join(guest.file));
        }
    }

    let injected = ready("SUNDER_INJECTED_LIBRARY").unwrap_or_else(|| {
        run(&mut injected(workspace, &target));
        let library = target.join(MACHINE).join("injected/libsunder_remap.so");
        rerun_with_sources(workspace, &library);
        library
    });
    copy(&injected, &out.join("libsunder_injected.so"));
    pack::pack(&out, PLAIN, PACKED);
}

/// The folder that holds the folders of profiles: `target` unless configured otherwise. It is
/// the build script's own folder `out` if cargo uses another layout.
fn shared(out: &Path) -> PathBuf {
    let builds = out.ancestors().find(|folder| folder.ends_with("build"));
    let target = builds.and_then(|builds| builds.parent()?.parent());
    target.unwrap_or(out).to_path_buf()
}

/// Makes a nested build link the Zstandard that the outer build has compiled: its C code is a
/// tenth of all the work. Cargo allows configuration to replace the output of a build script.
///
/// The library is copied to a folder that is named after its contents. Builds of several
/// profiles that compile it with the same flags then do not invalidate each other's guests.
fn take_zstandard(cargo: &mut Command, target: &Path) {
    let [machine, host] = ["TARGET", "HOST"].map(|name| env::var(name).expect("cargo sets it"));
    // There is no such file if the system's library is used.
    let root = env::var_os("DEP_ZSTD_ROOT").map(PathBuf::from);
    let library = root.and_then(|root| fs::read(root.join("libzstd.a")).ok());
    let Some(library) = library.filter(|_| machine == host) else {
        return;
    };
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let folder = target.join(format!("zstandard-{:016x}", hasher.finish()));
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(folder.join("libzstd.a"), library))
        .unwrap_or_else(|e| panic!("cannot write into {}: {e}", folder.display()));
    let search = format!("native={}", folder.display());
    let key = format!("target.{machine}.zstd");
    cargo.args(["--config", &format!("{key}.rustc-link-lib=['static=zstd']")]);
    cargo.args(["--config", &format!("{key}.rustc-link-search=[{search:?}]")]);
}

/// The path of a library that was built before, if the variable is set.
fn ready(variable: &str) -> Option<PathBuf> {
    println!("cargo::rerun-if-env-changed={variable}");
    env::var_os(variable).map(PathBuf::from)
}

/// Makes cargo run this script again if a source file of `library` changes, and only then:
/// after each run the whole program is compiled again. The sources are those that cargo lists
/// beside the library, and the manifests of their crates; not those that a package carries,
/// which never change, and whose copies are as new as the last run.
fn rerun_with_sources(workspace: &Path, library: &Path) {
    let list = library.with_extension("d");
    let text = fs::read_to_string(&list)
        .unwrap_or_else(|e| panic!("cannot read the list of sources {}: {e}", list.display()));
    let (_, sources) = text.split_once(": ").expect("`library: source source ...`");
    let mut changed = BTreeSet::from([workspace.join("Cargo.toml"), workspace.join("Cargo.lock")]);
    // Cargo escapes a space within a path.
    for source in sources.trim_end().replace("\\ ", "\0").split(' ') {
        let source = PathBuf::from(source.replace('\0', " "));
        let manifests = source.ancestors().map(|folder| folder.join("Cargo.toml"));
        changed.extend(manifests.into_iter().find(|manifest| manifest.exists()));
        changed.insert(source);
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for file in changed.iter().filter(|file| !file.starts_with(&out)) {
        println!("cargo::rerun-if-changed={}", file.display());
    }
}

fn copy(library: &Path, to: &Path) {
    fs::copy(library, to)
        .unwrap_or_else(|e| panic!("cannot copy the library {}: {e}", library.display()));
}

/// Links the archive into one object that shows only the symbols in `exports`: a program may
/// have another Zstandard or Rust library of its own.
fn one_object(archive: &Path, exports: &Path, to: &Path) {
    let list = fs::read_to_string(exports).expect("the list of exports can be read");
    let whole = to.with_extension("whole.o");
    let mut ld = Command::new("ld");
    // Section groups are dissolved: a linker keeps only one of several groups with the same
    // name, and would drop ours where another Rust library has it too.
    ld.args(["-r", "--gc-sections", "--force-group-allocation", "-o"])
        .arg(&whole);
    for name in list.lines().filter(|l| !l.starts_with('#')) {
        ld.args(["-u", name]);
    }
    run(ld.arg(archive));
    let mut objcopy = Command::new("objcopy");
    objcopy
        .arg("--strip-debug")
        .arg("--keep-global-symbols")
        .arg(exports);
    run(objcopy.arg(&whole).arg(to));
    let _ = fs::remove_file(whole);
}

fn run(command: &mut Command) {
    let status = command
        .status()
        .unwrap_or_else(|e| panic!("cannot run {command:?}: {e} (ld and objcopy are in binutils)"));
    assert!(status.success(), "{command:?} failed");
}

/// The build of the library that is written into the memory of a running program, where each
/// page counts: without the standard library, and without unwind tables, as no unwinder could
/// find them there.
fn injected(workspace: &Path, target: &Path) -> Command {
    let mut cargo = nested(workspace, target, "injected", &["-Cforce-unwind-tables=no"]);
    cargo.args(["-p", "sunder-remap", "--no-default-features"]);
    cargo
}

/// A nested build with a profile of the workspace and further flags for the compiler.
fn nested(workspace: &Path, target: &Path, profile: &str, flags: &[&str]) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"));
    cargo
        .args(["build", "--profile", profile, "--manifest-path"])
        .arg(workspace.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        // With a target named, the flags do not apply to build scripts, which run here, with this
        // machine's C library and unwinder.
        .args(["--target", MACHINE]);
    // Flags that are meant for the outer build (sanitizers, coverage, clippy's wrapper) must
    // not apply to code that is loaded into other programs.
    for inherited in [
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_BUILD_TARGET",
        "CLIPPY_ARGS",
    ] {
        cargo.env_remove(inherited);
    }
    // The same libraries come from every folder.
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(env::home_dir()?.join(".cargo")));
    let home = home.map(|home| format!("--remap-path-prefix={}=/cargo", home.display()));
    let here = format!("--remap-path-prefix={}=/sunder", workspace.display());
    let remapped = home.iter().chain([&here]).map(String::as_str);
    let all: Vec<&str> = flags.iter().copied().chain(remapped).collect();
    cargo.env("CARGO_ENCODED_RUSTFLAGS", all.join("\u{1f}"));
    cargo
}
