//! Texts about repairs: names from the findings, and lines for people. Called by `repairer` and
//! `attach`.

use std::sync::Arc;
use sunder_access::{Address, CodeAddress, LINE, Mappings, PAGE, Span};
use sunder_findings::{Finding, Findings, Moved, Repair, RolledBack, Unrepaired};
use sunder_gain::gained::told;
use sunder_live::{LEFT_ALONE, counted};
use sunder_objects::{NameOptions, Names};
use sunder_observe::foreign::ForeignFiles;
use sunder_pipeline::TargetFiles;
use sunder_plan::progress::WORTH_KEEPING;
use sunder_wire::remap::{BY_END, reason};

/// Gives moved objects the names and the advice of their findings, which are known better at the
/// end than while the program runs.
pub fn name(repair: &mut Repair, findings: &Findings) {
    let on = |from: u64, to: u64| {
        let on = |f: &&Finding| {
            let mut lines = f.lines.iter();
            lines.any(|line| (from..to).contains(&line.address.0))
        };
        findings.findings.iter().find(on)
    };
    for moved in &mut repair.moved {
        let first = moved.address.0;
        if let Some(finding) = on(first, first + moved.bytes) {
            moved.object = finding.object.short_name().to_owned();
            moved.fix = finding.advice.first().map(|advice| advice.text.clone());
        }
    }
    for left in &mut repair.refused {
        let line = line_of(left).map(|line| line.start.0);
        if let Some(finding) = line.and_then(|first| on(first, first + LINE)) {
            left.object = finding.object.short_name().to_owned();
        }
    }
}

/// Drops what is said of objects that the saved result has and that were not recognised, where an object of
/// that name was moved: it was recognised later, as any other is.
pub fn drop_moved(repair: &mut Repair) {
    let moved = &repair.moved;
    let is_moved = |left: &Unrepaired| moved.iter().any(|one| one.object == left.object);
    repair
        .refused
        .retain(|left| !is_not_recognised(left) || !is_moved(left));
}

/// Says that the saved result of another program was followed, in place of what is said of its objects. Both
/// are the paths of the programs' files, where they are known.
pub fn of_another(repair: &mut Repair, saved: Option<&str>, now: Option<&str>) -> Option<String> {
    let (saved, now) = saved.zip(now)?;
    if saved == now {
        return None;
    }
    repair.refused.retain(|left| !is_not_recognised(left));
    Some(format!(
        "the saved result is of another program, or of this one in another place: {saved}"
    ))
}

/// Only of what a saved result names no place in this run is known.
const fn is_not_recognised(left: &Unrepaired) -> bool {
    left.address.is_none()
}

/// Names functions whose code was copied, by their addresses in a program with `mappings` and
/// `files`.
pub fn code_names(
    files: Arc<ForeignFiles>,
    mappings: Mappings,
) -> impl FnMut(CodeAddress) -> Option<String> {
    let mut names = Names::new(NameOptions {
        files: Arc::new(TargetFiles(files)),
        ..NameOptions::default()
    });
    names.set_mappings(mappings);
    // Other functions are inlined into the last one.
    move |at| Some(names.frames(at).last()?.function.clone())
}

/// The line because of which an object was left alone.
pub fn line_of(left: &Unrepaired) -> Option<Span> {
    let line = left.address?.0 & !(LINE - 1);
    Some(Span::new(Address(line), LINE))
}

/// Whether what was left alone lies on the pages of these spans.
pub fn is_on_pages_of(left: &Unrepaired, spans: &[Span]) -> bool {
    left.address.is_some_and(|at| {
        let page = Span::new(Address(at.0 & !(PAGE - 1)), PAGE);
        spans.iter().any(|span| span.overlaps(page))
    })
}

/// Bytes that go back so shortly before the program's end, in seconds, have done their work: it sums up or
/// prints what its threads have counted.
const AT_THE_END: f64 = 0.1;

