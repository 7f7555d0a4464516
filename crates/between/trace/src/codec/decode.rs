//! From a block's payload to slots, one at a time. Trusts nothing: a contradiction ends the block.

use super::{COLUMNS, LENGTHS, Site};
use crate::block::BlockHeader;
use crate::slot::{Key, PAYLOAD, Slot};
use crate::varint::{Numbers, unzigzag};

/// The slots of one block with their times.
#[derive(Debug)]
pub struct Decoder {
    payload: Vec<u8>,
    sites: Vec<Site>,
    stamps: Numbers,
    keys: Numbers,
    order: Numbers,
    hits: Numbers,
    deltas: Numbers,
    /// How many slots are still to come.
    left: u32,
    /// How many keys are predicted correctly before the next correction; `None`: not read yet.
    run: Option<u64>,
    hit_run: Option<u64>,
    previous: Option<usize>,
    value: u64,
    segment: Segment,
    last: u64,
    /// Slots have no earlier time than this.
    not_before: u64,
    damaged: bool,
}

/// Slots as columns of equal length.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// See [`Slot::value`].
    pub values: Vec<u64>,
    /// See [`Slot::key`].
    pub keys: Vec<u64>,
    /// The time of each slot, in ticks.
    pub ticks: Vec<u64>,
}

impl Columns {
    /// How many slots there are.
    pub const fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Removes all slots.
    pub fn clear(&mut self) {
        self.values.clear();
        self.keys.clear();
        self.ticks.clear();
    }

    fn push(&mut self, time: u64, slot: Slot) {
        self.values.push(slot.value);
        self.keys.push(slot.key.0);
        self.ticks.push(time);
    }
}

/// The slots between two stamps; their times are spread evenly.
#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    left: u64,
    time: u64,
    step: u64,
    /// The stamp at its end, as it is in the file.
    end: u64,
}

impl Segment {
    /// `slots` slots from `start` to before `end`, but none before `not_before`.
    const fn new(slots: u64, start: u64, end: u64, not_before: u64) -> Self {
        let from = if start < not_before {
            not_before
        } else {
            start
        };
        let length = end.saturating_sub(from);
        Self {
            left: slots,
            time: from,
            step: match length.checked_div(slots) {
                Some(step) => step,
                None => 0,
            },
            end,
        }
    }
}

impl Decoder {
    /// A decoder of `payload`, unpacked, of the block with this header, whose slots get no earlier
    /// time than `not_before`, in ticks; `None` if the payload does not even have the lengths of its
    /// columns.
    pub fn new(header: &BlockHeader, not_before: u64, payload: Vec<u8>) -> Option<Self> {
        let mut columns = [Numbers::default(); COLUMNS];
        let mut start = LENGTHS;
        for (i, column) in columns.iter_mut().enumerate() {
            let length = payload.get(i * 4..i * 4 + 4)?.try_into().ok()?;
            let end = start.checked_add(u32::from_le_bytes(length) as usize)?;
            *column = Numbers::new(start, end);
            start = end;
        }
        if start != payload.len() {
            return None;
        }
        let [stamps, keys, order, hits, deltas] = columns;
        Some(Self {
            payload,
            sites: Vec::new(),
            stamps,
            keys,
            order,
            hits,
            deltas,
            left: header.count,
            run: None,
            hit_run: None,
            previous: None,
            value: 0,
            segment: Segment::new(0, header.first, header.first, not_before),
            last: header.last,
            not_before,
            damaged: false,
        })
    }

    /// Whether decoding ended because the block contradicts its header.
    pub const fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// The next slot and its time in ticks; `None` at the end.
    #[inline]
    pub fn next_slot(&mut self) -> Option<(u64, Slot)> {
        if self.left == 0 {
            return None;
        }
        let slot = self.time().and_then(|time| Some((time, self.slot()?)));
        if slot.is_none() {
            self.damaged = true;
            self.left = 0;
        } else {
            self.left -= 1;
        }
        slot
    }

