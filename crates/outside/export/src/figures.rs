//! Which figures there are: their names, kinds and values. Every sink shows these. Pure.

use crate::metrics::{Labels, Metrics, Sink};
use sunder_findings::Happening;

/// How a figure changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A sum since the watch began.
    Sum,
    /// A value of now.
    Gauge,
}

/// One figure with its values.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its name, without what a format adds for its kind.
    pub name: &'static str,
    /// How it changes.
    pub kind: Kind,
    /// Its unit, as OpenTelemetry writes it. Only ratios have the unit 1: a collector that makes a Prometheus
    /// metric of a gauge with it adds `_ratio` to the name.
    pub unit: &'static str,
    /// What it is, as a sentence.
    pub help: &'static str,
    /// Its values with their labels.
    pub points: Vec<(Vec<(&'static str, String)>, f64)>,
}

/// All figures.
pub fn figures(metrics: &Metrics) -> Vec<Figure> {
    let status = &metrics.status;
    let mut all = Vec::new();
    let mut add = |kind, name, unit, help, value: f64| {
        let points = vec![(Vec::new(), value)];
        all.push(Figure {
            name,
            kind,
            unit,
            help,
            points,
        });
    };
    let samples = status.samples as f64;
    let looked_at = status.samples_looked_at as f64;
    let lost = status.lost_records as f64;
    let failed = status.looks_failed as f64;
    let by_symbols = status.looks_by_symbols as f64;
    let dropped = status.records_dropped as f64;
    #[rustfmt::skip]
    let sums = [
        ("sunder_samples", "{sample}", "Samples of all processes.", samples),
        ("sunder_samples_looked_at", "{sample}", "Samples of processes that were looked at closely.", looked_at),
        ("sunder_samples_unattributed", "{sample}", "Of those, samples for which the address of the access is not known.", status.samples_unattributed),
        ("sunder_lost_records", "{record}", "Records that the kernel dropped.", lost),
        ("sunder_looks", "{look}", "Close looks at processes.", status.looks as f64),
        ("sunder_looks_failed", "{look}", "Close looks whose result was lost.", failed),
        ("sunder_looks_by_symbols", "{look}", "Close looks whose debug information took too much: named by symbols.", by_symbols),
        ("sunder_own_cpu_seconds", "s", "CPU seconds that watching took itself.", status.own_cpu_seconds),
        ("sunder_interrupt_cpu_seconds", "s", "CPU seconds that the interrupts of samples took from programs, at most.", status.interrupt_seconds),
        ("sunder_records_dropped", "{record}", "Records that were lost before they reached a sink.", dropped),
    ];
    for (name, unit, help, value) in sums {
        add(Kind::Sum, name, unit, help, value);
    }
    #[rustfmt::skip]
    let gauges = [
        ("sunder_budget_ratio", "1", "What watching may take, as a share of one CPU.", status.budget_percent / 100.0),
        ("sunder_spent_ratio", "1", "What watching took lately, as a share of one CPU.", status.spent_percent / 100.0),
        ("sunder_frequency_hertz", "Hz", "Samples a second on each CPU.", f64::from(status.frequency_hz)),
        ("sunder_cpus", "{cpu}", "CPUs that are sampled.", f64::from(status.cpus)),
        ("sunder_processes", "{process}", "Processes with samples in the last period.", status.processes as f64),
        ("sunder_memory_bytes", "By", "Resident memory of the process that observes.", status.memory_bytes as f64),
        ("sunder_status_timestamp_seconds", "s", "When these figures were made.", status.time_unix_ns as f64 / 1e9),
    ];
    for (name, unit, help, value) in gauges {
        add(Kind::Gauge, name, unit, help, value);
    }
    let by_program = |value: &dyn Fn(&(f64, f64)) -> f64| {
        let all = metrics.by_program.iter();
        all.map(|(program, of)| (vec![("program", program.clone())], value(of)))
            .collect()
    };
    all.push(Figure {
        name: "sunder_program_samples",
        kind: Kind::Sum,
        unit: "{sample}",
        help: "Samples of close looks at a program.",
        points: by_program(&|of| of.0),
    });
    all.push(Figure {
        name: "sunder_program_samples_unattributed",
        kind: Kind::Sum,
        unit: "{sample}",
        help: "Of those, samples for which the address of the access is not known.",
        points: by_program(&|of| of.1),
    });
    all.push(Figure {
        name: "sunder_events",
        kind: Kind::Sum,
        unit: "{event}",
        help: "Findings that appeared, changed by a factor of two, or went away.",
        points: [Happening::Appeared, Happening::Changed, Happening::Gone]
            .map(|event| {
                let labels = vec![("event", event.word().to_owned())];
                (labels, metrics.count_of(event) as f64)
            })
            .into(),
    });
    let sinks = |value: &dyn Fn(&Sink) -> u64| {
        let all = metrics.sinks.iter();
        all.map(|(name, sink)| (vec![("sink", (*name).to_owned())], value(sink) as f64))
            .collect()
    };
    all.push(Figure {
        name: "sunder_sink_lost_batches",
        kind: Kind::Sum,
        unit: "{batch}",
        help: "Batches for a sink that were dropped for lack of room, or that it refused.",
        points: sinks(&|sink| sink.lost_batches),
    });
    all.push(Figure {
        name: "sunder_sink_waiting_bytes",
        kind: Kind::Gauge,
        unit: "By",
        help: "Bytes that wait until a sink takes them.",
        points: sinks(&|sink| sink.waiting_bytes),
    });
    all.push(Figure {
        name: "sunder_sink_off",
        kind: Kind::Gauge,
        unit: "{sink}",
        help: "1 for a sink whose receiver does not want its signal: nothing is sent there.",
        points: sinks(&|sink| u64::from(sink.is_off)),
    });
    all.push(Figure {
        name: "sunder_lost_cpu_seconds",
        kind: Kind::Sum,
        unit: "s",
        help: "CPU seconds that false sharing cost, as far as samples show.",
        points: points(metrics.lost_seconds.iter().map(|(l, &lost)| (l, lost))),
    });
    let present = || metrics.present.iter();
    all.push(Figure {
        name: "sunder_findings",
        kind: Kind::Gauge,
        unit: "{finding}",
        help: "Findings that are there.",
        points: points(present().map(|(l, &(count, _))| (l, count as f64))),
    });
    all.push(Figure {
        name: "sunder_finding_cost_ratio",
        kind: Kind::Gauge,
        unit: "1",
        help: "The share of its threads' time that a finding costs; the highest of those with these labels.",
        points: points(present().map(|(l, &(_, cost))| (l, cost / 100.0))),
    });
    all
}

fn points<'a>(
    all: impl Iterator<Item = (&'a Labels, f64)>,
) -> Vec<(Vec<(&'static str, String)>, f64)> {
    let named = |labels: &Labels| {
        vec![
            ("program", labels.program.clone()),
            ("object", labels.object.clone()),
            ("container", labels.container.clone()),
        ]
    };
    all.map(|(labels, value)| (named(labels), value)).collect()
}
