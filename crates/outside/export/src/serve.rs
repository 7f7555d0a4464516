//! A page over HTTP, for Prometheus to read. Some connections at a time, each for a second at most: whoever
//! asks slowly gets no answer, and nobody else waits for that. If more come, the oldest are dropped: who
//! means it has asked at once.

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The longest request.
const LONGEST: usize = 8192;
/// The most headers of a request.
const HEADERS: usize = 64;
/// For how long a connection is served.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many connections there may be at a time.
const MOST: usize = 32;

/// The server's listening socket and its page.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    page: Arc<Mutex<String>>,
}

impl Server {
    /// Listens at `address`, which may end in `/metrics`. Nothing is answered before [`Self::start`].
    ///
    /// # Errors
    /// If nothing can listen there.
    pub fn listen(address: &str) -> Result<Self> {
        let place = address.trim_start_matches("http://");
        let place = match place.split_once('/') {
            Some((place, "" | "metrics")) => place,
            Some((_, path)) => {
                bail!("cannot listen at {address}: only /metrics is answered, not /{path}")
            }
            None => place,
        };
        let listener = TcpListener::bind(place);
        let listener = listener.with_context(|| format!("cannot listen at {address}"))?;
        Ok(Self {
            listener,
            page: Arc::default(),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Begins to answer, on a thread of its own, until this process ends.
    ///
    /// # Errors
    /// If there can be no further thread.
    pub fn start(&self) -> Result<()> {
        let listener = self.listener.try_clone()?;
        listener.set_nonblocking(true)?;
        let page = Arc::clone(&self.page);
        let serve = move || {
            let mut open = Vec::new();
            loop {
                turn(&listener, &mut open, &page);
            }
        };
        Builder::new().name("sunder-metrics".into()).spawn(serve)?;
        Ok(())
    }

    /// From now on, this is the page.
    pub fn set(&self, page: String) {
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = page;
    }
}

/// One who asks.
struct Asker {
    stream: TcpStream,
    since: Instant,
    request: Vec<u8>,
    /// What is left to be written; `None` as long as the request is not whole.
    answer: Option<Vec<u8>>,
}

/// Waits until something comes or may be written, and takes and writes what does not have to be waited for.
fn turn(listener: &TcpListener, open: &mut Vec<Asker>, page: &Mutex<String>) {
    let mut waited: Vec<PollFd<'_>> = vec![PollFd::new(listener, PollFlags::IN)];
    waited.extend(open.iter().map(|asker| {
        let wants = match asker.answer {
            None => PollFlags::IN,
            Some(_) => PollFlags::OUT,
        };
        PollFd::new(&asker.stream, wants)
    }));
    let patience = Timespec::try_from(PATIENCE).ok();
    // If a signal ended it, the next turn waits again.
    let _ = poll(&mut waited, patience.as_ref());
    let ready: Vec<bool> = waited.iter().map(|fd| !fd.revents().is_empty()).collect();
    drop(waited);
    let mut number = 0;
    open.retain_mut(|asker| {
        number += 1;
        let goes_on = !ready[number] || asker.goes_on(page);
        goes_on && asker.since.elapsed() < PATIENCE
    });
    loop {
        match listener.accept() {
            Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                if open.len() == MOST {
                    open.remove(0);
                }
                open.push(Asker {
                    stream,
                    since: Instant::now(),
                    request: Vec::new(),
                    answer: None,
                });
                // It has asked already, mostly.
                let goes_on = open.last_mut().is_some_and(|last| last.goes_on(page));
                if !goes_on {
                    open.pop();
                }
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(_) => {
                // Out of descriptors, for example.
                std::thread::sleep(Duration::from_millis(100));
                return;
            }
        }
    }
}

impl Asker {
    /// Reads and writes what does not have to be waited for. Whether there is more to come.
    fn goes_on(&mut self, page: &Mutex<String>) -> bool {
        while self.answer.is_none() {
            let mut chunk = [0; 1024];
            let count = match self.stream.read(&mut chunk) {
                Ok(count) => count,
                Err(error) => return is_for_now(&error),
            };
            self.request.extend_from_slice(&chunk[..count]);
            let ends_badly = count == 0 || self.request.len() > LONGEST;
            let bad = ends_badly.then_some("400 Bad Request");
            self.answer = status_of(&self.request).or(bad).map(|status| {
                let page = page.lock().unwrap_or_else(PoisonError::into_inner);
                answer(status, &page)
            });
        }
        let Some(left) = &mut self.answer else {
            return true;
        };
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(0) => return false,
                Ok(count) => drop(left.drain(..count)),
                Err(error) => return is_for_now(&error),
            }
        }
        false
    }
}

/// Whether the same may go on later.
fn is_for_now(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn answer(status: &str, page: &str) -> Vec<u8> {
    let body = if status.starts_with("200") { page } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

/// The answer to a request; `None` if more of it has to come.
fn status_of(bytes: &[u8]) -> Option<&'static str> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => None,
        Ok(httparse::Status::Complete(_)) => {
            let path = request.path.unwrap_or_default();
            let path = path.split('?').next().unwrap_or_default();
            Some(match (request.method, path) {
                (Some("GET"), "/metrics" | "/") => "200 OK",
                (Some("GET"), _) => "404 Not Found",
                _ => "405 Method Not Allowed",
            })
        }
        Err(_) => Some("400 Bad Request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        // It may have closed the connection with our bytes unread.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn it_answers_its_page_and_nothing_else() {
        let server = Server::listen("127.0.0.1:0/metrics").expect("a port");
        let address = server.address().expect("it has one");
        server.set("first".into());
        server.start().expect("a thread");
        // Those who never ask, or never read, hold up nobody.
        let silent = || TcpStream::connect(address).expect("it listens");
        let mut silent: Vec<_> = (0..2 * MOST).map(|_| silent()).collect();
        server.set("x".repeat(8 << 20));
        for stream in silent.iter_mut().skip(MOST) {
            // Those that came first are dropped.
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
        }
        server.set("second\n".into());
        let begun = Instant::now();
        let seen = ask(address, "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(seen.starts_with("HTTP/1.1 200 OK\r\n"), "{seen}");
        assert!(seen.ends_with("\r\n\r\nsecond\n"), "{seen}");
        assert!(begun.elapsed() < PATIENCE * 30, "each had its second");
        drop(silent);
        let status = |request| ask(address, request)[..12].to_owned();
        assert_eq!(status("GET /etc/passwd HTTP/1.1\r\n\r\n"), "HTTP/1.1 404");
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405");
        assert_eq!(status("nonsense\r\n\r\n"), "HTTP/1.1 400");
    }
}
