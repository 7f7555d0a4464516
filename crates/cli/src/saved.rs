//! The commands that only read files: `import`, `report` and `diff`.

use crate::args::{Diff, DiffFormat, FailOn, Import, Report, ReportOptions};
use crate::confined;
use crate::kept;
use crate::output::Output;
use crate::status;
use crate::terminal;
use crate::usage::wrong;
use anyhow::{Context, Result};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use sunder_findings as findings;
use sunder_findings::{Answer, Findings, escaped_json};
use sunder_report::TextOptions;

/// `sunder report`.
///
/// # Errors
/// If the file is not a result.
pub fn report(options: &Report) -> Result<u8> {
    let output = confined_output(&options.tell)?;
    let cannot = || format!("cannot read {}", options.file.display());
    let mut file = File::open(&options.file).with_context(cannot)?;
    let is_file = file.metadata().is_ok_and(|about| about.is_file());
    if is_file && sunder_recording::is_recording(&mut file).with_context(cannot)? {
        let result = kept::result(&file, options).with_context(cannot)?;
        return finish(&output, &result);
    }
    if options.line_size.is_some() {
        return Err(wrong(
            "--line-size needs a run that was kept with --record: a result has no events to judge again",
        ));
    }
    let mut result = open(&options.file)?;
    if let Some(threshold) = options.tell.threshold {
        result.run.threshold_percent = threshold;
        result.verdict = Some(result.answer(threshold));
    }
    finish(&output, &result)
}

/// `sunder diff`.
///
/// # Errors
/// If one of the files is not a result.
pub fn diff(options: &Diff) -> Result<u8> {
    confined::to_files();
    let old = open(&options.old)?;
    let new = open(&options.new)?;
    let comparison = findings::compare(&old, &new);
    let text = match options.format {
        _ if options.json => escaped_json(serde_json::to_string_pretty(&comparison)?),
        DiffFormat::Json => escaped_json(serde_json::to_string_pretty(&comparison)?),
        DiffFormat::Markdown => sunder_report::comparison_markdown(&comparison),
        DiffFormat::Html => sunder_report::comparison_html(&comparison, &old, &new),
        DiffFormat::Text => comparison_text(&comparison, options.all),
    };
    let text = format!("{}\n", text.trim_end_matches('\n'));
    let mut out = std::io::stdout();
    if let Err(error) = out.write_all(text.as_bytes())
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        return Err(error).context("cannot write the comparison");
    }
    let worse = options.fail_on.contains(&FailOn::FalseSharing) && comparison.is_worse();
    if worse {
        return Ok(status::FOUND);
    }
    let inconclusive = options.fail_on.contains(&FailOn::Inconclusive)
        && new.answer(new.run.threshold_percent).answer == Answer::Inconclusive;
    Ok(if inconclusive {
        status::INCONCLUSIVE
    } else {
        0
    })
}

/// A comparison for the terminal or the file that standard output is.
fn comparison_text(comparison: &findings::Comparison, all: bool) -> String {
    let out = std::io::stdout();
    let options = TextOptions {
        color: anstream::AutoStream::choice(&out) != anstream::ColorChoice::Never,
        ascii: terminal::is_ascii(),
        width: terminal::width(&out),
        all,
        ..TextOptions::default()
    };
    sunder_report::comparison_text(comparison, &options)
}

/// `sunder import`.
///
/// # Errors
/// If the file is not a `perf.data` file, or has no events that can be judged.
pub fn import(options: &Import) -> Result<u8> {
    let output = confined_output(&options.tell)?;
    let result = sunder_pipeline::import(&options.file, options.line_size, options.tell.threshold)?;
    finish(&output, &result)
}

/// The reports that `options` ask for. From then on files can only be read.
///
/// # Errors
/// As [`Output::new`]; and if a file can't be opened.
pub fn confined_output(options: &ReportOptions) -> Result<Output> {
    let mut output = Output::new(options, true)?;
    output.hold()?;
    confined::to_files();
    Ok(output)
}

fn open(path: &Path) -> Result<Findings> {
    Findings::open(path).with_context(|| format!("cannot read {}", path.display()))
}

fn finish(output: &Output, result: &Findings) -> Result<u8> {
    let written = output.write(result);
    Ok(match output.verdict(result) {
        Some(found) => found,
        None if written.failed => status::FAILED,
        None => 0,
    })
}
