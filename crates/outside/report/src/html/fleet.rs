//! A fleet as one page: the objects with their builds, the machines, the containers, what watching took
//! and what is not known. Called for `sunder fleet report`. Like the other pages it needs nothing else,
//! and nothing here marks text as safe. It has no script.

use super::card::{Part, parts};
use crate::clean::clean;
use crate::describe::{self, cpu_time, when};
use crate::figures::{counted, grouped, percent};
use askama::Template;
use sunder_findings::Answer;
use sunder_fleet::{BuildCost, Fleet, FleetContainer, FleetHost, FleetObject, Step};

/// The most objects, machines and containers on the page. JSON has all.
const MOST_OBJECTS: usize = 200;
const MOST_HOSTS: usize = 500;
const MOST_CONTAINERS: usize = 200;
/// So many objects are unfolded when the page opens.
const OPEN: usize = 8;

#[derive(Template)]
#[template(path = "fleet.html")]
struct Page {
    tool: String,
    answer: String,
    /// The class of the heading: `alarm`, `good` or none.
    mood: &'static str,
    facts: Vec<String>,
    objects: Vec<Object>,
    more_objects: Option<String>,
    hosts: Vec<Host>,
    more_hosts: Option<String>,
    containers: Vec<Container>,
    more_containers: Option<String>,
    own_cost: String,
    lost: String,
    limits: Vec<String>,
    read: String,
}

struct Object {
    rank: usize,
    open: bool,
    fingerprint: String,
    subject: String,
    kind: &'static str,
    class: &'static str,
    programs: String,
    lost: String,
    share: String,
    /// Length of the bar in percent of the dearest object's seconds.
    bar: String,
    machines: String,
    there: String,
    first: String,
    last: String,
    place: Option<String>,
    spread: String,
    history: Option<String>,
    advice: Vec<Part>,
    builds: Vec<Build>,
    more_builds: Option<String>,
}

struct Build {
    name: String,
    whole: String,
    path: String,
    first: String,
    last: String,
    hosts: u64,
    looks: String,
    cost: String,
    /// Length of the bar, of 100 %.
    bar: String,
    lost: String,
    class: &'static str,
    step: &'static str,
}

struct Host {
    name: String,
    lost: String,
    bar: String,
    found: String,
    last: String,
    watched: String,
    looks: String,
    own: String,
    blind: String,
}

struct Container {
    short: String,
    name: String,
    host: String,
    programs: String,
    lost: String,
    objects: u64,
}

/// The fleet as one self-contained HTML page.
pub fn fleet_html(fleet: &Fleet) -> String {
    let dearest = fleet.objects.first().map_or(0.0, |one| one.lost_seconds);
    let dearest_host = fleet.hosts.first().map_or(0.0, |one| one.lost_seconds);
    let more = |count: usize, most: usize, noun: &str| {
        (count > most).then(|| format!("and {}", counted(count - most, &format!("more {noun}"))))
    };
    let objects = fleet.objects.iter().take(MOST_OBJECTS).enumerate();
    let hosts = fleet.hosts.iter().take(MOST_HOSTS);
    let page = Page {
        tool: clean(fleet.tool),
        answer: describe::fleet_answer(fleet),
        mood: match fleet.answer {
            Answer::Found => "alarm",
            Answer::None => "good",
            Answer::Inconclusive => "",
        },
        facts: describe::fleet_facts(fleet),
        objects: objects
            .map(|(at, one)| Object::new(at, one, dearest))
            .collect(),
        more_objects: more(fleet.objects.len(), MOST_OBJECTS, "object"),
        hosts: hosts.map(|one| Host::new(one, dearest_host)).collect(),
        more_hosts: more(fleet.hosts.len(), MOST_HOSTS, "machine"),
        containers: fleet
            .containers
            .iter()
            .take(MOST_CONTAINERS)
            .map(Container::new)
            .collect(),
        more_containers: more(fleet.containers.len(), MOST_CONTAINERS, "container"),
        own_cost: describe::own_cost(fleet),
        lost: describe::lost(fleet),
        limits: describe::fleet_limits(fleet),
        read: format!(
            "{} in {}.",
            counted(fleet.reading.records as usize, "record"),
            counted(fleet.reading.files as usize, "file")
        ),
    };
    // Writing to a string fails only if a field's `Display` fails, and all fields are strings.
    page.render()
        .unwrap_or_else(|error| format!("<!doctype html><p>The page failed: {error}</p>"))
}

