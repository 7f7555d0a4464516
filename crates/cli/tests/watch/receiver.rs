//! A small receiver of OTLP over HTTP, with or without TLS, that answers as a test says: it refuses, answers late or
//! not at all, goes away and comes back. What the real collector can be made to do is in `collector.rs`.

use flate2::read::GzDecoder;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long something is waited for that has to come.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The path of its address.
    pub path: String,
    /// Its first line and headers, in small letters.
    pub head: String,
    /// What it brings, unpacked.
    pub body: Vec<u8>,
    /// When it had come.
    pub at: Instant,
}

impl Request {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    }
}

/// What is answered.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    pub status: u16,
    /// Seconds of a header that asks for a pause.
    pub retry_after: Option<u32>,
    /// How long the answer takes.
    pub delay: Duration,
}

impl Reply {
    /// An answer at once.
    pub const fn of(status: u16) -> Self {
        Self {
            status,
            retry_after: None,
            delay: Duration::ZERO,
        }
    }
}

/// All requests so far, with the status that was answered, or will be. It can be read after the receiver's end.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<(Request, u16)>>>);

impl Log {
    /// The requests.
    pub fn asked(&self) -> Vec<(Request, u16)> {
        self.0.lock().expect("ours").clone()
    }

    /// The bodies that were taken at this path.
    pub fn taken(&self, path: &str) -> Vec<Vec<u8>> {
        let asked = self.asked();
        let taken = asked
            .iter()
            .filter(|(r, status)| r.path == path && *status == 200);
        taken.map(|(request, _)| request.body.clone()).collect()
    }

    /// Waits until so many were taken at this path.
    pub fn wait_for(&self, path: &str, count: usize) {
        wait_until(&format!("{count} requests at {path}"), || {
            self.taken(path).len() >= count
        });
    }
}

/// The receiver. Dropping it closes its port.
pub struct Receiver {
    pub port: u16,
    pub log: Log,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Receiver {
    /// One at `port`, or at any if that is 0, which answers as `reply` says.
    pub fn start(port: u16, reply: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::with(port, None, reply)
    }

    /// The same by TLS.
    pub fn start_tls(
        config: ServerConfig,
        reply: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::with(0, Some(Arc::new(config)), reply)
    }

    fn with(
        port: u16,
        tls: Option<Arc<ServerConfig>>,
        reply: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port");
        let port = listener.local_addr().expect("it has one").port();
        let log = Log::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (of_thread, ends, reply) = (log.clone(), Arc::clone(&stop), Arc::new(reply));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let stream = stream.expect("a connection");
                let (log, reply, tls) = (of_thread.clone(), Arc::clone(&reply), tls.clone());
                // A late answer must not hold up other requests.
                std::thread::spawn(move || {
                    let patience = Some(Duration::from_secs(10));
                    stream.set_read_timeout(patience).expect("a socket");
                    match tls {
                        None => answer(stream, &log, &*reply),
                        Some(config) => {
                            let connection = ServerConnection::new(config).expect("valid");
                            answer(StreamOwned::new(connection, stream), &log, &*reply);
                        }
                    }
                });
            }
        });
        Self {
            port,
            log,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until `is` holds.
pub fn wait_until(what: &str, is: impl Fn() -> bool) {
    let since = Instant::now();
    while !is() {
        assert!(
            since.elapsed() < PATIENCE,
            "not within {PATIENCE:?}: {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn answer(mut stream: impl Read + Write, log: &Log, reply: &dyn Fn(&Request) -> Reply) {
    let Some(request) = request(&mut stream) else {
        return;
    };
    let reply = reply(&request);
    log.0.lock().expect("ours").push((request, reply.status));
    std::thread::sleep(reply.delay);
    let after = reply.retry_after.map(|s| format!("Retry-After: {s}\r\n"));
    let _ = write!(
        stream,
        "HTTP/1.1 {} x\r\n{}Connection: close\r\nContent-Length: 0\r\n\r\n",
        reply.status,
        after.unwrap_or_default()
    );
    let _ = stream.flush();
}

fn request(stream: &mut impl Read) -> Option<Request> {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut chunk).ok().filter(|&count| count > 0)?;
        bytes.extend_from_slice(&chunk[..count]);
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let mut request = Request {
            path: head.split(' ').nth(1)?.to_owned(),
            head,
            body: Vec::new(),
            at: Instant::now(),
        };
        let length: usize = request.header("content-length")?.parse().ok()?;
        let Some(body) = bytes.get(end + 4..end + 4 + length) else {
            continue;
        };
        assert_eq!(
            request.header("content-type"),
            Some("application/x-protobuf")
        );
        request.body = match request.header("content-encoding") {
            Some("gzip") => {
                let mut unpacked = Vec::new();
                let read = GzDecoder::new(body).read_to_end(&mut unpacked);
                read.expect("it is packed");
                unpacked
            }
            other => {
                assert_eq!(other, None);
                body.to_vec()
            }
        };
        return Some(request);
    }
}
