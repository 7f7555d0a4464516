//! The suites that are known: of what units each consists, and how a unit is run with a command of
//! ours before the program under test.

use crate::limited::Folder;
use crate::modes::Mode;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// A suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// CPython's own tests of what has threads, processes and signals
    Python,
    /// Go's tests of its runtime, locks, signals and cgo
    Go,
    /// Node's tests of worker threads
    Node,
    /// The samples of jcstress, each with Java virtual machines under the command
    Java,
    /// Redis' tests, each with servers under the command
    Redis,
    /// Memcached's tests, each with servers under the command
    Memcached,
}

/// The units of a suite.
pub struct Suite {
    /// What is tested, for the record.
    pub what: String,
    pub units: Vec<Unit>,
}

/// What is run at once: a module, a package, a file.
pub struct Unit {
    pub name: String,
    /// Where it is run.
    folder: Folders,
    words: Vec<String>,
    environment: Vec<(String, String)>,
    /// Whether the command is put before a server that the words start, not before the words.
    is_of_a_server: bool,
    /// A unit that runs longer hangs.
    pub limit: Duration,
}

/// Where a unit runs, and what is to live as long.
#[derive(Clone)]
enum Folders {
    At(PathBuf),
    Own(Arc<Folder>),
}

impl Folders {
    fn path(&self) -> &Path {
        match self {
            Self::At(path) => path,
            Self::Own(folder) => folder.path(),
        }
    }
}

/// Names the words that the script in a server's place executes before the server.
const BEFORE: &str = "SUNDER_EVAL_BEFORE";

impl Unit {
    /// The unit's command, with a command of ours before it or before its servers.
    ///
    /// # Errors
    /// If the file that our command is to write has no place.
    pub fn command(&self, before: Option<(&Path, &Mode)>) -> Result<Command> {
        let file = std::env::temp_dir().join(format!("sunder-eval-{}-report", std::process::id()));
        let (first, rest) = self.words.split_first().context("an empty command")?;
        let mut command = match before {
            Some((sunder, mode)) if !self.is_of_a_server => {
                let mut command = mode.command(sunder, &file);
                command.arg(first);
                command
            }
            _ => Command::new(first),
        };
        if let (true, Some((sunder, mode))) = (self.is_of_a_server, before) {
            let file = file.to_string_lossy();
            let words: Vec<&str> = mode.words(&file).collect();
            command.env(BEFORE, format!("{} {}", sunder.display(), words.join(" ")));
        }
        command.args(rest).current_dir(self.folder.path());
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        Ok(command)
    }
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Go => "go",
            Self::Node => "node",
            Self::Java => "java",
            Self::Redis => "redis",
            Self::Memcached => "memcached",
        }
    }

    /// The units of the suite in `dir`.
    ///
    /// # Errors
    /// If the folder is not that of such a suite.
    pub fn suite(self, dir: &Path) -> Result<Suite> {
        let dir = dir
            .canonicalize()
            .with_context(|| format!("there is no folder {}", dir.display()))?;
        match self {
            Self::Python => python(&dir),
            Self::Go => go(&dir),
            Self::Node => node(&dir),
            Self::Java => java(&dir),
            Self::Redis => redis(&dir),
            Self::Memcached => memcached(&dir),
        }
    }
}

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| (*word).to_owned()).collect()
}

