//! One finding in the text report: heading and advice first, then picture, code and allocation.

use super::options::TextOptions;
use super::page::{Page, Paint};
use super::picture::{self, Extent};
use crate::clean::{clean, columns, cut, fit};
use crate::describe;
use crate::figures::{counted, grouped, percent, short};
use crate::on_pages;
use sunder_findings::{
    AccessKind, Advice, Finding, Findings, Frame, Line, Object, Site, file_name,
};

/// The most lines, threads, code sites, ranges and frames that are shown without `--all`.
const LINES: usize = 2;
const THREADS: usize = 8;
const SITES: usize = 6;
const RUNS: usize = 8;
const FRAMES: usize = 5;

/// Writes everything about a finding.
pub(super) fn full(page: &mut Page, all: &Findings, finding: &Finding, options: &TextOptions) {
    page.blank();
    heading(page, finding);
    origins(page, finding);
    page.paragraph(
        "   ",
        "   ",
        Paint::Plain,
        &format!("{}.", describe::evidence(all, finding)),
    );
    for cause in on_pages::causes(finding) {
        page.paragraph("   ", "   ", Paint::Plain, &cause);
    }
    if let Some(smaller) = describe::on_smaller_lines(finding).filter(|_| options.all) {
        page.paragraph("   ", "   ", Paint::Dim, &smaller);
    }
    for elsewhere in describe::elsewhere(finding) {
        page.paragraph("   ", "   ", Paint::Plain, &elsewhere);
    }
    advice(page, &finding.advice, usize::MAX);
    match finding.on_pages {
        Some(_) => page_tables(page, finding, options),
        None => pictures(page, all, finding, options),
    }
    code(page, finding, options);
    allocation(page, "allocated", &finding.object, options);
    let other = finding.neighbour.as_ref();
    if let Some(other) = other.filter(|o| o.allocation != finding.object.allocation) {
        allocation(page, "neighbour allocated", other, options);
    }
}

/// Writes the heading and the first advice.
pub(super) fn brief(page: &mut Page, finding: &Finding) {
    page.blank();
    heading(page, finding);
    origins(page, finding);
    // Where the kind of sharing is in doubt, the second advice says so.
    let in_doubt = finding.sampled_false_share.is_some();
    advice(page, &finding.advice, 1 + usize::from(in_doubt));
}

/// Writes the heading and the place.
pub(super) fn mention(page: &mut Page, finding: &Finding, first: bool) {
    if first {
        page.blank();
    }
    heading(page, finding);
    origins(page, finding);
}

fn heading(page: &mut Page, finding: &Finding) {
    let number = format!("#{} ", finding.rank);
    let paint = if finding.latent {
        Paint::Bold
    } else {
        Paint::Alarm
    };
    page.heading(
        &[
            (Paint::Bold, &number),
            (paint, describe::kind(finding)),
            (Paint::Dim, ": "),
            (Paint::Bold, &finding.subject()),
        ],
        (paint, &describe::cost(finding)),
    );
}

fn origins(page: &mut Page, finding: &Finding) {
    let first = describe::origin(&finding.object);
    match &finding.neighbour {
        None => page.paragraph("   ", "   ", Paint::Plain, &first),
        Some(other) => {
            page.paragraph("   first:  ", "           ", Paint::Plain, &first);
            let second = describe::origin(other);
            page.paragraph("   second: ", "           ", Paint::Plain, &second);
        }
    }
}

