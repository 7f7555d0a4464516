//! From the words of the command line to the command: what a program without a command means, and
//! what is said of words that are no command.

use super::{Cli, groups};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, FromArgMatches};
use std::ffi::{OsStr, OsString};

/// Parses the command line of this process. Help, and what is wrong, is printed, and ends it: wrong usage
/// with the status 2.
pub fn parse() -> Cli {
    parsed(std::env::args_os().collect()).unwrap_or_else(|error| error.exit())
}

fn parsed(words: Vec<OsString>) -> Result<Cli, clap::Error> {
    let mut command = groups::command();
    let words = with_detect(words, &command);
    let matches = command.try_get_matches_from_mut(words);
    let matches = matches.map_err(|error| with_hint(error, &command))?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The words, with `detect` before a program that has no command before it: `sunder ./server`,
/// `sunder -- server`, `sunder --all ./server`. A first word without a slash is a command.
fn with_detect(mut words: Vec<OsString>, command: &Command) -> Vec<OsString> {
    let is_program = words.get(1).is_some_and(|first| {
        first == "--" || has_slash(first) || is_option_of_detect(first, command)
    });
    if is_program {
        words.insert(1, "detect".into());
    }
    words
}

fn has_slash(word: &OsStr) -> bool {
    let bytes = word.as_encoded_bytes();
    bytes.contains(&b'/') && !bytes.starts_with(b"-")
}

/// Whether a word is an option that `detect` has and `sunder` alone has not.
fn is_option_of_detect(word: &OsStr, command: &Command) -> bool {
    let Some(word) = word.to_str() else {
        return false;
    };
    let named = |command: &Command| match word.strip_prefix("--") {
        Some(long) => {
            let long = long.split('=').next().unwrap_or_default();
            command.get_arguments().any(|a| a.get_long() == Some(long))
        }
        None => {
            let short = word.strip_prefix('-').and_then(|rest| rest.chars().next());
            short.is_some() && command.get_arguments().any(|a| a.get_short() == short)
        }
    };
    !named(command) && command.find_subcommand("detect").is_some_and(named)
}

/// For a word that is no command: how a program of that name would be run.
fn with_hint(mut error: clap::Error, command: &Command) -> clap::Error {
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand)
    {
        let tip = format!("to run a program of that name, write 'sunder detect -- {word}'");
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tips);
        return error.with_cmd(command);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Command as Given;

    fn parse(words: &[&str]) -> Result<Cli, clap::Error> {
        let all = std::iter::once("sunder").chain(words.iter().copied());
        parsed(all.map(OsString::from).collect())
    }

    fn detected(words: &[&str]) -> (Vec<OsString>, bool) {
        match parse(words).map(|cli| cli.command) {
            Ok(Given::Detect(detect)) => (detect.program, detect.tell.all),
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn a_program_without_a_command_is_detected() {
        assert_eq!(detected(&["./a", "--all", "-o"]).0, ["./a", "--all", "-o"]);
        assert_eq!(detected(&["--", "a", "b"]).0, ["a", "b"]);
        assert_eq!(detected(&["/bin/a"]), (vec!["/bin/a".into()], false));
        assert_eq!(detected(&["--all", "./a"]), (vec!["./a".into()], true));
        assert_eq!(detected(&["-o", "x", "--", "a"]).0, ["a"]);
        assert_eq!(detected(&["--format=html", "a"]).0, ["a"]);
    }

    #[test]
    fn words_that_are_no_command_get_a_hint() {
        let said = |words: &[&str]| {
            let error = parse(words).expect_err("it is wrong");
            assert_eq!(error.exit_code(), 2, "{words:?}");
            error.to_string()
        };
        assert!(said(&["dectect", "a"]).contains("'detect'"));
        assert!(said(&["server"]).contains("sunder detect -- server"));
        assert!(said(&["detect", "--frequnecy", "9", "a"]).contains("'--frequency'"));
        assert!(said(&["detect", "--format", "htlm", "a"]).contains("'html'"));
        assert!(said(&["--versoin"]).contains("'--version'"));
    }

    #[test]
    fn help_and_version_stay_what_they_are() {
        let kind = |word: &str| parse(&[word]).expect_err("it is told").kind();
        assert_eq!(kind("--help"), ErrorKind::DisplayHelp);
        assert_eq!(kind("-h"), ErrorKind::DisplayHelp);
        assert_eq!(kind("--version"), ErrorKind::DisplayVersion);
        assert_eq!(kind("-V"), ErrorKind::DisplayVersion);
    }
}
