//! The real OpenTelemetry Collector, which `setup/collector` builds: it takes what comes by OTLP over HTTP, and writes it to
//! files, a line of JSON for each request.

use crate::receiver::wait_until;
use crate::support::Ended;
use crate::support::installed::free_port;
use serde_json::Value;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program; `None`, with a notice, if it is not built.
pub fn collector() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let program = target.join("collector/collector");
    if !program.exists() {
        println!("SKIP: the OpenTelemetry Collector is not there; setup/collector builds it");
        return None;
    }
    Some(program)
}

/// A collector that writes to a folder. Dropping it kills it.
pub struct Collector {
    process: Ended,
    pub port: u16,
    files: PathBuf,
}

impl Collector {
    /// One at `port` that appends to the files in `files`. `with_profiles`: whether it takes them.
    pub fn start(program: &Path, port: u16, files: &Path, with_profiles: bool) -> Self {
        let mut command = Command::new(program);
        Self::start_by(&mut command, port, files, with_profiles)
    }

    /// The same, started by `command`.
    pub fn start_by(command: &mut Command, port: u16, files: &Path, with_profiles: bool) -> Self {
        let config = files.with_extension(format!("{port}.yaml"));
        std::fs::write(&config, configuration(port, files, with_profiles)).expect("written");
        command.arg(format!("--config=file:{}", config.display()));
        if with_profiles {
            command.arg("--feature-gates=service.profilesSupport");
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = Ended::new(command);
        wait_until("the collector listens", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Self {
            process,
            port,
            files: files.to_owned(),
        }
    }

    /// One at any port.
    pub fn anywhere(program: &Path, files: &Path, with_profiles: bool) -> Self {
        Self::start(program, free_port(), files, with_profiles)
    }

    /// Ends it in order, so that its files are whole.
    pub fn end(mut self) {
        self.process.kill(libc::SIGTERM);
        self.process.child().wait().expect("it ends");
    }

    /// Its process id.
    pub fn id(&self) -> String {
        self.process.id()
    }

    /// The requests of a signal that it has written so far.
    pub fn so_far(&self, signal: &str) -> Vec<Value> {
        requests(&self.files, signal)
    }
}

/// The requests of a signal in its files. The last line may have been cut off.
pub fn requests(files: &Path, signal: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(files.join(format!("{signal}.json"))).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |at| &text[..at]);
    let lines = whole.lines().filter(|line| !line.is_empty());
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

fn configuration(port: u16, files: &Path, with_profiles: bool) -> String {
    let signals = ["metrics", "logs", "profiles"];
    let signals = &signals[..if with_profiles { 3 } else { 2 }];
    let (mut exporters, mut pipelines) = (String::new(), String::new());
    for signal in signals {
        let file = files.join(format!("{signal}.json"));
        exporters += &format!(
            "  file/{signal}: {{path: '{}', append: true, flush_interval: 1ms}}\n",
            file.display()
        );
        pipelines += &format!("    {signal}: {{receivers: [otlp], exporters: [file/{signal}]}}\n");
    }
    format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{port}'}}}}}}}}\n\
         exporters:\n{exporters}\
         service:\n  telemetry: {{metrics: {{level: none}}, logs: {{level: error}}}}\n  pipelines:\n{pipelines}"
    )
}

/// A number, which the format writes as text if it has 64 bits.
pub fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

/// The value of an attribute, as text.
pub fn attribute(of: &Value, key: &str) -> Option<String> {
    let all = of["attributes"].as_array()?;
    let found = all.iter().find(|one| one["key"] == key)?;
    let value = found["value"].as_object()?.values().next()?;
    Some(
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned),
    )
}
