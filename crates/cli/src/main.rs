//! The `sunder` program. Arguments become a pipeline here; this crate is the
//! only place that prints and exits.

mod args;
mod assemble;
mod attach;
mod calls;
mod demo;
mod detect;
mod doctor;
mod embed;
mod files;
mod fix;
mod heap;
mod hooking;
mod isolate_observer;
mod latent;
mod live;
mod locks;
mod naming;
mod observers;
mod output;
mod pointers;
mod process;
mod protect;
mod repair;
mod result;
mod run;
mod saved;
mod session;
mod sharable;
mod shared;
mod signals;
mod simulate;
mod slots;
mod status;
mod threads;
mod trace;
mod unwind;
mod what_if;

use anyhow::{Context, Result};
use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    signals::outlive_limits();
    let cli = Cli::parse();
    let status = run(&cli.command).unwrap_or_else(|error| {
        output::complain(&error);
        status::FAILED
    });
    ExitCode::from(status)
}

fn run(command: &Command) -> Result<u8> {
    if let Command::Detect(_)
    | Command::Attach(_)
    | Command::Run(_)
    | Command::Protect(_)
    | Command::Repair(_)
    | Command::Demo(_) = command
    {
        sunder_observe::proc::is_ours()?;
    }
    match command {
        Command::Detect(options) => detect::run(options),
        Command::Attach(options) => attach::run(options),
        Command::Import(options) => saved::import(options),
        Command::Report(options) => saved::report(options),
        Command::Diff(options) => saved::diff(options),
        Command::Run(options) => run::run(options),
        Command::Protect(options) => protect::run(options),
        Command::Repair(options) => repair::run(options),
        Command::Simulate(options) => simulate::run(options),
        Command::WhatIf(options) => what_if::run(options),
        Command::Doctor(options) => doctor::run(options),
        Command::Demo(options) => demo::run(options),
        Command::Trace(options) => trace::run(options),
        Command::Cc { arguments } => trace::compile::run(trace::compile::Language::C, arguments),
        Command::Cpp { arguments } => trace::compile::run(trace::compile::Language::Cpp, arguments),
        Command::Cargo { arguments } => trace::cargo::run(arguments),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "sunder", &mut text);
            output::print(&String::from_utf8_lossy(&text))?;
            Ok(0)
        }
        Command::Man { directory } => man(directory.as_deref()),
    }
}

fn man(directory: Option<&Path>) -> Result<u8> {
    match directory {
        Some(directory) => {
            std::fs::create_dir_all(directory)
                .and_then(|()| clap_mangen::generate_to(Cli::command(), directory))
                .with_context(|| format!("cannot write to {}", directory.display()))?;
        }
        None => {
            let mut text = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut text)?;
            output::print(&String::from_utf8_lossy(&text))?;
        }
    }
    Ok(0)
}
