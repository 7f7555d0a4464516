//! The picture of a cache line: one row for each thread, one column for each byte, a ruler
//! above and the fields' names below.

use super::page::{Page, Paint};
use crate::clean::{clean, columns, cut, fit};
use crate::describe::{Touch, inner_field, thread_label};
use crate::figures::{counted, short};
use std::collections::BTreeMap;
use sunder_findings::{Line, Object, Word};

const INDENT: &str = "   ";
/// Columns for the totals at the right, if there is room.
const TOTALS: usize = 14;

/// The size of the picture.
pub(super) struct Extent {
    /// Bytes of a line.
    pub(super) line_size: u32,
    /// The most rows; the busiest threads are kept.
    pub(super) rows: usize,
}

/// Draws `line` of `object`.
pub(super) fn draw(page: &mut Page, line: &Line, object: &Object, extent: &Extent) {
    let rows = rows(line);
    let kept = keep_busiest(&rows, extent.rows);
    let label = kept
        .iter()
        .map(|r| columns(&r.label))
        .max()
        .unwrap_or(0)
        .max(6);
    let frame = INDENT.len() + 2; // a space and a bar
    let (per_row, label) = fit_width(page.width(), frame, label, extent.line_size);
    let totals = page.width() > frame + label + per_row as usize + TOTALS;
    let mut from = 0;
    while from < extent.line_size.max(1) {
        let to = (from + per_row).min(extent.line_size.max(1));
        let words: Vec<&Word> = line
            .words
            .iter()
            .filter(|w| w.offset < to && w.offset.saturating_add(w.size.max(1)) > from)
            .collect();
        // A part of a wide line that no thread touched is not drawn.
        if !words.is_empty() || per_row >= extent.line_size {
            ruler(page, label, from, to);
            for row in &kept {
                row.draw(page, label, from..to, totals);
            }
            fields(page, label, from..to, &words, object);
        }
        from = to;
    }
    if rows.len() > kept.len() {
        let more = rows.len() - kept.len();
        page.line(&[(
            Paint::Dim,
            &format!(
                "{INDENT}… and {} with fewer accesses",
                counted(more, "more thread")
            ),
        )]);
    }
}

/// Bytes in a row and columns of the label, so that both fit into `width`.
fn fit_width(width: usize, frame: usize, label: usize, line_size: u32) -> (u32, usize) {
    for bytes in [64_u32, 32] {
        let bytes = bytes.min(line_size.max(8));
        let room = width.saturating_sub(frame + bytes as usize);
        if room >= label.min(10) {
            let with_totals = room.saturating_sub(TOTALS);
            let most = if with_totals >= 10 { with_totals } else { room };
            return (bytes, label.min(most));
        }
    }
    (16, label.min(width.saturating_sub(frame + 16)))
}

/// The accesses of one thread to the line.
struct Row {
    id: u32,
    label: String,
    touched: Vec<(u32, u32, Touch)>,
    reads: u64,
    writes: u64,
}

fn rows(line: &Line) -> Vec<Row> {
    let mut rows: BTreeMap<u32, Row> = BTreeMap::new();
    for word in &line.words {
        for thread in &word.threads {
            let Some(touch) = Touch::of(thread) else {
                continue;
            };
            let row = rows.entry(thread.id).or_insert_with(|| Row {
                id: thread.id,
                label: thread_label(thread.id, thread.name.as_deref()),
                touched: Vec::new(),
                reads: 0,
                writes: 0,
            });
            row.touched.push((word.offset, word.size.max(1), touch));
            row.reads = row.reads.saturating_add(thread.reads);
            row.writes = row.writes.saturating_add(thread.stores());
        }
    }
    rows.into_values().collect()
}

/// The `most` busiest threads, by number.
fn keep_busiest(rows: &[Row], most: usize) -> Vec<&Row> {
    let mut kept: Vec<&Row> = rows.iter().collect();
    kept.sort_by_key(|r| std::cmp::Reverse(r.reads.saturating_add(r.writes)));
    kept.truncate(most);
    kept.sort_by_key(|r| r.id);
    kept
}

fn ruler(page: &mut Page, label: usize, from: u32, to: u32) {
    let mut text = " ".repeat(INDENT.len() + label + 2);
    let mut at = from;
    while at < to {
        text.push_str(&fit(&at.to_string(), 8));
        at += 8;
    }
    page.line(&[(Paint::Dim, &text)]);
}

impl Row {
    fn draw(&self, page: &mut Page, label: usize, bytes: std::ops::Range<u32>, totals: bool) {
        let name = fit(&self.label, label);
        let cells = self.runs(bytes);
        let mut pieces: Vec<(Paint, &str)> = vec![
            (Paint::Plain, INDENT),
            (Paint::Plain, &name),
            (Paint::Dim, " │"),
        ];
        pieces.extend(cells.iter().map(|(paint, text)| (*paint, text.as_str())));
        let sums = format!("│{}", self.sums());
        if totals {
            pieces.push((Paint::Dim, &sums));
        }
        page.line(&pieces);
    }

    /// The row's bytes, joined to pieces of one colour.
    fn runs(&self, bytes: std::ops::Range<u32>) -> Vec<(Paint, String)> {
        let mut out: Vec<(Paint, String)> = Vec::new();
        for byte in bytes {
            let touch = self
                .touched
                .iter()
                .filter(|&&(at, size, _)| byte >= at && byte - at < size)
                .map(|&(_, _, touch)| touch)
                .max();
            let (paint, letter) = match touch {
                None => (Paint::Dim, '·'),
                Some(touch @ Touch::Read) => (Paint::Read, touch.letter()),
                Some(touch @ Touch::Write) => (Paint::Write, touch.letter()),
                Some(touch @ Touch::Atomic) => (Paint::Atomic, touch.letter()),
            };
            match out.last_mut() {
                Some((last, text)) if *last == paint => text.push(letter),
                _ => out.push((paint, letter.to_string())),
            }
        }
        out
    }

