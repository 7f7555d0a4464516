//! A Redis of its own for each measurement, and the load of its own benchmark: throughput, latencies, and
//! what the server's process took. Called by `server_cost`; compares nothing.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Connections of the load: enough that the server never waits for the clients.
const CONNECTIONS: &str = "20";
/// How long the server may take to listen.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that runs until it is dropped.
pub struct Redis {
    child: Child,
    port: u16,
}

/// One run of the load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Served {
    /// Requests a second.
    pub rate: f64,
    /// Latencies in ms: of 50, 99 and 99.9 % of the requests it was no longer.
    pub latencies: [f64; 3],
    /// CPU time of the server for a request, in us.
    pub cpu_us: f64,
    /// Switches of the server's threads for a thousand requests.
    pub switches: f64,
}

impl Redis {
    /// Whether server and benchmark are installed.
    pub fn is_installed() -> bool {
        let is_there = |program| {
            let mut asked = Command::new(program);
            let asked = asked.arg("--version").stdout(Stdio::null()).status();
            asked.is_ok_and(|status| status.success())
        };
        is_there("redis-server") && is_there("redis-benchmark")
    }

    /// Starts a server that writes nothing to disk, with so many threads for its sockets.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(io_threads: u32) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no"])
            .args(["--io-threads", &io_threads.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start redis-server")?;
        let server = Self { child, port };
        let since = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(since.elapsed() < PATIENCE, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends so many requests.
    ///
    /// # Errors
    /// If the benchmark fails, or tells something else than expected.
    pub fn load(&self, requests: u64) -> Result<Served> {
        let before = Taken::of(self.pid())?;
        let told = Command::new("redis-benchmark")
            .args(["-p", &self.port.to_string(), "-t", "get"])
            .args(["-n", &requests.to_string(), "-c", CONNECTIONS])
            .args(["--precision", "3"])
            .output()
            .context("cannot run redis-benchmark")?;
        ensure!(told.status.success(), "redis-benchmark failed");
        let after = Taken::of(self.pid())?;
        let mut served = parse(&String::from_utf8_lossy(&told.stdout))?;
        served.cpu_us = (after.cpu - before.cpu) * 1e6 / requests as f64;
        served.switches = (after.switches - before.switches) * 1e3 / requests as f64;
        Ok(served)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It has nothing to save.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process has taken so far.
struct Taken {
    cpu: f64,
    switches: f64,
}

impl Taken {
    /// Of all threads that live.
    fn of(pid: u32) -> Result<Self> {
        let mut taken = Self {
            cpu: 0.0,
            switches: 0.0,
        };
        for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
            let folder = thread?.path();
            let ran = fs::read_to_string(folder.join("schedstat"))?;
            let ran = ran.split_whitespace().next().context("it is empty")?;
            taken.cpu += ran.parse::<f64>()? / 1e9;
            let status = fs::read_to_string(folder.join("status"))?;
            let switches = status.lines().filter(|l| l.contains("ctxt_switches"));
            let counts = switches.filter_map(|line| line.split_whitespace().last());
            taken.switches += counts.filter_map(|n| n.parse::<f64>().ok()).sum::<f64>();
        }
        Ok(taken)
    }
}

/// Reads what redis-benchmark tells. The percentage of 99.9 is not in its summary, so it is the first of
/// its distribution that is no lower.
fn parse(text: &str) -> Result<Served> {
    let lines = || text.split(['\r', '\n']).map(str::trim);
    let rate = lines()
        .find_map(|line| line.strip_prefix("throughput summary: "))
        .and_then(|rest| rest.split(' ').next()?.parse().ok())
        .context("redis-benchmark tells no throughput")?;
    let mut after = lines().skip_while(|line| !line.starts_with("latency summary"));
    let summary: Vec<f64> = after
        .nth(2)
        .unwrap_or_default()
        .split_whitespace()
        .map(str::parse)
        .collect::<std::result::Result<_, _>>()
        .context("redis-benchmark tells no latencies")?;
    let [_, _, median, _, p99, _] = summary[..] else {
        anyhow::bail!("redis-benchmark tells other latencies: {summary:?}");
    };
    let distribution = lines().skip_while(|line| !line.starts_with("Latency by percentile"));
    let p999 = distribution
        .filter_map(|line| {
            let (percent, rest) = line.split_once("% <= ")?;
            let latency = rest.split(' ').next()?.parse::<f64>().ok()?;
            Some((percent.parse::<f64>().ok()?, latency))
        })
        .find(|(percent, _)| *percent >= 99.9)
        .context("redis-benchmark tells no distribution")?;
    Ok(Served {
        rate,
        latencies: [median, p99, p999.1],
        ..Served::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shortened from what redis-benchmark 7.0.15 tells.
    const TOLD: &str = "GET: rps=1200.0 (overall: 1100.0) avg_msec=2.1 (overall: 2.2)\r\
        ====== GET ======\n  50000 requests completed in 31.53 seconds\n\n\
        Latency by percentile distribution:\n\
        0.000% <= 0.095 milliseconds (cumulative count 4)\n\
        50.000% <= 6.223 milliseconds (cumulative count 25006)\n\
        99.805% <= 71.743 milliseconds (cumulative count 49905)\n\
        99.902% <= 83.647 milliseconds (cumulative count 49952)\n\
        100.000% <= 260.351 milliseconds (cumulative count 50000)\n\n\
        Cumulative distribution of latencies:\n\
        99.920% <= 84.159 milliseconds (cumulative count 49960)\n\n\
        Summary:\n  throughput summary: 1585.94 requests per second\n  latency summary (msec):\n\
        \x20         avg       min       p50       p95       p99       max\n\
        \x20      11.191     0.088     6.223    35.903    56.063   260.351\n";

    #[test]
    fn what_the_benchmark_tells_is_read() {
        let served = parse(TOLD).expect("it is whole");
        assert_eq!(served.rate, 1585.94);
        assert_eq!(served.latencies, [6.223, 56.063, 83.647]);
        for cut in [
            "throughput summary",
            "latency summary",
            "Latency by percentile",
        ] {
            assert!(parse(&TOLD.replace(cut, "")).is_err(), "{cut}");
        }
    }

    #[test]
    fn what_our_own_process_took_is_read() {
        let own = Taken::of(std::process::id()).expect("we live");
        assert!(own.cpu > 0.0);
    }
}
