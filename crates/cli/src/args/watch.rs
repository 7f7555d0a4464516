//! The arguments of `sunder watch`.

use super::options::{ObserveOptions, parse_duration, parse_percent};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// `sunder watch`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder watch --once 10s                     what is shared falsely on this machine now
  sunder watch --once 10s --name 'redis-*'
  sunder watch --check                        what is missing, if anything
  sunder watch --interval 60s --budget 1% --json findings.jsonl
  sunder watch --quiet --listen 127.0.0.1:9464/metrics
  OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318 sunder watch --quiet --otlp

Needs root, or CAP_PERFMON and CAP_SYS_PTRACE. Nothing is loaded into a process, and none is stopped.
Records go to standard output as lines of JSON, or in words if that is a terminal. SIGTERM ends it and
hands over what is left; SIGHUP opens the files anew.")]
pub struct Watch {
    /// Look for so long, report, and end; without it, watch until SIGTERM or Ctrl-C
    #[arg(long, value_name = "DURATION", value_parser = parse_some_time)]
    pub once: Option<Duration>,
    /// How often each process is looked at and the status is told
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_some_time)]
    pub interval: Duration,
    /// What watching may take, as a share of one CPU: its own time, and that of its interrupts
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = parse_percent)]
    pub budget: f64,
    /// Only this process; may be given several times, as may the other choices
    #[arg(long, short)]
    pub pid: Vec<u32>,
    /// Only programs of this name, which may have * and ?
    #[arg(long, value_name = "GLOB")]
    pub name: Vec<String>,
    /// Only this control group and those below it, as a path below /sys/fs/cgroup
    #[arg(long, value_name = "PATH")]
    pub cgroup: Vec<String>,
    /// Only this unit of systemd
    #[arg(long, value_name = "NAME")]
    pub unit: Vec<String>,
    /// Only this container, by the first digits of its number
    #[arg(long, value_name = "ID")]
    pub container: Vec<String>,
    /// Say what is missing to watch this machine, and end
    #[arg(long)]
    pub check: bool,
    /// This machine's name in records; default: what it calls itself
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub host: Option<String>,
    /// Leave out what costs less than this share of the threads' time
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub threshold: Option<f64>,
    /// Also append the records to this file, as lines of JSON
    #[arg(long, value_name = "FILE")]
    pub json: Vec<PathBuf>,
    /// Answer Prometheus at this address, as in 127.0.0.1:9464 or 127.0.0.1:9464/metrics
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Write the same figures to this file, for the node exporter; its name ends in .prom
    #[arg(long, value_name = "FILE", value_parser = parse_page)]
    pub prom_file: Option<PathBuf>,
    /// Write the findings to this file as a profile for pprof (.pb.gz): everything since the start
    #[arg(long, value_name = "FILE")]
    pub pprof: Option<PathBuf>,
    /// Send figures and findings by OTLP over HTTP, to where the variables OTEL_EXPORTER_OTLP_* say
    #[arg(long)]
    pub otlp: bool,
    /// With --otlp, also send the CPU time lost as profiles, whose format is in development (v1development)
    #[arg(long, requires = "otlp")]
    pub otlp_profiles: bool,
    /// Keep what waits to be sent in this folder, so that a restart loses nothing
    #[arg(long, value_name = "FOLDER", requires = "otlp")]
    pub spool: Option<PathBuf>,
    /// How much may wait for each signal, in MiB; beyond that the oldest is dropped and counted
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    pub spool_size: u64,
    /// Keep what debug information has told in this folder, so that another look at the same build costs less
    #[arg(long, value_name = "FOLDER")]
    pub cache: Option<PathBuf>,
    /// Nothing on standard output
    #[arg(long, short)]
    pub quiet: bool,
    /// How to observe.
    #[command(flatten)]
    pub observe: ObserveOptions,
}

/// A time in which something can be seen.
fn parse_some_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("it must be longer than 0".to_owned()),
        time => Ok(time),
    }
}

/// A file that the node exporter reads.
fn parse_page(text: &str) -> Result<PathBuf, String> {
    match text.ends_with(".prom") {
        true => Ok(text.into()),
        false => {
            Err("its name must end in .prom, or the node exporter does not read it".to_owned())
        }
    }
}
