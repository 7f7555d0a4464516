//! The sampler of the whole machine: one event per CPU, whatever runs there. So there is nothing to
//! switch when the kernel changes from one thread to another, and a new thread costs nothing.
//!
//! Starts and ends of threads and executions of programs are reported, mappings are not: `/proc` has
//! those of the few processes that are looked at closely. Must not choose among processes.

use super::of_cpu;
use super::open::{RING_PAGES, online_cpus};
use super::plan::{MAX_FREQUENCY, period_ns};
use super::stream::Stream;
use super::waited::Wait;
use crate::perf_event::{Attr, EventTarget, PerfEvent, Ring, poll};
use crate::{Event, ObserveError, PerfRefusal};
use std::hint::black_box;
use std::time::{Duration, Instant};
use sunder_access::{ProcessId, Time};

/// The fewest pages of records in a ring: 32 hold some 700 samples, 7 s at 99 Hz. Processes that start and
/// end take room, too: with 16 pages, records were lost at 235 starts a second on a machine so busy that
/// reading came late. A machine of 256 CPUs takes 32 MiB.
const PAGES: usize = RING_PAGES / 2;
/// Pages of all rings together, as long as each has [`PAGES`] to [`MOST_PAGES`]: 4 MiB. The fewer CPUs a
/// machine has, the more other programs delay whoever reads: on two CPUs under a load of 50, rings of 32
/// pages lost records.
const ALL_PAGES: usize = 1024;
/// The most pages of a ring.
const MOST_PAGES: usize = 256;

/// How many pages each of so many rings has; a power of two.
fn pages_of(rings: usize) -> usize {
    let share = (ALL_PAGES / rings.max(1)).clamp(PAGES, MOST_PAGES);
    1 << share.ilog2()
}

/// Samples of all processes of the machine.
#[derive(Debug)]
pub struct SystemSampler {
    events: Vec<PerfEvent>,
    cpus: Vec<u32>,
    stream: Stream,
    hz: u32,
    samples: u64,
    interrupts: Interrupts,
}

/// How many timer interrupts there were at most.
#[derive(Clone, Copy, Debug)]
struct Interrupts {
    before: f64,
    since: Instant,
}

impl SystemSampler {
    /// Begins to sample `hz` times a second on each CPU.
    ///
    /// # Errors
    /// [`ObserveError::PerfRefused`] with the reason.
    pub fn open(hz: u32) -> Result<Self, ObserveError> {
        let hz = hz.clamp(1, MAX_FREQUENCY);
        let attr = attributes(hz);
        let (mut events, mut rings) = (Vec::new(), Vec::new());
        let cpus = online_cpus();
        for &cpu in &cpus {
            let opened = PerfEvent::open(&attr, EventTarget::Cpu(cpu));
            let event = opened.map_err(|error| {
                let errno = error.raw_os_error().unwrap_or(0);
                PerfRefusal::of_system(errno)
            })?;
            rings.push(Ring::map_up_to(&event, pages_of(cpus.len()), PAGES / 4)?);
            events.push(event);
        }
        for event in &events {
            event.enable().map_err(|source| ObserveError::System {
                doing: "begin to sample",
                source,
            })?;
        }
        Ok(Self {
            events,
            cpus,
            stream: Stream::new(rings),
            hz,
            samples: 0,
            interrupts: Interrupts {
                before: 0.0,
                since: Instant::now(),
            },
        })
    }

    /// Whether it samples all CPUs that are online now.
    pub fn covers_the_machine(&self) -> bool {
        self.cpus == online_cpus()
    }

    /// The samples a second on each CPU.
    pub const fn frequency(&self) -> u32 {
        self.hz
    }

    /// Changes the frequency, from the next sample on.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn set_frequency(&mut self, hz: u32) -> Result<(), ObserveError> {
        let hz = hz.clamp(1, MAX_FREQUENCY);
        if hz == self.hz {
            return Ok(());
        }
        let before = self.interrupts();
        for event in &self.events {
            let set = event.set_period(period_ns(hz));
            set.map_err(|source| ObserveError::System {
                doing: "change the frequency of samples",
                source,
            })?;
        }
        self.hz = hz;
        self.interrupts = Interrupts {
            before,
            since: Instant::now(),
        };
        Ok(())
    }

    /// How many CPUs are sampled.
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// How many timer interrupts there have been since the start at most: a CPU that is idle may have
    /// none.
    pub fn interrupts(&self) -> f64 {
        let since = self.interrupts.since.elapsed().as_secs_f64();
        self.interrupts.before + since * f64::from(self.hz) * self.cpus.len() as f64
    }

    /// How many samples have come.
    pub const fn samples(&self) -> u64 {
        self.samples
    }

    /// How many samples had no 64-bit user registers, as those of 32-bit programs.
    pub const fn samples_without_registers(&self) -> u64 {
        self.stream.without_registers()
    }

    /// Passes on the events that `wanted` picks, in the order of time. The last millisecond waits for the
    /// next call. `wanted` is asked for the events of one CPU after those of another: where very many
    /// processes start and end, to keep and to order all would cost more than to read them.
    pub fn drain(&mut self, wanted: impl FnMut(&Event) -> bool, sink: &mut dyn FnMut(Event)) {
        let settled = Stream::settled();
        self.samples += self.stream.collect(wanted);
        self.stream.deliver(settled, sink);
    }

    /// Passes on all events that are left.
    pub fn finish(&mut self, sink: &mut dyn FnMut(Event)) {
        self.samples += self.stream.collect(|_| true);
        self.stream.deliver(Time(u64::MAX), sink);
    }

    /// Sleeps until a ring has filled to a quarter, or `timeout` is over, or a signal comes.
    ///
    /// # Errors
    /// [`ObserveError::System`] if `poll` fails.
    pub fn wait(&self, timeout: Duration) -> Result<Wait, ObserveError> {
        let polled = poll(self.events.iter(), timeout).map_err(|source| ObserveError::System {
            doing: "wait for samples",
            source,
        })?;
        Ok(if polled.ready {
            Wait::Ready
        } else {
            Wait::TimedOut
        })
    }
}

