//! Writes results to the files and streams that the user asked for, in the formats that he
//! asked for.

use crate::args::{FailOn, Format, ReportOptions};
use crate::destination::{Destination, keep_writable, print};
use crate::status;
use crate::terminal;
use crate::usage::wrong;
use anyhow::{Context, Result};
use std::io::Write;
use std::path::Path;
use sunder_findings::{Answer, Findings, Shown};
use sunder_live::Notices;
use sunder_report::TextOptions;

/// The destinations of the reports. They are checked before the program runs, so that a
/// mistyped path does not cost a long run.
#[derive(Debug)]
pub struct Output {
    files: Vec<(Format, Destination)>,
    /// The format of the report on the terminal, if there is one.
    terminal: Option<Format>,
    options: ReportOptions,
    /// Whether the terminal's report goes to standard output instead of standard error.
    stdout: bool,
}

impl Output {
    /// The reports that `options` ask for. `stdout` says where a report without a file goes:
    /// `detect` leaves standard output to the program.
    ///
    /// # Errors
    /// If formats and files don't match, or a file's folder does not exist.
    pub fn new(options: &ReportOptions, stdout: bool) -> Result<Self> {
        let mut formats = options.format.clone();
        if formats.is_empty() && !options.output.is_empty() {
            formats = options.output.iter().map(|p| format_of(p)).collect();
        }
        if options.output.len() > formats.len() {
            let file = &options.output[formats.len()];
            return Err(wrong(format!(
                "-o {} has no --format of its own: give each -o its --format, or none at all, and the names' \
                 endings decide",
                file.display()
            )));
        }
        let files = options.output.iter().map(|path| Destination::new(path));
        let files = files.collect::<Result<Vec<_>>>()?;
        let files: Vec<_> = formats.iter().copied().zip(files).collect();
        let rest = &formats[files.len()..];
        if rest.len() > 1 {
            return Err(wrong(
                "only one --format can go to the terminal: give each other --format a file with -o FILE",
            ));
        }
        let terminal = match rest.first() {
            Some(format) => Some(*format),
            None if options.quiet => None,
            // Files for other tools were asked for; the user still gets the text.
            None => Some(Format::Text),
        };
        Ok(Self {
            files,
            terminal,
            options: options.clone(),
            stdout,
        })
    }

    /// Opens all files now, because rights that writing takes are about to be given up.
    ///
    /// # Errors
    /// If one can't be opened.
    pub fn hold(&mut self) -> Result<()> {
        let mut files = self.files.iter_mut();
        files.try_for_each(|(_, destination)| destination.hold())
    }

    /// As [`Self::hold`], and the files stay as they are until the reports are written, whatever the
    /// program does with them. Call it only while this process has one thread.
    ///
    /// # Errors
    /// If one can't be kept.
    pub fn keep_writable(&mut self) -> Result<()> {
        let mut files: Vec<_> = self.files.iter_mut().map(|(_, file)| file).collect();
        keep_writable(&mut files)
    }

    /// Writes all reports. A report that can't be written is reported on standard error and in
    /// the result; the others are still written.
    pub fn write(&self, findings: &Findings) -> Written {
        let mut failed = false;
        for (format, file) in &self.files {
            if let Err(error) = self.write_file(*format, file, findings) {
                complain(&error);
                failed = true;
            }
        }
        if let Some(format) = self.terminal
            && !(self.options.quiet && format == Format::Text)
            && let Err(error) = self.write_terminal(format, findings)
        {
            // A closed pipe (`sunder report | head`) is not an error.
            let closed = error
                .downcast_ref::<std::io::Error>()
                .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe);
            if !closed {
                complain(&error);
                failed = true;
            }
        }
        Written { failed }
    }

    /// The exit status for `--fail-on`, if it applies to these findings.
    pub fn verdict(&self, findings: &Findings) -> Option<u8> {
        let asked = |what| self.options.fail_on.contains(&what);
        match findings.answer(findings.run.threshold_percent).answer {
            Answer::Found if asked(FailOn::FalseSharing) => Some(status::FOUND),
            Answer::Inconclusive if asked(FailOn::Inconclusive) => Some(status::INCONCLUSIVE),
            _ => None,
        }
    }

    fn write_file(&self, format: Format, file: &Destination, findings: &Findings) -> Result<()> {
        let text = self.render(format, findings, false, terminal::FILE_WIDTH)?;
        file.write(&text)
    }

    fn write_terminal(&self, format: Format, findings: &Findings) -> Result<()> {
        let (out, err) = (std::io::stdout(), std::io::stderr());
        let (width, choice) = if self.stdout {
            (terminal::width(&out), anstream::AutoStream::choice(&out))
        } else {
            (terminal::width(&err), anstream::AutoStream::choice(&err))
        };
        let color = choice != anstream::ColorChoice::Never;
        let text = self.render(format, findings, color, width)?;
        if self.stdout {
            return print(&text);
        }
        let mut err = std::io::stderr();
        err.write_all(text.as_bytes())
            .context("cannot write to standard error")
    }

    fn render(
        &self,
        format: Format,
        findings: &Findings,
        color: bool,
        width: usize,
    ) -> Result<String> {
        let mut text = match format {
            Format::Text => sunder_report::text(
                findings,
                &TextOptions {
                    color,
                    ascii: terminal::is_ascii(),
                    width,
                    all: self.options.all,
                    words: self.options.words,
                    threshold: self.options.threshold,
                },
            ),
            Format::Json => sunder_report::json(findings)?,
            Format::Html => sunder_report::html(findings),
            Format::Sarif => match std::env::current_dir() {
                Ok(folder) => sunder_report::sarif_with_root(findings, &folder),
                Err(_) => sunder_report::sarif(findings),
            },
            Format::Lsp => {
                let folder = std::env::current_dir().context("cannot tell the current folder")?;
                sunder_report::diagnostics(findings, &folder)
            }
        };
        if !text.ends_with('\n') && !text.is_empty() {
            text.push('\n');
        }
        Ok(text)
    }
}

