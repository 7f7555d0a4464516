//! The documentation site does what it says: every command block of `docs/book`, and of the pages in
//! `ALSO_RUN`, is run in the order of its page, in a folder of its own, and its output compared where it
//! is the same in every run. The reference of the commands is what `--help` prints. `blocks.rs` says how a
//! page marks its blocks.

mod blocks;

use blocks::{Block, Kind, blocks, shows};
use std::path::{Path, PathBuf};
use std::process::Command;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// Pages beside those of `docs/book` whose commands are run.
const ALSO_RUN: [&str; 5] = [
    "ci.md",
    "cluster.md",
    "containers.md",
    "install.md",
    "watch.md",
];

/// The pages of the site with commands, by their path within `docs`.
fn pages() -> Vec<(String, String)> {
    let mut all: Vec<_> = std::fs::read_dir(docs().join("book"))
        .expect("the folder of the pages")
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| format!("book/{}", name.to_string_lossy()))
        .filter(|name| name.ends_with(".md"))
        .chain(ALSO_RUN.map(str::to_owned))
        .map(|name| {
            let text = std::fs::read_to_string(docs().join(&name)).expect("a readable page");
            (name, text)
        })
        .collect();
    all.sort();
    all
}

/// The command in the page's folder, with the built program first in the path.
fn shell(command: &str, folder: &Path) -> Command {
    let sunder = Path::new(env!("CARGO_BIN_EXE_sunder"));
    let tools = sunder.parent().expect("a folder").display();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("timeout");
    shell
        .args(["120", "bash", "-c", command])
        .current_dir(folder)
        .env("PATH", format!("{tools}:{path}"))
        .env("HOME", folder)
        .env("LC_ALL", "C.UTF-8")
        .env_remove("COLUMNS")
        .env_remove("CLICOLOR_FORCE");
    shell
}

/// Runs a block; what does not hold.
fn run(block: &Block, folder: &Path) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(before) = block.before.as_ref().filter(|b| !succeeds(b, folder)) {
        wrong.push(format!("`{before}`, which comes before, failed"));
    }
    for step in &block.steps {
        // Standard error and output in their order, as a terminal shows them.
        let both = format!("{{ {}\n}} 2>&1", step.command);
        let out = shell(&both, folder).output().expect("bash can be started");
        let text = String::from_utf8_lossy(&out.stdout);
        let seen: Vec<String> = text.lines().map(str::to_owned).collect();
        if !out.status.success() {
            wrong.push(format!(
                "`{}` failed ({}):\n{text}",
                step.command, out.status
            ));
        } else if block.kind == Kind::Exact && !shows(&step.output, &seen) {
            let expected = step.output.join("\n");
            wrong.push(format!(
                "`{}` prints\n{text}\nand not\n{expected}",
                step.command
            ));
        }
    }
    wrong
}

fn succeeds(command: &str, folder: &Path) -> bool {
    let out = shell(command, folder)
        .output()
        .expect("bash can be started");
    out.status.success()
}

/// Holds one page; returns what is wrong and how many blocks were not run.
fn hold(name: &str, text: &str, folder: &Path) -> (Vec<String>, usize) {
    let (mut wrong, mut left) = (Vec::new(), 0);
    for block in blocks(text) {
        let found = match &block.kind {
            Kind::File(file, text) => {
                std::fs::write(folder.join(file), text).expect("the page's file can be written");
                continue;
            }
            Kind::Elsewhere(why) => {
                println!("not run: {name}:{}: {why}", block.line);
                left += 1;
                let steps = block.steps.iter();
                steps
                    .filter(|step| {
                        let syntax = Command::new("bash")
                            .args(["-n", "-c", &step.command])
                            .status();
                        !syntax.is_ok_and(|status| status.success())
                    })
                    .map(|step| format!("`{}` is no command", step.command))
                    .collect()
            }
            Kind::Needs(file) if !Path::new(file).exists() => {
                println!("SKIP: {name}:{}: {file} is not installed", block.line);
                left += 1;
                // What comes later uses what this would have made.
                break;
            }
            _ => {
                let fails = |command: &&String| !succeeds(command, folder);
                if let Some(command) = block.only_if.as_ref().filter(fails) {
                    println!("SKIP: {name}:{}: `{command}` fails here", block.line);
                    left += 1;
                    continue;
                }
                run(&block, folder)
            }
        };
        wrong.extend(
            found
                .into_iter()
                .map(|w| format!("{name}:{}: {w}", block.line)),
        );
    }
    (wrong, left)
}

