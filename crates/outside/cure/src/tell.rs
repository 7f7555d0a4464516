//! What was done, in lines for people: one for each object. Called at the end. Must not decide
//! anything.

use sunder_findings::{IsolatedObject, PlacedObject, file_name};
use sunder_live::counted;

/// The line of a repair that found nothing.
const NOTHING: &str = "nothing to repair: ";

/// The lines of both remedies. `moved` are those about what was moved or left alone, and
/// `isolation` is the one about isolation.
pub fn lines(
    moved: Vec<String>,
    isolated: &[IsolatedObject],
    isolation: Option<String>,
    any_placed: bool,
) -> Vec<String> {
    if isolated.is_empty() && !any_placed {
        return only_moved(moved);
    }
    let mut all: Vec<String> = moved
        .into_iter()
        .filter(|line| !line.starts_with(NOTHING))
        .map(|line| not_left_alone(line, isolated))
        .collect();
    all.extend(isolation.filter(|_| !isolated.is_empty()));
    all
}

/// An object that was isolated afterwards was not left alone.
fn not_left_alone(line: String, isolated: &[IsolatedObject]) -> String {
    for one in isolated {
        let left = format!("left `{}` alone: ", one.object);
        if let Some(why) = line.strip_prefix(&left) {
            return format!("did not move `{}`: {why}", one.object);
        }
    }
    line
}

/// The lines about blocks that were placed, `blocks` in all.
pub fn placed(placed: &[PlacedObject], blocks: u64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for one in placed {
        let object = &one.object;
        let of = object.type_name.as_deref();
        let name = of.unwrap_or_else(|| object.short_name());
        let when = match one.from_seconds {
            0.0 => "from the start, as the plan says".to_owned(),
            since => format!("from {:.0} ms on", since * 1000.0),
        };
        let at = object.place().map_or_else(String::new, |at| {
            let line = at.line.map_or_else(String::new, |line| format!(":{line}"));
            format!(" that is allocated at {}{line}", file_name(&at.file))
        });
        let line = format!("gave each new `{name}`{at} cache lines of its own {when}");
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    match (placed.is_empty(), blocks) {
        (true, _) => {}
        (false, 0) => lines.push("no such block was allocated since".into()),
        (false, _) => lines.push(format!(
            "placed {} in all",
            counted(blocks as usize, "block")
        )),
    }
    lines
}

/// The lines where nothing was isolated.
pub fn only_moved(moved: Vec<String>) -> Vec<String> {
    let cure = |line: String| match line.strip_prefix(NOTHING) {
        Some(why) => format!("nothing to cure: {why}"),
        None => line,
    };
    moved.into_iter().map(cure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_findings::{Location, Object};

    fn isolated(object: &str) -> IsolatedObject {
        IsolatedObject {
            object: object.into(),
            ..IsolatedObject::default()
        }
    }

    #[test]
    fn what_was_isolated_was_not_left_alone() {
        let moved = vec![
            "left `state` alone: a reason".to_owned(),
            "left `lock` alone: another".to_owned(),
        ];
        let all = lines(
            moved,
            &[isolated("state")],
            Some("isolated `state`".into()),
            false,
        );
        assert_eq!(
            all,
            [
                "did not move `state`: a reason",
                "left `lock` alone: another",
                "isolated `state`"
            ]
        );
    }

    #[test]
    fn blocks_of_one_call_are_told_of_once() {
        let one = |line, from_seconds| PlacedObject {
            object: Object {
                type_name: Some("Tally".into()),
                declared: Some(Location {
                    file: "/src/a.cpp".into(),
                    line: Some(line),
                }),
                ..Object::default()
            },
            from_seconds,
        };
        let lines = placed(&[one(3, 0.0), one(3, 0.0), one(9, 0.0341)], 5);
        let expected = [
            "gave each new `Tally` that is allocated at a.cpp:3 cache lines of its own from the start, as \
             the plan says",
            "gave each new `Tally` that is allocated at a.cpp:9 cache lines of its own from 34 ms on",
            "placed 5 blocks in all",
        ];
        assert_eq!(lines, expected);
        assert_eq!(
            placed(&[one(3, 0.0)], 0)[1],
            "no such block was allocated since"
        );
        assert!(placed(&[], 0).is_empty());
    }

    #[test]
    fn nothing_is_said_in_the_words_of_the_command() {
        let nothing = vec![format!("{NOTHING}no false sharing was confirmed")];
        assert_eq!(
            lines(nothing, &[], Some("nobody was isolated".into()), false),
            ["nothing to cure: no false sharing was confirmed"]
        );
    }
}
