//! `sunder doctor`: says what can be observed on this machine, which observer will be used, and
//! how to get more.

mod rights;

use crate::args::Doctor;
use anyhow::{Result, bail};
use std::fmt::Write as _;
use std::path::Path;
use sunder_live::program::{self as file, Linkage};
use sunder_live::{ObserverChoice, choose};
use sunder_objects::DebugPlace;
use sunder_observe::machine::{self, Capabilities, Capability, Machine};

/// Runs the command. Returns the exit status.
///
/// # Errors
/// If the named program can't be read.
pub fn run(options: &Doctor) -> Result<u8> {
    let mut text = String::new();
    machine_part(&mut text);
    let capabilities = Capabilities::probe();
    capability_part(&mut text, &capabilities);
    choice_part(&mut text);
    rights::part(&mut text, &capabilities, sunder_confine::is_possible());
    if let Some(program) = &options.program {
        program_part(&mut text, program)?;
    }
    crate::destination::print(&text)?;
    Ok(0)
}

fn machine_part(text: &mut String) {
    let machine = Machine::read();
    let transfer = machine::transfer_cost();
    let _ = writeln!(text, "Machine");
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<22}{value}");
    };
    row(
        "CPU",
        if machine.cpu_model.is_empty() {
            "unknown".into()
        } else {
            machine.cpu_model.clone()
        },
    );
    let quota = machine.quota.map_or_else(String::new, |cpus| {
        format!("; control groups grant us the time of {cpus:.1}")
    });
    row(
        "CPUs",
        format!(
            "{} online, {} allowed to us{quota}",
            machine.online.len(),
            machine.allowed.len()
        ),
    );
    row("line size", format!("{} bytes", machine.line.bytes()));
    row(
        "line transfer",
        transfer.map_or_else(
            || "could not be measured: fewer than two CPUs, or all too busy".into(),
            |t| format!("{:.0} ns one way between two cores", t.nanoseconds),
        ),
    );
    row("kernel", machine.kernel.clone());
    row(
        "virtual machine",
        if machine.hypervisor { "yes" } else { "no" }.into(),
    );
}

fn capability_part(text: &mut String, c: &Capabilities) {
    let _ = writeln!(text, "\nWhat can be observed");
    let mut row = |name: &str, capability: &Capability| {
        let mark = if capability.available { "yes" } else { "no " };
        let _ = writeln!(text, "  {mark}  {name:<22}{}", capability.detail);
        if let Some(remedy) = &capability.remedy {
            let _ = writeln!(text, "       {:<22}→ {remedy}", "");
        }
    };
    row("samples (perf)", &c.software_events);
    row("registers in samples", &c.user_registers);
    row("watchpoints", &c.watchpoints);
    row("hardware counters", &c.hardware_counters);
    row("memory events", &c.memory_events);
    row("protection keys", &c.protection_keys);
    row("ptrace", &c.ptrace);
    let level = c.perf_event_paranoid.map_or_else(
        || "absent: this kernel has no perf events".into(),
        |level| format!("{level}: {}", paranoid_words(level)),
    );
    let _ = writeln!(text, "       {:<22}{level}", "perf_event_paranoid");
    if let Some(kib) = c.perf_event_mlock_kb {
        let _ = writeln!(
            text,
            "       {:<22}{kib} KiB of rings a CPU without privileges",
            "perf_event_mlock_kb"
        );
    }
    if !c.memory_events.available {
        let _ = writeln!(
            text,
            "\n  Memory events of Intel and AMD processors are implemented and tested on recorded\n  \
             bytes; no machine with such a PMU has exercised them yet."
        );
    }
}

/// What each level forbids to unprivileged users, according to the kernel's documentation.
const fn paranoid_words(level: i32) -> &'static str {
    match level {
        ..=-1 => "nothing is forbidden",
        0 => "raw tracepoints are forbidden",
        1 => "system-wide events are forbidden; own programs are not",
        2 => "sampling the kernel is forbidden; own programs are not",
        _ => {
            "perf events are forbidden to users without CAP_PERFMON; set it to 2 or use --observer timer"
        }
    }
}

fn choice_part(text: &mut String) {
    let mut limits = Vec::new();
    let chosen = match choose(ObserverChoice::Auto, &mut limits) {
        Ok(kind) => format!("{}: {}", kind.name, kind.in_brief),
        Err(_) => "none".to_owned(),
    };
    let _ = writeln!(text, "\nObserver that `detect` will use\n  {chosen}");
    let _ = writeln!(
        text,
        "  Observers confirm suspects with watchpoints where there are any."
    );
}

fn program_part(text: &mut String, program: &Path) -> Result<()> {
    // A name that is not a file here is searched for as `detect` would.
    let found = if program.exists() {
        None
    } else {
        file::find(program.as_os_str())
    };
    let program = found.as_deref().unwrap_or(program);
    let Some(facts) = sunder_objects::inspect(program) else {
        bail!(
            "{} is no 64-bit ELF program that can be read",
            program.display()
        );
    };
    let _ = writeln!(text, "\nProgram {}", program.display());
    let hindrance = file::preload_hindrance(program.as_os_str());
    let linkage = match (file::linkage(program), hindrance) {
        (Linkage::Dynamic, None) => "dynamic: heap objects get names and call stacks".to_owned(),
        (Linkage::Dynamic, Some(why)) => {
            format!("dynamic, but heap objects get no names and call stacks: {why}")
        }
        (Linkage::Static, _) => "static: heap objects get no names and call stacks".to_owned(),
        (Linkage::Privileged, _) => {
            "privileged (set-user-id): nothing can be preloaded or observed".to_owned()
        }
    };
    let _ = writeln!(text, "  linkage               {linkage}");
    let _ = writeln!(
        text,
        "  symbols               {}",
        if facts.symbols {
            "yes"
        } else {
            "only those that it exports; the rest was stripped"
        }
    );
    let debug = match sunder_objects::debug_place(program) {
        Some(DebugPlace::Within) => "yes: variables, fields and source lines get names".to_owned(),
        Some(DebugPlace::Separate(file)) => format!("yes, in {}", file.display()),
        Some(DebugPlace::Split) => "yes, in .dwo or .dwp files, which are there".to_owned(),
        Some(DebugPlace::SplitMissing(file)) => format!(
            "in .dwo or .dwp files, of which {} was not found where the compiler put it",
            file.display()
        ),
        Some(DebugPlace::Missing(file)) => format!(
            "in a separate file, {}, which was not found; a package with debug symbols has it",
            file.display()
        ),
        Some(DebugPlace::None) | None => {
            "none: build with -g to get variables, fields and source lines".to_owned()
        }
    };
    let _ = writeln!(text, "  debug information     {debug}");
    if let Some(id) = facts.build_id {
        let _ = writeln!(text, "  build id              {id}");
    }
    Ok(())
}
