//! The figures for Prometheus: read by hand, by the real `promtool`, and by a real Prometheus and node
//! exporter.

use crate::contrib::queries;
use crate::records::{can_watch, records};
use crate::support::installed::{free_port, installed};
use crate::support::{Ended, plain_sunder};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use sunder_findings::Record;

/// How long an answer is waited for: Prometheus is slow to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn watching(arguments: &[&str]) -> Ended {
    let mut command = plain_sunder();
    command.args(["watch", "--quiet", "--interval", "1s", "--pid", "1"]);
    Ended::new(command.args(arguments))
}

/// What a server answers; `None` if it does not.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.starts_with("HTTP/1.1 200").then_some(answer)
}

/// Asks until the answer has `wanted`.
fn wait_for(port: u16, path: &str, wanted: &str) -> String {
    let since = Instant::now();
    loop {
        let answer = get(port, path).unwrap_or_default();
        if answer.contains(wanted) {
            return answer;
        }
        assert!(since.elapsed() < PATIENCE, "no {wanted}: {answer}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn promtool(arguments: &[&str], input: &str) {
    let Some(promtool) = installed("promtool") else {
        return;
    };
    let mut checking = Command::new(promtool)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut to = checking.stdin.take().expect("piped");
    to.write_all(input.as_bytes()).expect("it reads");
    drop(to);
    let checked = checking.wait_with_output().expect("it ends");
    assert!(checked.status.success(), "{checked:?}\n{input}");
}

#[test]
fn the_page_is_well_formed_and_counts_samples() {
    if !can_watch() {
        return;
    }
    let port = free_port();
    let _watch = watching(&["--listen", &format!("127.0.0.1:{port}/metrics")]);
    let answer = wait_for(port, "/metrics", "sunder_samples_total");
    let (_, page) = answer.split_once("\r\n\r\n").expect("a body");
    promtool(&["check", "metrics"], page);
    let value = |page: &str| {
        let line = page
            .lines()
            .find_map(|l| l.strip_prefix("sunder_interrupt_cpu_seconds_total "));
        line.and_then(|l| l.parse::<f64>().ok()).expect("a figure")
    };
    let first = value(page);
    let since = Instant::now();
    while value(&get(port, "/metrics").expect("it answers")) <= first {
        assert!(since.elapsed() < PATIENCE, "it stands still at {first}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn the_rules_of_alerts_are_well_formed() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/watch/alerts.yaml");
    promtool(&["check", "rules", rules.to_str().expect("text")], "");
}

#[test]
fn each_alert_is_raised_when_it_should_be_and_not_before() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/watch/alerts.test.yaml");
    promtool(&["test", "rules", tests.to_str().expect("text")], "");
}

#[test]
fn the_queries_of_the_dashboard_can_be_parsed() {
    // As rules that record them: promtool parses the queries of those.
    let mut rules = String::from("groups:\n  - name: dashboard\n    rules:\n");
    for (number, query) in queries().iter().enumerate() {
        // A string of JSON is one of YAML, too.
        let query = serde_json::json!(query);
        rules.push_str(&format!(
            "      - record: of:query{number}\n        expr: {query}\n"
        ));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rules.yaml");
    std::fs::write(&file, &rules).expect("written");
    promtool(&["check", "rules", file.to_str().expect("text")], &rules);
}

/// A Prometheus. Dropping it ends it.
struct Prometheus {
    program: PathBuf,
    folder: PathBuf,
    port: u16,
    running: Option<Ended>,
}

impl Prometheus {
    /// One that reads these addresses each second, and keeps what it reads in `folder`.
    fn start(program: PathBuf, folder: &Path, of: &[(&str, &str)]) -> Self {
        let jobs = of.iter().map(|(name, address)| {
            format!("  - job_name: {name}\n    static_configs: [{{targets: ['{address}']}}]\n")
        });
        let jobs: String = jobs.collect();
        let text = format!("global: {{scrape_interval: 1s}}\nscrape_configs:\n{jobs}");
        std::fs::write(folder.join("prometheus.yml"), text).expect("written");
        let mut started = Self {
            program,
            folder: folder.to_owned(),
            port: free_port(),
            running: None,
        };
        started.restart();
        started
    }

    /// Ends it in order, if it runs, and starts it with what it has kept.
    fn restart(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.kill(libc::SIGTERM);
            running.child().wait().expect("it ends");
        }
        let (folder, port) = (self.folder.display(), self.port);
        let mut command = Command::new(&self.program);
        command
            .arg(format!("--config.file={folder}/prometheus.yml"))
            .arg(format!("--storage.tsdb.path={folder}/data"))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.running = Some(Ended::new(&mut command));
    }

    /// The values of an expression without blanks, now.
    fn query(&self, expression: &str) -> Vec<f64> {
        let path = format!("/api/v1/query?query={}", encoded(expression));
        let answer = get(self.port, &path).unwrap_or_default();
        let Some((_, body)) = answer.split_once("\r\n\r\n") else {
            return Vec::new();
        };
        // The body may come in pieces, with their lengths between them.
        let (from, to) = (body.find('{'), body.rfind('}'));
        let json = from.zip(to).and_then(|(from, to)| body.get(from..=to));
        let json: serde_json::Value = match json.map(serde_json::from_str) {
            Some(Ok(json)) => json,
            _ => return Vec::new(),
        };
        let results = json["data"]["result"].as_array();
        let all = results.into_iter().flatten();
        all.filter_map(|one| one["value"][1].as_str()?.parse().ok())
            .collect()
    }

    /// Whether it answers an expression, be it with nothing.
    fn accepts(&self, expression: &str) -> bool {
        let asked: String = expression.bytes().map(|b| format!("%{b:02x}")).collect();
        let answer = get(self.port, &format!("/api/v1/query?query={asked}"));
        answer.is_some_and(|answer| answer.contains("\"status\":\"success\""))
    }

    /// Asks until the values are as wanted.
    fn wait_for(&self, expression: &str, wanted: impl Fn(&[f64]) -> bool) -> Vec<f64> {
        let since = Instant::now();
        loop {
            let values = self.query(expression);
            if wanted(&values) {
                return values;
            }
            assert!(since.elapsed() < PATIENCE, "{expression}: {values:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// An expression as a part of an address.
fn encoded(expression: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    expression.bytes().map(encode).collect()
}

/// The samples that a watch has told in its statuses, written to this file.
fn told_samples(file: &Path) -> Vec<f64> {
    let text = std::fs::read(file).unwrap_or_default();
    let whole = text.iter().rposition(|&byte| byte == b'\n');
    let records = records(&text[..whole.map_or(0, |at| at + 1)]);
    let of = |record: &Record| match record {
        Record::Status(status) => Some(status.samples as f64),
        Record::Finding(_) => None,
    };
    records.iter().filter_map(of).collect()
}

/// Both ways to Prometheus at once: the page, and the file by way of the node exporter.
#[test]
fn a_real_prometheus_has_the_watch_s_figures_also_after_restarts() {
    let programs = (
        installed("prometheus"),
        installed("prometheus-node-exporter"),
    );
    let (Some(prometheus), Some(exporter)) = programs else {
        return;
    };
    if !can_watch() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let page = format!("127.0.0.1:{}", free_port());
    let of_exporter = format!("127.0.0.1:{}", free_port());
    let texts = folder.path().join("texts");
    std::fs::create_dir(&texts).expect("ours");
    let _exporter = Ended::new(
        Command::new(exporter)
            .args(["--collector.disable-defaults", "--collector.textfile"])
            .arg(format!(
                "--collector.textfile.directory={}",
                texts.display()
            ))
            .arg(format!("--web.listen-address={of_exporter}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    let jobs = [("page", page.as_str()), ("file", of_exporter.as_str())];
    let mut prometheus = Prometheus::start(prometheus, folder.path(), &jobs);
    let file = texts.join("sunder.prom");
    let begun = Instant::now();
    let mut sum = 0.0;
    // What Prometheus had of the first watch by its page and its file, then of the second.
    let mut seen = Vec::new();
    // The second watch counts from 0 again.
    for run in ["1", "2"] {
        let told = folder.path().join(run);
        let mut watch = watching(&[
            "--listen",
            &page,
            "--prom-file",
            file.to_str().expect("text"),
            "--json",
            told.to_str().expect("text"),
        ]);
        for job in ["page", "file"] {
            let expression = format!("sunder_samples_total{{job=\"{job}\"}}");
            let has_told = |values: &[f64]| {
                let told = told_samples(&told);
                matches!(values, [value] if told.len() > 2 && told.contains(value))
            };
            seen.extend(prometheus.wait_for(&expression, has_told));
        }
        prometheus.restart();
        prometheus.wait_for("up{job=\"page\"}", |values| values == [1.0]);
        prometheus.wait_for("sunder_cpus{job=\"page\"}", |values| values.len() == 1);
        for query in queries() {
            assert!(prometheus.accepts(&query), "{query}");
        }
        watch.kill(libc::SIGTERM);
        assert!(watch.child().wait().expect("it ends").success());
        prometheus.wait_for("up{job=\"page\"}", |values| values == [0.0]);
        sum += told_samples(&told).last().expect("some");
    }
    // Over all restarts no rate is below 0, and the whole increase is what both watches counted at most.
    // Prometheus extrapolates it beyond the first and the last point by about an interval.
    let seconds = begun.elapsed().as_secs() + 1;
    for (at, job) in ["page", "file"].into_iter().enumerate() {
        let series = format!("sunder_samples_total{{job=\"{job}\"}}");
        let least = format!("min_over_time(rate({series}[10s])[{seconds}s:1s])");
        let least = prometheus.wait_for(&least, |values| values.len() == 1);
        assert!(least[0] >= 0.0, "{job}: {least:?}");
        let all = prometheus.query(&format!("increase({series}[1h])"));
        assert!(
            all.len() == 1 && all[0] <= sum * 1.25,
            "{job}: {all:?}, {sum}"
        );
        // None where the second watch had counted more than the first ever did when it was first asked:
        // an idle processor counts nothing, a busy one 99 samples a second.
        let resets = prometheus.query(&format!("resets({series}[1h])"));
        let least = if seen[at + 2] < seen[at] { 1.0 } else { 0.0 };
        assert!(
            matches!(resets[..], [some] if (least..=1.0).contains(&some)),
            "{job}: {resets:?}, {seen:?}"
        );
    }
    let page = get(
        of_exporter
            .rsplit(':')
            .next()
            .expect("a port")
            .parse()
            .expect("a port"),
        "/metrics",
    );
    assert!(
        page.expect("it answers")
            .contains("node_textfile_scrape_error 0")
    );
}
