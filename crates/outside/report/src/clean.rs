//! Cleans names, which come from binaries and command lines that nobody has checked. Before
//! they are displayed, characters that move a terminal's cursor, hide text or change its
//! direction are replaced.

use sunder_findings::Shown;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// `text` as it may be shown; see [`Shown`].
pub(crate) fn clean(text: &str) -> String {
    Shown(text).to_string()
}

/// A sentence for people in ASCII, for locales that have nothing else.
pub fn in_ascii(text: &str) -> String {
    ascii(text).replace('\u{a0}', " ")
}

/// `text` in ASCII: our own signs by what comes next to them, and others, as in names, as `?`. No-break
/// spaces stay, for whoever breaks lines.
pub(crate) fn ascii(text: &str) -> String {
    let mut out = String::new();
    for c in text.replace(" · ", " - ").chars() {
        match c {
            '\u{a0}' => out.push(c),
            c if c.is_ascii() => out.push(c),
            '·' => out.push('.'),
            '│' => out.push('|'),
            '─' => out.push('-'),
            '→' => out.push_str("->"),
            '…' => out.push_str("..."),
            c => out.extend(std::iter::repeat_n('?', c.width().unwrap_or(1))),
        }
    }
    out
}

/// The number of columns of `text` in a terminal.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// `text` in at most `most` columns, with `…` at the end if it was longer.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if columns(text) <= most {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let width = c.width().unwrap_or(0);
        if used + width + 1 > most {
            break;
        }
        used += width;
        out.push(c);
    }
    if most > 0 {
        out.push('…');
    }
    out
}

/// `text` in exactly `width` columns: cut, or filled with spaces.
pub(crate) fn fit(text: &str, width: usize) -> String {
    let mut out = cut(text, width);
    out.extend(std::iter::repeat_n(' ', width - columns(&out).min(width)));
    out
}

/// Breaks `text` at spaces into lines of at most `width` columns. A word that is longer is
/// broken at that width. No-break spaces, and the space before a percent sign, are not broken.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let text = text.replace(" %", "\u{a0}%");
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split([' ', '\n']).filter(|w| !w.is_empty()) {
        let gap = usize::from(!line.is_empty());
        if columns(&line) + gap + columns(word) <= width {
            if gap == 1 {
                line.push(' ');
            }
            line.push_str(word);
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for c in word.chars() {
            if columns(&line) + c.width().unwrap_or(0) > width {
                lines.push(std::mem::take(&mut line));
            }
            line.push(c);
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    for line in &mut lines {
        *line = line.replace('\u{a0}', " ");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal_that_is_no_text() {
        assert_eq!(clean("a\u{1b}[31mb\r\n\u{202e}c\td"), "a�[31mb���c d");
        assert_eq!(clean("größe数え"), "größe数え");
    }

    #[test]
    fn in_ascii_text_keeps_its_columns() {
        assert_eq!(ascii("2 s · 3 threads …"), "2 s - 3 threads ...");
        assert_eq!(ascii("│AA··│"), "|AA..|");
        assert_eq!(ascii("größe数え"), "gr??e????");
    }

    #[test]
    fn cutting_counts_columns() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abcdefg", 6), "abcde…");
        assert_eq!(cut("数数数", 5), "数数…");
        assert_eq!(cut("数数数", 4), "数…");
        assert_eq!(cut("abc", 0), "");
        assert_eq!(fit("数数数", 4), "数… ");
        assert_eq!(fit("ab", 4), "ab  ");
    }

    #[test]
    fn wrapping_breaks_long_words_only_where_it_must() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij k", 8), ["abcdefgh", "ij k"]);
        assert_eq!(wrap("it costs 71 % now", 11), ["it costs", "71 % now"]);
        assert!(wrap("", 8).is_empty());
    }
}
