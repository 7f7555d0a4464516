//! The figures for Prometheus: read by hand, by the real `promtool`, and by a real Prometheus and node
//! exporter.

use crate::records::can_watch;
use crate::support::installed::{free_port, installed};
use crate::support::{Ended, plain_sunder};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

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
fn a_real_prometheus_reads_the_page_also_after_a_restart() {
    let Some(prometheus) = installed("prometheus").filter(|_| can_watch()) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let (watched, own) = (free_port(), free_port());
    let page = format!("127.0.0.1:{watched}");
    let config = folder.path().join("prometheus.yml");
    let text = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: sunder\n    static_configs:\n      \
         - targets: ['{page}']\n"
    );
    std::fs::write(&config, text).expect("written");
    let _prometheus = Ended::new(
        Command::new(prometheus)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.path().join("data").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{own}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    for _ in 0..2 {
        let watch = watching(&["--listen", &page]);
        wait_for(
            own,
            "/api/v1/query?query=sunder_samples_total",
            "\"value\":[",
        );
        wait_for(own, "/api/v1/query?query=up", ",\"1\"]");
        drop(watch);
        wait_for(own, "/api/v1/query?query=up", ",\"0\"]");
    }
}

#[test]
fn a_real_node_exporter_reads_the_file() {
    let Some(exporter) = installed("prometheus-node-exporter").filter(|_| can_watch()) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sunder.prom");
    let _watch = watching(&["--prom-file", file.to_str().expect("text")]);
    let port = free_port();
    let _exporter = Ended::new(
        Command::new(exporter)
            .arg("--collector.disable-defaults")
            .arg("--collector.textfile")
            .arg(format!(
                "--collector.textfile.directory={}",
                folder.path().display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    let page = wait_for(port, "/metrics", "sunder_samples_total");
    assert!(page.contains("node_textfile_scrape_error 0"), "{page}");
}