/// A length in percent of `most`, for the style sheet.
fn bar(part: f64, most: f64) -> String {
    let length = if most > 0.0 { 100.0 * part / most } else { 0.0 };
    let length = if length.is_finite() { length } else { 0.0 };
    format!("{:.1}", length.clamp(0.0, 100.0))
}

impl Object {
    fn new(at: usize, one: &FleetObject, dearest: f64) -> Self {
        Self {
            rank: at + 1,
            open: at < OPEN,
            fingerprint: clean(&one.fingerprint),
            subject: clean(&one.object),
            kind: describe::fleet_kind(one),
            class: match one.sharing {
                sunder_findings::Sharing::Mixed => "mixed",
                sunder_findings::Sharing::True => "true",
                sunder_findings::Sharing::False => "false",
            },
            programs: clean(&one.programs.join(", ")),
            lost: cpu_time(one.lost_seconds),
            share: describe::share(one),
            bar: bar(one.lost_seconds, dearest),
            machines: grouped(one.hosts),
            there: match one.there_on {
                0 if one.not_looked_at_on > 0 => "not known".to_owned(),
                0 => "gone".to_owned(),
                some if some == one.hosts => "there".to_owned(),
                some => format!("there on {}", grouped(some)),
            },
            first: when(one.first_unix_ns),
            last: when(one.last_unix_ns),
            place: one.place.as_deref().map(clean),
            spread: describe::spread(one),
            history: describe::history(one),
            advice: one.advice.as_deref().map(parts).unwrap_or_default(),
            builds: one.builds.iter().map(Build::new).collect(),
            more_builds: (one.more_builds > 0)
                .then(|| format!("and {}", counted(one.more_builds as usize, "earlier build"))),
        }
    }
}

impl Build {
    fn new(one: &BuildCost) -> Self {
        Self {
            name: clean(&describe::build_name(one)),
            whole: clean(one.build_id.as_deref().unwrap_or("no build id")),
            path: clean(&one.path),
            first: when(one.first_unix_ns),
            last: when(one.last_unix_ns),
            hosts: one.hosts,
            looks: grouped(one.looks),
            cost: describe::build_cost(one),
            bar: bar(one.cost_percent.unwrap_or(0.0), 100.0),
            lost: match one.cost_percent {
                Some(_) => cpu_time(one.lost_seconds),
                None => String::new(),
            },
            class: match one.step {
                Step::Brought | Step::Grew => "false",
                Step::Mended | Step::Shrank => "good",
                _ => "latent",
            },
            step: describe::step(one.step),
        }
    }
}

impl Host {
    fn new(one: &FleetHost, dearest: f64) -> Self {
        let taken = one.own_cpu_seconds + one.interrupt_seconds;
        let share = match one.seconds > 0.0 {
            true => format!(" ({} of a CPU)", percent(100.0 * taken / one.seconds)),
            false => String::new(),
        };
        let blind: Vec<&str> = one
            .blind
            .iter()
            .map(|&kind| describe::blind_word(kind))
            .collect();
        Self {
            name: clean(&one.host),
            lost: cpu_time(one.lost_seconds),
            bar: bar(one.lost_seconds, dearest),
            found: match one.objects {
                0 if one.has_looked() => "nothing found".to_owned(),
                0 => "nothing could be seen".to_owned(),
                some => format!("{}, {} there", counted(some as usize, "object"), one.there),
            },
            last: when(one.last_unix_ns),
            watched: cpu_time(one.seconds),
            looks: grouped(one.looks),
            own: format!("{}{share}", cpu_time(taken)),
            blind: blind.join(", "),
        }
    }
}

impl Container {
    fn new(one: &FleetContainer) -> Self {
        let name = clean(&one.container);
        Self {
            short: name.chars().take(12).collect(),
            name,
            host: clean(&one.host),
            programs: clean(&one.programs.join(", ")),
            lost: cpu_time(one.lost_seconds),
            objects: one.objects,
        }
    }
}
