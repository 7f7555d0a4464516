//! What each step of a recording must fulfil for itself, so that whoever takes it can compute with
//! its numbers. What they mean together is checked where they are used.

use crate::step::{Access, Code, Mapping, Sample, Step};

/// The most bytes of one piece of code. Functions of real programs have less.
const MOST_CODE: usize = 16 << 20;

/// Times up to this one, in ns: some 146 years, so that differences and sums fit.
const LAST: u64 = u64::MAX / 4;

/// Whether the numbers of a step are possible. The error says what is not.
pub(crate) fn check(step: &Step) -> Result<(), &'static str> {
    match step {
        Step::Begin(begin) => holds(
            begin.line.is_power_of_two() && is_cost(begin.transfer_ns),
            "the size of a cache line, or the cost of a transfer, is impossible",
        ),
        Step::Code(code) => check_code(code),
        Step::Sample(sample) => check_sample(sample),
        Step::Access { access, .. } => check_access(access),
        Step::Map { time, mapping, .. } => {
            check_time(*time)?;
            check_mapping(mapping)
        }
        Step::Mappings { mappings, .. } => mappings.iter().try_for_each(check_mapping),
        Step::ThreadStart { time, .. }
        | Step::ThreadName { time, .. }
        | Step::ThreadEnd { time, .. } => check_time(*time),
        Step::Claim(claim) => check_time(claim.time),
        Step::Owners { changes, .. } => changes.iter().try_for_each(|change| {
            check_time(change.time)?;
            check_span(change.start, change.len)?;
            let freed = change.freed.as_ref();
            freed.map_or(Ok(()), |block| check_span(block.start, block.len))
        }),
        Step::Watched(burst) => {
            check_time(burst.started)?;
            check_time(burst.ended)?;
            let word = |&word: &u64| check_span(word, 8);
            burst.words.iter().try_for_each(word)?;
            burst.accesses.iter().try_for_each(check_access)
        }
        Step::Executed(executed) => {
            check_time(executed.now)?;
            let hits = executed.burst.iter().flat_map(|burst| &burst.1);
            hits.flat_map(|(_, hits)| hits).try_for_each(check_sample)
        }
        Step::Transfer(cost) => holds(is_cost(*cost), "the cost of a transfer is impossible"),
        Step::ThreadLocals(read) => {
            let mut all = read.memory.iter();
            all.try_for_each(|(at, bytes)| check_span(*at, bytes.len() as u64))
        }
        Step::Generated { functions, .. } => {
            let mut all = functions.iter();
            all.try_for_each(|(start, len, _)| check_span(*start, *len))
        }
        Step::End(end) => {
            check_time(end.start)?;
            check_time(end.end)?;
            holds(end.start <= end.end, "its end lies before its beginning")
        }
        Step::Lost(_)
        | Step::Lives(_)
        | Step::Anew(_)
        | Step::Thread { .. }
        | Step::Resolved(_)
        | Step::PassOn
        | Step::Ended(_)
        | Step::Segment { .. }
        | Step::File(_) => Ok(()),
    }
}

fn holds(possible: bool, what: &'static str) -> Result<(), &'static str> {
    if possible { Ok(()) } else { Err(what) }
}

/// Whether this is a cost in ns: more than nothing, and less than a second.
fn is_cost(nanoseconds: f64) -> bool {
    nanoseconds > 0.0 && nanoseconds < 1e9
}

fn check_time(time: u64) -> Result<(), &'static str> {
    holds(time <= LAST, "a time is impossible")
}

fn check_span(start: u64, len: u64) -> Result<(), &'static str> {
    let end = start.checked_add(len);
    holds(end.is_some(), "memory reaches beyond the last address")
}

fn check_mapping(mapping: &Mapping) -> Result<(), &'static str> {
    check_span(mapping.start, mapping.len)
}

fn check_sample(sample: &Sample) -> Result<(), &'static str> {
    check_time(sample.time)?;
    holds(
        sample.period_ns <= LAST >> 20,
        "a sample stands for an impossible time",
    )
}

fn check_access(access: &Access) -> Result<(), &'static str> {
    check_time(access.time)?;
    check_span(access.address, access.width.into())?;
    let is_possible = (1..=64).contains(&access.width)
        && access.weight.is_finite()
        && (0.0..=1e9).contains(&access.weight);
    holds(is_possible, "an access is impossible")
}

fn check_code(code: &Code) -> Result<(), &'static str> {
    check_span(code.start, code.bytes.len() as u64)?;
    let end = code.start + code.bytes.len() as u64;
    let inside = |entry: &u64| (code.start..end).contains(entry);
    holds(
        code.bytes.len() <= MOST_CODE && code.entries.iter().all(inside),
        "a piece of code is impossible",
    )
}
