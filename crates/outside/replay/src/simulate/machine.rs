//! Makes a machine from options: which thread runs on which node. Rejects a machine that can't
//! be, with one sentence.

use crate::options::{Order, Simulate};
use crate::progress::Readings;
use anyhow::{Context, Result, bail, ensure};
use std::sync::Arc;
use sunder_coherence::{CacheSize, Caches, Config};
use sunder_trace::read::Trace;

/// The largest granule that is a cache line, in bytes. Larger ones are pages, which are not looked
/// at byte by byte (see `pages`).
pub const LARGEST_LINE: u64 = 256;

/// A machine, and the node of each thread.
pub struct Machine {
    /// The simulator's configuration.
    pub config: Config,
    /// The order of the accesses.
    pub order: Order,
    /// Whether only accesses to heap objects are replayed.
    pub heap_only: bool,
    /// Reports the progress of its replays.
    pub progress: Readings,
    /// The index in the trace of each thread, ascending, and its node.
    nodes: Vec<(u32, u32)>,
}

impl Machine {
    /// The machine that `options` describe, for the threads of a trace, given by their indices in
    /// ascending order. By default each thread has a node of its own; with fewer nodes, the threads
    /// are distributed over them in the order of their creation.
    ///
    /// # Errors
    /// If such a machine can't be.
    pub fn new(
        options: &Simulate,
        threads: impl ExactSizeIterator<Item = u32> + Clone,
    ) -> Result<Self> {
        let (Some(first), Some(last)) = (threads.clone().next(), threads.clone().last()) else {
            bail!("the trace holds no threads");
        };
        // Threads of which the trace has nothing get no node, so that the memory for a machine
        // depends on how many threads there are, and not on the numbers that they have.
        let most = u32::try_from(threads.len()).unwrap_or(u32::MAX);
        let count = match options.nodes {
            Some(0) => bail!("a machine needs at least one node"),
            Some(count) => {
                ensure!(
                    !options.map.is_empty() || count <= most,
                    "{count} nodes are more than the {most} threads of the trace"
                );
                count
            }
            None => most.min(options.most_nodes),
        };
        let mut nodes: Vec<(u32, u32)> = threads.zip((0..count).cycle()).collect();
        for (thread, node) in &options.map {
            let place = nodes.binary_search_by_key(thread, |(index, _)| *index);
            let place = place.ok().and_then(|place| nodes.get_mut(place));
            let place = place.with_context(|| {
                format!("the trace has no thread {thread}: they are {first} to {last}")
            })?;
            place.1 = *node;
        }
        let nodes_used = nodes.iter().map(|(_, node)| *node).max();
        let used = nodes_used.map_or(1, |n| n.saturating_add(1));
        let count = options.nodes.unwrap_or(used);
        ensure!(
            used <= count,
            "--map names node {}, but there are {count}, numbered from 0",
            used - 1
        );
        let mut config = Config::new(options.granule, count);
        config.caches = options.caches.unwrap_or(Caches::Infinite);
        config.protocol = options.protocol;
        config.check()?;
        Ok(Self {
            config,
            order: options.order,
            heap_only: options.heap_only,
            progress: Readings::new(Arc::clone(&options.progress)),
            nodes,
        })
    }

    /// The machine that `options` describe, for the threads of `trace`.
    ///
    /// # Errors
    /// As [`Machine::new`].
    pub fn of(options: &Simulate, trace: &Trace) -> Result<Self> {
        Self::new(options, trace.threads().iter().map(|thread| thread.index))
    }

    /// The node of the thread with this index.
    #[inline]
    pub fn node(&self, thread: u32) -> u32 {
        // Mostly all threads are there, and each has its number's place.
        let likely = (thread as usize).wrapping_sub(1);
        match self.nodes.get(likely) {
            Some(&(index, node)) if index == thread => node,
            _ => {
                let place = self
                    .nodes
                    .binary_search_by_key(&thread, |(index, _)| *index);
                place.map_or(0, |place| self.nodes[place].1)
            }
        }
    }
}

/// Parses the value of `--caches`: `infinite`, or one or two sizes in bytes and ways such as
/// `48K/12,2M/16`.
///
/// # Errors
/// If it is neither.
pub fn parse_caches(text: &str) -> Result<Caches, String> {
    if text == "infinite" {
        return Ok(Caches::Infinite);
    }
    let mut sizes = text.split(',').map(parse_cache);
    let l1 = sizes.next().ok_or("no cache is given")??;
    let l2 = sizes.next().transpose()?;
    if sizes.next().is_some() {
        return Err(format!("'{text}' has more than two levels"));
    }
    Ok(Caches::Private { l1, l2 })
}

fn parse_cache(text: &str) -> Result<CacheSize, String> {
    let wrong = || format!("'{text}' is no cache; write bytes and ways, such as 48K/12 or 2M/16");
    let (size, ways) = text.split_once('/').unwrap_or((text, "8"));
    let (digits, unit) = match size.chars().last() {
        Some('K' | 'k') => (&size[..size.len() - 1], 1 << 10),
        Some('M' | 'm') => (&size[..size.len() - 1], 1 << 20),
        _ => (size, 1),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    Ok(CacheSize {
        bytes: number.checked_mul(unit).ok_or_else(wrong)?,
        ways: ways.parse().map_err(|_| wrong())?,
    })
}

/// Parses one pair of `--map`: `THREAD:NODE`.
///
/// # Errors
/// If it is not such a pair.
pub fn parse_place(text: &str) -> Result<(u32, u32), String> {
    let wrong = || format!("'{text}' is no place; write THREAD:NODE, such as 3:0");
    let (thread, node) = text.split_once(':').ok_or_else(wrong)?;
    Ok((
        thread.parse().map_err(|_| wrong())?,
        node.parse().map_err(|_| wrong())?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_coherence::Protocol;

    /// Section 4.1 of the SCSTallocator paper.
    #[test]
    fn the_papers_machine_has_sixteen_nodes_if_there_are_as_many_threads() {
        let options = Simulate::new("a.trace".into()).on_dsm();
        let of =
            |threads: u32| Machine::new(&options, (1..=threads).collect::<Vec<_>>().into_iter());
        let many = of(20).expect("it can be");
        assert_eq!((many.config.nodes, many.config.granule), (16, 4096));
        assert_eq!(many.config.protocol, Protocol::Msi);
        assert_eq!((many.node(1), many.node(16), many.node(17)), (0, 15, 0));
        assert_eq!(of(3).expect("it can be").config.nodes, 3);
    }

    #[test]
    fn caches_are_given_by_bytes_and_ways() {
        let l1 = CacheSize {
            bytes: 48 << 10,
            ways: 12,
        };
        let l2 = CacheSize {
            bytes: 2 << 20,
            ways: 16,
        };
        assert_eq!(parse_caches("infinite"), Ok(Caches::Infinite));
        assert_eq!(
            parse_caches("48K/12,2M/16"),
            Ok(Caches::Private { l1, l2: Some(l2) })
        );
        assert_eq!(
            parse_caches("49152/12"),
            Ok(Caches::Private { l1, l2: None })
        );
        for bad in [
            "",
            "big",
            "48K/",
            "1K/1,1K/1,1K/1",
            "99999999999999999999K/1",
        ] {
            assert!(parse_caches(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn places_are_pairs() {
        assert_eq!(parse_place("3:0"), Ok((3, 0)));
        for bad in ["3", ":", "a:1", "1:-1"] {
            assert!(parse_place(bad).is_err(), "{bad}");
        }
    }
}
