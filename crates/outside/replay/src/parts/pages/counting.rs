//! The pass over a bucket that simulates its pages that moved, as [`crate::simulate::pages`] does for a
//! whole trace. It counts for call stacks and addresses, since it must not look for names.

use super::{KINDS, Pages, Place, counts_of};
use crate::simulate::machine::Machine;
use crate::simulate::moved::MovedGranules;
use crate::simulate::pages::counting::{Counting, Tag};
use crate::simulate::pages::{CostlyPage, Details, costliest, costly};
use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};
use sunder_access::{Access, Address, CodeAddress, Provenance, Time};
use sunder_coherence::Simulator;
use sunder_tables::{About, Row, StackEvent};

/// The counts of a bucket's pages, while its rows are read.
pub struct PageCounting<'a> {
    trace: &'a About,
    machine: &'a Machine,
    moved: FxHashSet<u64>,
    costliest: Vec<CostlyPage>,
    details: Details,
    simulator: Simulator<Counting>,
    /// The places, by number and back.
    places: Vec<(Place, i64)>,
    numbers: FxHashMap<Place, u32>,
    /// The first access of each part of a page, and of each site.
    parts: Vec<i64>,
    sites: Vec<i64>,
    /// Where threads start in the order of the trace, and how many have.
    starts: Vec<i64>,
    started: usize,
    accesses: u64,
}

impl<'a> PageCounting<'a> {
    /// No accesses yet to the pages in `moved`.
    ///
    /// # Errors
    /// If such a machine can't be.
    pub fn new(trace: &'a About, machine: &'a Machine, moved: &MovedGranules) -> Result<Self> {
        let pages = || moved.iter().map(|(page, of)| costly(*page, of));
        let start = |step: &sunder_tables::StackStep| {
            matches!(step.event, StackEvent::Start { .. }).then_some(step.ord)
        };
        Ok(Self {
            trace,
            machine,
            moved: moved.keys().map(|page| page.0).collect(),
            costliest: costliest(pages()),
            details: Details::new(pages(), machine.config.granule),
            simulator: Simulator::with_observer(machine.config, Counting::default())?,
            places: Vec::new(),
            numbers: FxHashMap::default(),
            parts: Vec::new(),
            sites: Vec::new(),
            starts: trace.stacks.iter().filter_map(start).collect(),
            started: 0,
            accesses: 0,
        })
    }

    /// Counts the access of `row`, which lies on one page.
    ///
    /// # Errors
    /// If more pages are touched than can be numbered.
    pub fn take(&mut self, row: &Row) -> Result<()> {
        let address = Address(row.address as u64);
        let offset = address.0 % self.machine.config.granule;
        let page = address.0 - offset;
        let Some(kind) = row.row_kind().filter(|_| self.moved.contains(&page)) else {
            return Ok(());
        };
        while let Some(start) = self.starts.get(self.started)
            && *start < row.ord
        {
            self.started += 1;
        }
        let place = match row.block {
            0 => Place::Outside(address.0, self.started as u32),
            _ => Place::Stack(row.site as u32),
        };
        let number = *self.numbers.entry(place).or_insert_with(|| {
            self.places.push((place, row.ord));
            self.places.len() as u32 - 1
        });
        let access = Access {
            time: Time(row.time as u64),
            thread: self.trace.thread(row.thread as u32),
            instruction: CodeAddress(row.instruction as u64),
            address,
            width: row.size as u8,
            kind: kind.kind(),
            provenance: Provenance::Traced,
            weight: 1.0,
        };
        let tag = self.tag(page, number, &access, row.ord);
        let width = row.size as u32;
        self.details.touched(tag.part, page, offset, width, &access);
        let node = self.machine.node(row.thread as u32);
        self.simulator
            .access(node, address, width, access.kind, tag)?;
        Ok(())
    }

    fn tag(&mut self, page: u64, number: u32, access: &Access, ord: i64) -> Tag {
        self.accesses += 1;
        let counting = self.simulator.observer_mut();
        let tag = counting.tag(page, number, access);
        // Parts and sites are numbered as they come.
        self.parts.resize(counting.parts.len(), ord);
        self.sites.resize(counting.sites.len(), ord);
        tag
    }

    /// The number of accesses to pages that moved, and their counts.
    pub fn finish(self) -> (u64, Pages) {
        let counting = self.simulator.finish().into_observer();
        let kind = |kind| KINDS.iter().position(|k| *k == kind).unwrap_or(0) as u8;
        let shares = counting.parts.iter().zip(&self.parts);
        let sites = counting.sites.iter().zip(&self.sites);
        let mut pages = Pages {
            places: self.places,
            shares: shares
                .map(|(of, &first)| (of.page, of.subject, first, counts_of(&of.counts)))
                .collect(),
            sites: sites
                .map(|(of, &first)| {
                    let (at, thread) = (of.instruction.0, of.thread.0);
                    (of.subject, at, kind(of.kind), thread, first, of.accesses)
                })
                .collect(),
            pairs: counting
                .pairs
                .iter()
                .map(|(&(page, asked, written), of)| (page, asked, written, of.truly, of.falsely))
                .collect(),
            missed: counting
                .missed
                .iter()
                .map(|(&(site, written), of)| (site, written, of.truly, of.falsely))
                .collect(),
            destroyed: counting
                .destroyed
                .iter()
                .map(|(&(site, victim), &copies)| (site, victim, copies))
                .collect(),
            costliest: self.costliest,
            uses: self
                .details
                .uses
                .iter()
                .map(|(&(part, piece, thread), &uses)| (part, piece, thread.0, uses))
                .collect(),
            ..Pages::default()
        };
        // The same replay writes the same bytes.
        pages.pairs.sort_unstable();
        pages.missed.sort_unstable();
        pages.destroyed.sort_unstable();
        pages.uses.sort_unstable();
        (self.accesses, pages)
    }
}