#[test]
fn every_command_of_the_site_runs() {
    let (mut wrong, mut left, mut all) = (Vec::new(), 0, 0);
    for (name, text) in pages() {
        let folder = tempfile::tempdir().expect("a folder for the page");
        // The pages call it so.
        let example = docs().join("schema/example.json");
        std::fs::copy(example, folder.path().join("example.json")).expect("the published example");
        // Pages name files of the checkout.
        for of_checkout in ["contrib", "workloads"] {
            let from = docs().join("..").join(of_checkout);
            std::os::unix::fs::symlink(from, folder.path().join(of_checkout)).expect("a link");
        }
        all += blocks(&text).len();
        let (found, not_run) = hold(&name, &text, folder.path());
        wrong.extend(found);
        left += not_run;
    }
    println!("{left} of {all} blocks were not run");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(all > 10, "only {all} blocks were found");
}

/// An indented block would be neither run nor counted.
#[test]
fn commands_stand_in_marked_blocks() {
    for name in ALSO_RUN {
        let text = std::fs::read_to_string(docs().join(name)).expect("a readable page");
        let mut fenced = false;
        for (line, number) in text.lines().zip(1..) {
            fenced ^= line.starts_with("```");
            assert!(
                fenced || !line.starts_with("    "),
                "{name}:{number}: {line}"
            );
        }
    }
}

/// The commands that `--help` lists, in its order.
fn commands() -> Vec<String> {
    let out = shell("sunder --help", Path::new("/"))
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let known = |name: &str| {
        let asked = shell(&format!("sunder {name} --help"), Path::new("/")).output();
        name != "help" && asked.is_ok_and(|out| out.status.success())
    };
    text.lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .filter(|name| known(name))
        .collect()
}

#[test]
fn the_reference_is_what_help_prints() {
    let mut page = "# Command reference\n\nMade from `--help`; \
                    `SUNDER_PUBLISH=1 cargo test -p sunder-cli --test book` writes it again.\n"
        .to_owned();
    let all = commands();
    assert!(all.len() > 15, "commands: {all:?}");
    for name in std::iter::once(String::new()).chain(all) {
        let command = format!("sunder {name}").trim().to_owned();
        let asked = format!("COLUMNS=100 {command} --help");
        let out = shell(&asked, Path::new("/")).output().expect("it runs");
        let help = String::from_utf8_lossy(&out.stdout);
        let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
        page.push_str(&format!(
            "\n## {command}\n\n```text\n{}\n```\n",
            lines.join("\n").trim()
        ));
    }
    let file = docs().join("book/commands.md");
    if std::env::var_os("SUNDER_PUBLISH").is_some() {
        std::fs::write(&file, &page).expect("the reference can be written");
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        kept == page,
        "docs/book/commands.md differs from --help: SUNDER_PUBLISH=1 cargo test -p sunder-cli --test book"
    );
}

#[test]
fn the_summary_lists_every_page_and_nothing_else() {
    let summary = std::fs::read_to_string(docs().join("SUMMARY.md")).expect("a summary");
    let listed: Vec<&str> = summary
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .collect();
    for file in &listed {
        assert!(docs().join(file).exists(), "{file} is not there");
    }
    for (file, _) in pages() {
        assert!(listed.contains(&file.as_str()), "{file} is not listed");
    }
}

#[test]
fn the_site_can_be_built() {
    let book = docs();
    let target = tempfile::tempdir().expect("a folder for the site");
    let built = Command::new("mdbook")
        .arg("build")
        .arg("--dest-dir")
        .args([target.path(), &book])
        .output();
    let Ok(built) = built else {
        println!("SKIP: mdbook is not installed (cargo install mdbook); the site was not built");
        return;
    };
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success() && !said.contains("ERROR"), "{said}");
    assert!(target.path().join("index.html").exists());
}
