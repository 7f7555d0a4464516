//! Programs of the distribution, and files as their input.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use sunder_workloads::given;
use tempfile::NamedTempFile;

/// The path of a program; `None`, with a notice, if it is not installed.
pub fn installed(name: &str) -> Option<PathBuf> {
    let found = ["/usr/bin", "/bin", "/usr/local/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.exists());
    if found.is_none() {
        println!("SKIP: {name} is not installed; setup/debian-packages installs it");
    }
    found
}

/// Go, where its own archive or the distribution puts it.
pub fn go() -> Option<PathBuf> {
    let own = Path::new("/usr/local/go/bin/go");
    own.exists()
        .then(|| own.to_owned())
        .or_else(|| installed("go"))
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("loopback")
        .port()
}

fn file(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("written");
    file
}

/// See [`given::text`].
pub fn text(size: usize) -> NamedTempFile {
    file(&given::text(size))
}

/// See [`given::film`].
pub fn film(frames: usize) -> NamedTempFile {
    file(&given::film(frames))
}

/// A Python program that computes in threads and exits with a status other than 0.
pub fn python() -> String {
    given::python(60) + "raise SystemExit(3)"
}

/// Programs that compute in threads and always write the same, with their arguments.
pub fn computing(text: &Path, film: &Path) -> Vec<(PathBuf, Vec<String>)> {
    let (text, film) = (text.display(), film.display());
    let words = |line: String| line.split_whitespace().map(str::to_owned).collect();
    let mut all: Vec<(&str, Vec<String>)> = vec![
        ("pigz", words(format!("-p 4 -n -c {text}"))),
        ("pbzip2", words(format!("-p4 -b1 -c {text}"))),
        ("pfscan", words(format!("-n 2 -c 1234 {text}"))),
        ("xz", words(format!("-T4 -1 --block-size=512KiB -c {text}"))),
        ("zstd", words(format!("-T4 -6 -B1M -q -c {text}"))),
        (
            "x264",
            words(format!(
                "--threads 4 --quiet --no-progress --muxer raw -o /dev/stdout {film}"
            )),
        ),
        (
            "ffmpeg",
            words(format!(
                "-v error -nostdin -i {film} -threads 4 -c:v mpeg4 -fflags +bitexact -flags:v \
                 +bitexact -f nut pipe:1"
            )),
        ),
    ];
    all.push(("python3", vec!["-c".into(), python()]));
    let there = |(name, arguments)| Some((installed(name)?, arguments));
    all.into_iter().filter_map(there).collect()
}