/// What a program prints about its version.
fn version(program: &Path, flag: &str) -> Result<String> {
    let told = Command::new(program)
        .arg(flag)
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let text = String::from_utf8_lossy(&told.stdout);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

fn python(dir: &Path) -> Result<Suite> {
    const MODULES: [&str; 17] = [
        "test_thread",
        "test_threading",
        "test_threading_local",
        "test_threadedtempfile",
        "test_threadsignals",
        "test_queue",
        "test_sched",
        "test_signal",
        "test_faulthandler",
        "test_fork1",
        "test_subprocess",
        "test_mmap",
        "test_concurrent_futures",
        "test_asyncio",
        "test_multiprocessing_fork",
        "test_multiprocessing_forkserver",
        "test_multiprocessing_spawn",
    ];
    let program = dir.join("bin/python3");
    let unit = |module: &&str| {
        Ok(Unit {
            name: (*module).to_owned(),
            folder: Folders::Own(Arc::new(Folder::new()?)),
            words: words(&[&program.to_string_lossy(), "-m", "test", "-v", module]),
            environment: Vec::new(),
            is_of_a_server: false,
            limit: minutes(15),
        })
    };
    Ok(Suite {
        what: format!("CPython ({})", version(&program, "--version")?),
        units: MODULES.iter().map(unit).collect::<Result<_>>()?,
    })
}

fn go(dir: &Path) -> Result<Suite> {
    const PACKAGES: [&str; 9] = [
        "sync",
        "sync/atomic",
        "context",
        "time",
        "os/signal",
        "os/exec",
        "net",
        "runtime",
        "cmd/cgo/internal/test",
    ];
    let program = dir.join("bin/go");
    let built = Arc::new(Folder::new()?);
    let unit = |package: &&str| {
        let folder = dir.join("src").join(package);
        let binary = built.path().join(package.replace('/', "-"));
        let done = Command::new(&program)
            .args(["test", "-c", "-o"])
            .arg(&binary)
            .arg(".")
            .current_dir(&folder)
            .env("CGO_ENABLED", "1")
            .status()?;
        ensure!(done.success(), "the tests of {package} can't be built");
        let binary = binary.to_string_lossy();
        Ok(Unit {
            name: (*package).to_owned(),
            folder: Folders::At(folder),
            words: words(&[&binary, "-test.v", "-test.short", "-test.timeout=14m"]),
            environment: Vec::new(),
            is_of_a_server: false,
            limit: minutes(15),
        })
    };
    let units: Result<Vec<Unit>> = PACKAGES.iter().map(unit).collect();
    // The built programs live as long as the units.
    std::mem::forget(built);
    Ok(Suite {
        what: version(&program, "version")?,
        units: units?,
    })
}

/// The folder is that of a source tree; its tests are run by the `node` of the search path.
fn node(dir: &Path) -> Result<Suite> {
    let tests = dir.join("test/parallel");
    let mut units = Vec::new();
    for entry in fs::read_dir(&tests).context("there is no folder test/parallel")? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let is_wanted = name.starts_with("test-worker") || name.starts_with("test-atomics");
        if !is_wanted || !name.ends_with("js") {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        // What the tests' own runner passes on.
        let flags = text.lines().find_map(|line| line.strip_prefix("// Flags:"));
        let mut all = vec!["node".to_owned()];
        all.extend(
            flags
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_owned),
        );
        all.push(path.display().to_string());
        units.push(Unit {
            name,
            folder: Folders::At(tests.clone()),
            words: all,
            environment: Vec::new(),
            is_of_a_server: false,
            limit: minutes(2),
        });
    }
    units.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Suite {
        what: format!("Node {}", version(Path::new("node"), "--version")?),
        units,
    })
}

/// The folder has `jcstress.jar`, as the module `jcstress-samples` is built. What runs it starts the
/// tests' virtual machines from a folder of links to the installed one, so that they alone are under
/// the command.
fn java(dir: &Path) -> Result<Suite> {
    const TESTS: [&str; 6] = [
        "primitives.lazy",
        "primitives.library",
        "primitives.mutex",
        "primitives.rmw.RMW_0[1-4]",
        "problems.racecondition",
        "jmm.basic.BasicJMM_0[2-6]",
    ];
    let told = Command::new("java")
        .args(["-XshowSettings:properties", "-version"])
        .output()
        .context("cannot start java")?;
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    let value = |name: &str| {
        let mut lines = told.lines().map(str::trim);
        lines.find_map(|line| line.strip_prefix(name)?.trim().strip_prefix("= "))
    };
    let installed = value("java.home").context("java does not say where it is installed")?;
    let folder = shadow(Path::new(installed), "bin/java")?;
    let jar = dir.join("jcstress.jar");
    ensure!(jar.exists(), "there is no jcstress.jar");
    let home = format!("-Djava.home={}", folder.path().display());
    let unit = |test: &&str| {
        let mut all = words(&["java", &home, "-jar", &jar.to_string_lossy()]);
        // One machine for each test, compiler and affinity as they are.
        all.extend(words(&["-v", "-f", "1", "-tb", "10s", "-sc", "false"]));
        all.extend(words(&[
            "-af",
            "NONE",
            "-jvmArgs",
            "-XX:TieredStopAtLevel=4",
        ]));
        all.extend(words(&["-t", test]));
        Unit {
            name: (*test).to_owned(),
            folder: Folders::Own(Arc::clone(&folder)),
            words: all,
            environment: Vec::new(),
            is_of_a_server: true,
            limit: minutes(15),
        }
    };
    Ok(Suite {
        what: format!(
            "jcstress on Java {}",
            value("java.version").unwrap_or_default()
        ),
        units: TESTS.iter().map(unit).collect(),
    })
}

