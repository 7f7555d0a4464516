//! A page over HTTP, for Prometheus to read. One connection at a time, each for a second at most: whoever
//! asks slowly gets no answer, and nobody else waits long.

use anyhow::{Context, Result};
use std::io::{Read, Write};
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
        let place = place.strip_suffix("/metrics").unwrap_or(place);
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
        let page = Arc::clone(&self.page);
        let serve = move || {
            loop {
                match listener.accept() {
                    Ok((stream, _)) => {
                        let page = page.lock().unwrap_or_else(PoisonError::into_inner).clone();
                        // Who asks has gone, or is slow: nothing is owed to it.
                        let _ = answer(stream, &page);
                    }
                    // Out of descriptors, for example.
                    Err(_) => std::thread::sleep(Duration::from_millis(100)),
                }
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

fn answer(mut stream: TcpStream, page: &str) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let status = loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        let mut chunk = [0; 1024];
        let count = stream.read(&mut chunk)?;
        request.extend_from_slice(&chunk[..count]);
        if let Some(status) = status_of(&request) {
            break status;
        }
        if count == 0 || request.len() > LONGEST {
            break "400 Bad Request";
        }
    };
    let body = if status.starts_with("200") { page } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    Ok(())
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
        // One that never asks holds up nobody for long.
        let silent = TcpStream::connect(address).expect("it listens");
        server.set("second\n".into());
        let seen = ask(address, "GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(seen.starts_with("HTTP/1.1 200 OK\r\n"), "{seen}");
        assert!(seen.ends_with("\r\n\r\nsecond\n"), "{seen}");
        drop(silent);
        let status = |request| ask(address, request)[..12].to_owned();
        assert_eq!(status("GET /etc/passwd HTTP/1.1\r\n\r\n"), "HTTP/1.1 404");
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405");
        assert_eq!(status("nonsense\r\n\r\n"), "HTTP/1.1 400");
    }
}
