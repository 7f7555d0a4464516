//! The file and line of an instruction, from the values that change along a function's code: a list of
//! differences of the value and of the place, each a number of variable length (`step` in
//! `runtime/symtab.go`).

use super::{Table, text_at, word};

/// Where a function's record has what, in bytes.
const OF_FILES: usize = 20;
const OF_LINES: usize = 24;
const LISTS: usize = 28;
const UNIT: usize = 32;

/// The list of the inlined calls that instructions belong to (`PCDATA_InlTreeIndex`).
const INLINED: usize = 2;

/// More steps are not followed; the longest functions have some ten thousand.
const MOST_STEPS: u32 = 1 << 20;

impl<'a> Table<'a> {
    /// The file and the line of the instruction at a link address. `None` also if it comes from a function
    /// that was inlined: whose it is can't be told from the table alone.
    pub fn line(&self, address: u64) -> Option<(&'a str, u32)> {
        let (index, at) = self.place(address)?;
        if self.is_inlined(index, at)? {
            return None;
        }
        let line = self.value(self.of_record(index, OF_LINES)?, at)?;
        let file = self.value(self.of_record(index, OF_FILES)?, at)?;
        let unit = self.of_record(index, UNIT)?;
        let place = unit.checked_add(u32::try_from(file).ok()?)? as usize;
        let name = word(self.files_of_units, place.checked_mul(4)?)?;
        let line = u32::try_from(line).ok().filter(|&line| line > 0)?;
        Some((text_at(self.files, name)?, line))
    }

    fn is_inlined(&self, index: usize, at: u32) -> Option<bool> {
        if (self.of_record(index, LISTS)? as usize) <= INLINED {
            return Some(false);
        }
        match self.of_record(index, self.record + INLINED * 4)? {
            0 => Some(false),
            list => Some(self.value(list, at)? >= 0),
        }
    }

    /// The value at `at` bytes from a function's start, in the list at an offset.
    fn value(&self, list: u32, at: u32) -> Option<i32> {
        let mut rest = self.values.get(list as usize..)?;
        let (mut value, mut place) = (-1i32, 0u32);
        for step in 0..MOST_STEPS {
            let change = variable(&mut rest)?;
            if change == 0 && step > 0 {
                return None;
            }
            let sign = if change & 1 == 0 { 0 } else { !0 };
            value = value.wrapping_add((change >> 1 ^ sign) as i32);
            place = place.checked_add(variable(&mut rest)?)?;
            if at < place {
                return Some(value);
            }
        }
        None
    }
}

/// Takes a number of seven bits a byte, the lowest first.
fn variable(rest: &mut &[u8]) -> Option<u32> {
    let mut number = 0u32;
    for shift in (0..32).step_by(7) {
        let (&byte, after) = rest.split_first()?;
        *rest = after;
        number |= u32::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_change_along_a_function_and_inlined_ones_are_left_out() {
        let words = |all: &[u32]| -> Vec<u8> { all.iter().flat_map(|w| w.to_le_bytes()).collect() };
        // One function of 32 bytes, and its record behind the pair and its end.
        let (files, lines, inlined) = (10, 1, 20);
        let mut functions = words(&[0, 12, 32]);
        functions.extend(words(&[0, 0, 0, 0, 0, files, lines, 3, 1, 0, 0]));
        functions.extend(words(&[0, 0, inlined]));
        let mut values = vec![0; 30];
        // Line 7 for 16 bytes, then 5.
        values[1..6].copy_from_slice(&[16, 16, 3, 16, 0]);
        // The unit's first file for all.
        values[10..13].copy_from_slice(&[2, 32, 0]);
        // None for 24 bytes, then the first inlined call.
        values[20..25].copy_from_slice(&[0, 24, 2, 8, 0]);
        let table = Table {
            text: 0x1000,
            names: &[],
            functions: &functions,
            count: 1,
            files_of_units: &words(&[0, 3]),
            files: b"zz\0main.go\0",
            values: &values,
            record: 44,
            bytes: 0,
        };
        let found = [0, 15, 16, 23, 24, 32].map(|at| table.line(0x1000 + at));
        let line = |line| Some(("main.go", line));
        assert_eq!(found, [line(7), line(7), line(5), line(5), None, None]);
    }

    #[test]
    fn numbers_of_variable_length_end() {
        let number = |mut bytes: &[u8]| variable(&mut bytes);
        assert_eq!(number(&[0x7f]), Some(127));
        assert_eq!(number(&[0x80, 1]), Some(128));
        assert_eq!(number(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Some(u32::MAX));
        assert_eq!(number(&[0x80; 9]), None);
        assert_eq!(number(&[0x80]), None);
    }
}
