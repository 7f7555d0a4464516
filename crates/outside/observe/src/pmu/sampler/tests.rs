//! The sampler without a PMU: records written by hand, and software events instead of the
//! hardware's.

use super::*;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

fn software_event(hitm: bool, cpus: Option<Vec<u32>>) -> MemoryEvent {
    MemoryEvent {
        name: "cpu-clock".into(),
        attr: Attr::software(kernel::PERF_COUNT_SW_CPU_CLOCK),
        leader: None,
        hitm,
        precise: 0,
        filters_kernel: true,
        cpus,
    }
}

struct Target(Child);

impl Target {
    /// A program that computes and never ends.
    fn spinning() -> Self {
        let child = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn id(&self) -> ProcessId {
        ProcessId(self.0.id())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn opened(target: &Target, events: Vec<MemoryEvent>) -> Option<PmuSampler> {
    match PmuSampler::open_on(target.id(), events, 1000, false, false) {
        Ok(sampler) => Some(sampler),
        Err(error) => {
            println!("SKIP: {error}");
            None
        }
    }
}

#[test]
fn samples_arrive_and_those_without_data_are_discarded() {
    let target = Target::spinning();
    let Some(mut sampler) = opened(&target, vec![software_event(false, None)]) else {
        return;
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut seen = Vec::new();
    while sampler.discarded() == 0 {
        assert!(
            Instant::now() < deadline,
            "no sample of a computing program"
        );
        sampler.wait(Duration::from_millis(5)).unwrap();
        sampler.drain(&mut |event| seen.push(event));
    }
    // A clock's samples have no address.
    assert!(
        !seen
            .iter()
            .any(|event| matches!(event, Event::Access { .. }))
    );
}

#[test]
fn several_events_share_one_ring_a_cpu_and_the_end_is_seen() {
    let mut target = Target::spinning();
    let events = vec![software_event(false, None), software_event(true, None)];
    let Some(mut sampler) = opened(&target, events) else {
        return;
    };
    assert_eq!(sampler.rings.len(), sampler.cpus.len());
    assert_eq!(sampler.by_id.len(), 2 * sampler.cpus.len());
    target.0.kill().unwrap();
    target.0.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while sampler.wait(Duration::from_millis(5)).unwrap() != Wait::Ended {
        assert!(Instant::now() < deadline, "the end was not noticed");
    }
    let mut ended = false;
    sampler.finish(&mut |event| ended |= matches!(event, Event::ThreadEnd { .. }));
    assert!(ended);
}

#[test]
fn a_group_with_a_leader_opens() {
    let target = Target::spinning();
    let mut event = software_event(false, None);
    event.leader = Some(Attr::software(kernel::PERF_COUNT_SW_CPU_CLOCK));
    if let Some(sampler) = opened(&target, vec![event]) {
        // The leaders stay open beside the events that own the rings.
        assert_eq!(sampler.open.len(), sampler.cpus.len());
    }
}

#[test]
fn an_event_of_some_cpus_is_opened_there_only() {
    let target = Target::spinning();
    let first = Machine::read().online[0].number;
    let event = software_event(false, Some(vec![first]));
    if let Some(sampler) = opened(&target, vec![event]) {
        assert_eq!(sampler.rings.len(), 1);
    }
}

#[test]
fn no_events_and_no_process_are_errors() {
    let none = PmuSampler::open_on(ProcessId(1), vec![], 1000, false, true);
    assert!(matches!(none, Err(ObserveError::PerfRefused(_))));
    // Above the kernel's highest process id.
    let events = vec![software_event(false, None)];
    let gone = PmuSampler::open_on(ProcessId(5_000_000), events, 1000, false, true);
    assert!(matches!(gone, Err(ObserveError::NoSuchProcess(_))));
}

fn record(kind: u32, misc: u16, words: &[u64]) -> Vec<u8> {
    let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut bytes = kind.to_le_bytes().to_vec();
    bytes.extend(misc.to_le_bytes());
    bytes.extend((body.len() as u16 + 8).to_le_bytes());
    bytes.extend(body);
    bytes
}

#[test]
fn records_become_events_and_the_hitm_event_marks_its_accesses() {
    let target = Target::spinning();
    let events = vec![software_event(false, None), software_event(true, None)];
    let Some(mut sampler) = opened(&target, events) else {
        return;
    };
    // Samples have been taken and read since the events were opened.
    sampler.pending.clear();
    let discarded = sampler.discarded();
    sampler.by_id = [(50, 0), (51, 1)].into();
    let task = u64::from(target.id().0) | 77 << 32;
    let other = 1 | 1 << 32;
    const LOAD: u64 = 0x02;
    const USER: u16 = 2;
    // identifier, ip, task, time, address, cpu, period, weight, data source
    let bytes = [
        record(9, USER, &[50, 0x1000, task, 30, 0x8000, 1, 9, 40, LOAD]),
        record(9, USER, &[51, 0x1000, task, 20, 0x8008, 1, 9, 40, LOAD]),
        record(9, USER, &[51, 0x1000, other, 25, 0x8008, 1, 9, 40, LOAD]),
        record(9, 1, &[51, 0x1000, task, 26, 0x8008, 1, 9, 40, LOAD]),
        // An exit: process, parent, thread, creator, time; task, time, cpu, id.
        record(
            4,
            0,
            &[task & 0xffff_ffff, 77 | 1 << 32, 40, task, 40, 1, 50],
        ),
    ]
    .concat();
    let mut records = Records::new(&bytes);
    for record in &mut records {
        sampler.take(&record);
    }
    assert!(records.rest().is_empty());
    let mut seen = Vec::new();
    sampler.deliver(Time(u64::MAX), &mut |event| {
        seen.push(match event {
            Event::Access { access, hitm, .. } => (access.time.0, access.address.0, hitm),
            Event::ThreadEnd { time, thread, .. } => (time.0, thread.0.into(), false),
            other => panic!("{other:?}"),
        });
    });
    assert_eq!(
        seen,
        [(20, 0x8008, true), (30, 0x8000, false), (40, 77, false)]
    );
    // The discarded one is the kernel's sample; that of the other process does not count.
    assert_eq!(sampler.discarded() - discarded, 1);
}
