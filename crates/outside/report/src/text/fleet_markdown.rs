//! A fleet as Markdown, for a ticket or a chat: the answer, a table of the objects, and what is not known.

use super::markdown::escaped;
use crate::describe::{self, cpu_time, when};
use crate::figures::counted;
use sunder_fleet::{Fleet, FleetObject};

/// The most rows of a table: more are not read in a ticket.
const MOST: usize = 50;

/// The fleet as Markdown.
pub fn fleet_markdown(fleet: &Fleet) -> String {
    let mut out = format!("### {}\n\n", escaped(&describe::fleet_answer(fleet)));
    out.push_str(&escaped(&describe::fleet_facts(fleet).join(" · ")));
    out.push('\n');
    if !fleet.objects.is_empty() {
        out.push_str(
            "\n| object | program | lost | share | machines | there on | last seen | releases |\n",
        );
        out.push_str("|---|---|---:|---:|---:|---:|---|---|\n");
        fleet
            .objects
            .iter()
            .take(MOST)
            .for_each(|one| out.push_str(&row(one)));
    }
    if fleet.objects.len() > MOST {
        let more = counted(fleet.objects.len() - MOST, "more object");
        out.push_str(&format!("\nand {more}.\n"));
    }
    let looked = fleet.hosts.iter().filter(|host| host.lost_seconds > 0.0);
    let looked: Vec<_> = looked.take(MOST).collect();
    if !looked.is_empty() {
        out.push_str("\n| machine | lost | objects |\n|---|---:|---:|\n");
    }
    for host in looked {
        let lost = cpu_time(host.lost_seconds);
        out.push_str(&format!(
            "| {} | {lost} | {} |\n",
            escaped(&host.host),
            host.objects
        ));
    }
    let taken = [describe::own_cost(fleet), describe::lost(fleet)].join(" ");
    out.push_str(&format!("\n{}\n", escaped(&taken)));
    for limit in describe::fleet_limits(fleet) {
        out.push_str(&format!("\n> {}\n", escaped(&limit)));
    }
    out
}

fn row(one: &FleetObject) -> String {
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {} |\n",
        escaped(&one.object),
        escaped(&one.programs.join(", ")),
        cpu_time(one.lost_seconds),
        describe::share(one),
        one.hosts,
        one.there_on,
        when(one.last_unix_ns),
        escaped(&describe::history(one).unwrap_or_default())
    )
}