    /// Appends the next slots to `columns`, `most` at most: the same as repeated calls of
    /// [`Decoder::next_slot`], at a fraction of their cost. Appends none only at the end of the
    /// block.
    pub fn fill(&mut self, columns: &mut Columns, most: usize) {
        let full = columns.len() + most;
        while columns.len() < full && self.left > 0 {
            let room = full - columns.len();
            if self.guessed(columns, room) == 0 {
                // A correction, or the next stamp.
                let Some((time, slot)) = self.next_slot() else {
                    return;
                };
                columns.push(time, slot);
            }
        }
    }

    /// Appends correctly predicted slots until the next stamp or the first correction, `most` at
    /// most; how many. Changes nothing if the payload contradicts itself there.
    fn guessed(&mut self, columns: &mut Columns, most: usize) -> usize {
        let (Some(run), Some(hits), Some(mut at)) = (self.run, self.hit_run, self.previous) else {
            return 0;
        };
        let count = (most as u64)
            .min(self.left.into())
            .min(self.segment.left)
            .min(run)
            .min(hits);
        let begun = columns.len();
        let sites = self.sites.as_mut_slice();
        let looped = round_loop(sites, &mut at, columns, count as usize);
        for _ in looped..count as usize {
            let Some(next) = sites.get(at).map(|site| site.next.wrapping_sub(1) as usize) else {
                break;
            };
            let Some(site) = sites.get_mut(next) else {
                break;
            };
            at = next;
            site.hit();
            columns.values.push(site.last());
            columns.keys.push(site.key);
        }
        let done = columns.len() - begun;
        let segment = &mut self.segment;
        let (time, step) = (segment.time, segment.step);
        let ticks = (0..done as u64).map(|i| time.wrapping_add(i.wrapping_mul(step)));
        columns.ticks.extend(ticks);
        if done > 0 {
            segment.time = time.wrapping_add(step.wrapping_mul(done as u64));
            segment.left -= done as u64;
            self.previous = Some(at);
            self.value = columns.values[begun + done - 1];
            self.run = Some(run - done as u64);
            self.hit_run = Some(hits - done as u64);
            self.left -= done as u32;
        }
        done
    }

    /// Calls `each` with the key of every site of the block, without decoding the block. False if
    /// the sites can't be read.
    pub fn keys(&self, mut each: impl FnMut(Key)) -> bool {
        let mut keys = self.keys;
        let mut before = 0;
        while !keys.is_empty() {
            let step = keys.next(&self.payload).map(unzigzag);
            let Some((step, top)) = step.zip(keys.next(&self.payload)) else {
                return false;
            };
            before = (before & PAYLOAD).wrapping_add(step as u64) & PAYLOAD | top << 48;
            each(Key(before));
        }
        true
    }

    #[inline]
    fn time(&mut self) -> Option<u64> {
        while self.segment.left == 0 {
            self.next_segment()?;
        }
        let time = self.segment.time;
        self.segment.time += self.segment.step;
        self.segment.left -= 1;
        Some(time)
    }

    fn next_segment(&mut self) -> Option<()> {
        let start = self.segment.end;
        self.segment = if self.stamps.is_empty() {
            Segment::new(u64::from(self.left), start, self.last, self.not_before)
        } else {
            let slots = self.stamps.next(&self.payload)?;
            let end = start.checked_add(self.stamps.next(&self.payload)?)?;
            // Times must be within the block: the merge relies on it.
            if slots > u64::from(self.left) || end > self.last {
                return None;
            }
            Segment::new(slots, start, end, self.not_before)
        };
        Some(())
    }