/// A folder of links to all files of `dir`, in which `server` is a script that executes the server
/// under the command.
fn shadow(dir: &Path, server: &str) -> Result<Arc<Folder>> {
    let folder = Folder::new()?;
    let done = Command::new("cp")
        .args(["--recursive", "--symbolic-link"])
        .arg(dir.join("."))
        .arg(folder.path())
        .status()?;
    let place = folder.path().join(server);
    ensure!(done.success() && place.exists(), "{server} is not built");
    fs::remove_file(&place)?;
    let real = dir.join(server);
    let script = format!("#!/bin/sh\nexec ${BEFORE} {} \"$@\"\n", real.display());
    fs::write(&place, script)?;
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755))?;
    Ok(Arc::new(folder))
}

/// The suite waits for a server that logs the number of the process that it has started, and stops
/// and kills by that number. Under a command that process is the command, and the server its child.
const OWN_SERVER: &str = r#"
rename spawn_server spawn_process
proc spawn_server {config_file stdout stderr args} {
    set pid [spawn_process $config_file $stdout $stderr {*}$args]
    for {set i 0} {$i < 1000} {incr i} {
        if {[catch {file readlink /proc/$pid/exe} executed]} {return $pid}
        if {[file tail $executed] eq "redis-server"} {return $pid}
        if {![catch {exec pgrep -P $pid redis-server} own]} {return [lindex $own 0]}
        after 10
    }
    return $pid
}
"#;

fn redis(dir: &Path) -> Result<Suite> {
    const TESTS: [&str; 16] = [
        "unit/type/list",
        "unit/type/set",
        "unit/type/hash",
        "unit/type/stream",
        "unit/expire",
        "unit/multi",
        "unit/pubsub",
        "unit/scripting",
        "unit/info",
        "unit/lazyfree",
        "unit/maxmemory",
        "unit/networking",
        "unit/other",
        "unit/querybuf",
        "unit/tracking",
        "integration/replication",
    ];
    let folder = shadow(dir, "src/redis-server")?;
    let starts = folder.path().join("tests/support/server.tcl");
    let text = fs::read_to_string(&starts).context("there is no tests/support/server.tcl")?;
    fs::remove_file(&starts)?;
    fs::write(&starts, text + OWN_SERVER)?;
    let unit = |test: &&str| Unit {
        name: (*test).to_owned(),
        folder: Folders::Own(Arc::clone(&folder)),
        words: words(&[
            "./runtest",
            "--clients",
            "1",
            "--config",
            "io-threads",
            "4",
            "--dont-clean",
            "--single",
            test,
        ]),
        // Without it, verdicts have colours.
        environment: vec![("TERM".into(), "dumb".into())],
        is_of_a_server: true,
        limit: minutes(15),
    };
    Ok(Suite {
        what: format!(
            "Redis ({})",
            version(&dir.join("src/redis-server"), "--version")?
        ),
        units: TESTS.iter().map(unit).collect(),
    })
}

fn memcached(dir: &Path) -> Result<Suite> {
    let folder = shadow(dir, "memcached-debug")?;
    let mut units = Vec::new();
    for entry in fs::read_dir(dir.join("t")).context("there is no folder t")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if !name.ends_with(".t") {
            continue;
        }
        units.push(Unit {
            words: words(&["perl", "-It/lib", &format!("t/{name}")]),
            name,
            folder: Folders::Own(Arc::clone(&folder)),
            environment: Vec::new(),
            is_of_a_server: true,
            limit: minutes(5),
        });
    }
    units.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Suite {
        what: version(&dir.join("memcached-debug"), "--version")?,
        units,
    })
}
