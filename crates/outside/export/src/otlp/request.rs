//! Sends one batch by HTTP, and says what the receiver's answer means (specification "OTLP/HTTP Response").

use super::target::{Signal, Target};
use crate::sender::Answer;
use flate2::{Compression, write::GzEncoder};
use prost::Message;
use std::io::Write;
use std::time::{Duration, SystemTime};

/// The longest answer that is read.
const LONGEST_ANSWER: u64 = 64 << 10;
/// How much of what a receiver says is passed on, in characters.
const LONGEST_WORDS: usize = 200;
/// The version of the format of profiles that is spoken, which a receiver compares with its own.
const PROFILES_VERSION: (&str, &str) = ("otlp-profiles-development-version", "1");

/// Sends a batch.
pub fn send(agent: &ureq::Agent, target: &Target, batch: &[u8]) -> Answer {
    let mut request = agent
        .post(&target.url)
        .content_type("application/x-protobuf");
    for (name, value) in &target.headers {
        request = request.header(name, value);
    }
    if target.signal == Signal::Profiles {
        request = request.header(PROFILES_VERSION.0, PROFILES_VERSION.1);
    }
    let sent = match target.is_packed.then(|| packed(batch)).flatten() {
        Some(packed) => request.header("content-encoding", "gzip").send(&packed[..]),
        None => request.send(batch),
    };
    let at = &target.shown;
    match sent {
        Ok(mut response) => {
            let status = response.status().as_u16();
            let after = response.headers().get("retry-after");
            let after = after.and_then(|after| pause(after.to_str().ok()?));
            let reading = response.body_mut().with_config().limit(LONGEST_ANSWER);
            let said = reading.read_to_vec().unwrap_or_default();
            meaning(target, status, after, &said)
        }
        // The reason may have the whole address.
        Err(ureq::Error::BadUri(_)) => Answer::Never(format!("{at} is no address")),
        Err(error) => Answer::Later(
            format!("{at} can't be reached ({error}): what is to be sent waits"),
            None,
        ),
    }
}

fn packed(batch: &[u8]) -> Option<Vec<u8>> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(batch).ok()?;
    packer.finish().ok()
}

/// What an answer means. `said` is its body.
fn meaning(target: &Target, status: u16, after: Option<Duration>, said: &[u8]) -> Answer {
    let at = &target.shown;
    let words = |words: String| match words.as_str() {
        "" => String::new(),
        some => format!(" ({some})"),
    };
    match status {
        200..=299 => match rejected(said) {
            Some((count, why)) => Answer::Partly(format!(
                "{at} has refused {count} of what was sent{}",
                words(why)
            )),
            None => Answer::Taken,
        },
        429 | 502 | 503 | 504 => Answer::Later(
            format!(
                "{at} answers {status}{}: what is to be sent waits",
                words(reason(said))
            ),
            after,
        ),
        404 | 501 if target.signal == Signal::Profiles => Answer::Off(format!(
            "{at} answers {status}: no profiles are taken there, so none is sent any more"
        )),
        404 => Answer::Never(format!(
            "{at} answers 404: this signal is switched off there, or the path is not the receiver's"
        )),
        _ => Answer::Never(format!(
            "{at} answers {status}{}: what was sent is lost",
            words(reason(said))
        )),
    }
}

/// When to ask again, as `Retry-After` says it: a number of seconds, or a time.
fn pause(text: &str) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(SystemTime::now()).unwrap_or_default())
}

/// The answers of all signals are alike: how much was refused, and why.
#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    message: String,
}

/// What a receiver that has taken the request says it has left out.
fn rejected(said: &[u8]) -> Option<(i64, String)> {
    let part = Response::decode(said).ok()?.partial_success?;
    (part.rejected > 0).then(|| (part.rejected, shortened(&part.message)))
}

/// `google.rpc.Status`, the body of an answer that refuses.
#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

fn reason(said: &[u8]) -> String {
    Status::decode(said).map_or_else(|_| String::new(), |status| shortened(&status.message))
}

fn shortened(words: &str) -> String {
    let mut all = words.chars();
    let mut short: String = all.by_ref().take(LONGEST_WORDS).collect();
    if all.next().is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    fn of(signal: Signal, status: u16, said: &[u8]) -> Answer {
        let target = Target::of(signal, &|_| None).expect("no variables");
        meaning(&target, status, None, said)
    }

    #[test]
    fn answers_mean_what_the_specification_says() {
        assert_eq!(of(Signal::Logs, 200, b""), Answer::Taken);
        for status in [429, 502, 503, 504] {
            assert!(matches!(of(Signal::Logs, status, b""), Answer::Later(..)));
        }
        for status in [301, 307, 400, 401, 404, 413, 500] {
            assert!(matches!(of(Signal::Logs, status, b""), Answer::Never(_)));
        }
        for status in [404, 501] {
            assert!(matches!(of(Signal::Profiles, status, b""), Answer::Off(_)));
        }
        assert!(matches!(of(Signal::Profiles, 400, b""), Answer::Never(_)));
    }

    #[test]
    fn what_was_left_out_is_told_with_the_reason() {
        // By hand from the definition of the messages: {1: {1: 3, 2: "old"}}, {2: "old"}.
        let partly = b"\x0a\x07\x08\x03\x12\x03old";
        let Answer::Partly(told) = of(Signal::Metrics, 200, partly) else {
            panic!("3 are refused");
        };
        assert!(told.contains("3") && told.contains("(old)"), "{told}");
        // A warning alone.
        let warning = b"\x0a\x05\x12\x03old";
        assert_eq!(of(Signal::Metrics, 200, warning), Answer::Taken);
        let Answer::Never(told) = of(Signal::Metrics, 400, b"\x12\x03old") else {
            panic!("it is refused");
        };
        assert!(told.contains("400 (old)"), "{told}");
    }

    /// A password in the address is sent, and told to nobody.
    #[test]
    fn a_password_is_in_the_request_and_in_no_message() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it has one");
        let endpoint = format!("http://user:pw123@{address}/");
        let variable =
            |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| endpoint.clone());
        let target = Target::of(Signal::Logs, &variable).expect("an address");
        let answered = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("it asks");
            let mut asked = BufReader::new(stream.try_clone().expect("a socket")).lines();
            let head = asked
                .by_ref()
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty());
            let head: Vec<String> = head.collect();
            let answer = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            stream.write_all(answer).expect("it reads");
            // The second request gets no answer.
            drop(listener.accept());
            head
        });
        let agent = target.agent().expect("no certificates");
        let first = send(&agent, &target, b"");
        let second = send(&agent, &target, b"");
        let head = answered.join().expect("it has asked").join("\n");
        // `user:pw123` in base 64.
        assert!(head.contains("Basic dXNlcjpwdzEyMw=="), "{head}");
        for (answer, wanted) in [(first, "503"), (second, "reached")] {
            let Answer::Later(told, None) = answer else {
                panic!("it waits: {answer:?}");
            };
            let shown = format!("http://{address}/v1/logs");
            assert!(told.contains(&shown) && told.contains(wanted), "{told}");
            assert!(!told.contains("pw123"), "{told}");
        }
    }

    #[test]
    fn when_to_ask_again_is_a_number_or_a_time() {
        assert_eq!(pause(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(pause("soon"), None);
        assert_eq!(pause("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::ZERO));
        let at = SystemTime::now() + Duration::from_secs(90);
        let pause = pause(&httpdate::fmt_http_date(at)).expect("a time");
        assert!(pause > Duration::from_secs(60) && pause <= Duration::from_secs(90));
    }
}
