//! Whole elements for groups: where an object is made of elements and each was seen to be one thread's,
//! all bytes of an element are that thread's. If the threads' elements follow each other in turn, that
//! also tells whose the elements are that were not seen yet. If each thread has one element, the others
//! are of threads that were not seen yet. Called after `groups.rs` and before `widen.rs`. Pure.

use super::groups::{Group, Use};
use super::widen::Extent;
use std::collections::BTreeSet;

/// The smallest elements that are looked at, in bytes: of smaller ones, several are mostly one thread's.
const SMALLEST: u64 = 8;
/// The most elements after which the threads' order is expected to begin anew.
const MOST_IN_TURN: usize = 64;
/// At most one of this many elements that were seen may be used by several threads.
const FEW: usize = 8;
/// How many rounds of the threads' order must have been seen, on average, to believe in it.
const ROUNDS: usize = 3;
/// The most elements of an array that has one for each thread.
const MOST_SLOTS: usize = 64;

/// The groups with whole elements in those of `objects` that are arrays of them, as far as they lie
/// before `len`. `uses` is what was seen of them. Objects of which elements are used by several threads
/// keep the groups that they have, but for a few of them where all others are the threads' in turn.
/// `others_run` says that there are threads that were not seen to use the bytes: where each thread that
/// was has one element, any other element may be one of theirs, and gets a group of nobody.
pub fn whole_elements(
    groups: &[Group],
    uses: &[Use],
    objects: &[Extent],
    len: u64,
    others_run: bool,
) -> Vec<Group> {
    let mut all = groups.to_vec();
    for object in objects {
        let elements = Elements::of(object, len);
        if let Some(elements) = elements
            && let Some(owners) = elements.owners(&all, uses, others_run)
        {
            all.retain(|group| !elements.touches(group));
            all.extend(elements.groups(&owners));
            all.sort_by_key(|group| group.offset);
        }
    }
    all
}

/// The threads that an element belongs to, none of them if it is expected to be used by a thread that is
/// not known; `None` if nothing is known of it.
type Owner = Option<BTreeSet<u32>>;

/// What was seen of the elements of an object.
struct Seen {
    /// The thread that uses an element of which something is written.
    owners: Vec<Owner>,
    /// The thread that was seen to read an element that nobody writes. It may be one of many.
    readers: Vec<Owner>,
    /// The numbers of elements that several threads use.
    shared: BTreeSet<usize>,
}

/// The elements of an object that lie on the pages as a whole.
struct Elements {
    from: u64,
    to: u64,
    size: u64,
}

impl Elements {
    fn of(object: &Extent, len: u64) -> Option<Self> {
        let size = object.element.filter(|size| *size >= SMALLEST)?;
        let before = object.start.min(0).unsigned_abs();
        let skipped = before.div_ceil(size) * size - before;
        let from = u64::try_from(object.start)
            .unwrap_or(0)
            .checked_add(skipped)?;
        let end = object.start.saturating_add_unsigned(object.size);
        let end = u64::try_from(end).ok()?.min(len);
        let to = from + end.checked_sub(from)? / size * size;
        (to - from >= size.saturating_mul(2)).then_some(Self { from, to, size })
    }

