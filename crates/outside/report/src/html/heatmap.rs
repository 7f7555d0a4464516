//! The heat map of a line: bytes across, threads down. Computes the layout; the style sheet has
//! the colours.

use crate::clean::{clean, cut};
use crate::describe::{self, Touch, inner_field, thread_label};
use crate::figures::{counted, grouped, short};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use sunder_findings::{Finding, Findings, Line, Object, ThreadUse, Word};

const LEFT: u32 = 118;
const BYTE: u32 = 13;
const RULER: u32 = 16;
const ROW: u32 = 24;
/// Columns of the small font in the width of ten bytes.
const CHARS_PER_10_BYTES: u32 = 19;
/// The distance between two rows of names.
const NAME_ROW: u32 = 15;
/// The number of bytes side by side; wider lines continue in another block.
const PER_BLOCK: u32 = 64;
/// The number of bytes side by side on a narrow screen.
const PER_PART: u32 = 16;
/// The most rows; the busiest threads are kept.
const MOST_ROWS: usize = 32;
/// The most words: as many as the widest line that is drawn has bytes. A file may have more of them, one above
/// the other; the busiest are kept.
const MOST_WORDS: usize = 256;

pub(super) struct Map {
    pub(super) title: String,
    pub(super) facts: Vec<String>,
    /// A description for readers who can't see the map.
    pub(super) label: String,
    pub(super) blocks: Vec<Block>,
}

pub(super) struct Block {
    /// Names the drawing in the page's markup, for the parts that repeat it.
    pub(super) id: String,
    /// The touched parts for narrow screens, which show them one below the other.
    pub(super) parts: Vec<Part>,
    pub(super) left: u32,
    pub(super) track: u32,
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) field_y: u32,
    pub(super) ticks: Vec<Tick>,
    pub(super) rows: Vec<Row>,
    pub(super) fields: Vec<Name>,
    pub(super) elements: Vec<Name>,
}

/// Some bytes of a block.
pub(super) struct Part {
    pub(super) x: u32,
    pub(super) width: u32,
}

pub(super) struct Tick {
    pub(super) x: u32,
    pub(super) text: u32,
}

pub(super) struct Row {
    pub(super) y: u32,
    pub(super) text_y: u32,
    pub(super) label: String,
    pub(super) title: String,
    pub(super) cells: Vec<Cell>,
}

pub(super) struct Cell {
    pub(super) touch: &'static str,
    /// The step of the heat scale, 1 to 4.
    pub(super) heat: u32,
    pub(super) title: String,
    pub(super) bytes: Vec<u32>,
    pub(super) middle: u32,
    pub(super) text: String,
}

pub(super) struct Name {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) width: u32,
    pub(super) text: String,
    pub(super) title: String,
}

impl Map {
    /// The maps of the finding's lines, at most `most`.
    /// `at` tells the drawings of findings apart.
    pub(super) fn of_finding(
        all: &Findings,
        at: usize,
        finding: &Finding,
        most: usize,
    ) -> Vec<Self> {
        let size = describe::drawn_line_size(all, finding);
        finding
            .lines
            .iter()
            .take(most)
            .enumerate()
            .map(|(i, line)| Self::new(&format!("map-{at}-{i}"), finding, i, line, size))
            .collect()
    }

    fn new(id: &str, finding: &Finding, index: usize, line: &Line, size: u32) -> Self {
        let title = match (finding.lines.len(), finding.further_lines) {
            (1, _) => "Line".to_owned(),
            (of, 0) => format!("Line {} of {of}", index + 1),
            _ => "A line".to_owned(),
        };
        let mut facts = vec![line.address.to_string()];
        facts.extend(describe::line_position(line));
        if !finding.latent {
            let rate = short(line.interleavings_per_second);
            facts.push(format!("{rate} interleavings/s"));
            let writes = line.interleaved_writes;
            facts.extend(writes.map(|writes| counted(writes as usize, "interleaved write")));
        }
        let threads = threads(line);
        if threads.len() > MOST_ROWS {
            facts.push(format!(
                "the {MOST_ROWS} busiest of {} threads",
                threads.len()
            ));
        }
        if line.words.len() > MOST_WORDS {
            let all = line.words.len();
            facts.push(format!("the {MOST_WORDS} busiest of {all} words"));
        }
        let line = &with_fewer_words(line);
        Self {
            label: label(&title, line),
            title,
            facts,
            blocks: (0..size)
                .step_by(PER_BLOCK as usize)
                .map(|from| from..(from + PER_BLOCK).min(size))
                .filter(|bytes| size <= PER_BLOCK || line.words.iter().any(|w| meets(w, bytes)))
                .map(|bytes| Block::new(id, line, &finding.object, bytes))
                .collect(),
        }
    }
}

