//! `sunder fleet`: what the watches of many machines wrote, summed up.

use crate::args::{Fleet, FleetCommand, FleetFormat, FleetReport};
use crate::confined;
use crate::destination::Destination;
use crate::terminal;
use anyhow::Result;
use std::path::Path;
use sunder_findings::escaped_json;
use sunder_report::TextOptions;

/// Runs the command. Returns the exit status.
///
/// # Errors
/// If a file can't be read or written, or there is no record.
pub fn run(options: &Fleet) -> Result<u8> {
    match &options.command {
        FleetCommand::Report(options) => report(options),
    }
}

fn report(options: &FleetReport) -> Result<u8> {
    let output = options
        .output
        .as_deref()
        .filter(|path| *path != Path::new("-"));
    let format = match (options.format, output) {
        (Some(format), _) => format,
        (None, Some(path)) => format_of(path),
        (None, None) => FleetFormat::Text,
    };
    let mut destination = Destination::new(output.unwrap_or_else(|| Path::new("-")))?;
    destination.hold()?;
    confined::to_files();
    let fleet = sunder_watched::read(&options.files)?;
    let mut text = match format {
        FleetFormat::Text => {
            sunder_report::fleet_text(&fleet, &look(output.is_none(), options.all))
        }
        FleetFormat::Html => sunder_report::fleet_html(&fleet),
        FleetFormat::Markdown => sunder_report::fleet_markdown(&fleet),
        FleetFormat::Json => escaped_json(serde_json::to_string_pretty(&fleet)?),
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    destination.write(&text)?;
    Ok(0)
}

/// The format that a file's name stands for.
fn format_of(path: &Path) -> FleetFormat {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("html" | "htm") => FleetFormat::Html,
        Some("md" | "markdown") => FleetFormat::Markdown,
        Some("txt" | "text") => FleetFormat::Text,
        _ => FleetFormat::Json,
    }
}

/// How the text looks on standard output, or in a file.
fn look(stdout: bool, all: bool) -> TextOptions {
    let out = std::io::stdout();
    let (color, width) = match stdout {
        true => (
            anstream::AutoStream::choice(&out) != anstream::ColorChoice::Never,
            terminal::width(&out),
        ),
        false => (false, terminal::FILE_WIDTH),
    };
    TextOptions {
        color,
        ascii: terminal::is_ascii(),
        width,
        all,
        ..TextOptions::default()
    }
}
