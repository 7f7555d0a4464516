//! Lists and counts in English, for the text of advice.

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn list(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

/// As [`list`], with at most `most` of them named.
pub(crate) fn short_list(items: &[String], most: usize) -> String {
    if items.len() <= most {
        return list(items);
    }
    let more = format!("{} more", items.len() - most);
    let mut named = items[..most].to_vec();
    named.push(more);
    list(&named)
}

/// The text with a capital at its start.
pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().collect::<String>() + letters.as_str()
    })
}

/// `text` behind a colon: a word at its start is not capital.
pub(crate) fn continued(text: &str) -> String {
    let mut letters = text.chars();
    match (letters.next(), letters.as_str()) {
        (Some(first), rest) if rest.starts_with(|c: char| c.is_ascii_lowercase()) => {
            first.to_lowercase().collect::<String>() + rest
        }
        _ => text.to_owned(),
    }
}

/// A name in backquotes.
pub(crate) fn quoted(name: &str) -> String {
    format!("`{name}`")
}

/// `1 thread`, `2 threads`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_as_english() {
        let all: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        assert_eq!(list(&all[..1]), "a");
        assert_eq!(list(&all[..2]), "a and b");
        assert_eq!(list(&all[..3]), "a, b and c");
        assert_eq!(short_list(&all, 2), "a, b and 2 more");
        assert_eq!(short_list(&all, 4), "a, b, c and d");
    }
}