/// The map's description in words.
fn label(title: &str, line: &Line) -> String {
    let rows: Vec<String> = threads(line)
        .into_iter()
        .take(MOST_ROWS)
        .map(|(id, name, _)| {
            let parts: Vec<String> = line
                .words
                .iter()
                .filter_map(|w| {
                    let touch = Touch::of(w.threads.iter().find(|t| t.id == id)?)?;
                    let last = w.offset.saturating_add(w.size.max(1) - 1);
                    Some(format!("{} {}-{last}", touch.verb(), w.offset))
                })
                .collect();
            format!("thread {}: {}", thread_label(id, name), parts.join(", "))
        })
        .collect();
    format!("{title}, bytes by thread. {}", rows.join("; "))
}

/// The line without the words that are not drawn.
fn with_fewer_words(line: &Line) -> Cow<'_, Line> {
    if line.words.len() <= MOST_WORDS {
        return Cow::Borrowed(line);
    }
    let accesses = |word: &Word| {
        let all = word.threads.iter().map(ThreadUse::accesses);
        all.fold(0_u64, u64::saturating_add)
    };
    let mut kept: Vec<(usize, &Word)> = line.words.iter().enumerate().collect();
    kept.sort_by_key(|(_, word)| Reverse(accesses(word)));
    kept.truncate(MOST_WORDS);
    kept.sort_by_key(|&(at, _)| at);
    Cow::Owned(Line {
        words: kept.into_iter().map(|(_, word)| word.clone()).collect(),
        ..*line
    })
}

fn meets(word: &Word, bytes: &std::ops::Range<u32>) -> bool {
    word.offset < bytes.end && word.offset.saturating_add(word.size.max(1)) > bytes.start
}

/// The line's threads by number, with their accesses; the busiest are kept.
fn threads(line: &Line) -> Vec<(u32, Option<&str>, u64)> {
    let mut all: BTreeMap<u32, (Option<&str>, u64)> = BTreeMap::new();
    for thread in line.words.iter().flat_map(|w| &w.threads) {
        let entry = all.entry(thread.id).or_default();
        entry.0 = entry.0.or(thread.name.as_deref());
        entry.1 = entry.1.saturating_add(thread.accesses());
    }
    all.into_iter().map(|(id, (n, a))| (id, n, a)).collect()
}

impl Block {
    fn new(id: &str, line: &Line, object: &Object, bytes: std::ops::Range<u32>) -> Self {
        let words: Vec<&Word> = line.words.iter().filter(|w| meets(w, &bytes)).collect();
        let busiest = line
            .words
            .iter()
            .flat_map(|w| &w.threads)
            .map(ThreadUse::accesses)
            .max()
            .unwrap_or(0);
        let mut shown = threads(line);
        shown.sort_by_key(|&(_, _, accesses)| Reverse(accesses));
        shown.truncate(MOST_ROWS);
        shown.sort_by_key(|&(id, ..)| id);
        let rows: Vec<Row> = shown
            .iter()
            .enumerate()
            .map(|(i, &(id, name, _))| {
                let y = RULER + i as u32 * ROW;
                let label = thread_label(id, name);
                Row {
                    y,
                    text_y: y + 14,
                    label: cut(&label, 16),
                    cells: words
                        .iter()
                        .filter_map(|w| Cell::new(w, id, &label, busiest, &bytes))
                        .collect(),
                    title: label,
                }
            })
            .collect();
        let field_y = RULER + rows.len() as u32 * ROW;
        let (fields, elements) = names(&words, object, &bytes, field_y);
        let lowest = fields.iter().chain(&elements).map(|n| n.y).max();
        let height = lowest.map_or(field_y, |y| y + 5);
        let track = (bytes.end - bytes.start) * BYTE;
        let parts = bytes
            .clone()
            .step_by(PER_PART as usize)
            .map(|from| from..(from + PER_PART).min(bytes.end))
            .filter(|part| words.iter().any(|w| meets(w, part)))
            .map(|part| Part {
                x: x_of(part.start, &bytes),
                width: (part.end - part.start) * BYTE,
            })
            .collect();
        Self {
            id: format!("{id}-{}", bytes.start),
            parts,
            left: LEFT,
            track,
            width: LEFT + PER_BLOCK.max(bytes.end - bytes.start) * BYTE + 4,
            height,
            field_y,
            ticks: bytes
                .clone()
                .step_by(8)
                .map(|at| Tick {
                    x: x_of(at, &bytes),
                    text: at,
                })
                .collect(),
            rows,
            fields,
            elements,
        }
    }
}