    /// Who owns each element. `None` if it can't be said of the object.
    fn owners(&self, groups: &[Group], uses: &[Use], others_run: bool) -> Option<Vec<Owner>> {
        // A group that goes beyond the elements belongs to something else too.
        let mut touching = groups.iter().filter(|group| self.touches(group));
        if !touching.all(|group| self.from <= group.offset && group.end() <= self.to) {
            return None;
        }
        let Seen {
            mut owners,
            readers,
            mut shared,
        } = self.seen(uses);
        let seen = owners.iter().flatten().count();
        let round = in_turn(&owners);
        if let Some(round) = &round {
            let of_others = |(number, reader): &(usize, &Owner)| {
                reader.is_some() && **reader != round[number % round.len()]
            };
            let readers = (0..).zip(&readers).filter(of_others);
            shared.extend(readers.map(|(number, _)| number));
        }
        // A thread that sets elements up, or looks at one, does not change whose they are.
        let few = round.is_some() && shared.len() * FEW <= seen;
        if !shared.is_empty() && !few {
            return None;
        }
        if let Some(round) = round {
            let turns = owners.iter_mut().zip(round.iter().cycle());
            turns.for_each(|(owner, of_round)| {
                if owner.is_none() {
                    owner.clone_from(of_round);
                }
            });
        } else if others_run && are_slots(&owners) {
            for (owner, reader) in owners.iter_mut().zip(&readers) {
                if owner.is_none() && reader.is_none() {
                    *owner = Some(BTreeSet::new());
                }
            }
        }
        (seen > 1).then_some(owners)
    }

    /// What was seen of each element.
    fn seen(&self, uses: &[Use]) -> Seen {
        let count = ((self.to - self.from) / self.size) as usize;
        let mut users: Vec<Owner> = vec![None; count];
        let mut shared = BTreeSet::new();
        let mut written = BTreeSet::new();
        for one in uses.iter().filter(|one| one.size > 0) {
            let Some(first) = one.offset.checked_sub(self.from) else {
                continue;
            };
            let (first, last) = (first / self.size, (one.end() - 1 - self.from) / self.size);
            let number = first as usize;
            let Some(known) = users.get_mut(number) else {
                continue;
            };
            let new = one.users();
            let others = known.as_ref().is_some_and(|known| *known != new);
            if first != last || new.len() != 1 || others {
                shared.insert(number);
            }
            if one.is_written() {
                written.insert(number);
            }
            *known = Some(new);
        }
        let mut seen = Seen {
            owners: vec![None; count],
            readers: vec![None; count],
            shared,
        };
        for (number, users) in users.into_iter().enumerate() {
            if seen.shared.contains(&number) {
                continue;
            }
            if written.contains(&number) {
                seen.owners[number] = users;
            } else {
                seen.readers[number] = users;
            }
        }
        seen
    }

    const fn touches(&self, group: &Group) -> bool {
        self.from < group.end() && group.offset < self.to
    }

    /// A group for each run of elements with one owner.
    fn groups(&self, owners: &[Owner]) -> Vec<Group> {
        let mut all: Vec<Group> = Vec::new();
        let places = (self.from..self.to).step_by(self.size as usize);
        for (offset, owner) in places.zip(owners) {
            let Some(threads) = owner else {
                continue;
            };
            match all.last_mut() {
                Some(last)
                    if last.end() == offset && last.threads == *threads && !threads.is_empty() =>
                {
                    last.size += self.size;
                }
                _ => all.push(Group {
                    offset,
                    size: self.size,
                    threads: threads.clone(),
                }),
            }
        }
        all
    }
}

/// Whether each thread has one element of a few.
fn are_slots(owners: &[Owner]) -> bool {
    let mut met = BTreeSet::new();
    let mut seen = owners.iter().flatten();
    owners.len() <= MOST_SLOTS && seen.all(|threads| met.insert(threads)) && met.len() > 1
}