    fn sums(&self) -> String {
        let part = |count: u64, letter: char| {
            (count > 0).then(|| format!("{letter} {}", short(count as f64)))
        };
        [part(self.reads, 'r'), part(self.writes, 'w')]
            .into_iter()
            .flatten()
            .fold(String::new(), |all, one| format!("{all} {one}"))
    }
}

/// A name that starts at a column.
struct Label {
    at: u32,
    name: String,
}

/// Writes the names below the picture: a row of elements if there are any, and a row of fields.
/// Names that were cut are listed in full after them.
fn fields(
    page: &mut Page,
    label: usize,
    bytes: std::ops::Range<u32>,
    words: &[&Word],
    object: &Object,
) {
    let mut parents: Vec<Label> = Vec::new();
    let mut leaves: Vec<Label> = Vec::new();
    let mut last = String::new();
    for word in words {
        let Some(field) = &word.field else {
            last.clear();
            continue;
        };
        let path = inner_field(field, object);
        // A lock may have several words with one name.
        if path == last {
            continue;
        }
        last.clone_from(&path);
        let (parent, leaf) = match path.rsplit_once('.') {
            Some((parent, leaf)) => (parent.to_owned(), leaf.to_owned()),
            None => (String::new(), path),
        };
        let at = word.offset.max(bytes.start);
        if parents.last().is_none_or(|p| p.name != parent) {
            parents.push(Label { at, name: parent });
        }
        leaves.push(Label { at, name: leaf });
    }
    let indent = INDENT.len() + label + 2;
    let mut cut_off: Vec<String> = Vec::new();
    for row in [&parents, &leaves] {
        if row.iter().all(|l| l.name.is_empty()) {
            continue;
        }
        let rows = whole_labels(row, bytes.start, page.width().saturating_sub(indent));
        let rows = rows.unwrap_or_else(|| vec![cut_labels(row, &bytes, &mut cut_off)]);
        for text in rows {
            let pad = " ".repeat(indent);
            page.line(&[(Paint::Plain, &pad), (Paint::Code, &text)]);
        }
    }
    if !cut_off.is_empty() {
        let pad = " ".repeat(indent);
        page.paragraph(&pad, &pad, Paint::Dim, &cut_off.join(", "));
    }
}

/// The names below the bytes at which they start, relative to `first`, in rows of at most
/// `room` columns. A name that begins too close after another goes to the second row. `None` if
/// the names don't fit into two rows without being cut.
fn whole_labels(labels: &[Label], first: u32, room: usize) -> Option<Vec<String>> {
    let mut rows: Vec<String> = Vec::new();
    for label in labels.iter().filter(|l| !l.name.is_empty()) {
        let name = clean(&label.name);
        let at = label.at.saturating_sub(first) as usize;
        if at + columns(&name) > room {
            return None;
        }
        // Names need a gap between them.
        let free = rows.iter().position(|r| columns(r) < at);
        let row = match free {
            Some(row) => row,
            None if rows.len() < 2 => {
                rows.push(String::new());
                rows.len() - 1
            }
            None => return None,
        };
        let row = &mut rows[row];
        let gap = at.saturating_sub(columns(row));
        row.push_str(&" ".repeat(gap));
        row.push_str(&name);
    }
    Some(rows)
}

/// The names of `row` below the bytes at which they start. Names that had to be cut are added
/// to `cut_off` in full.
fn cut_labels(row: &[Label], bytes: &std::ops::Range<u32>, cut_off: &mut Vec<String>) -> String {
    let mut text = String::new();
    let mut column = bytes.start;
    for (i, label) in row.iter().enumerate() {
        let end = row.get(i + 1).map_or(bytes.end, |next| next.at);
        let room = end.saturating_sub(label.at) as usize;
        // Names need a gap between them, except at the row's end.
        let room = if i + 1 < row.len() {
            room.saturating_sub(1)
        } else {
            room
        };
        text.push_str(&" ".repeat(label.at.saturating_sub(column) as usize));
        let name = cut(&clean(&label.name), room);
        if name != label.name {
            cut_off.push(format!("{}: {}", label.at, label.name));
        }
        column = label.at.max(column) + columns(&name) as u32;
        text.push_str(&name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(all: &[(u32, &str)]) -> Vec<Label> {
        let label = |&(at, name): &(u32, &str)| Label {
            at,
            name: name.to_owned(),
        };
        all.iter().map(label).collect()
    }

    #[test]
    fn adjacent_names_are_drawn_in_two_rows() {
        let rows = |all: &[(u32, &str)], room| whole_labels(&labels(all), 0, room);
        let one = vec!["reads   bytes".to_owned()];
        assert_eq!(rows(&[(0, "reads"), (8, "bytes")], 16), Some(one));
        let two = vec![
            "requests        errors".to_owned(),
            "        bytes".to_owned(),
        ];
        let three = [(0, "requests"), (8, "bytes"), (16, "errors")];
        assert_eq!(rows(&three, 24), Some(two));
        // Three names at once, or a name beyond the edge, must be cut.
        let close = [(0, "requests"), (4, "failures"), (8, "bytes")];
        assert_eq!(rows(&close, 24), None);
        assert_eq!(rows(&[(0, "requests")], 7), None);
        let cut = &mut Vec::new();
        assert_eq!(
            cut_labels(&labels(&three), &(0..24), cut),
            "reques… bytes   errors"
        );
        assert_eq!(cut.concat(), "0: requests");
    }
}
