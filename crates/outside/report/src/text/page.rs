//! Lines of a given width, with or without colour. All text is cleaned and cut here, so callers
//! need not do that.

use super::options::TextOptions;
use crate::clean::{ascii, clean, columns, cut, wrap};
use anstyle::{AnsiColor, Style};

/// The role of a piece of text, which determines its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paint {
    Plain,
    Bold,
    Dim,
    Alarm,
    Good,
    Read,
    Write,
    Atomic,
    Code,
}

impl Paint {
    fn style(self) -> Style {
        let plain = Style::new();
        let color = |c: AnsiColor| plain.fg_color(Some(c.into()));
        match self {
            Self::Plain => plain,
            Self::Bold => plain.bold(),
            Self::Dim => plain.dimmed(),
            Self::Alarm => color(AnsiColor::Red).bold(),
            Self::Good => color(AnsiColor::Green).bold(),
            Self::Read => color(AnsiColor::Cyan),
            Self::Write => color(AnsiColor::Red).bold(),
            Self::Atomic => color(AnsiColor::Magenta).bold(),
            Self::Code => color(AnsiColor::Yellow),
        }
    }
}

/// A report while it is written.
pub(super) struct Page {
    out: String,
    color: bool,
    ascii: bool,
    width: usize,
}

impl Page {
    pub(super) fn new(options: &TextOptions) -> Self {
        Self {
            out: String::new(),
            color: options.color,
            ascii: options.ascii,
            width: options.width.clamp(40, 120),
        }
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn finish(self) -> String {
        self.out
    }

    pub(super) fn blank(&mut self) {
        self.out.push('\n');
    }

    /// Writes one line, cut at the page's width.
    pub(super) fn line(&mut self, pieces: &[(Paint, &str)]) {
        let mut left = self.width;
        let last = pieces.iter().rposition(|(_, text)| !text.trim().is_empty());
        for (i, &(paint, text)) in pieces.iter().enumerate() {
            if last.is_none_or(|last| i > last) {
                break;
            }
            let mut text = cut(&self.shown(text), left);
            left -= columns(&text).min(left);
            if Some(i) == last {
                text.truncate(text.trim_end().len());
            }
            self.push(paint, &text);
        }
        self.out.push('\n');
    }

    /// Writes `left`, then a rule, and `right` at the page's right edge.
    pub(super) fn heading(&mut self, left: &[(Paint, &str)], right: (Paint, &str)) {
        let end = cut(&self.shown(right.1), self.width / 3);
        let room = self.width - columns(&end) - 4;
        let mut used = 0;
        for &(paint, text) in left {
            let text = cut(&self.shown(text), room - used);
            used += columns(&text);
            self.push(paint, &text);
        }
        let rule = "─".repeat(room + 2 - used);
        self.push(Paint::Dim, &format!(" {rule} "));
        self.push(right.0, &end);
        self.out.push('\n');
    }

    /// Writes text over as many lines as it needs, with `first` before the first line and
    /// `rest` before the others.
    pub(super) fn paragraph(&mut self, first: &str, rest: &str, paint: Paint, text: &str) {
        let room = self.width.saturating_sub(columns(first).max(columns(rest)));
        for (i, line) in wrap(&self.shown(text), room).iter().enumerate() {
            let indent = if i == 0 { first } else { rest };
            self.push(Paint::Plain, indent);
            self.push(paint, line);
            self.out.push('\n');
        }
    }

    /// Writes the beginning of a text, on at most `most` lines.
    pub(super) fn beginning(&mut self, indent: &str, paint: Paint, text: &str, most: usize) {
        let room = self.width.saturating_sub(columns(indent));
        let lines = wrap(&self.shown(text), room);
        for (number, line) in lines.iter().take(most).enumerate() {
            let is_cut = number + 1 == most && lines.len() > most;
            let line = if is_cut {
                cut(&format!("{line} …"), room)
            } else {
                line.clone()
            };
            self.push(Paint::Plain, indent);
            self.push(paint, &line);
            self.out.push('\n');
        }
    }

    /// The text as it may be shown, in the characters that can be.
    fn shown(&self, text: &str) -> String {
        let text = clean(text);
        if self.ascii { ascii(&text) } else { text }
    }

    fn push(&mut self, paint: Paint, text: &str) {
        if text.is_empty() {
            return;
        }
        // Rules, and the marks of what was cut, take one column here, too.
        let ascii_text;
        let text = if self.ascii {
            ascii_text = text.replace('─', "-").replace('…', "~");
            &ascii_text
        } else {
            text
        };
        if self.color && paint != Paint::Plain {
            let style = paint.style();
            self.out.push_str(&format!("{style}{text}{style:#}"));
        } else {
            self.out.push_str(text);
        }
    }
}
