//! From options to a machine: which thread runs on which node. Says in one
//! sentence what machine there cannot be.

use crate::options::{Order, Simulate};
use crate::progress::Readings;
use anyhow::{Context, Result, bail, ensure};
use std::sync::Arc;
use sunder_coherence::{CacheSize, Caches, Config};
use sunder_trace::read::Thread;

/// A machine and who runs where.
pub struct Machine {
    /// What is simulated.
    pub config: Config,
    /// In which order its accesses come.
    pub order: Order,
    /// Whether only accesses to heap objects are made.
    pub heap_only: bool,
    /// How far its replays have come.
    pub progress: Readings,
    /// By the thread's index in the trace, which begins at 1.
    nodes: Vec<u32>,
}

impl Machine {
    /// The machine that `options` describe, for the `threads` of a trace: a node
    /// for each, unless they say otherwise; with fewer nodes the threads take
    /// turns in the order of their creation.
    ///
    /// # Errors
    /// If there can be no such machine.
    pub fn new(options: &Simulate, threads: &[Thread]) -> Result<Self> {
        let most = threads.iter().map(|t| t.index).max().unwrap_or(0);
        ensure!(most > 0, "the trace holds no threads");
        let mut nodes: Vec<u32> = match options.nodes {
            Some(0) => bail!("a machine needs at least one node"),
            Some(count) => {
                ensure!(
                    !options.map.is_empty() || count <= most,
                    "{count} nodes are more than the {most} threads of the trace"
                );
                (0..most).map(|index| index % count).collect()
            }
            None => (0..most).collect(),
        };
        for (thread, node) in &options.map {
            let place = thread
                .checked_sub(1)
                .and_then(|i| nodes.get_mut(i as usize))
                .with_context(|| {
                    format!("the trace has no thread {thread}: they are 1 to {most}")
                })?;
            *place = *node;
        }
        let used = nodes.iter().max().map_or(1, |n| n.saturating_add(1));
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

    /// The node of the thread with this index.
    #[inline]
    pub fn node(&self, thread: u32) -> u32 {
        let place = (thread as usize).wrapping_sub(1);
        self.nodes.get(place).copied().unwrap_or(0)
    }
}

/// What `--caches` takes: `infinite`, or one or two sizes such as `48K/12,2M/16`:
/// bytes and ways.
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

/// One pair of `--map`: `THREAD:NODE`.
///
/// # Errors
/// If it is none.
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
