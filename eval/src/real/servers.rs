//! Servers under a bounded load over the loopback interface: started alone, under a command, or
//! alone with `attach` observing; stopped as their manuals say.

use crate::measure::{Measurement, hash};
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A server that takes longer hangs, and is killed.
const HANGS: Duration = Duration::from_secs(120);

/// One server.
pub struct Server {
    /// Its name in tables.
    pub name: &'static str,
    program: &'static str,
    arguments: fn(&str) -> Vec<String>,
    /// Sends the load; the bytes that must be the same in every run.
    load: fn(u16) -> Result<Vec<u8>>,
    /// Stops the server; `false` to send SIGTERM instead.
    stop: fn(u16) -> bool,
}

/// All servers.
pub const ALL: [Server; 2] = [
    Server {
        name: "memcached",
        program: "/usr/bin/memcached",
        arguments: |port| {
            [
                "-t",
                "4",
                "-l",
                "127.0.0.1",
                "-p",
                port,
                "-U",
                "0",
                "-u",
                "nobody",
            ]
            .map(str::to_owned)
            .to_vec()
        },
        load: use_memcached,
        stop: |_| false,
    },
    Server {
        name: "redis-server",
        program: "/usr/bin/redis-server",
        arguments: |port| {
            let words = format!(
                "--port {port} --bind 127.0.0.1 --io-threads 4 --io-threads-do-reads yes \
                 --appendonly no --save"
            );
            let mut all: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            all.push(String::new());
            all
        },
        load: use_redis,
        stop: |port| redis(port, &["shutdown", "nosave"]).is_ok(),
    },
];

/// The path of the result of `attach`, beside that of `detect`.
pub fn attach_result(result: &Path) -> PathBuf {
    result.with_extension("attach.json")
}

impl Server {
    /// Whether the server is installed.
    pub fn is_installed(&self) -> bool {
        Path::new(self.program).exists()
    }

    /// Starts the server with the words of a command before it, if there are any, sends the load
    /// and stops the server; its measurements, and a hash of the answers. `looking` is the Sunder
    /// that attaches to it under load, and the path of its result.
    ///
    /// # Errors
    /// If it does not start, answer or stop.
    pub fn run(
        &self,
        before: &[OsString],
        looking: Option<(&Path, &Path)>,
        folder: &Path,
    ) -> Result<(Measurement, u64)> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut words = before.iter().cloned().chain([self.program.into()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        let start = Instant::now();
        let child = command
            .args((self.arguments)(&port.to_string()))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", self.name))?;
        let pid = i32::try_from(child.id())?;
        let _watchdog = Watchdog::of(pid);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(
                start.elapsed() < Duration::from_secs(30),
                "{} does not listen",
                self.name
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        let start = Instant::now();
        let looking = looking
            .map(|(sunder, result)| {
                Command::new(sunder)
                    .args(["attach", "--quiet", "--duration", "1s"])
                    .args(["--pid", &pid.to_string(), "--format", "json", "-o"])
                    .arg(result)
                    .spawn()
            })
            .transpose()?;
        let answers = (self.load)(port)?;
        let wall = start.elapsed().as_secs_f64();
        if let Some(mut looking) = looking {
            ensure!(looking.wait()?.success(), "attach to {} failed", self.name);
        }
        if !(self.stop)(port) {
            // SAFETY: a signal to our own child, which has not been waited for.
            unsafe { libc::kill(pid, libc::SIGTERM) };
        }
        let mut status = 0;
        // SAFETY: `rusage` is plain data for which all zeroes is a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live locals; `pid` is our unreaped child.
        let reaped = unsafe { libc::wait4(pid, &mut status, 0, &mut usage) };
        ensure!(reaped == pid, "cannot wait for {}", self.name);
        let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
        let cpu = seconds(usage.ru_utime) + seconds(usage.ru_stime);
        let measured = Measurement {
            wall,
            cpu,
            own_cpu: cpu,
            peak_kib: u64::try_from(usage.ru_maxrss).unwrap_or(0),
            status,
            stdout: Vec::new(),
        };
        Ok((measured, hash(&answers)))
    }
}

/// Kills a server that hangs, with its process group, so that waiting for its answers or its end
/// fails.
struct Watchdog(Option<(Sender<()>, JoinHandle<()>)>);

impl Watchdog {
    fn of(group: i32) -> Self {
        let (done, finished) = channel::<()>();
        let watching = std::thread::spawn(move || {
            if finished.recv_timeout(HANGS) == Err(RecvTimeoutError::Timeout) {
                sunder_mishaps::end(group);
            }
        });
        Self(Some((done, watching)))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some((done, watching)) = self.0.take() {
            drop(done);
            let _ = watching.join();
        }
    }
}

/// Eight clients; each sends fifty requests at a time, so that the workers are busy rather than the
/// sockets.
fn use_memcached(port: u16) -> Result<Vec<u8>> {
    const ROUNDS: u32 = 1200;
    const BATCH: u32 = 50;
    let client = |number: u32| -> Result<Vec<u8>> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        let mut answers = BufReader::new(stream.try_clone()?);
        let mut all = Vec::new();
        for round in 0..ROUNDS {
            let mut request = Vec::new();
            for i in 0..BATCH {
                let key = (round * BATCH + i) % 1000;
                write!(request, "set k{number}-{key} 0 0 6\r\n{round:06}\r\n")?;
                write!(request, "get k{number}-{key}\r\n")?;
            }
            stream.write_all(&request)?;
            for _ in 0..BATCH * 4 {
                answers.read_until(b'\n', &mut all)?;
            }
        }
        Ok(all)
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|n| scope.spawn(move || client(n))).collect();
        let mut all = Vec::new();
        for running in clients {
            let answers = running
                .join()
                .map_err(|_| anyhow::anyhow!("a client panicked"))??;
            all.extend(answers);
        }
        Ok(all)
    })
}

/// Redis' own benchmark; the compared value is the counter in the end.
fn use_redis(port: u16) -> Result<Vec<u8>> {
    let load = Command::new("redis-benchmark")
        .args(["-p", &port.to_string(), "-t", "set,get,incr"])
        .args(["-n", "40000", "-c", "24", "-P", "8", "-q"])
        .stdout(Stdio::null())
        .status()
        .context("cannot run redis-benchmark")?;
    ensure!(load.success(), "redis-benchmark failed");
    redis(port, &["get", "counter:__rand_int__"])
}

fn redis(port: u16, words: &[&str]) -> Result<Vec<u8>> {
    let answer = Command::new("redis-cli")
        .args(["-p", &port.to_string()])
        .args(words)
        .output()
        .context("cannot run redis-cli")?;
    Ok(answer.stdout)
}
