//! A fleet for a terminal: the answer, the objects with their builds, the machines, the containers, and
//! what is not known.

use super::options::TextOptions;
use super::page::{Page, Paint};
use crate::clean::fit;
use crate::describe::{self, cpu_time, when};
use crate::figures::counted;
use sunder_findings::Answer;
use sunder_fleet::{BuildCost, Fleet, FleetObject, Step};

/// The most objects that are shown in full, and the most machines and containers; `all` shows more.
const FULL: usize = 10;

/// The fleet for a terminal. With [`TextOptions::all`] nothing is left out.
pub fn fleet_text(fleet: &Fleet, options: &TextOptions) -> String {
    let mut page = Page::new(options);
    let most = if options.all { usize::MAX } else { FULL };
    let paint = match fleet.answer {
        Answer::Found => Paint::Alarm,
        Answer::None => Paint::Good,
        Answer::Inconclusive => Paint::Bold,
    };
    page.paragraph("", "", paint, &describe::fleet_answer(fleet));
    page.paragraph(
        "",
        "",
        Paint::Dim,
        &describe::fleet_facts(fleet).join(" · "),
    );
    for (at, one) in fleet.objects.iter().take(most).enumerate() {
        object(&mut page, at + 1, one);
    }
    left_out(&mut page, fleet.objects.len(), most, "object");
    hosts(&mut page, fleet, most);
    containers(&mut page, fleet, most);
    page.blank();
    page.paragraph("", "", Paint::Dim, &describe::own_cost(fleet));
    page.paragraph("", "", Paint::Dim, &describe::lost(fleet));
    for limit in describe::fleet_limits(fleet) {
        page.paragraph("  - ", "    ", Paint::Plain, &limit);
    }
    page.finish()
}

fn left_out(page: &mut Page, count: usize, most: usize, noun: &str) {
    if count > most {
        let more = format!(
            "  and {} (--all)",
            counted(count - most, &format!("more {noun}"))
        );
        page.line(&[(Paint::Dim, &more)]);
    }
}

fn object(page: &mut Page, rank: usize, one: &FleetObject) {
    page.blank();
    page.heading(
        &[
            (Paint::Dim, &format!("{rank}. ")),
            (Paint::Bold, &one.object),
            (Paint::Dim, &format!(" in {}", one.programs.join(", "))),
        ],
        (Paint::Alarm, &cpu_time(one.lost_seconds)),
    );
    let kind = describe::fleet_kind(one);
    let cost = format!("{kind}, {} of its threads' time", describe::share(one));
    let place = one.place.as_ref().map(|place| format!("  {place}"));
    page.line(&[
        (Paint::Plain, "   "),
        (Paint::Plain, &cost),
        (Paint::Code, &place.unwrap_or_default()),
    ]);
    let seen = format!(
        "{} Seen from {} to {}.",
        describe::spread(one),
        when(one.first_unix_ns),
        when(one.last_unix_ns)
    );
    page.paragraph("   ", "   ", Paint::Plain, &seen);
    if let Some(history) = describe::history(one) {
        page.paragraph("   ", "   ", Paint::Bold, &history);
    }
    for build in &one.builds {
        build_line(page, build);
    }
    if one.more_builds > 0 {
        let more = counted(one.more_builds as usize, "earlier build");
        page.line(&[(Paint::Dim, &format!("     and {more}"))]);
    }
    if let Some(advice) = &one.advice {
        page.paragraph("   To do: ", "   ", Paint::Good, advice);
    }
}

fn build_line(page: &mut Page, build: &BuildCost) {
    let paint = match build.step {
        Step::Brought | Step::Grew => Paint::Alarm,
        Step::Mended | Step::Shrank => Paint::Good,
        _ => Paint::Dim,
    };
    let cost = describe::build_cost(build);
    let lost = match build.cost_percent {
        Some(_) => cpu_time(build.lost_seconds),
        None => String::new(),
    };
    page.line(&[
        (Paint::Plain, "     "),
        (Paint::Code, &fit(&describe::build_name(build), 14)),
        (Paint::Dim, &fit(&when(build.first_unix_ns), 18)),
        (Paint::Plain, &fit(&cost, 10)),
        (Paint::Plain, &fit(&lost, 9)),
        (paint, describe::step(build.step)),
    ]);
}

fn hosts(page: &mut Page, fleet: &Fleet, most: usize) {
    page.blank();
    page.line(&[(Paint::Bold, "Machines")]);
    for host in fleet.hosts.iter().take(most) {
        let what = match host.objects {
            0 if host.has_looked() => "nothing found".to_owned(),
            0 => "nothing could be seen".to_owned(),
            some => format!("{}, {} there", counted(some as usize, "object"), host.there),
        };
        let blind: Vec<&str> = host
            .blind
            .iter()
            .map(|&kind| describe::blind_word(kind))
            .collect();
        page.line(&[
            (Paint::Plain, "  "),
            (Paint::Code, &fit(&host.host, 24)),
            (Paint::Plain, " "),
            (Paint::Plain, &fit(&cpu_time(host.lost_seconds), 9)),
            (Paint::Plain, &fit(&what, 22)),
            (Paint::Dim, &format!(" {}", blind.join(", "))),
        ]);
    }
    left_out(page, fleet.hosts.len(), most, "machine");
}

fn containers(page: &mut Page, fleet: &Fleet, most: usize) {
    if fleet.containers.is_empty() {
        return;
    }
    page.blank();
    page.line(&[(Paint::Bold, "Containers")]);
    for one in fleet.containers.iter().take(most) {
        let on = format!("{} on {}", one.programs.join(", "), one.host);
        page.line(&[
            (Paint::Plain, "  "),
            (Paint::Code, &fit(&one.container, 14)),
            (Paint::Plain, " "),
            (Paint::Plain, &fit(&cpu_time(one.lost_seconds), 9)),
            (Paint::Plain, &on),
        ]);
    }
    left_out(page, fleet.containers.len(), most, "container");
}
