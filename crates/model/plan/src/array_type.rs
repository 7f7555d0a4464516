//! Element types and counts of arrays, read from the names of types in the languages' notations. Called by
//! what prepares findings for advice; must not guess where a name is none of an array.

/// Element type and count of an array type in C, C++ or Rust notation.
pub(crate) fn array_type(name: &str) -> Option<(&str, Option<u64>)> {
    let number = |text: &str| {
        text.trim()
            .trim_end_matches(['u', 'l', 'U', 'L'])
            .parse()
            .ok()
    };
    if let Some((of, count)) = name
        .strip_prefix('[')
        .filter(|_| bracket_end(name) == Some(name.len()))
        .and_then(|inner| inner.strip_suffix(']')?.rsplit_once(';'))
    {
        return Some((of.trim(), number(count)));
    }
    // Go.
    if let Some((count, of)) = name.strip_prefix('[').and_then(|r| r.split_once(']'))
        && !of.is_empty()
        && !count.contains([';', '['])
    {
        return (!of.starts_with('[')).then(|| (of, number(count)));
    }
    for prefix in ["std::array<", "std::__1::array<"] {
        if let Some(inner) = name.strip_prefix(prefix) {
            let (of, count) = inner.strip_suffix('>')?.rsplit_once(',')?;
            return Some((of.trim(), number(count)));
        }
    }
    for prefix in ["std::vector<", "Vec<", "alloc::vec::Vec<", "Box<["] {
        if let Some(inner) = name.strip_prefix(prefix) {
            let inner = inner
                .trim_end_matches("]>")
                .strip_suffix('>')
                .unwrap_or(inner);
            let end = top_level_comma(inner).unwrap_or(inner.len());
            return Some((inner[..end].trim(), None));
        }
    }
    let (of, count) = name.strip_suffix(']')?.rsplit_once('[')?;
    let of = of.trim();
    // The elements of `T[4][8]` are rows, which have no type name here. Rust's arrays have one, also as
    // elements of a block.
    let rows = of.ends_with(']') && bracket_end(of) != Some(of.len());
    (!of.is_empty() && !rows).then(|| (of, number(count)))
}

/// The end of the brackets with which `name` begins.
fn bracket_end(name: &str) -> Option<usize> {
    let mut depth = 0;
    name.char_indices()
        .find_map(|(at, c)| {
            match c {
                '[' => depth += 1,
                ']' => depth -= 1,
                _ => {}
            }
            (depth == 0).then_some(at + c.len_utf8())
        })
        .filter(|_| name.starts_with('['))
}

fn top_level_comma(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.char_indices().find_map(|(i, c)| {
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth -= 1,
            _ => {}
        }
        (c == ',' && depth == 0).then_some(i)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_types_of_four_languages() {
        assert_eq!(array_type("counter[8]"), Some(("counter", Some(8))));
        assert_eq!(array_type("struct a [2]"), Some(("struct a", Some(2))));
        assert_eq!(array_type("[Slot; 2]"), Some(("Slot", Some(2))));
        assert_eq!(
            array_type("std::array<std::atomic<long>, 2ul>"),
            Some(("std::atomic<long>", Some(2)))
        );
        assert_eq!(
            array_type("std::vector<std::pair<int, int>, std::allocator<int>>"),
            Some(("std::pair<int, int>", None))
        );
        assert_eq!(array_type("Vec<AtomicU64>"), Some(("AtomicU64", None)));
        assert_eq!(array_type("int[4][8]"), None);
        assert_eq!(array_type("queue"), None);
        assert_eq!(array_type("[8]main.stats"), Some(("main.stats", Some(8))));
        assert_eq!(array_type("[]main.stats"), Some(("main.stats", None)));
        assert_eq!(array_type("[2][3]int"), None);
        // Blocks of Rust's tuples and arrays.
        assert_eq!(
            array_type("(u64, [u8; 4])[2]"),
            Some(("(u64, [u8; 4])", Some(2)))
        );
        assert_eq!(array_type("[u64; 4][2]"), Some(("[u64; 4]", Some(2))));
        assert_eq!(array_type("[[u64; 4]; 2]"), Some(("[u64; 4]", Some(2))));
        assert_eq!(
            array_type("Row<[u64; 4]>[2]"),
            Some(("Row<[u64; 4]>", Some(2)))
        );
        assert_eq!(array_type("(u64, [u8; 4])"), None);
        assert_eq!(array_type("Row<[u64; 4]>"), None);
    }
}
