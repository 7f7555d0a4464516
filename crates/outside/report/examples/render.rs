//! Renders a saved result: `render FILE|example text|html|json|sarif`. The word
//! `example` stands for a built-in result with one finding of each kind.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use sunder_findings::{Findings, examples};
use sunder_report::{TextOptions, html, json, sarif, text};

fn main() -> ExitCode {
    match render() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("render: {message}");
            ExitCode::FAILURE
        }
    }
}

fn render() -> Result<(), String> {
    let mut args = std::env::args().skip(1);
    let (Some(file), Some(format)) = (args.next(), args.next()) else {
        return Err(
            "usage: render FILE|example text|html|json|sarif [WIDTH] [all] [words] [color]".into(),
        );
    };
    let rest: Vec<String> = args.collect();
    let has = |word: &str| rest.iter().any(|a| a == word);
    let findings = if file == "example" {
        let mut all = examples::report();
        for finding in &mut all.findings {
            finding.advice = sunder_plan::advise(finding, all.machine.line_size);
        }
        all
    } else {
        Findings::open(Path::new(&file)).map_err(|e| e.to_string())?
    };
    let options = TextOptions {
        color: has("color"),
        width: rest.iter().find_map(|a| a.parse().ok()).unwrap_or(100),
        all: has("all"),
        words: has("words"),
        threshold: None,
        ascii: has("ascii"),
    };
    let out = match format.as_str() {
        "text" => text(&findings, &options),
        "html" => html(&findings),
        "json" => json(&findings).map_err(|e| e.to_string())?,
        "sarif" => sarif(&findings),
        other => return Err(format!("{other:?} is no format")),
    };
    std::io::stdout()
        .write_all(out.as_bytes())
        .map_err(|e| e.to_string())
}