fn pictures(page: &mut Page, all: &Findings, finding: &Finding, options: &TextOptions) {
    let more = options.all || options.words;
    let most = if more { 16 } else { LINES };
    let extent = Extent {
        line_size: describe::drawn_line_size(all, finding),
        rows: if more { 64 } else { THREADS },
    };
    for (number, line) in hottest(&finding.lines, most) {
        page.blank();
        line_heading(page, finding, number, line);
        picture::draw(page, line, &finding.object, &extent);
        if options.words {
            words(page, line);
            if let Some(writes) = line.interleaved_writes {
                let writes = counted(writes as usize, "interleaved write");
                page.line(&[(Paint::Dim, &format!("   {writes} seen in commits"))]);
            }
        }
    }
    if !finding.lines.is_empty() {
        legend(page);
    }
    if options.words {
        for private in &finding.private_pages {
            let text = describe::private_page(private);
            page.paragraph("   ", "     ", Paint::Plain, &format!("{text}."));
        }
    }
    if finding.all_lines() > most {
        let more = counted(
            finding.all_lines() - most.min(finding.lines.len()),
            "more line",
        );
        let option = match finding.lines.len() > most {
            true => " (--all)",
            false => "",
        };
        page.line(&[(Paint::Dim, &format!("   … and {more}{option}"))]);
    }
}

/// Draws the line with most interleavings.
pub(super) fn picture_of_hottest(page: &mut Page, all: &Findings, finding: &Finding) {
    let extent = Extent {
        line_size: describe::drawn_line_size(all, finding),
        rows: THREADS,
    };
    for (_, line) in hottest(&finding.lines, 1) {
        picture::draw(page, line, &finding.object, &extent);
    }
}

/// Writes what lies on the pages with the highest cost.
fn page_tables(page: &mut Page, finding: &Finding, options: &TextOptions) {
    let more = options.all || options.words;
    let most = if more { 16 } else { LINES };
    let rows = if more { usize::MAX } else { RUNS };
    for (_, line) in hottest(&finding.lines, most) {
        page.blank();
        let title = format!("   page {}", line.address);
        page.line(&[(Paint::Bold, &title)]);
        let (runs, others) = match options.all {
            true => (on_pages::runs(line), 0),
            false => on_pages::own_runs(finding, line, rows),
        };
        let shown = &runs[..runs.len().min(rows)];
        let width = |of: fn(&on_pages::PageRun) -> &str| {
            shown.iter().map(|run| columns(of(run))).max().unwrap_or(0)
        };
        let (bytes, object) = (width(|run| &run.bytes), width(|run| &run.object));
        let object = object.min(page.width() / 3);
        for run in shown {
            let object = fit(&cut(&run.object, object), object);
            let start = format!("     {:>bytes$}  {object}  ", run.bytes);
            let rest = " ".repeat(columns(&start));
            page.paragraph(&start, &rest, Paint::Plain, &run.who);
        }
        let more = runs.len() - shown.len() + others;
        if more > 0 {
            let more = counted(more, "more run");
            page.line(&[(Paint::Dim, &format!("     … and {more} of bytes (--all)"))]);
        }
    }
    let pages = finding.on_pages.as_ref().map_or(0, |on| on.pages as usize);
    let shown = finding.lines.len().min(most);
    if pages > shown {
        let more = counted(pages - shown, "more page");
        page.line(&[(Paint::Dim, &format!("   … and {more}"))]);
    }
}

/// The lines with most interleavings, by address, with their indices.
fn hottest(lines: &[Line], most: usize) -> Vec<(usize, &Line)> {
    let mut kept: Vec<(usize, &Line)> = lines.iter().enumerate().collect();
    kept.sort_by(|(_, a), (_, b)| {
        b.interleavings_per_second
            .total_cmp(&a.interleavings_per_second)
    });
    kept.truncate(most);
    kept.sort_by_key(|(i, _)| *i);
    kept
}

fn line_heading(page: &mut Page, finding: &Finding, index: usize, line: &Line) {
    let which = match (finding.lines.len(), finding.further_lines) {
        (1, _) => "line".to_owned(),
        (of, 0) => format!("line {} of {of}", index + 1),
        // The lines are counted by address, and some are left out between these.
        _ => "a line".to_owned(),
    };
    let at = describe::line_position(line)
        .map(|p| format!(" · {p}"))
        .unwrap_or_default();
    let rate = short(line.interleavings_per_second);
    page.line(&[
        (Paint::Plain, "   "),
        (Paint::Bold, &which),
        (
            Paint::Dim,
            &format!(" · {}{at} · {rate} interleavings/s", line.address),
        ),
    ]);
}

