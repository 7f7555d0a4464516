//! `server-cost`: what observing costs a server. Redis under the load of its own benchmark: undisturbed,
//! under `sunder watch` in its first seconds and after a minute, and under `sunder attach`; each beside an
//! undisturbed run of the same server.

mod redis;

use crate::measure::quantile;
use crate::options::Options;
use crate::programs;
use crate::record::Record;
use crate::watching::{Taken, Watching};
use anyhow::{Context, Result, ensure};
use redis::{Redis, Served};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long, and what beside.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct What {
    /// How long the load of one measurement takes about, in seconds
    #[arg(long, default_value_t = 6.0)]
    seconds: f64,
    /// How long a watch has gone on, under load, before it is measured as steady, in seconds
    #[arg(long, default_value_t = 60.0)]
    steady: f64,
    /// Threads of Redis for its sockets
    #[arg(long, default_value_t = 1)]
    io_threads: u32,
    /// Also `attach` without watchpoints, and with one frequency: where its cost comes from
    #[arg(long)]
    parts: bool,
}

/// A way to run the server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Alone,
    WatchFirst,
    WatchSteady,
    /// `attach` with these options.
    Attach(&'static str, &'static [&'static str]),
}

/// The ways in the order in which a round goes through them: after each there is a run alone.
const WAYS: [Way; 3] = [
    Way::WatchFirst,
    Way::WatchSteady,
    Way::Attach("attach", &[]),
];

/// Parts of what `attach` does.
const PARTS: [Way; 2] = [
    Way::Attach("attach, no watchpoints", &["--watch-budget", "0"]),
    Way::Attach(
        "attach, no watchpoints, 99 Hz",
        &["--watch-budget", "0", "--frequency", "99"],
    ),
];

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::WatchFirst => "watch, first seconds",
            Self::WatchSteady => "watch, steady",
            Self::Attach(name, _) => name,
        }
    }
}

const COLUMNS: [&str; 9] = [
    "way",
    "round",
    "requests_per_s",
    "p50_ms",
    "p99_ms",
    "p99.9_ms",
    "server_cpu_us_per_request",
    "switches_per_1000_requests",
    "sunder_cpu_percent",
];

/// A run beside the mean of the runs alone before and after it.
struct Pair {
    way: Way,
    seen: Served,
    alone: Served,
    sunder: f64,
}

struct Bench<'a> {
    record: Record,
    sunder: &'a Path,
    what: What,
    requests: u64,
    pairs: Vec<Pair>,
}

/// Runs the benchmark.
///
/// # Errors
/// If Redis is not installed, this machine can't be watched, or the record can't be written.
pub fn run(what: &What, options: &Options) -> Result<()> {
    ensure!(
        Redis::is_installed(),
        "redis-server and redis-benchmark are not installed: setup/debian-packages installs them"
    );
    let sunder = programs::sunder()?;
    let record = Record::new(
        "server-cost",
        "Redis under the load of redis-benchmark (`GET`, 20 connections) on the loopback interface: alone, \
         under `sunder watch` in its first seconds and after a minute, under `sunder attach`. Each run is \
         compared with the mean of the runs alone before and after it, on the same server.",
        options.repetitions,
        &COLUMNS,
    )?;
    let first = Redis::start(what.io_threads)?;
    // The first requests also fill caches.
    first.load(10_000)?;
    let rate = first.load(50_000)?.rate;
    drop(first);
    let mut bench = Bench {
        record,
        sunder: &sunder,
        what: *what,
        requests: (rate * what.seconds).max(1000.0) as u64,
        pairs: Vec::new(),
    };
    let mut ways = WAYS.to_vec();
    ways.extend(PARTS.iter().filter(|_| what.parts));
    for round in 0..options.repetitions {
        bench.round(round, &ways)?;
        println!("round {} of {}", round + 1, options.repetitions);
    }
    let table = table(&ways, &bench.pairs);
    bench.record.finish(&table)
}

