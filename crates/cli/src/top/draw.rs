//! Draws the view: the objects with their cost, below them the selected one's line, code and threads. It
//! changes nothing.

use super::repair::{color_of, in_brief, in_full};
use super::view::{Page, SLICES, Sort, View, cost_now, name};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use sunder_findings::{Finding, Shown, file_name};
use sunder_report::TextOptions;

/// The heights of a sparkline, and what stands for them in ASCII.
const HEIGHTS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII_HEIGHTS: [char; 9] = [' ', '.', ':', '-', '=', '+', '*', '#', '@'];

/// The rows for objects at least, and of the picture of a line at most.
const FEWEST_OBJECTS: u16 = 5;
const PICTURE_ROWS: u16 = 12;

const HELP: [&str; 21] = [
    "Keys",
    "",
    "  up, down     select an object (also k, j)",
    "  Enter        open the finding: all lines, code, what to do; Esc closes it",
    "  s            sort by the cost now, by the cost of the run, by name",
    "  /            show only objects whose name or code has what you type",
    "  Esc          takes the filter away",
    "  r            move the selected object's bytes to lines of their own (repair)",
    "  u            put its bytes back",
    "  Space        freeze the view, and let it go on",
    "  q            leave the view; a program that was started here goes on",
    "  Ctrl-C       passed on to a program that was started here; else as q",
    "",
    "now  the share of its threads' time that an object costs in the last 2 s",
    "run  the same since the beginning; the curve is 30 s of turns of threads",
    "",
    "A repair puts a library of ours into the program, after a question. Bytes",
    "that gain nothing go back by themselves; q, and the end of sunder, put all",
    "bytes back and take the library out.",
    "",
    "What the program prints is kept, and shown when it has ended.",
];

/// What is asked before the library goes into the program.
const CONFIRM: [&str; 14] = [
    "Repair the selected object?",
    "",
    "Sunder puts a library of its own into the running program. All threads are",
    "stopped for some milliseconds then, and whenever bytes are moved or put",
    "back. The program's output and its exit status stay the same.",
    "",
    "The object's bytes are moved when threads contend for them, and stay only",
    "if the threads get on faster. What can't be moved safely is left alone,",
    "with the reason.",
    "",
    "u puts them back. Leaving the view puts all bytes back and takes the",
    "library out.",
    "",
    "y   do it          any other key   leave the program alone",
];

/// Draws `view`, in ASCII if asked for. `title` names the program.
pub fn draw(frame: &mut Frame<'_>, view: &View, title: &str, ascii: bool) {
    let [head, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(heading(view, title), head);
    match view.page {
        Page::Objects => objects_page(frame, body, view, ascii),
        Page::Finding(from) => finding_page(frame, body, view, from, ascii),
        Page::Help | Page::Confirm => {
            let text: &[&str] = match view.page {
                Page::Help => &HELP,
                _ => &CONFIRM,
            };
            let lines: Vec<Line> = text.iter().map(|line| Line::raw(*line)).collect();
            frame.render_widget(Paragraph::new(lines), body);
        }
    }
    frame.render_widget(footing(view), foot);
}

fn heading(view: &View, title: &str) -> Line<'static> {
    let picture = &view.picture;
    let frozen = if view.is_frozen { "FROZEN - " } else { "" };
    let text = format!(
        "sunder top - {frozen}{} s, {} samples, {} threads - {}",
        picture.elapsed.as_secs(),
        picture.samples,
        picture.threads.len(),
        Shown(title)
    );
    Line::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

fn footing(view: &View) -> Line<'static> {
    if view.is_typing {
        return Line::raw(format!("filter: {}_", Shown(&view.filter)));
    }
    let sort = match view.sort {
        Sort::Now => "now",
        Sort::Cost => "run",
        Sort::Name => "name",
    };
    let filter = match view.filter.as_str() {
        "" => "filter".to_owned(),
        filter => format!("filter: {}", Shown(filter)),
    };
    let keys = [
        ("q", "leave".to_owned()),
        ("s", format!("sort: {sort}")),
        ("r", "repair".to_owned()),
        ("u", "undo".to_owned()),
        ("/", filter),
        ("Space", "freeze".to_owned()),
        ("Enter", "open".to_owned()),
        ("?", "help".to_owned()),
    ];
    let mut spans = Vec::new();
    for (key, what) in keys {
        // All of them fit into 80 columns.
        spans.push(Span::styled(
            key,
            Style::new().add_modifier(Modifier::REVERSED),
        ));
        spans.push(Span::raw(format!(" {what} ")));
    }
    Line::from(spans)
}

