//! Makes room in the table of lines. Called by the judge when the table is full.

use crate::config::MAX_GAP_WINDOWS;
use crate::hash::Map;
use crate::line::Line;
use crate::scale::Scale;
use sunder_access::{Address, Time};

/// How many lines were dropped, and how many of them were contended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dropped {
    pub lines: u64,
    pub contended: u64,
}

/// Drops the least important quarter of the lines at `now`: first lines of one thread, the least
/// touched first, then contended lines, the lowest cost first.
pub(crate) fn make_room(lines: &mut Map<Address, Box<Line>>, now: Time, scale: &Scale) -> Dropped {
    let idle = MAX_GAP_WINDOWS * scale.window_ns;
    let mut ranked: Vec<(u8, u64, Address)> = Vec::with_capacity(lines.len());
    for (&base, line) in &mut *lines {
        line.catch_up(scale);
        let is_cold = now.nanoseconds_since(Time(line.last)) > idle;
        if is_cold && line.has_open() {
            line.settle(scale);
            line.shrink();
        }
        let visits: u64 = line.users.iter().map(|u| u64::from(u.visits)).sum();
        ranked.push(match (line.is_contended(), line.is_shared(), is_cold) {
            (true, _, _) => (3, line.tally.lost_ns as u64, base),
            (_, true, _) => (2, visits, base),
            (_, _, false) => (1, visits, base),
            (_, _, true) => (0, visits, base),
        });
    }
    let mut dropped = Dropped::default();
    let leave = (ranked.len() / 4).min(ranked.len().saturating_sub(1));
    if ranked.is_empty() {
        return dropped;
    }
    ranked.select_nth_unstable(leave);
    for (rank, _, base) in &ranked[..=leave] {
        lines.remove(base);
        dropped.lines += 1;
        dropped.contended += u64::from(*rank == 3);
    }
    dropped
}
