//! What is said of a repair: the names that the findings have, and lines for people.

use super::layout::LINE;
use sunder_findings::{Finding, Findings, Moved, Repair};

/// Gives what was moved the name that the finding has: while the program runs, less
/// is known.
pub fn name(repair: &mut Repair, findings: &Findings) {
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let called = |from: u64, to: u64| {
        let on = |f: &&Finding| {
            let mut lines = f.lines.iter().filter_map(|l| number(&l.address));
            lines.any(|line| (from..to).contains(&line))
        };
        let found = findings.findings.iter().find(on)?;
        Some(found.object.short_name().to_owned())
    };
    for moved in &mut repair.moved {
        let first = number(&moved.address);
        let name = first.and_then(|first| called(first, first + moved.bytes));
        moved.object = name.unwrap_or_else(|| moved.object.clone());
    }
    for left in &mut repair.refused {
        let first = number(&left.address).map(|a| a & !(LINE - 1));
        let name = first.and_then(|first| called(first, first + LINE));
        left.object = name.unwrap_or_else(|| left.object.clone());
    }
}

/// What was gained, moved, refused and put back, a line each at most.
pub fn tell(repair: &Repair) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(why) = &repair.hindrance {
        lines.push(format!("nothing was repaired: {why}"));
    }
    for moved in &repair.moved {
        let (verb, when) = if repair.dry_run {
            ("would have moved", "after")
        } else {
            ("moved", "after")
        };
        let mut line = format!(
            "{verb} {} of `{}` to lines of their own {when} {:.0} ms: they took up to {:.0} % of their \
             threads' time",
            counted(moved.groups.len(), "group"),
            moved.object,
            moved.at_seconds * 1000.0,
            moved.cost_percent,
        );
        line += &became(moved, repair.dry_run);
        lines.push(line);
    }
    for refused in &repair.refused {
        lines.push(format!(
            "left `{}` alone: {}",
            refused.object, refused.reason
        ));
    }
    if lines.is_empty() {
        lines.push("nothing to repair: no false sharing that is worth it was confirmed".into());
    }
    lines
}

/// What was gained, and why it went back.
fn became(moved: &Moved, dry_run: bool) -> String {
    let mut text = String::new();
    if let Some(progress) = &moved.progress {
        let threads = counted(progress.threads.len(), "thread");
        text += &format!(
            "; {threads} got on {:.2} times as fast as before",
            progress.gain
        );
    }
    let returns = moved.moves.iter().filter(|m| m.rolled_back.is_some());
    let returns = returns.count();
    if let Some(back) = &moved.rolled_back {
        let ms = back.at_seconds * 1000.0;
        text += &format!("; put back after {ms:.0} ms: {}", back.reason);
    } else if returns > 0 {
        let last = moved
            .moves
            .iter()
            .rev()
            .find_map(|m| m.rolled_back.as_ref());
        let why = last.map_or("", |back| back.reason.as_str());
        text += &format!("; put back and moved again {}: {why}", times(returns));
    }
    if !dry_run {
        text += &format!("; {}", counted(moved.faults as usize, "fault"));
    }
    text
}

fn times(number: usize) -> String {
    match number {
        1 => "once".into(),
        2 => "twice".into(),
        _ => format!("{number} times"),
    }
}

fn counted(number: usize, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {what}{s}")
}