fn objects_page(frame: &mut Frame<'_>, area: Rect, view: &View, ascii: bool) {
    let objects = view.objects();
    let selected = objects.get(view.position()).copied();
    let text = selected.map_or_else(String::new, |finding| {
        sunder_report::line_picture(&view.picture.findings, finding, &look(area.width, ascii))
    });
    let picture = picture_lines(&text);
    let height = (picture.len() as u16).min(PICTURE_ROWS);
    let object = selected.map(name).unwrap_or_default();
    let standing = view.standing(&object);
    let mut lines = match standing {
        Some(standing) => wrapped(&in_full(standing), area.width, ascii)
            .into_iter()
            .map(|row| Line::styled(row, color_of(standing)))
            .collect(),
        None if selected.is_some() => vec![dim(&format!("the hottest line of {object}"))],
        None => vec![Line::default()],
    };
    let head = lines.len() as u16;
    let details = head + 6 + if selected.is_some() { height } else { 0 };
    let details = details.min(area.height.saturating_sub(FEWEST_OBJECTS + 1));
    let [table, details] =
        Layout::vertical([Constraint::Min(FEWEST_OBJECTS), Constraint::Length(details)])
            .areas(area);
    table_of(frame, table, view, &objects, ascii);
    let [drawn, below] =
        Layout::vertical([Constraint::Length(height + head), Constraint::Min(1)]).areas(details);
    lines.extend(picture);
    frame.render_widget(Paragraph::new(lines), drawn);
    let [code, threads] =
        Layout::horizontal([Constraint::Percentage(64), Constraint::Percentage(36)]).areas(below);
    let text = selected.map_or_else(Vec::new, |finding| source(finding, code.width, ascii));
    frame.render_widget(Paragraph::new(text), code);
    frame.render_widget(Paragraph::new(threads_of(view)), threads);
}

/// The options of text that comes from reports.
fn look(width: u16, ascii: bool) -> TextOptions {
    TextOptions {
        ascii,
        width: usize::from(width),
        ..TextOptions::default()
    }
}

fn dim(text: &str) -> Line<'static> {
    Line::styled(text.to_owned(), Style::new().add_modifier(Modifier::DIM))
}

/// The columns before an object's name.
const FIGURES: usize = 17;

fn table_of(frame: &mut Frame<'_>, area: Rect, view: &View, objects: &[&Finding], ascii: bool) {
    let width = usize::from(area.width);
    let curve = SLICES.min(width.saturating_sub(FIGURES) / 3);
    let room = width.saturating_sub(FIGURES + curve + 1);
    let mut lines = vec![dim(&format!(
        "   now     run   {:<room$} {}",
        "object", "the last 30 s"
    ))];
    if objects.is_empty() {
        let text = if view.filter.is_empty() {
            "No line is seen to be contended so far."
        } else {
            "No object fits the filter; Esc takes it away."
        };
        lines.push(Line::raw(text));
    }
    let rows = usize::from(area.height.saturating_sub(1)).max(1);
    let position = view.position();
    let first = (position + 1).saturating_sub(rows);
    for (number, finding) in objects.iter().enumerate().skip(first).take(rows) {
        let color = match finding.sharing {
            sunder_findings::Sharing::False => Color::Red,
            sunder_findings::Sharing::Mixed => Color::Yellow,
            sunder_findings::Sharing::True => Color::Reset,
        };
        let mut style = Style::new().fg(color);
        if number == position {
            style = style.add_modifier(Modifier::REVERSED);
        }
        let figures = format!(
            "{:5.1} % {:5.1} % ",
            cost_now(finding),
            finding.cost_percent
        );
        let object = name(finding);
        let (room, last) = match view.standing(&object) {
            Some(standing) => {
                let text = in_brief(standing);
                let room = (room + curve).saturating_sub(text.len());
                (room, Span::styled(format!(" {text}"), color_of(standing)))
            }
            None => {
                let curve = sparkline(&finding.timeline, curve, ascii);
                let color = Style::new().fg(Color::Cyan);
                (room, Span::styled(format!(" {curve}"), color))
            }
        };
        let shown: String = object.chars().take(room).collect();
        lines.push(Line::from(vec![
            Span::styled(format!("{figures} {shown:<room$}"), style),
            last,
        ]));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// The last `width` slices, each as high as it is to the highest.
fn sparkline(slices: &[f64], width: usize, ascii: bool) -> String {
    let heights = if ascii { ASCII_HEIGHTS } else { HEIGHTS };
    // Two slices share a column where there is room for half of them only.
    let shared = slices.len().div_ceil(width.max(1)).max(1);
    let columns = slices.chunks(shared).map(|chunk| chunk.iter().sum::<f64>());
    let columns: Vec<f64> = columns.collect();
    let most = columns.iter().copied().fold(0.0, f64::max);
    let height = |amount: &f64| {
        let share = if most > 0.0 { amount / most } else { 0.0 };
        heights[((share * 8.0).ceil() as usize).min(8)]
    };
    columns.iter().map(height).collect()
}

/// The picture of a line, with the letters of accesses in colours.
fn picture_lines(text: &str) -> Vec<Line<'static>> {
    let colored = |line: &str| {
        let Some(at) = line.find(['│', '|']) else {
            return Line::raw(line.to_owned());
        };
        let (label, cells) = line.split_at(at);
        let mut spans = vec![Span::raw(label.to_owned())];
        for cell in cells.chars() {
            let color = match cell {
                'r' => Color::Cyan,
                'W' => Color::Red,
                'A' => Color::Magenta,
                _ => Color::Reset,
            };
            spans.push(Span::styled(cell.to_string(), Style::new().fg(color)));
        }
        Line::from(spans)
    };
    text.lines().map(colored).collect()
}

/// The text in rows of at most `width` columns, broken between words; two rows at most.
fn wrapped(text: &str, width: u16, ascii: bool) -> Vec<String> {
    let mut rows = vec![String::new()];
    for word in text.split(' ') {
        let last = rows.len() - 1;
        let row = &mut rows[last];
        let gap = usize::from(!row.is_empty());
        let fits = row.chars().count() + gap + word.chars().count() <= usize::from(width);
        if fits || row.is_empty() || last > 0 {
            row.push_str(&" "[..gap]);
            row.push_str(word);
        } else {
            rows.push(word.to_owned());
        }
    }
    rows.into_iter().map(|row| cut(row, width, ascii)).collect()
}

/// The text in at most `width` columns, with dots at the end if it was longer.
fn cut(mut text: String, width: u16, ascii: bool) -> String {
    let most = usize::from(width);
    let dots = if ascii { "..." } else { "…" };
    if Line::raw(text.as_str()).width() > most {
        let room = most.saturating_sub(Line::raw(dots).width());
        while Line::raw(text.as_str()).width() > room {
            text.pop();
        }
        text.push_str(dots);
    }
    text
}

/// The code that uses the object most, with its neighbours, in `width` columns.
fn source(finding: &Finding, width: u16, ascii: bool) -> Vec<Line<'static>> {
    let sampled = finding.sites.iter().filter(|site| site.calls.is_none());
    let Some(site) = sampled.min_by_key(|site| std::cmp::Reverse(site.accesses)) else {
        return Vec::new();
    };
    let place = match (&site.file, site.line) {
        (Some(file), Some(line)) => format!("{}:{line} in ", Shown(file_name(file))),
        _ => String::new(),
    };
    let mut lines = vec![dim(&format!("{place}{}", Shown(&site.function)))];
    for excerpt in &site.excerpt {
        let is_it = Some(excerpt.line) == site.line;
        let mark = if is_it { '>' } else { ' ' };
        let text = format!("{mark}{:5} {}", excerpt.line, Shown(&excerpt.text));
        // A column is between it and the threads.
        let text = cut(text, width.saturating_sub(1), ascii);
        let style = if is_it {
            Style::new().fg(Color::Yellow)
        } else {
            Style::new()
        };
        lines.push(Line::styled(text, style));
    }
    lines
}

