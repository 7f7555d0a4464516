//! How users write the names of types, variables and call sites, and which known names are near to
//! an unknown one. Pure.

use std::collections::BTreeSet;
use sunder_access::LinkAddress;
use sunder_findings::file_name;
use sunder_objects::CodeFrame;

/// The number of known names in the refusal of an unknown one.
const NEAREST: usize = 3;

/// The type's name as a user writes it: `counter` for `struct counter[8]`.
pub fn plain_type(name: &str) -> &str {
    let name = name.trim();
    let name = ["struct ", "union ", "class "]
        .iter()
        .find_map(|word| name.strip_prefix(word))
        .unwrap_or(name);
    name.split('[').next().unwrap_or(name).trim()
}

/// Whether `known` is `asked`, or `asked` with scopes before it.
pub fn is_name(known: &str, asked: &str) -> bool {
    known == asked
        || known
            .strip_suffix(asked)
            .is_some_and(|before| before.ends_with("::"))
}

/// Whether `asked` names the call at `frame`.
pub fn is_called(frame: &CodeFrame, asked: &str) -> bool {
    if is_name(&frame.function, asked) {
        return true;
    }
    if let Some(hex) = asked.strip_prefix("0x") {
        let offset = u64::from_str_radix(hex, 16).ok();
        return offset.is_some() && offset == frame.offset;
    }
    let at_line = || {
        let (file, line) = asked.rsplit_once(':')?;
        let line: u32 = line.parse().ok()?;
        let known = frame.file.as_deref()?;
        let same = file_name(known) == file
            || known == file
            || known.strip_suffix(file).is_some_and(|b| b.ends_with('/'));
        Some(same && frame.line == Some(line))
    };
    at_line() == Some(true)
}

/// The names of a call site.
pub fn labels_of(frame: &CodeFrame) -> [String; 2] {
    [frame.function.clone(), label(frame)]
}

/// The name of a call site in sentences: `file:line`, or the function.
fn label(frame: &CodeFrame) -> String {
    match (&frame.file, frame.line) {
        (Some(file), Some(line)) => format!("{}:{line}", file_name(file)),
        _ => frame.function.clone(),
    }
}

/// The frame in the form of findings, which know the frames of libraries.
pub fn as_shown(frame: &CodeFrame) -> sunder_findings::Frame {
    sunder_findings::Frame {
        function: frame.function.clone(),
        file: frame.file.clone(),
        line: frame.line,
        offset: frame.offset.map(LinkAddress),
        ..sunder_findings::Frame::default()
    }
}

/// Says `the nearest …s are …`.
pub fn nearest(asked: &str, known: &BTreeSet<String>, what: &str) -> String {
    let mut known: Vec<&String> = known.iter().filter(|k| !k.is_empty()).collect();
    let distance = |name: &&String| strsim::damerau_levenshtein(asked, name);
    known.sort_by_key(distance);
    match known.as_slice() {
        [] => format!("there is no {what} with a name"),
        [one] => format!("the only {what} is {one}"),
        all => {
            let near: Vec<&str> = all.iter().take(NEAREST).map(|n| n.as_str()).collect();
            format!("the nearest are {}", near.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_without_scopes_and_words() {
        assert!(is_name("app::pool", "pool") && is_name("pool", "pool"));
        assert!(!is_name("whirlpool", "pool"));
        assert_eq!(plain_type("struct counter[8]"), "counter");
        assert_eq!(plain_type("lreg_args"), "lreg_args");
    }

    #[test]
    fn a_call_is_named_by_function_line_or_offset() {
        let frame = CodeFrame {
            function: "app::make".into(),
            file: Some("/src/app/make.c".into()),
            line: Some(12),
            offset: Some(0x1234),
            ..CodeFrame::default()
        };
        for name in ["app::make", "make", "make.c:12", "app/make.c:12", "0x1234"] {
            assert!(is_called(&frame, name), "{name}");
        }
        for name in ["mak", "make.c:13", "ake.c:12", "0x12", "12", ":12"] {
            assert!(!is_called(&frame, name), "{name}");
        }
    }

    #[test]
    fn a_refusal_lists_the_nearest_names() {
        let known: BTreeSet<String> = ["hits", "misses", "total", "padding"]
            .map(str::to_owned)
            .into();
        let listed = nearest("hit", &known, "field");
        assert!(listed.starts_with("the nearest are hits, "), "{listed}");
        assert_eq!(listed.matches(',').count(), 2);
    }
}
