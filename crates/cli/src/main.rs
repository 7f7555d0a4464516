//! The `sunder` program: it converts arguments to options, calls the crates of `outside`, and
//! prints what they return. Run by users and scripts; no other crate may use it. It is the only
//! crate that prints and exits, and must not decide anything else.

mod args;
mod attach;
mod confined;
mod convert;
mod demo;
mod destination;
mod detect;
mod doctor;
mod endless;
mod explain;
mod fleet;
mod kept;
mod output;
mod patch;
mod progress;
mod remedies;
mod replays;
mod saved;
mod status;
mod terminal;
mod top;
mod trace;
mod usage;
mod watch;
mod writer;

use anyhow::{Context, Result};
use args::Command;
use std::path::Path;
use std::process::ExitCode;
use sunder_record::Language;

fn main() -> ExitCode {
    sunder_live::outlive_limits();
    let cli = args::parse();
    let status = run(&cli.command).unwrap_or_else(|error| {
        output::complain(&error);
        if error.is::<usage::WrongUsage>() {
            status::USAGE
        } else {
            status::FAILED
        }
    });
    ExitCode::from(status)
}

fn run(command: &Command) -> Result<u8> {
    if let Command::Detect(_)
    | Command::Attach(_)
    | Command::Top(_)
    | Command::Watch(_)
    | Command::Run(_)
    | Command::Protect(_)
    | Command::Repair(_)
    | Command::Cure(_)
    | Command::Demo(_) = command
    {
        sunder_observe::proc::is_ours()?;
    }
    match command {
        Command::Detect(options) => detect::run(options),
        Command::Attach(options) => attach::run(options),
        Command::Top(options) => top::run(options),
        Command::Watch(options) => watch::run(options),
        Command::Import(options) => saved::import(options),
        Command::Report(options) => saved::report(options),
        Command::Diff(options) => saved::diff(options),
        Command::Fleet(options) => fleet::run(options),
        Command::Patch(options) => patch::run(options),
        Command::Run(options) => remedies::run(options),
        Command::Protect(options) => remedies::protect(options),
        Command::Repair(options) => remedies::repair(options),
        Command::Cure(options) => remedies::cure(options),
        Command::Simulate(options) => replays::simulate(options),
        Command::Merge(options) => replays::merge(options),
        Command::WhatIf(options) => replays::what_if(options),
        Command::Doctor(options) => doctor::run(options),
        Command::Demo(options) => demo::run(options),
        Command::Explain(options) => explain::run(options),
        Command::Trace(options) => trace::run(options),
        Command::Cc { arguments } => trace::compile(Language::C, arguments),
        Command::Cpp { arguments } => trace::compile(Language::Cpp, arguments),
        Command::Cargo { arguments } => trace::cargo(arguments),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut args::command(), "sunder", &mut text);
            destination::print(&String::from_utf8_lossy(&text))?;
            Ok(0)
        }
        Command::Man { directory } => man(directory.as_deref()),
    }
}

fn man(directory: Option<&Path>) -> Result<u8> {
    match directory {
        Some(directory) => {
            std::fs::create_dir_all(directory)
                .and_then(|()| clap_mangen::generate_to(args::command(), directory))
                .with_context(|| format!("cannot write to {}", directory.display()))?;
        }
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(args::command()).render(&mut text)?;
            destination::print(&String::from_utf8_lossy(&text))?;
        }
    }
    Ok(0)
}