impl Bench<'_> {
    fn round(&mut self, round: u32, ways: &[Way]) -> Result<()> {
        let server = Redis::start(self.what.io_threads)?;
        server.load(self.requests / 4)?;
        let mut before = self.alone(&server, round)?;
        let mut watch = None;
        for &way in ways {
            let (seen, sunder) = self.under(way, &server, &mut watch)?;
            self.row(way, round, &seen, sunder)?;
            if way == Way::WatchFirst {
                // It goes on, and is measured again when it is steady. What comes between is no run alone.
                self.pairs.push(Pair {
                    way,
                    seen,
                    alone: before,
                    sunder,
                });
                continue;
            }
            let after = self.alone(&server, round)?;
            self.pairs.push(Pair {
                way,
                seen,
                alone: mean(&before, &after),
                sunder,
            });
            before = after;
        }
        Ok(())
    }

    fn alone(&mut self, server: &Redis, round: u32) -> Result<Served> {
        let seen = server.load(self.requests)?;
        self.row(Way::Alone, round, &seen, 0.0)?;
        Ok(seen)
    }

    /// One run, and the CPU time of Sunder in it, in percent of a CPU.
    fn under(
        &self,
        way: Way,
        server: &Redis,
        watch: &mut Option<(Watching, Instant)>,
    ) -> Result<(Served, f64)> {
        let percent = |before: f64, after: f64, since: Instant| {
            (after - before) / since.elapsed().as_secs_f64() * 100.0
        };
        match way {
            Way::Alone => Ok((server.load(self.requests)?, 0.0)),
            Way::WatchFirst => {
                let begun = Instant::now();
                let watching = Watching::begin(self.sunder, &[])?;
                let seen = server.load(self.requests)?;
                let sunder = percent(0.0, cpu_of(&watching)?, begun);
                *watch = Some((watching, begun));
                Ok((seen, sunder))
            }
            Way::WatchSteady => {
                let (watching, begun) = watch.take().context("a watch goes on")?;
                let steady = Duration::from_secs_f64(self.what.steady);
                while begun.elapsed() < steady {
                    server.load((self.requests / 4).max(1))?;
                }
                let (since, before) = (Instant::now(), cpu_of(&watching)?);
                let seen = server.load(self.requests)?;
                let sunder = percent(before, cpu_of(&watching)?, since);
                watching.end()?;
                Ok((seen, sunder))
            }
            Way::Attach(_, options) => {
                let mut attached = Attached::begin(self.sunder, server.pid(), options)?;
                let (since, seen) = (Instant::now(), server.load(self.requests)?);
                let sunder = percent(0.0, Taken::of(attached.child.id())?.cpu, since);
                attached.end()?;
                Ok((seen, sunder))
            }
        }
    }

    fn row(&mut self, way: Way, round: u32, seen: &Served, sunder: f64) -> Result<()> {
        let [p50, p99, p999] = seen.latencies;
        self.record.row(&[
            way.name().replace(',', ""),
            round.to_string(),
            format!("{:.0}", seen.rate),
            format!("{p50:.3}"),
            format!("{p99:.3}"),
            format!("{p999:.3}"),
            format!("{:.2}", seen.cpu_us),
            format!("{:.1}", seen.switches),
            format!("{sunder:.2}"),
        ])
    }
}

/// CPU seconds of all processes of a watch.
fn cpu_of(watching: &Watching) -> Result<f64> {
    Ok(watching.teller()?.cpu + watching.observer()?.cpu)
}

/// A `sunder attach` that goes on until it is ended.
struct Attached {
    child: Child,
}

