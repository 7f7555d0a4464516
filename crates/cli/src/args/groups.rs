//! The commands in groups, as `sunder --help` shows them. A command that is in no group is shown in
//! the last one.

use super::Cli;
use clap::CommandFactory;
use clap::builder::Styles;
use std::fmt::Write;

/// The groups in the order in which they are shown: the heading, and the commands.
const GROUPS: [(&str, &[&str]); 6] = [
    ("First steps", &["demo", "detect", "doctor"]),
    ("Find", &["attach", "watch", "top", "import"]),
    ("Read", &["report", "diff", "fleet", "explain"]),
    ("Fix", &["patch", "cure", "protect", "repair", "run"]),
    (
        "Study",
        &[
            "trace", "simulate", "what-if", "merge", "cc", "c++", "cargo",
        ],
    ),
    ("More", &["completions", "man", "help"]),
];

/// The command line, with help that shows the commands in groups.
pub fn command() -> clap::Command {
    // Built, so that it has the command `help`, which clap adds.
    let mut command = Cli::command();
    command.build();
    let template = template(&command);
    command.help_template(template)
}

/// The names of the commands that are in no group.
fn others(command: &clap::Command) -> Vec<&str> {
    let shown = command.get_subcommands().filter(|c| !c.is_hide_set());
    let is_grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    shown
        .map(clap::Command::get_name)
        .filter(|name| !is_grouped(name))
        .collect()
}

fn template(command: &clap::Command) -> String {
    let styles = Styles::styled();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    let _ = writeln!(
        text,
        "       {literal}sunder{literal:#} ./PROGRAM [ARGUMENTS]...   as {literal}sunder detect -- ./PROGRAM{literal:#} does"
    );
    let others = others(command);
    for (number, (heading, names)) in GROUPS.iter().enumerate() {
        let _ = writeln!(text, "\n{header}{heading}:{header:#}");
        let last = if number + 1 == GROUPS.len() {
            others.as_slice()
        } else {
            &[]
        };
        for name in names.iter().chain(last) {
            let about = command.find_subcommand(name).and_then(|c| c.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {literal}{name:<13}{literal:#}{about}");
        }
    }
    let _ = write!(
        text,
        "\n{header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group_and_every_group_has_commands_that_exist() {
        let mut command = Cli::command();
        command.build();
        assert_eq!(others(&command), [""; 0], "give them a group");
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter()).collect();
        for name in &grouped {
            assert!(command.find_subcommand(name).is_some(), "{name}");
        }
        let many = grouped.len();
        grouped.sort();
        grouped.dedup();
        assert_eq!(grouped.len(), many, "one is in two groups");
    }

    #[test]
    fn each_command_takes_one_line() {
        let text = template(&super::command());
        let plain = anstream::adapter::strip_str(&text).to_string();
        for line in plain.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
