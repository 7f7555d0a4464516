//! What was done, in lines for people: one for each object. Called at the end. Must not decide
//! anything.

use sunder_findings::IsolatedObject;

/// The line of a repair that found nothing.
const NOTHING: &str = "nothing to repair: ";

/// The lines of both remedies. `moved` are those about what was moved or left alone, and
/// `isolation` is the one about isolation.
pub fn lines(
    moved: Vec<String>,
    isolated: &[IsolatedObject],
    isolation: Option<String>,
) -> Vec<String> {
    if isolated.is_empty() {
        return only_moved(moved);
    }
    let mut all: Vec<String> = moved
        .into_iter()
        .filter(|line| !line.starts_with(NOTHING))
        .map(|line| not_left_alone(line, isolated))
        .collect();
    all.extend(isolation);
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
        let all = lines(moved, &[isolated("state")], Some("isolated `state`".into()));
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
    fn nothing_is_said_in_the_words_of_the_command() {
        let nothing = vec![format!("{NOTHING}no false sharing was confirmed")];
        assert_eq!(
            lines(nothing, &[], Some("nobody was isolated".into())),
            ["nothing to cure: no false sharing was confirmed"]
        );
    }
}