impl Attached {
    fn begin(sunder: &Path, pid: u32, options: &[&str]) -> Result<Self> {
        let child = Command::new(sunder)
            .args(["attach", "--quiet", "--duration", "60m"])
            .args(["--format", "json", "-o", "/dev/null", "--pid"])
            .arg(pid.to_string())
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start sunder attach")?;
        let attached = Self { child };
        let since = Instant::now();
        while !attached.has_begun() {
            ensure!(
                since.elapsed() < Duration::from_secs(30),
                "it does not attach"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(attached)
    }

    /// Whether it has the kernel's events open.
    fn has_begun(&self) -> bool {
        let folder = format!("/proc/{}/fd", self.child.id());
        let Ok(all) = std::fs::read_dir(folder) else {
            return false;
        };
        let links = all.flatten().filter_map(|fd| fd.path().read_link().ok());
        links
            .into_iter()
            .any(|to| to.to_string_lossy().contains("[perf_event]"))
    }

    fn end(&mut self) -> Result<()> {
        let pid = i32::try_from(self.child.id())?;
        // Not an interrupt, which programs ignore that a shell has put into the background.
        // SAFETY: takes two integers; the child has not been waited for.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        // Findings give another status; only an end by a signal, or an error of its own, is a failure.
        let status = self.child.wait()?.code();
        ensure!(
            status.is_some_and(|code| code < 100),
            "sunder attach ended with {status:?}"
        );
        Ok(())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn mean(a: &Served, b: &Served) -> Served {
    let of = |a: f64, b: f64| (a + b) / 2.0;
    let latency = |i: usize| of(a.latencies[i], b.latencies[i]);
    Served {
        rate: of(a.rate, b.rate),
        latencies: [latency(0), latency(1), latency(2)],
        cpu_us: of(a.cpu_us, b.cpu_us),
        switches: of(a.switches, b.switches),
    }
}

/// Each figure as a share of that of the runs alone: the median of the pairs, the lowest and the highest.
fn table(ways: &[Way], pairs: &[Pair]) -> String {
    let mut text = String::from(
        "Each figure beside that of the runs alone: median of the pairs (lowest, highest).\n\n\
         | way | requests/s | p50 | p99 | p99.9 | server CPU/request | Sunder's own, % of a CPU |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for way in ways {
        let of: Vec<&Pair> = pairs.iter().filter(|pair| pair.way == *way).collect();
        let ratio = |figure: fn(&Served) -> f64| {
            let ratios = of.iter().map(|p| figure(&p.seen) / figure(&p.alone));
            let ratios: Vec<f64> = ratios.filter(|ratio| ratio.is_finite()).collect();
            let at = |share| quantile(&ratios, share);
            format!("{:.3} ({:.3}, {:.3})", at(0.5), at(0.0), at(1.0))
        };
        let sunder: Vec<f64> = of.iter().map(|pair| pair.sunder).collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {:.2} |",
            way.name(),
            ratio(|s| s.rate),
            ratio(|s| s.latencies[0]),
            ratio(|s| s.latencies[1]),
            ratio(|s| s.latencies[2]),
            ratio(|s| s.cpu_us),
            quantile(&sunder, 0.5),
        );
    }
    let alone = |figure: fn(&Served) -> f64| {
        let all: Vec<f64> = pairs.iter().map(|pair| figure(&pair.alone)).collect();
        quantile(&all, 0.5)
    };
    let _ = writeln!(
        text,
        "\nAlone, medians: {:.0} requests/s, p50 {:.3} ms, p99 {:.3} ms, p99.9 {:.3} ms, {:.1} us of the \
         server's CPU time and {:.3} switches of its threads a request.",
        alone(|s| s.rate),
        alone(|s| s.latencies[0]),
        alone(|s| s.latencies[1]),
        alone(|s| s.latencies[2]),
        alone(|s| s.cpu_us),
        alone(|s| s.switches) / 1e3,
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_median_of_the_pairs() {
        let served = |rate| Served {
            rate,
            latencies: [1.0, 2.0, 4.0],
            cpu_us: 10.0,
            switches: 1.0,
        };
        let pair = |rate| Pair {
            way: Way::WatchFirst,
            seen: served(rate),
            alone: mean(&served(90.0), &served(110.0)),
            sunder: 1.0,
        };
        let pairs = [pair(98.0), pair(96.0), pair(50.0)];
        let text = table(&[Way::WatchFirst], &pairs);
        assert!(text.contains("| 0.960 (0.500, 0.980) | 1.000"), "{text}");
        assert!(text.contains("p99.9 4.000 ms"), "{text}");
    }
}