fn attributes(hz: u32) -> Attr {
    let mut attr = of_cpu::attributes(hz, PAGES);
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
    attr
}

/// How often the cost of an interrupt is measured, with and without it in turns.
const PAIRS: usize = 9;
/// Samples a second while it is measured.
const MEASURED_HZ: u32 = 20_000;
/// For how long about each time.
const MEASURED: Duration = Duration::from_millis(2);

/// What one sample takes from the thread that it interrupts, in nanoseconds, measured on the calling
/// thread: how much longer the same work takes with samples than without. The median of some pairs,
/// 40 ms in all. `None` if the kernel refuses the event.
pub fn interrupt_cost() -> Option<f64> {
    let event = PerfEvent::open(&attributes(MEASURED_HZ), EventTarget::Thread(0)).ok()?;
    let mut ring = Ring::map_up_to(&event, PAGES, 1).ok()?;
    let mut passes = 1000;
    while work(passes) < MEASURED && passes < 1 << 40 {
        passes *= 2;
    }
    let (mut bytes, mut costs) = (Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        let without = work(passes);
        event.enable().ok()?;
        let with = work(passes);
        event.disable().ok()?;
        ring.take(&mut bytes);
        bytes.clear();
        let samples = with.as_secs_f64() * f64::from(MEASURED_HZ);
        costs.push((with.as_secs_f64() - without.as_secs_f64()) * 1e9 / samples);
    }
    costs.sort_by(f64::total_cmp);
    Some(costs[PAIRS / 2].max(0.0))
}

/// How long some work takes.
fn work(passes: u64) -> Duration {
    let start = Instant::now();
    let mut sum = 0_u64;
    for pass in 0..passes {
        sum = black_box(sum.wrapping_add(pass));
    }
    black_box(sum);
    start.elapsed()
}

/// The calling process may not see what others do, for this reason; `None` if it may.
pub fn refusal() -> Option<PerfRefusal> {
    let cpu = online_cpus().first().copied().unwrap_or(0);
    let opened = PerfEvent::open(&attributes(1), EventTarget::Cpu(cpu));
    let errno = opened.err()?.raw_os_error().unwrap_or(0);
    Some(PerfRefusal::of_system(errno))
}

impl PerfRefusal {
    /// The reason of `errno` for an event of a whole CPU.
    fn of_system(errno: i32) -> Self {
        match Self::from_errno(errno, ProcessId(std::process::id())) {
            Self::NotOurs { .. } | Self::Paranoid { .. } => Self::WholeMachine,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_cpus_have_large_rings_and_many_have_small_ones() {
        let pages = [1, 2, 4, 6, 16, 32, 64, 1024].map(pages_of);
        assert_eq!(pages, [256, 256, 256, 128, 64, 32, 32, 32]);
    }

    #[test]
    fn samples_come_from_other_processes_and_the_frequency_changes() {
        let Ok(mut sampler) = SystemSampler::open(199) else {
            println!("SKIP: the kernel refuses events of the whole machine");
            return;
        };
        let mut child = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("there is a shell");
        let (mut of_child, mut began) = (0, false);
        let start = Instant::now();
        while (of_child < 20 || !began) && start.elapsed().as_secs() < 30 {
            let _ = sampler.wait(Duration::from_millis(50));
            sampler.drain(|_| true, &mut |event| match event {
                Event::Sample(sample) if sample.process.0 == child.id() => of_child += 1,
                Event::ThreadName {
                    process,
                    exec: true,
                    ..
                } => began |= process.0 == child.id(),
                _ => {}
            });
            sampler.set_frequency(499).expect("it may be changed");
        }
        let _ = child.kill();
        let _ = child.wait();
        assert!(of_child >= 20 && began, "{of_child} {began}");
        assert_eq!(sampler.frequency(), 499);
        assert!(sampler.covers_the_machine());
    }

    #[test]
    fn an_interrupt_costs_something() {
        match interrupt_cost() {
            // On the slowest of machines it is far from a millisecond.
            Some(cost) => assert!((0.0..1e6).contains(&cost), "{cost}"),
            None => println!("SKIP: the kernel refuses samples"),
        }
    }
}
