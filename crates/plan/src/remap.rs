//! Which bytes of contended lines go to lines of their own while the program runs
//! (Plastic, EuroSys 2013, section 4.4): bytes that the same threads use are one
//! group. Pure.

use std::collections::BTreeSet;

/// Bytes that were seen in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// Offset of the first from the start of the pages.
    pub offset: u64,
    /// How many.
    pub size: u64,
    /// By whom.
    pub threads: BTreeSet<u32>,
    /// Whether any of these write.
    pub written: bool,
}

/// Bytes that move together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Offset of the first from the start of the pages.
    pub offset: u64,
    /// How many.
    pub size: u64,
    /// Who uses them.
    pub threads: BTreeSet<u32>,
}

/// Why nothing is to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmoved {
    /// Fewer than two groups: there is nothing to take apart.
    OneGroup,
    /// Threads share the very bytes.
    TrueSharing,
    /// The bytes of different threads overlap or alternate too finely.
    TooMany,
}

impl Unmoved {
    /// The reason, as a sentence goes on after "because".
    pub const fn why(self) -> &'static str {
        match self {
            Self::OneGroup => "its bytes are those of one group of threads",
            Self::TrueSharing => "threads write the same bytes",
            Self::TooMany => "it would fall into too many pieces",
        }
    }
}

/// The groups of `uses`, by ascending offset: runs of bytes with the same users,
/// of which somebody writes. Others stay where they are. Bytes between two uses of
/// one group belong to it, so that wider accesses stay whole.
///
/// # Errors
/// If moving would not help, or there would be more than `most`.
pub fn groups(uses: &[Use], most: usize) -> Result<Vec<Group>, Unmoved> {
    let mut uses: Vec<&Use> = uses.iter().collect();
    uses.sort_by_key(|u| (u.offset, u.size));
    if uses.iter().any(|u| u.written && u.threads.len() > 1) {
        return Err(Unmoved::TrueSharing);
    }
    let mut groups: Vec<(Group, bool)> = Vec::new();
    for one in uses {
        let end = one.offset + one.size;
        match groups.last_mut() {
            Some((last, written)) if last.threads == one.threads => {
                last.size = last.size.max(end - last.offset);
                *written |= one.written;
            }
            Some((last, _)) if one.offset < last.offset + last.size => {
                return Err(Unmoved::TooMany);
            }
            _ => groups.push((
                Group {
                    offset: one.offset,
                    size: one.size,
                    threads: one.threads.clone(),
                },
                one.written,
            )),
        }
    }
    let moved: Vec<Group> = groups
        .into_iter()
        .filter(|(_, written)| *written)
        .map(|(group, _)| group)
        .collect();
    if moved.len() > most {
        return Err(Unmoved::TooMany);
    }
    let owners: BTreeSet<_> = moved.iter().map(|g| &g.threads).collect();
    if owners.len() < 2 {
        return Err(Unmoved::OneGroup);
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(offset: u64, size: u64, threads: &[u32], written: bool) -> Use {
        Use {
            offset,
            size,
            threads: threads.iter().copied().collect(),
            written,
        }
    }

    fn moved(uses: &[Use]) -> Result<Vec<(u64, u64)>, Unmoved> {
        groups(uses, 8).map(|all| all.iter().map(|g| (g.offset, g.size)).collect())
    }

    #[test]
    fn neighbouring_words_of_one_thread_are_one_group_with_what_is_between() {
        let uses = [
            used(0, 8, &[1], true),
            used(24, 8, &[1], true),
            used(16, 8, &[1], false),
            used(32, 8, &[2], true),
        ];
        assert_eq!(moved(&uses), Ok(vec![(0, 32), (32, 8)]));
    }

    #[test]
    fn what_is_only_read_stays() {
        let uses = [
            used(0, 8, &[1], true),
            used(8, 8, &[1, 2], false),
            used(16, 8, &[2], true),
        ];
        assert_eq!(moved(&uses), Ok(vec![(0, 8), (16, 8)]));
    }

    #[test]
    fn true_sharing_is_left_alone() {
        let uses = [used(0, 8, &[1, 2], true), used(8, 8, &[2], true)];
        assert_eq!(moved(&uses), Err(Unmoved::TrueSharing));
    }

    #[test]
    fn one_threads_bytes_are_not_moved() {
        let uses = [used(0, 8, &[1], true), used(8, 8, &[2], false)];
        assert_eq!(moved(&uses), Err(Unmoved::OneGroup));
        assert_eq!(moved(&[]), Err(Unmoved::OneGroup));
    }

    #[test]
    fn overlapping_uses_of_different_threads_are_not_taken_apart() {
        let uses = [used(0, 8, &[1], true), used(4, 8, &[2], true)];
        assert_eq!(moved(&uses), Err(Unmoved::TooMany));
    }

    #[test]
    fn no_more_groups_than_there_is_room_for() {
        let uses: Vec<Use> = (0..9).map(|n| used(n * 8, 8, &[n as u32], true)).collect();
        assert_eq!(moved(&uses), Err(Unmoved::TooMany));
    }
}
