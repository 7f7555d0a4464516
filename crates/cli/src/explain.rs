//! `sunder explain`: what words of a report mean, in the terminal. The texts are those of `docs/explain`,
//! which are part of the program. The folder here is a link to it, so that the package of this crate
//! has them.

use crate::args::Explain;
use crate::destination::print;
use crate::terminal;
use crate::usage::wrong;
use anyhow::Result;
use sunder_report::TextOptions;

/// A topic: its name, and its text in Markdown.
macro_rules! topic {
    ($name:literal) => {
        ($name, include_str!(concat!("explain/", $name, ".md")))
    };
}

/// The topics that a beginner needs, in the order in which they are listed.
const FIRST: [&str; 8] = [
    "false-sharing",
    "true-sharing",
    "mixed-sharing",
    "latent",
    "cost",
    "gain",
    "confirmed",
    "interleavings",
];

/// All topics, by name.
const TOPICS: [(&str, &str); 39] = [
    topic!("coincidences"),
    topic!("confined"),
    topic!("confirmed"),
    topic!("cost"),
    topic!("cpu-quota"),
    topic!("ended-early"),
    topic!("false-sharing"),
    topic!("few-samples"),
    topic!("full-tables"),
    topic!("gain"),
    topic!("gain-not-measured"),
    topic!("interleavings"),
    topic!("isolate-observer"),
    topic!("latent"),
    topic!("left-out"),
    topic!("lost-samples"),
    topic!("mixed-sharing"),
    topic!("names"),
    topic!("no-cpu-numbers"),
    topic!("no-heap-object"),
    topic!("no-samples"),
    topic!("no-watchpoints"),
    topic!("nothing-preloaded"),
    topic!("one-cpu"),
    topic!("other-code"),
    topic!("partial-trace"),
    topic!("processes-missed"),
    topic!("processes-not-followed"),
    topic!("recorded-file"),
    topic!("samples-without-fields"),
    topic!("seldom-at-once"),
    topic!("signal-taken"),
    topic!("threads-without-timer"),
    topic!("timers-for-perf"),
    topic!("true-sharing"),
    topic!("unattributed"),
    topic!("unconfirmed"),
    topic!("unobserved-threads"),
    topic!("unread-memory"),
];

/// Runs the command. Returns the exit status.
///
/// # Errors
/// If there is no such topic.
pub fn run(options: &Explain) -> Result<u8> {
    let out = std::io::stdout();
    let look = TextOptions {
        color: anstream::AutoStream::choice(&out) != anstream::ColorChoice::Never,
        ascii: terminal::is_ascii(),
        width: terminal::width(&out),
        ..TextOptions::default()
    };
    let text = match &options.topic {
        Some(name) => topic(name)?.to_owned(),
        None => list(),
    };
    print(&sunder_report::explanation(&text, &look))?;
    Ok(0)
}

/// The text of a topic. Its name may be written with spaces, and in capitals.
fn topic(name: &str) -> Result<&'static str> {
    let wanted = name.trim().to_lowercase().replace([' ', '_'], "-");
    if let Some((_, text)) = TOPICS.iter().find(|(known, _)| *known == wanted) {
        return Ok(text);
    }
    let close: Vec<_> = TOPICS
        .iter()
        .map(|(known, _)| *known)
        .filter(|known| known.split('-').any(|part| wanted.contains(part)))
        .collect();
    let hint = match close.as_slice() {
        [] => "`sunder explain` alone lists them".to_owned(),
        close => format!("is it {}?", close.join(", ")),
    };
    Err(wrong(format!("there is no topic `{name}`: {hint}")))
}

/// All topics with their titles, in Markdown.
fn list() -> String {
    let line = |name: &str| {
        let text = topic(name).unwrap_or_default();
        let title = text.lines().next().unwrap_or_default();
        format!("    {name:<24}{}\n", title.trim_start_matches("# "))
    };
    let first: String = FIRST.iter().copied().map(line).collect();
    let others = TOPICS.iter().map(|(name, _)| *name);
    let others: String = others
        .filter(|name| !FIRST.contains(name))
        .map(line)
        .collect();
    format!(
        "# What reports speak of\n\n{first}\n# What a run could not see, and why\n\n{others}\n`sunder explain TOPIC` says more.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_text_in_the_folder_is_a_topic() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explain");
        let files = std::fs::read_dir(folder).expect("it is there").flatten();
        let mut names: Vec<_> = files
            .filter_map(|f| Some(f.path().file_stem()?.to_string_lossy().into_owned()))
            .collect();
        names.sort();
        let known: Vec<_> = TOPICS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(names, known);
    }

    #[test]
    fn every_topic_that_a_result_names_is_there() {
        for name in sunder_findings::topics() {
            assert!(topic(name).is_ok(), "{name}");
        }
        for name in FIRST {
            assert!(topic(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn names_may_be_written_in_other_ways_and_wrong_ones_get_a_hint() {
        assert_eq!(topic("False Sharing").ok(), topic("false-sharing").ok());
        let said = |name| topic(name).expect_err("there is none").to_string();
        assert!(said("sharing").contains("true-sharing"));
        assert!(said("zzz").contains("lists them"));
    }
}