/// The outcome of writing the reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Whether one of them could not be written.
    pub failed: bool,
}

/// Prints an error as one line on standard error, in the form of all of Sunder's messages. If
/// standard error is closed, nothing happens.
pub fn complain(error: &anyhow::Error) {
    let mut sentence = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Many errors already contain the text of their cause.
        if sentence.ends_with(&cause) {
            continue;
        }
        if !sentence.is_empty() {
            sentence.push_str(": ");
        }
        sentence.push_str(&cause);
    }
    note(&sentence);
}

/// Longer messages, in characters, are cut: a name of the program may be of any length.
const LONGEST: usize = 8192;

/// As [`complain`], for one sentence, which may contain names from the program.
pub fn note(text: &str) {
    let shown = cut(text);
    let is_whole = shown.len() == text.len();
    let mut text = Shown(shown).to_string();
    if !is_whole {
        text.push('…');
    }
    if terminal::is_ascii() {
        text = sunder_report::in_ascii(&text);
    }
    let _ = writeln!(std::io::stderr(), "sunder: {text}");
}

/// As much of it as is shown.
fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(LONGEST);
    end.and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// Prints each notice of the crates as a line on standard error.
pub struct Standard;

impl Notices for Standard {
    fn note(&self, sentence: &str) {
        note(sentence);
    }
}

/// A result as indented JSON.
///
/// # Errors
/// If it can't be converted.
pub fn pretty(findings: &Findings) -> Result<String> {
    let text = serde_json::to_string_pretty(findings).context("cannot show the result")?;
    Ok(text + "\n")
}

/// The format that a file's name ends with; JSON for an unknown ending.
fn format_of(path: &Path) -> Format {
    if path == Path::new("-") {
        return Format::Text;
    }
    match path.extension().and_then(|e| e.to_str()) {
        Some("html" | "htm") => Format::Html,
        Some("sarif") => Format::Sarif,
        Some("jsonl") => Format::Lsp,
        Some("txt" | "text") => Format::Text,
        _ => Format::Json,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    #[test]
    fn long_messages_are_cut_between_characters() {
        let long = "ä".repeat(LONGEST + 1);
        assert_eq!(cut(&long), "ä".repeat(LONGEST));
        assert_eq!(cut(&long[2..]), &long[2..]);
        assert_eq!(cut("short"), "short");
    }

    fn output(arguments: &[&str]) -> Result<Output> {
        let all = ["sunder", "detect"].iter().chain(arguments);
        let cli = Cli::try_parse_from(all.chain(&["--", "true"]))?;
        let Command::Detect(detect) = cli.command else {
            anyhow::bail!("not detect")
        };
        Output::new(&detect.tell, false)
    }

    #[test]
    fn formats_and_files_are_matched_in_order() {
        let both = output(&["--format", "json", "-o", "a", "--format", "html", "-o", "b"]);
        let both = both.expect("valid");
        let files = both.files.iter().map(|(f, d)| (*f, d.path()));
        let expected = [
            (Format::Json, Path::new("a")),
            (Format::Html, Path::new("b")),
        ];
        assert!(files.eq(expected));
        assert_eq!(both.terminal, Some(Format::Text));
    }

    #[test]
    fn the_format_of_a_file_follows_from_its_name() {
        let names = ["x.html", "x.sarif", "x.jsonl", "x"];
        let named = output(&names.map(|name| ["-o", name]).concat()).expect("valid");
        let formats: Vec<_> = named.files.iter().map(|(f, _)| *f).collect();
        let wanted = [Format::Html, Format::Sarif, Format::Lsp, Format::Json];
        assert_eq!(formats, wanted);
    }

    #[test]
    fn formats_and_files_that_do_not_match_are_refused() {
        assert!(output(&["--format", "json", "-o", "a", "-o", "b"]).is_err());
        assert!(output(&["--format", "json", "--format", "html"]).is_err());
    }

    #[test]
    fn an_unwritable_place_is_refused_before_the_run() {
        let refused = |file: &str| {
            let error = output(&["-o", file]).expect_err("it can't be written");
            error.to_string()
        };
        assert!(refused("/").contains("it is a folder"));
        assert!(refused("/no-such-folder/x").contains("there is no folder /no-such-folder"));
        assert!(output(&["-o", "-"]).is_ok());
        assert!(output(&["-o", "x.json"]).is_ok());
    }

    #[test]
    fn quiet_leaves_only_files() {
        let quiet = output(&["-q", "-o", "a.json"]).expect("valid");
        assert_eq!(quiet.terminal, None);
        assert_eq!(quiet.files.len(), 1);
    }
}