fn legend(page: &mut Page) {
    page.line(&[
        (Paint::Plain, "   "),
        (Paint::Read, "r"),
        (Paint::Dim, " read   "),
        (Paint::Write, "W"),
        (Paint::Dim, " written   "),
        (Paint::Atomic, "A"),
        (Paint::Dim, " written atomically   "),
        // A piece of its own, so that it is the sign of the picture in ASCII, too.
        (Paint::Dim, "· untouched"),
    ]);
}

/// Writes every word with its counts and threads (SHERIFF section 4.4).
fn words(page: &mut Page, line: &Line) {
    let rows: Vec<[String; 7]> = line
        .words
        .iter()
        .flat_map(|word| {
            let bytes = format!(
                "{}-{}",
                word.offset,
                word.offset.saturating_add(word.size.max(1) - 1)
            );
            let field = clean(word.field.as_deref().unwrap_or("-"));
            word.threads.iter().enumerate().map(move |(i, t)| {
                let first = |text: &str| {
                    if i == 0 {
                        text.to_owned()
                    } else {
                        String::new()
                    }
                };
                [
                    first(&bytes),
                    first(&field),
                    describe::thread_label(t.id, t.name.as_deref()),
                    grouped(t.reads),
                    grouped(t.writes),
                    grouped(t.updates),
                    grouped(t.atomics),
                ]
            })
        })
        .collect();
    let head = [
        "bytes", "field", "thread", "reads", "writes", "updates", "atomic",
    ]
    .map(str::to_owned);
    let mut widths = [0; 7];
    for row in rows.iter().chain([&head]) {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = columns(cell).max(*width);
        }
    }
    // Names are cut to leave room for figures.
    let figures: usize = widths[3..].iter().sum::<usize>() + widths[0] + 3 + 2 * 6;
    let room = page.width().saturating_sub(figures);
    widths[2] = widths[2].min(room / 3);
    widths[1] = widths[1].min(room.saturating_sub(widths[2]));
    for (i, row) in std::iter::once(&head).chain(&rows).enumerate() {
        let mut text = String::from("   ");
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            if column < 3 {
                text.push_str(&fit(cell, width));
            } else {
                text.push_str(&format!("{cell:>width$}"));
            }
            text.push_str("  ");
        }
        let paint = if i == 0 { Paint::Dim } else { Paint::Plain };
        page.line(&[(paint, &text)]);
    }
}

/// Writes the instructions, grouped by function, and then the code that calls lock functions on
/// the object.
fn code(page: &mut Page, finding: &Finding, options: &TextOptions) {
    let (calls, sampled): (Vec<&Site>, Vec<&Site>) =
        finding.sites.iter().partition(|s| s.calls.is_some());
    places(page, "code", &sampled, options);
    places(
        page,
        "lock calls (found in the code, not sampled)",
        &calls,
        options,
    );
}

fn places(page: &mut Page, title: &str, sites: &[&Site], options: &TextOptions) {
    if sites.is_empty() {
        return;
    }
    let most = if options.all { usize::MAX } else { SITES };
    let total: u64 = sites
        .iter()
        .fold(0, |sum, s| sum.saturating_add(s.accesses));
    page.blank();
    page.line(&[(Paint::Bold, "   "), (Paint::Bold, title)]);
    let shown: Vec<&Site> = sites.iter().copied().take(most).collect();
    let at_width = shown
        .iter()
        .map(|s| columns(&describe::site_place(s)))
        .max()
        .unwrap_or(0);
    let mut group: Option<(&str, Option<&str>)> = None;
    for site in &shown {
        let this = (site.function.as_str(), site.file.as_deref());
        if group != Some(this) {
            function(page, site);
            group = Some(this);
        }
        instruction(page, site, total, at_width);
    }
    if sites.len() > shown.len() {
        let more = sites.len() - shown.len();
        page.line(&[(
            Paint::Dim,
            &format!("     … and {} (--all)", counted(more, "more place")),
        )]);
    }
}