/// The owners of the elements of one round, if threads have elements in turn: in all rounds, as far as
/// seen, the same threads have the same places.
fn in_turn(owners: &[Owner]) -> Option<Vec<Owner>> {
    let seen = owners.iter().flatten().count();
    (2..=MOST_IN_TURN).find_map(|places| {
        if seen < ROUNDS * places {
            return None;
        }
        let mut round: Vec<Owner> = vec![None; places];
        for (owner, of_round) in owners
            .chunks(places)
            .flat_map(|chunk| chunk.iter().zip(0..))
        {
            let place: &mut Owner = &mut round[of_round];
            match (&place, owner) {
                (_, None) => {}
                (None, Some(_)) => place.clone_from(owner),
                (Some(known), Some(new)) if known == new => {}
                _ => return None,
            }
        }
        round.iter().all(Option::is_some).then_some(round)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remap::groups::{Count, groups};

    /// What was seen of elements of 24 bytes: the word at 8 of each, by this thread.
    fn seen(owners: &[(u64, u32)]) -> Vec<Use> {
        let one = |&(number, thread): &(u64, u32)| written(24 * number + 8, thread);
        owners.iter().map(one).collect()
    }

    fn written(offset: u64, thread: u32) -> Use {
        let mut one = Use {
            offset,
            size: 4,
            ..Use::default()
        };
        let count = Count {
            writes: 5,
            ..Count::default()
        };
        one.add(thread, count);
        one
    }

    fn object(elements: u64) -> Extent {
        Extent {
            start: 0,
            size: 24 * elements,
            element: Some(24),
        }
    }

    /// The groups of `uses`, with whole elements.
    fn whole(uses: &[Use], object: Extent) -> Vec<Group> {
        let found = groups(uses, 256).expect("threads contend");
        whole_elements(&found.groups, uses, &[object], 4096, false)
    }

    /// The same while threads run that were not seen: element numbers, and their owners if known.
    fn slots(known: &[(u64, u32)], elements: u64) -> Vec<(u64, u64, Option<u32>)> {
        let uses = seen(known);
        let found = groups(&uses, 256).expect("threads contend");
        let whole = whole_elements(&found.groups, &uses, &[object(elements)], 4096, true);
        let told = |group: &Group| {
            let threads = group.threads.first().copied();
            (group.offset / 24, group.end() / 24, threads)
        };
        whole.iter().map(told).collect()
    }

    #[test]
    fn where_each_thread_has_one_element_the_others_are_of_threads_that_come() {
        let all = [
            (0, 1, Some(7)),
            (1, 2, None),
            (2, 3, Some(8)),
            (3, 4, None),
            (4, 5, None),
        ];
        assert_eq!(slots(&[(0, 7), (2, 8)], 5), all);
        // A thread with two elements has a part of the array.
        let parts = [(0, 2, Some(7)), (2, 3, Some(8))];
        assert_eq!(slots(&[(0, 7), (1, 7), (2, 8)], 5), parts);
        // Nobody has so many threads, or an element for each of them in so long an array.
        let seen = [(0, 1, Some(7)), (2, 3, Some(8))];
        assert_eq!(slots(&[(0, 7), (2, 8)], 65), seen);
    }

    /// Element numbers and owners.
    fn elements(groups: &[Group]) -> Vec<(u64, u32)> {
        let of = |group: &Group| {
            assert_eq!((group.offset % 24, group.size % 24), (0, 0), "{group:?}");
            let thread = *group.threads.first().expect("a thread");
            let numbers = group.offset / 24..group.end() / 24;
            numbers
                .map(move |number| (number, thread))
                .collect::<Vec<_>>()
        };
        groups.iter().flat_map(of).collect()
    }

    #[test]
    fn all_bytes_of_an_element_are_its_threads() {
        let found = whole(&seen(&[(0, 1), (1, 2), (3, 2)]), object(4));
        assert_eq!(elements(&found), [(0, 1), (1, 2), (3, 2)]);
    }

    #[test]
    fn elements_that_were_not_seen_belong_to_whose_turn_it_is() {
        // Of 12 elements of two threads in turn, 5, 6 and 8 were not seen.
        let known: Vec<(u64, u32)> = (0..12).map(|n| (n, (n % 2) as u32)).collect();
        let some = known
            .iter()
            .copied()
            .filter(|(n, _)| ![5, 6, 8].contains(n));
        let found = whole(&seen(&some.collect::<Vec<_>>()), object(12));
        assert_eq!(elements(&found), known);
        // Two elements each: the same, with another round.
        let known: Vec<(u64, u32)> = (0..24).map(|n| (n, (n / 2 % 2) as u32)).collect();
        let some = known.iter().copied().filter(|(n, _)| *n != 9);
        let found = whole(&seen(&some.collect::<Vec<_>>()), object(24));
        assert_eq!(elements(&found), known);
    }

    #[test]
    fn without_an_order_or_with_too_little_of_it_nothing_is_guessed() {
        let random = [
            (0, 1),
            (1, 1),
            (2, 2),
            (3, 1),
            (5, 2),
            (6, 2),
            (7, 1),
            (9, 2),
            (10, 1),
        ];
        assert_eq!(elements(&whole(&seen(&random), object(12))), random);
        let few = [(0, 1), (1, 2), (2, 1), (4, 1), (5, 2)];
        assert_eq!(elements(&whole(&seen(&few), object(6))), few);
    }

    /// What was seen of an element that two threads use.
    fn shared(number: u64) -> Use {
        let mut one = written(24 * number + 8, 1);
        let count = one.threads[&1];
        one.add(2, count);
        one
    }

    #[test]
    fn a_thread_that_looks_at_one_element_does_not_own_it() {
        let known: Vec<(u64, u32)> = (0..12).map(|n| (n, 1 + (n % 2) as u32)).collect();
        let mut uses = seen(&known);
        uses[4] = shared(4);
        assert_eq!(elements(&whole(&uses, object(12))), known);
        // Of two elements it is no chance any more.
        uses[5] = shared(5);
        let found = groups(&uses, 256).expect("threads contend");
        assert_eq!(whole(&uses, object(12)), found.groups);
    }

    /// Elements that nobody writes are anybody's.
    #[test]
    fn elements_that_are_only_read_belong_to_nobody() {
        let read = |number: u64, thread: u32| {
            let mut one = Use {
                offset: 24 * number + 8,
                size: 4,
                ..Use::default()
            };
            let count = Count {
                reads: 5,
                ..Count::default()
            };
            one.add(thread, count);
            one
        };
        let mut uses = seen(&[(0, 1), (1, 2), (2, 1), (3, 2)]);
        uses.extend([read(4, 1), read(5, 1), read(6, 2), read(7, 1)]);
        let found = elements(&whole(&uses, object(8)));
        assert_eq!(found, [(0, 1), (1, 2), (2, 1), (3, 2)]);
        // Threads that read what others write in turn are no owners either.
        let known: Vec<(u64, u32)> = (0..8).map(|n| (n, 1 + (n % 2) as u32)).collect();
        let mut uses = seen(&known);
        uses.extend([read(8, 2), read(9, 1), read(10, 1)]);
        let found = groups(&uses, 256).expect("threads contend");
        assert_eq!(whole(&uses, object(12)), found.groups);
    }

    #[test]
    fn an_object_with_an_element_of_several_threads_keeps_its_groups() {
        let mut uses = seen(&[(0, 1), (1, 2), (2, 1)]);
        uses.push(written(24 + 16, 1));
        let found = groups(&uses, 256).expect("threads contend");
        assert_eq!(whole(&uses, object(3)), found.groups);
        let mut uses = seen(&[(0, 1), (1, 2), (2, 1), (3, 2)]);
        let found = groups(&uses, 256).expect("threads contend");
        uses[1] = shared(1);
        let kept = whole_elements(&found.groups, &uses, &[object(4)], 4096, false);
        assert_eq!(kept, found.groups);
    }

    #[test]
    fn elements_that_begin_before_the_pages_are_left_out() {
        let object = Extent {
            start: -40,
            size: 40 + 24 * 4,
            element: Some(24),
        };
        // The first whole element begins at 8.
        let found = whole(&seen(&[(0, 1), (1, 2), (2, 1)]), object);
        let places: Vec<(u64, u64)> = found.iter().map(|g| (g.offset, g.size)).collect();
        assert_eq!(places, [(8, 24), (32, 24), (56, 24)]);
    }
}
