//! Where the functions of a file begin and end, by its unwinding information, and which of their loops wait for
//! other threads. Called by `guard` and `image`. The file may be damaged or made to take long: work is limited.

use object::{Object, ObjectSection};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use sunder_rewrite::{Function, Loop, waiting_pages};

/// The limit of work on the loops of one file: bytes of their functions, once to decode them and once for each
/// loop.
const MOST_BYTES: usize = 32 << 20;

/// Start and end addresses of functions, sorted; `None` if the information is damaged or missing.
#[derive(Debug)]
pub struct Functions(Option<Vec<[u64; 2]>>);

impl Functions {
    /// The functions of a file.
    pub fn of(file: &object::File<'_>) -> Self {
        let mut found = in_frames(file);
        if let Some(found) = &mut found {
            found.sort_unstable();
        }
        Self(found)
    }

    /// Where they begin and end, as addresses of the file; `None` if that is not known.
    pub fn known(&self) -> Option<&[[u64; 2]]> {
        self.0.as_deref()
    }

    /// The pages with bytes of the loops that wait for other threads. `loops` are those in `code` that seem to;
    /// `code` begins at `start`. A loop in no known function is taken for one that waits, and so are all where
    /// there would be too much to look at.
    pub fn waiting_pages(&self, code: &[u8], start: u64, loops: &[Loop]) -> BTreeSet<u64> {
        let mut pages = BTreeSet::new();
        let mut of_functions: BTreeMap<[u64; 2], Vec<Loop>> = BTreeMap::new();
        for one in loops {
            match self.around(&one.bytes) {
                Some(function) => of_functions.entry(function).or_default().push(one.clone()),
                None => pages.extend(one.pages()),
            }
        }
        let mut left = MOST_BYTES;
        for ([from, to], loops) in of_functions {
            let bytes = from.checked_sub(start).zip(to.checked_sub(start));
            let code = bytes.and_then(|(from, to)| {
                code.get(usize::try_from(from).ok()?..usize::try_from(to).ok()?)
            });
            let rest = code.and_then(|code| {
                let work = code.len().checked_mul(loops.len().checked_add(1)?)?;
                left.checked_sub(work)
            });
            match code.zip(rest) {
                Some((code, rest)) => {
                    left = rest;
                    let function = Function {
                        address: from,
                        code,
                    };
                    pages.extend(waiting_pages(&function, &loops));
                }
                None => pages.extend(loops.iter().flat_map(Loop::pages)),
            }
        }
        pages
    }

    /// The function that has all of these bytes.
    fn around(&self, bytes: &Range<u64>) -> Option<[u64; 2]> {
        let known = self.known()?;
        let after = known.partition_point(|function| function[0] <= bytes.start);
        let found = *known.get(after.checked_sub(1)?)?;
        (bytes.end <= found[1]).then_some(found)
    }
}

/// The functions in the unwinding information. `None` if it is damaged.
fn in_frames(file: &object::File<'_>) -> Option<Vec<[u64; 2]>> {
    use gimli::UnwindSection;
    let section = file.section_by_name(".eh_frame")?;
    let data = section.data().ok()?;
    let frames = gimli::EhFrame::new(data, gimli::LittleEndian);
    let bases = gimli::BaseAddresses::default().set_eh_frame(section.address());
    let mut entries = frames.entries(&bases);
    let mut found = Vec::new();
    while let Some(entry) = entries.next().ok()? {
        if let gimli::CieOrFde::Fde(partial) = entry {
            let fde = partial.parse(gimli::EhFrame::cie_from_offset).ok()?;
            found.push([fde.initial_address(), fde.end_address()]);
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// mov rax, [rdx]; test rax, rax; je to the first; ret.
    const WAITS: [u8; 9] = [0x48, 0x8b, 0x02, 0x48, 0x85, 0xc0, 0x74, 0xf8, 0xc3];
    /// The same, with a way that stores: mov rax, [rdx]; test rax, rax; js aside; je to the first; ret;
    /// aside: inc [rdi]; jmp to the first.
    const ACTS: [u8; 16] = [
        0x48, 0x8b, 0x02, 0x48, 0x85, 0xc0, 0x78, 0x03, 0x74, 0xf6, 0xc3, 0x48, 0xff, 0x07, 0xeb,
        0xf0,
    ];

    fn counting(bytes: Range<u64>) -> Loop {
        let counts = true;
        Loop { bytes, counts }
    }

    #[test]
    fn loops_wait_if_their_function_is_not_known_or_nothing_is_stored_in_them() {
        let code = [&WAITS[..], &ACTS].concat();
        let waits = counting(0x1ff8..0x2000);
        let acts = counting(0x2001..0x200b);
        let pages = |functions: &Functions, one: &Loop| {
            let pages = functions.waiting_pages(&code, 0x1ff8, std::slice::from_ref(one));
            pages.into_iter().collect::<Vec<_>>()
        };
        let known = Functions(Some(vec![[0x1ff8, 0x2001], [0x2001, 0x2011]]));
        assert_eq!(pages(&known, &waits), [0x1000]);
        assert_eq!(pages(&known, &acts), [0u64; 0]);
        // If it can't end by itself, what is stored is behind it, in a loop around it.
        let endless = Loop {
            counts: false,
            ..acts.clone()
        };
        assert_eq!(pages(&known, &endless), [0x2000]);
        // Nothing is known of the second one, or not all of it is there, or of none.
        for doubtful in [
            Some(vec![[0x1ff8, 0x2001]]),
            Some(vec![[0x2001, 0x200a]]),
            Some(vec![[0x2001, 0x2012]]),
            None,
        ] {
            assert_eq!(pages(&Functions(doubtful), &acts), [0x2000]);
        }
    }

    #[test]
    fn of_too_much_code_all_loops_wait() {
        let mut code = vec![0x90; MOST_BYTES / 2];
        code[..ACTS.len()].copy_from_slice(&ACTS);
        let pages = |bytes: u64, loops: &[Loop]| {
            let functions = Functions(Some(vec![[0, bytes]]));
            functions.waiting_pages(&code, 0, loops).len()
        };
        let two = [counting(0..10), counting(0..10)];
        assert_eq!(pages(0x1000, &two), 0);
        // It would be read three times, which is half as much again as the limit.
        assert_eq!(pages(code.len() as u64, &two), 1);
    }
}
