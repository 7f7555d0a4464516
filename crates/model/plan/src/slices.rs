//! Advice for arrays of many small elements of which each thread uses several: room between the
//! parts of two threads is enough, and padding each element would make the array many times larger.
//! Called by the advice for arrays.

use crate::layout::{Layout, Part};
use crate::words::counted;
use std::collections::{BTreeMap, BTreeSet};
use sunder_findings::{Advice, Fix};

/// How many elements a thread must have before padding each of them is out of proportion.
const MANY: u64 = 4;

/// How the elements of an array are divided among threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Division {
    /// An element each, or a few.
    Single,
    /// A run of elements each.
    Slices,
    /// Many elements, in no run.
    Scattered,
}

impl Division {
    /// `owners` has the threads of the elements that were seen, and `count` is that of all.
    pub(crate) fn of(owners: &BTreeMap<u64, u32>, count: Option<u64>) -> Self {
        let threads: BTreeSet<_> = owners.values().collect();
        let mut order: Vec<u32> = owners.values().copied().collect();
        order.dedup();
        // In the order of elements, no thread has two separate runs.
        let in_runs = order.len() == threads.len();
        let several = owners.len() > threads.len();
        let few = MANY.saturating_mul(threads.len() as u64);
        // One line of a large array shows little more than where two parts meet.
        let last = owners.keys().next_back().copied().unwrap_or(0);
        let of_many = count.is_some_and(|c| c > few) && (last >= few || owners.len() as u64 > few);
        match (in_runs, several, of_many) {
            (true, true, _) | (true, _, true) => Self::Slices,
            (false, _, true) => Self::Scattered,
            _ => Self::Single,
        }
    }
}

/// The advice for `name`, whose elements have `element` bytes, which is not 0. `start` says how the
/// array comes to start a line, if it does not.
pub(crate) fn advise(
    layout: &Layout,
    (name, element): (&str, u64),
    (division, threads): (Division, usize),
    start: Option<String>,
) -> Advice {
    let line = u64::from(layout.line_size);
    // Bytes that are a line apart share none, wherever the array starts.
    let gap = line.div_ceil(element);
    let bytes = gap.saturating_mul(element);
    let between = format!(
        "leave {} unused ({bytes} bytes) between the parts of two threads",
        counted(gap as usize, "element")
    );
    let rounded = match line % element {
        0 => format!(
            ", or round each part up to a multiple of {} in an array that starts a line",
            counted((line / element) as usize, "element")
        ),
        _ => String::new(),
    };
    let start = start
        .filter(|_| !rounded.is_empty())
        .map(|start| format!(" {start}"))
        .unwrap_or_default();
    let threads_ = counted(threads, "thread");
    // Whatever is updated atomically may be another thread's, too.
    let own = match layout.parts.iter().any(Part::is_updated) {
        true => "",
        false => "; or give each thread an array of its own",
    };
    let text = match division {
        Division::Scattered => format!(
            "{threads_} use elements of {name} between those of others ({element} bytes each): \
             let each work on a run of its own, and {between}{own}. Padding each element would make \
             it many times larger.",
        ),
        _ => format!(
            "Each of {threads_} works on a slice of {name} ({} an element), and \
             slices of two threads meet inside a line: {between}{rounded}{own}.{start}",
            counted(usize::try_from(element).unwrap_or(usize::MAX), "byte"),
        ),
    };
    Advice {
        fix: Fix::Separate,
        text,
        grows_by: Some(bytes.saturating_mul(threads.saturating_sub(1) as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(all: &[(u64, u32)]) -> BTreeMap<u64, u32> {
        all.iter().copied().collect()
    }

    #[test]
    fn the_owners_of_elements_tell_how_an_array_is_divided() {
        let one_each = owners(&[(0, 1), (1, 2), (2, 3)]);
        assert_eq!(Division::of(&one_each, Some(3)), Division::Single);
        // As large as the most threads ever.
        assert_eq!(Division::of(&one_each, Some(64)), Division::Single);
        // Where two slices of a thousand meet.
        let border = owners(&[(499, 1), (500, 2)]);
        assert_eq!(Division::of(&border, Some(1000)), Division::Slices);
        let runs = owners(&[(0, 1), (1, 1), (2, 2), (3, 2)]);
        assert_eq!(Division::of(&runs, None), Division::Slices);
        let alternating: Vec<_> = (0..16).map(|i| (i, 1 + i as u32 % 2)).collect();
        let alternating = owners(&alternating);
        assert_eq!(Division::of(&alternating, Some(1024)), Division::Scattered);
    }
}