    #[inline]
    fn slot(&mut self) -> Option<Slot> {
        let run = match self.run {
            Some(run) => run,
            // After the last correction all predictions are right.
            None if self.order.is_empty() => u64::MAX,
            None => self.order.next(&self.payload)?,
        };
        let index = if run > 0 {
            self.run = Some(run - 1);
            let before = self.sites.get(self.previous?)?;
            (before.next as usize).checked_sub(1)?
        } else {
            self.run = None;
            let index = match self.order.next(&self.payload)?.checked_sub(1) {
                Some(index) => usize::try_from(index).ok()?,
                None => self.new_site()?,
            };
            if let Some(before) = self.previous.and_then(|p| self.sites.get_mut(p)) {
                before.next = u32::try_from(index).ok()?.checked_add(1)?;
            }
            index
        };
        self.previous = Some(index);
        let hits = match self.hit_run {
            Some(hits) => hits,
            None if self.hits.is_empty() => u64::MAX,
            None => self.hits.next(&self.payload)?,
        };
        let site = self.sites.get_mut(index)?;
        self.value = if hits > 0 {
            self.hit_run = Some(hits - 1);
            let value = site.guess();
            site.hit();
            value
        } else {
            self.hit_run = None;
            site.miss(unzigzag(self.deltas.next(&self.payload)?) as u64)
        };
        Some(Slot::new(self.value, Key(site.key)))
    }

    fn new_site(&mut self) -> Option<usize> {
        let before = self.sites.last().map_or(0, |s| s.key & PAYLOAD);
        let step = unzigzag(self.keys.next(&self.payload)?) as u64;
        let top = self.keys.next(&self.payload)?;
        if top > 0xffff {
            return None;
        }
        let key = before.wrapping_add(step) & PAYLOAD | top << 48;
        self.sites.push(Site::new(key, self.value, 0));
        Some(self.sites.len() - 1)
    }
}

/// The most sites of a loop whose iterations are decoded together.
const LOOP: usize = 8;

/// For fewer slots, searching a loop costs more than it saves.
const WORTH: usize = 16;

/// Appends the predicted slots after the site at `at`, for as many whole iterations of a loop as
/// `count` slots hold, if the sites there follow each other in a short loop; how many slots. While
/// predictions are right, sites keep their successors and strides, so one look-up serves all
/// iterations.
fn round_loop(sites: &mut [Site], at: &mut usize, columns: &mut Columns, count: usize) -> usize {
    if count < WORTH {
        return 0;
    }
    let follower = |site: usize| {
        let next = sites.get(site)?.next.checked_sub(1)? as usize;
        (next < sites.len()).then_some(next)
    };
    let mut places = [0; LOOP];
    let mut long = 0;
    let Some(first) = follower(*at) else { return 0 };
    let mut site = first;
    loop {
        let Some(place) = places.get_mut(long) else {
            return 0;
        };
        *place = site;
        long += 1;
        match follower(site) {
            Some(next) if next == first => break,
            Some(next) => site = next,
            None => return 0,
        }
    }
    let rounds = count / long;
    let places = &places[..long];
    let (mut values, mut strides, mut keys) = ([0; LOOP], [0; LOOP], [0; LOOP]);
    for (i, &place) in places.iter().enumerate() {
        let site = &sites[place];
        (values[i], keys[i]) = (site.last(), site.key);
        strides[i] = site.guess().wrapping_sub(site.last());
    }
    let begun = columns.len();
    let end = begun + rounds * long;
    columns.values.resize(end, 0);
    columns.keys.resize(end, 0);
    for round in columns.values[begun..].chunks_exact_mut(long) {
        for ((slot, value), stride) in round.iter_mut().zip(&mut values).zip(&strides) {
            *value = value.wrapping_add(*stride);
            *slot = *value;
        }
    }
    for round in columns.keys[begun..].chunks_exact_mut(long) {
        round.copy_from_slice(&keys[..long]);
    }
    for (&place, &value) in places.iter().zip(&values) {
        sites[place].hit_until(value);
    }
    *at = places[long - 1];
    rounds * long
}