fn threads_of(view: &View) -> Vec<Line<'static>> {
    let mut lines = vec![dim("threads, share of a CPU")];
    for (name, share) in &view.picture.threads {
        lines.push(Line::raw(format!("{:4.0} % {name}", share * 100.0)));
    }
    lines
}

fn finding_page(frame: &mut Frame<'_>, area: Rect, view: &View, from: usize, ascii: bool) {
    let objects = view.objects();
    let Some(finding) = objects.get(view.position()) else {
        return;
    };
    let all = &view.picture.findings;
    let text = sunder_report::one_finding(all, finding, &look(area.width, ascii));
    let lines = picture_lines(&text);
    let last = lines.len().saturating_sub(usize::from(area.height));
    let shown: Vec<Line> = lines.into_iter().skip(from.min(last)).collect();
    frame.render_widget(Paragraph::new(shown), area);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_fits_a_small_terminal() {
        assert!(HELP.len() <= 22);
        for line in HELP {
            assert!(line.is_ascii() && line.len() < 80, "{line}");
        }
    }

    #[test]
    fn long_reasons_take_two_rows() {
        let rows = wrapped("put back: it did not help", 14, false);
        assert_eq!(rows, ["put back: it", "did not help"]);
        assert_eq!(wrapped("put back", 14, false), ["put back"]);
        assert_eq!(wrapped("a bb ccc dddd", 4, false), ["a bb", "ccc…"]);
        assert_eq!(wrapped("a bb ccc dddd", 6, true), ["a bb", "ccc..."]);
    }

    #[test]
    fn a_curve_is_as_high_as_its_highest_slice() {
        assert_eq!(sparkline(&[0.0, 4.0, 8.0], 3, false), " ▄█");
        assert_eq!(sparkline(&[0.0, 4.0, 8.0], 3, true), " =@");
        assert_eq!(sparkline(&[0.0, 0.0], 2, false), "  ");
        assert_eq!(sparkline(&[1.0; 60], 20, false), "█".repeat(20));
        assert_eq!(sparkline(&[], 0, false), "");
    }
}