fn x_of(byte: u32, bytes: &std::ops::Range<u32>) -> u32 {
    LEFT + (byte.clamp(bytes.start, bytes.end) - bytes.start) * BYTE
}

impl Cell {
    fn new(
        word: &Word,
        thread: u32,
        label: &str,
        busiest: u64,
        bytes: &std::ops::Range<u32>,
    ) -> Option<Self> {
        let used = word.threads.iter().find(|t| t.id == thread)?;
        let touch = Touch::of(used)?;
        let first = word.offset.max(bytes.start);
        let end = word.offset.saturating_add(word.size.max(1)).min(bytes.end);
        let (from, to) = (x_of(first, bytes), x_of(end, bytes));
        let count = short(used.accesses() as f64);
        let long = format!("{} {count}", touch.letter());
        let fits =
            |text: &str| text.chars().count() as u32 * 10 <= (end - first) * CHARS_PER_10_BYTES;
        let text = [long, count]
            .into_iter()
            .find(|t| fits(t))
            .unwrap_or_else(|| touch.letter().to_string());
        Some(Self {
            touch: touch.class(),
            heat: heat(used.accesses(), busiest),
            title: format!(
                "thread {label}, {}: {} reads, {} writes, {} updates ({} atomic)",
                describe::word_name(word),
                grouped(used.reads),
                grouped(used.writes),
                grouped(used.updates),
                grouped(used.atomics)
            ),
            bytes: (first..end).map(|b| x_of(b, bytes)).collect(),
            middle: from.midpoint(to),
            text,
        })
    }
}

/// The step of the heat scale, by magnitude: each step is a quarter of the busiest word's
/// logarithm.
fn heat(accesses: u64, busiest: u64) -> u32 {
    let log = |n: u64| (n.max(1) as f64).ln_1p();
    let share = log(accesses) / log(busiest);
    ((share * 4.0).ceil() as u32).clamp(1, 4)
}

fn names(
    words: &[&Word],
    object: &Object,
    bytes: &std::ops::Range<u32>,
    top: u32,
) -> (Vec<Name>, Vec<Name>) {
    let mut fields = Vec::new();
    // The position and name of each field.
    let mut whole: Vec<(u32, String)> = Vec::new();
    let mut elements: Vec<(u32, u32, String)> = Vec::new();
    // A lock may have several words with one name.
    for run in words.chunk_by(|a, b| a.field == b.field) {
        let (Some(word), Some(last)) = (run.first(), run.last()) else {
            continue;
        };
        let Some(field) = &word.field else { continue };
        let path = inner_field(field, object);
        let (parent, leaf) = path.rsplit_once('.').unwrap_or(("", &path));
        let from = word.offset.max(bytes.start);
        let end = last.offset.saturating_add(last.size.max(1)).min(bytes.end);
        let after = words.iter().map(|w| w.offset).filter(|&o| o > last.offset);
        let next = after.min().unwrap_or(bytes.end);
        whole.push((from, clean(leaf)));
        fields.push(Name {
            x: x_of(from, bytes),
            y: top + 16,
            width: (end.saturating_sub(from) * BYTE).saturating_sub(2),
            text: cut(leaf, room(next.saturating_sub(from))),
            title: describe::word_name(&Word {
                size: last.offset.saturating_add(last.size.max(1)) - word.offset,
                ..(*word).clone()
            }),
        });
        match elements.last_mut() {
            Some((_, last, name)) if *name == parent => *last = end,
            _ => elements.push((from, end, parent.to_owned())),
        }
    }
    let mut below = 0;
    for ((field, row), (_, name)) in fields.iter_mut().zip(rows_of(&whole, bytes)).zip(whole) {
        field.y += row * NAME_ROW;
        field.text = name;
        below = below.max(row);
    }
    let starts: Vec<u32> = elements.iter().map(|e| e.0).collect();
    let elements = elements
        .into_iter()
        .enumerate()
        .filter(|(_, (_, _, name))| !name.is_empty())
        .map(|(i, (from, end, name))| {
            let next = starts.get(i + 1).copied().unwrap_or(bytes.end);
            Name {
                x: x_of(from, bytes),
                y: top + 16 + (1 + below) * NAME_ROW,
                width: end.saturating_sub(from) * BYTE,
                text: cut(&name, room(next.saturating_sub(from))),
                title: name,
            }
        })
        .collect();
    (fields, elements)
}