/// What was gained, moved, refused and put back in a run of so many seconds, as lines. `others` says that
/// the program started processes that were not observed.
pub fn tell(repair: &Repair, seconds: f64, others: bool) -> Vec<String> {
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
        line += &became(moved, seconds, repair.dry_run);
        lines.push(line);
        if let Some(fix) = &moved.fix {
            lines.push(format!("to mend `{}` in the source: {fix}", moved.object));
        }
    }
    lines.extend(in_all(repair, seconds));
    for refused in &repair.refused {
        let line = format!("left `{}` alone: {}", refused.object, refused.reason);
        // Parts of one object on several pages were left alone one by one.
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    if lines.is_empty() {
        let mut line =
            "nothing to repair: no false sharing that is worth it was confirmed".to_owned();
        if others {
            line += LEFT_ALONE;
            line += " (--follow-children repairs them too)";
        }
        lines.push(line);
    }
    lines
}

/// How many objects stayed, and the gains from the least to the most, if there are several.
fn in_all(repair: &Repair, seconds: f64) -> Option<String> {
    let gains = repair.moved.iter().filter_map(|m| m.progress.as_ref());
    let gains: Vec<f64> = gains.map(|p| p.gain).collect();
    if repair.moved.len() < 2 || gains.is_empty() {
        return None;
    }
    // A mean of objects that have nothing to do with each other would say nothing.
    let least = gains.iter().copied().fold(f64::INFINITY, f64::min);
    let most = gains.iter().copied().fold(0.0, f64::max);
    let told = match gains.len() {
        1 => format!("{least:.2} times as fast as before"),
        _ => format!("{least:.2} to {most:.2} times as fast as before, by object"),
    };
    let stays = |m: &&Moved| m.rolled_back.is_none() || stayed_to_the_end(m, seconds);
    let stayed = repair.moved.iter().filter(stays);
    Some(format!(
        "in all {} moved, of which {} stayed; where it was measured, threads got on {told}",
        counted(repair.moved.len(), "object"),
        stayed.count(),
    ))
}

