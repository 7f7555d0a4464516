//! OTLP over HTTP: figures as metrics, findings as logs, and CPU time lost as profiles, in binary Protobuf. Each signal has a
//! queue and a thread of its own, so that one that is not taken does not hold up the others.

mod logs;
mod metrics;
mod profiles;
mod request;
mod target;
mod values;

use crate::figures::figures;
use crate::metrics::{Metrics, Sink};
use crate::profile::Profile;
use crate::sender::{Left, Sender};
use crate::spool::Spool;
use anyhow::Result;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};
use sunder_findings::Record;
pub use target::{Signal, Target};

/// Sends all signals that are wanted.
#[derive(Debug)]
pub struct Otlp {
    metrics: Sender,
    logs: Sender,
    profiles: Option<Profiles>,
    resource: Resource,
    since_unix_ns: u64,
}

#[derive(Debug)]
struct Profiles {
    sender: Sender,
    profile: Profile,
    /// The first half of the identities of this watch's profiles; the second counts them.
    first_half: u64,
    count: u64,
}

/// A queue when the watch ends.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Its name.
    pub sink: &'static str,
    /// What was not sent.
    pub left: Left,
    /// Batches that are lost: those that were refused, and those that there was no room for. None if the
    /// receiver does not want such batches at all, as it has been said.
    pub lost: u64,
}

impl Otlp {
    /// Begins to send what waits in the spools of all signals and what will be put there. `spool` makes the spool
    /// of a name. Metrics and logs are sent in any case.
    ///
    /// # Errors
    /// If a variable can't be followed, or there can be no further threads.
    pub fn start(
        host: &str,
        since_unix_ns: u64,
        with_profiles: bool,
        variable: &dyn Fn(&str) -> Option<String>,
        spool: &dyn Fn(&str) -> Result<Spool>,
    ) -> Result<Self> {
        let begin = |signal: Signal| {
            let target = Target::of(signal, variable)?;
            let agent = target.agent()?;
            let spool = spool(signal.sink())?;
            Ok::<_, anyhow::Error>(Sender::start(spool, move |batch| {
                request::send(&agent, &target, batch)
            })?)
        };
        let service = variable("OTEL_SERVICE_NAME").unwrap_or_else(|| "sunder".into());
        let profiles = with_profiles.then(|| begin(Signal::Profiles)).transpose()?;
        Ok(Self {
            metrics: begin(Signal::Metrics)?,
            logs: begin(Signal::Logs)?,
            profiles: profiles.map(|sender| Profiles {
                sender,
                profile: Profile::default(),
                first_half: RandomState::new().hash_one((host, since_unix_ns)),
                count: 0,
            }),
            resource: Resource {
                attributes: vec![
                    values::text("service.name", &service),
                    values::text("host.name", host),
                ],
                ..Resource::default()
            },
            since_unix_ns,
        })
    }

    /// Takes a record, after `metrics` has.
    pub fn tell(&mut self, record: &Record, metrics: &Metrics) {
        match record {
            Record::Finding(watched) => {
                let request = logs::logs_request(&self.resource, watched);
                self.logs.put(request.encode_to_vec());
            }
            Record::Status(_) => {
                let status = &metrics.status;
                let times = metrics::Times {
                    since_unix_ns: match status.begun_unix_ns {
                        0 => self.since_unix_ns,
                        begun => begun,
                    },
                    now_unix_ns: status.time_unix_ns,
                };
                let request = metrics::metrics_request(&self.resource, &figures(metrics), times);
                self.metrics.put(request.encode_to_vec());
            }
        }
        if let Some(profiles) = &mut self.profiles {
            profiles.tell(record, &self.resource);
        }
    }

    /// All senders, with the names of their queues.
    fn senders(&self) -> impl Iterator<Item = (&'static str, &Sender)> {
        let usual = [(Signal::Metrics, &self.metrics), (Signal::Logs, &self.logs)];
        let profiles = self.profiles.iter().map(|p| (Signal::Profiles, &p.sender));
        let all = usual.into_iter().chain(profiles);
        all.map(|(signal, sender)| (signal.sink(), sender))
    }

    /// How each queue is doing.
    pub fn sinks(&self) -> impl Iterator<Item = (&'static str, Sink)> {
        self.senders().map(|(name, sender)| (name, sender.sink()))
    }

    /// What there is to be said to the user since the last call.
    pub fn notes(&self) -> Vec<String> {
        self.senders()
            .flat_map(|(_, sender)| sender.notes())
            .collect()
    }

    /// Signals that their receivers did not want are sent again from now on.
    pub fn switch_on(&self) {
        self.senders().for_each(|(_, sender)| sender.switch_on());
    }

    /// Sends what waits, for so long at most, all queues together. What is left stays in the spool's folder, if
    /// there is one. Returns what was not sent, and the last notes.
    pub fn end(self, patience: Duration) -> (Vec<Ended>, Vec<String>) {
        let until = Instant::now() + patience;
        self.senders().for_each(|(_, sender)| sender.end_by(until));
        let ended = self.senders().map(|(sink, sender)| {
            let left = sender.wait_for_end(until);
            let lost = Some(sender.sink()).filter(|sink| !sink.is_off);
            Ended {
                sink,
                left,
                lost: lost.map_or(0, |sink| sink.lost_batches),
            }
        });
        let ended = ended.collect();
        (ended, self.notes())
    }
}

impl Profiles {
    fn tell(&mut self, record: &Record, resource: &Resource) {
        self.profile.add(record);
        if matches!(record, Record::Status(_))
            && let Some(period) = self.profile.take()
        {
            self.count += 1;
            let mut identity = [0; 16];
            identity[..8].copy_from_slice(&self.first_half.to_be_bytes());
            identity[8..].copy_from_slice(&self.count.to_be_bytes());
            let request = profiles::profiles_request(resource, &period, identity);
            self.sender.put(request.encode_to_vec());
        }
    }
}