fn function(page: &mut Page, site: &Site) {
    let file = site
        .file
        .as_deref()
        .or(site.module.as_deref())
        .map(|f| format!("  {}", clean(file_name(f))))
        .unwrap_or_default();
    let room = page.width().saturating_sub(5 + columns(&file));
    let name = cut(&clean(&site.function), room);
    page.line(&[
        (Paint::Plain, "     "),
        (Paint::Plain, &name),
        (Paint::Dim, &file),
    ]);
}

fn instruction(page: &mut Page, site: &Site, total: u64, at_width: usize) {
    let paint = match site.kind {
        AccessKind::Read => Paint::Read,
        AccessKind::Write | AccessKind::Update => Paint::Write,
        AccessKind::Atomic => Paint::Atomic,
    };
    let share = if total == 0 {
        String::new()
    } else {
        percent(site.accesses as f64 * 100.0 / total as f64)
    };
    let at = format!("{:>at_width$}", describe::site_place(site));
    let what = fit(describe::access_kind(site.kind), 6);
    let how = format!(
        "  {share:>5}  {:<10}",
        counted(site.threads.len(), "thread")
    );
    let fields = if site.fields.is_empty() {
        String::new()
    } else {
        format!("  {}", site.fields.join(", "))
    };
    let source = site.source.as_deref().map(str::trim);
    let how = match on_pages::misses(site) {
        Some(misses) => format!("  {misses}"),
        None => how,
    };
    let (what, how) = match &site.calls {
        Some(callee) => ("calls ".to_owned(), clean(callee)),
        None => (what, how),
    };
    page.line(&[
        (Paint::Plain, "       "),
        (Paint::Dim, &at),
        (Paint::Dim, if at.is_empty() { "" } else { "  " }),
        (paint, &what),
        (Paint::Plain, &how),
        (Paint::Plain, "  "),
        (Paint::Code, source.unwrap_or(fields.trim())),
    ]);
}

fn allocation(page: &mut Page, title: &str, object: &Object, options: &TextOptions) {
    let users: Vec<&Frame> = object
        .allocation
        .iter()
        .filter(|f| options.all || !f.is_library())
        .collect();
    // If there is only one frame, the heading has it already.
    if users.len() < 2 && !options.all || object.allocation.is_empty() {
        return;
    }
    page.blank();
    page.line(&[(Paint::Bold, "   "), (Paint::Bold, title)]);
    let most = if options.all { usize::MAX } else { FRAMES };
    let name_width = users
        .iter()
        .take(most)
        .map(|f| columns(&clean(&f.function)))
        .max()
        .unwrap_or(0)
        .min(page.width() / 2);
    for frame in users.iter().take(most) {
        let place = match (&frame.file, frame.line) {
            (Some(file), Some(line)) => format!("{}:{line}", file_name(file)),
            (Some(file), None) => file_name(file).to_owned(),
            _ => frame
                .module
                .as_deref()
                .map(file_name)
                .unwrap_or_default()
                .to_owned(),
        };
        let inlined = if frame.inlined { " (inlined)" } else { "" };
        page.line(&[
            (Paint::Plain, "     "),
            (Paint::Plain, &fit(&clean(&frame.function), name_width)),
            (Paint::Dim, &format!("  {place}{inlined}")),
        ]);
    }
    if users.len() > most {
        page.line(&[(
            Paint::Dim,
            &format!(
                "     … and {} (--all)",
                counted(users.len() - most, "more frame")
            ),
        )]);
    }
}

fn advice(page: &mut Page, all: &[Advice], most: usize) {
    if all.is_empty() {
        return;
    }
    page.blank();
    page.line(&[(Paint::Good, "   what to do")]);
    for (i, one) in all.iter().take(most).enumerate() {
        let growth = match one.grows_by {
            None | Some(0) => String::new(),
            Some(bytes) => format!(" [+{}\u{a0}bytes]", grouped(bytes)),
        };
        let number = if all.len().min(most) == 1 {
            "     ".to_owned()
        } else {
            format!("     {}. ", i + 1)
        };
        let rest = " ".repeat(number.len());
        page.paragraph(
            &number,
            &rest,
            Paint::Plain,
            &format!("{}{growth}", one.text),
        );
    }
}