/// What an object's move gained, and why it was put back.
fn became(moved: &Moved, seconds: f64, dry_run: bool) -> String {
    let mut text = String::new();
    if let Some(progress) = &moved.progress {
        text += &format!("; {}", told(progress));
    }
    let returns = moved.moves.iter().filter(|m| m.rolled_back.is_some());
    let returns = returns.count();
    if let Some(back) = &moved.rolled_back {
        let ms = back.at_seconds * 1000.0;
        text += &match stayed_to_the_end(moved, seconds) {
            true if back.reason == reason(BY_END) => "; put back at the end of the program".into(),
            true => format!("; put back at the end of the program ({})", back.reason),
            false => format!("; put back after {ms:.0} ms: {}", back.reason),
        };
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

/// Whether bytes that were put back had stayed for the greater part of a run of so many seconds, until right
/// before its end, and not in vain.
fn stayed_to_the_end(moved: &Moved, seconds: f64) -> bool {
    let gains = moved.progress.as_ref();
    let gained = gains.is_none_or(|progress| progress.gain >= WORTH_KEEPING);
    let at_the_end = |back: &RolledBack| {
        back.at_seconds > seconds / 2.0 && seconds - back.at_seconds <= AT_THE_END
    };
    gained && moved.rolled_back.as_ref().is_some_and(at_the_end)
}

fn times(number: usize) -> String {
    match number {
        1 => "once".into(),
        2 => "twice".into(),
        _ => format!("{number} times"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_findings::{Move, Progress, ThreadProgress};

    fn moved(gain: f64, back: Option<&str>) -> Moved {
        let rolled_back = back.map(|why| RolledBack {
            reason: why.into(),
            at_seconds: 0.5,
        });
        Moved {
            object: "args".into(),
            at_seconds: 0.1,
            progress: Some(Progress {
                gain,
                threads: [gain * 0.9, gain / 0.9]
                    .map(|after| ThreadProgress {
                        before: 1.0,
                        after,
                        ..ThreadProgress::default()
                    })
                    .to_vec(),
            }),
            moves: vec![Move {
                rolled_back: rolled_back.clone(),
                ..Move::default()
            }],
            rolled_back,
            ..Moved::default()
        }
    }

    /// A saved result and this run may both be of an object, which was moved all the same.
    #[test]
    fn what_was_moved_was_not_left_alone() {
        let left = |object: &str, address| Unrepaired {
            object: object.into(),
            address,
            reason: "of the saved result".into(),
        };
        let mut repair = Repair {
            moved: vec![moved(2.0, None)],
            refused: vec![
                left("args", None),
                left("args", Some(Address(0x1000))),
                left("other", None),
            ],
            ..Repair::default()
        };
        drop_moved(&mut repair);
        let kept: Vec<_> = repair.refused.iter().map(|l| l.object.as_str()).collect();
        assert_eq!(kept, ["args", "other"]);
        assert!(repair.refused[0].address.is_some());
        for same in [Some("/bin/a"), None] {
            assert_eq!(of_another(&mut repair, Some("/bin/a"), same), None);
        }
        assert_eq!(repair.refused.len(), 2);
        let said = of_another(&mut repair, Some("/bin/b"), Some("/bin/a"));
        let said = said.expect("another path");
        assert!(
            said.contains("another program") && said.ends_with(": /bin/b"),
            "{said}"
        );
        assert_eq!(repair.refused.len(), 1);
    }

    #[test]
    fn other_processes_are_told_of_where_nothing_was_done() {
        let lines = tell(&Repair::default(), 1.0, true);
        assert!(
            lines.iter().all(|line| line.contains(LEFT_ALONE)),
            "{lines:?}"
        );
        assert_eq!(lines.len(), 1);
    }

    #[test]
    fn one_line_says_what_was_gained_and_another_how_to_mend_it() {
        let mut one = moved(3.1, None);
        one.fix = Some("Align it.".into());
        let repair = Repair {
            moved: vec![one],
            ..Repair::default()
        };
        let lines = tell(&repair, 3.0, false);
        assert_eq!(lines.len(), 2);
        assert!(
            lines[0]
                .contains("2 threads got on 3.10 times as fast as before (by thread 2.79 to 3.44)"),
            "{lines:?}"
        );
        assert_eq!(lines[1], "to mend `args` in the source: Align it.");
    }

    #[test]
    fn moves_back_and_again_are_reported() {
        let mut twice = moved(2.0, Some("a reason"));
        twice.moves.push(Move::default());
        twice.rolled_back = None;
        let repair = Repair {
            moved: vec![twice, moved(1.0, Some("it did not help"))],
            ..Repair::default()
        };
        let lines = tell(&repair, 3.0, false);
        assert!(
            lines[0].contains("put back and moved again once: a reason"),
            "{lines:?}"
        );
        assert!(
            lines[1].contains("put back after 500 ms: it did not help"),
            "{lines:?}"
        );
        assert!(
            lines[2].contains("2 objects moved, of which 1 stayed")
                && lines[2]
                    .ends_with("threads got on 1.00 to 2.00 times as fast as before, by object"),
            "{lines:?}"
        );
    }

    /// The program prints what its threads have counted, and ends.
    #[test]
    fn what_goes_back_at_the_end_has_stayed() {
        let repair = Repair {
            moved: vec![
                moved(2.0, Some("a reason")),
                moved(1.0, Some("it did not help")),
            ],
            ..Repair::default()
        };
        let lines = tell(&repair, 0.52, false);
        assert!(
            lines[0].contains("; put back at the end of the program (a reason)"),
            "{lines:?}"
        );
        assert!(
            lines[1].contains("put back after 500 ms: it did not help"),
            "{lines:?}"
        );
        assert!(lines[2].contains("of which 1 stayed"), "{lines:?}");
    }
}
