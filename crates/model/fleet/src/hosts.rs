//! One machine: the counts of all its watches, and why there may be more than was found.

use crate::gather::{Gather, Watch};
use crate::summary::{Blind, FleetHost};

/// From this share of samples without an address on, most of a machine is hidden.
const MOST_UNATTRIBUTED: f64 = 0.5;
/// From this share of dropped samples on, it is worth a word.
const MOST_DROPPED: f64 = 0.01;

/// All machines, in the order of their numbers. What they cost is filled in by the caller.
pub fn hosts(all: &Gather) -> Vec<FleetHost> {
    let mut hosts: Vec<FleetHost> = (0..all.hosts.len() as u32)
        .map(|host| FleetHost {
            host: all.hosts.key(host).clone(),
            first_unix_ns: u64::MAX,
            ..FleetHost::default()
        })
        .collect();
    let mut has_status = vec![false; hosts.len()];
    for watch in &all.of_watches {
        let host = &mut hosts[watch.host as usize];
        add(host, watch);
        has_status[watch.host as usize] |= watch.status_unix_ns > 0;
    }
    for (&(_, _, host), seen) in &all.seen {
        let host = &mut hosts[host as usize];
        host.first_unix_ns = host.first_unix_ns.min(seen.first_unix_ns);
        host.last_unix_ns = host.last_unix_ns.max(seen.last_unix_ns);
    }
    for (&(host, ..), &(told, ..)) in &all.events {
        let host = &mut hosts[host as usize];
        host.first_unix_ns = host.first_unix_ns.min(told);
        host.last_unix_ns = host.last_unix_ns.max(told);
    }
    for (host, has_status) in hosts.iter_mut().zip(has_status) {
        host.first_unix_ns = host.first_unix_ns.min(host.last_unix_ns);
        host.blind = blind(host, has_status);
    }
    hosts
}

fn add(host: &mut FleetHost, watch: &Watch) {
    host.watches += 1;
    host.first_unix_ns = host.first_unix_ns.min(watch.first_unix_ns);
    host.last_unix_ns = host.last_unix_ns.max(watch.last_unix_ns);
    let status = &watch.status;
    for (sum, count) in [
        (&mut host.samples, status.samples),
        (&mut host.samples_looked_at, status.samples_looked_at),
        (&mut host.looks, status.looks),
        (&mut host.looks_failed, status.looks_failed),
        (&mut host.looks_by_symbols, status.looks_by_symbols),
        (&mut host.lost_records, status.lost_records),
        (&mut host.records_dropped, status.records_dropped),
    ] {
        // Hosts write what they like.
        *sum = sum.saturating_add(count);
    }
    host.seconds += status.seconds;
    host.samples_unattributed += status.samples_unattributed;
    host.own_cpu_seconds += status.own_cpu_seconds;
    host.interrupt_seconds += status.interrupt_seconds;
}

fn blind(host: &FleetHost, has_status: bool) -> Vec<Blind> {
    let looked_at = host.samples_looked_at as f64;
    let dropped = host.lost_records as f64;
    if !has_status {
        return vec![Blind::NoStatus];
    }
    let all = [
        (host.samples == 0, Blind::NoSamples),
        (host.samples > 0 && host.looks == 0, Blind::NoLooks),
        (
            host.looks_failed > 0 && host.looks_failed.saturating_mul(2) >= host.looks,
            Blind::LooksFailed,
        ),
        (
            looked_at > 0.0 && host.samples_unattributed >= looked_at * MOST_UNATTRIBUTED,
            Blind::Unattributed,
        ),
        (
            dropped > host.samples as f64 * MOST_DROPPED,
            Blind::SamplesLost,
        ),
        (host.records_dropped > 0, Blind::RecordsDropped),
    ];
    all.into_iter()
        .filter(|(holds, _)| *holds)
        .map(|(_, blind)| blind)
        .collect()
}