/// For each name, its row of two: a name goes to the second row if it begins too close after
/// another. Empty if the names don't fit into two rows.
fn rows_of(names: &[(u32, String)], bytes: &std::ops::Range<u32>) -> Vec<u32> {
    // The end of each row's last name in tenths of a byte's width.
    let mut ends = [0_u32; 2];
    let mut rows = Vec::new();
    for (at, name) in names {
        let start = (at - bytes.start) * 10;
        let columns = name.chars().count() as u32 + 1;
        let end = start + (columns * 100).div_ceil(CHARS_PER_10_BYTES);
        let free = ends.iter().position(|&e| e <= start);
        let fits = end <= (bytes.end - bytes.start) * 10;
        let Some(row) = free.filter(|_| fits) else {
            return Vec::new();
        };
        ends[row] = end;
        rows.push(row as u32);
    }
    rows
}

fn room(bytes: u32) -> usize {
    (bytes * CHARS_PER_10_BYTES / 10).saturating_sub(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_names_are_drawn_in_two_rows() {
        let rows = |names: &[(u32, &str)]| {
            let names: Vec<_> = names.iter().map(|(at, n)| (*at, (*n).to_owned())).collect();
            rows_of(&names, &(0..64))
        };
        // Eight bytes have room for 15 columns, one of them for the gap.
        assert_eq!(rows(&[(0, "fourteen_wide_"), (8, "next")]), [0, 0]);
        let three = [(0, "requests_handled"), (8, "bytes"), (16, "failures")];
        assert_eq!(rows(&three), [0, 1, 0]);
        // The third name fits into no row; the last one is too close to the edge.
        let close = [
            (0, "requests_handled"),
            (4, "requests_refused"),
            (8, "bytes"),
        ];
        assert_eq!(rows(&close), [0_u32; 0]);
        assert_eq!(rows(&[(56, "requests_handled")]), [0_u32; 0]);
    }

    /// A file may say anything.
    #[test]
    fn thousands_of_words_are_cut_and_counted() {
        let mut finding = sunder_findings::examples::linear_regression();
        let line = &mut finding.lines[0];
        let mut word = line.words[0].clone();
        word.threads.truncate(1);
        word.threads[0].writes = 1;
        line.words = (0..40_000)
            .map(|n| {
                let mut word = word.clone();
                word.field = Some(format!("field_{n}"));
                // These are the busiest.
                word.threads[0].writes += 7 * u64::from(n % 400 == 9);
                word
            })
            .collect();
        let all = sunder_findings::examples::result(vec![finding]);
        let map = &Map::of_finding(&all, 0, &all.findings[0], 1)[0];
        let wanted = "the 256 busiest of 40000 words";
        assert!(
            map.facts.iter().any(|fact| fact == wanted),
            "{:?}",
            map.facts
        );
        let block = &map.blocks[0];
        assert_eq!(block.rows[0].cells.len(), MOST_WORDS);
        assert_eq!(block.fields.len(), MOST_WORDS);
        let has = |name: &str| block.fields.iter().any(|field| field.title.contains(name));
        assert!(has("field_9") && has("field_39609") && has("field_0"));
        assert!(!has("field_39999"));
    }

    #[test]
    fn heat_grows_with_magnitude() {
        assert_eq!(heat(1000, 1000), 4);
        assert_eq!(heat(0, 1000), 1);
        assert_eq!(heat(1, 1_000_000), 1);
        // ln(1001) is half of ln(1000001).
        assert_eq!(heat(1000, 1_000_000), 3);
        assert_eq!(heat(0, 0), 4);
        assert_eq!(heat(u64::MAX, u64::MAX), 4);
    }
}
