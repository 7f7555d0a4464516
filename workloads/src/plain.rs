//! The text of a source as it would be without its fixed variant: what a user has before the fix.
//! For whatever reads sources. Must not be used to build: line numbers change.

use crate::table::Language;

/// The text without the branches of the fixed variant, and without the checks of the layout.
pub(crate) fn plain(text: &str, language: Language) -> String {
    let kept = match language {
        Language::Rust => without_items(text),
        Language::C | Language::Cpp => without_branches(text),
    };
    // An empty statement may be the body of a loop.
    let without_check = |line| match line {
        line if is_check(line) => "{}",
        line => line,
    };
    let lines = kept.lines().map(without_check);
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// A statement that looks at the layout.
fn is_check(line: &str) -> bool {
    line.trim_end().ends_with(';') && line.contains("check_layout(")
}

/// Resolves `#ifdef FIXED`, `#ifndef FIXED` and `#if FIXED`. Other conditions stay.
fn without_branches(text: &str) -> String {
    /// A condition that the line is in.
    #[derive(Clone, Copy, PartialEq)]
    enum Branch {
        Other,
        Kept,
        Left,
    }
    let mut open: Vec<Branch> = Vec::new();
    let mut kept = String::new();
    for line in text.lines() {
        let words: String = line.split_whitespace().collect();
        let opened = match words.as_str() {
            "#ifdefFIXED" | "#ifFIXED" | "#ifdefined(FIXED)" => Some(Branch::Left),
            "#ifndefFIXED" | "#if!FIXED" | "#if!defined(FIXED)" => Some(Branch::Kept),
            other if other.starts_with("#if") => Some(Branch::Other),
            _ => None,
        };
        let ours = opened
            .or(open.last().copied())
            .is_some_and(|b| b != Branch::Other);
        let inside = open.iter().all(|&b| b != Branch::Left);
        if let Some(branch) = opened {
            open.push(branch);
        } else if words.starts_with("#else") && ours {
            let last = open.last_mut().expect("a condition is open");
            *last = match *last {
                Branch::Left => Branch::Kept,
                _ => Branch::Left,
            };
        } else if words.starts_with("#endif") {
            open.pop();
        }
        let directive =
            opened.is_some() || words.starts_with("#else") || words.starts_with("#endif");
        if inside && !(directive && ours) {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// Removes what stands behind `#[cfg(fixed)]`, and the lines `#[cfg(not(fixed))]`.
fn without_items(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        match line.trim() {
            "#[cfg(not(fixed))]" => {}
            line if line.starts_with("#[cfg_attr(fixed,") && line.ends_with(']') => {}
            "#[cfg(fixed)]" => {
                // An item, statement or field ends where its brackets are closed again.
                let mut depth = 0i32;
                for line in lines.by_ref() {
                    depth += line.matches(['(', '[', '{']).count() as i32;
                    depth -= line.matches([')', ']', '}']).count() as i32;
                    let end = line.trim_end().ends_with([';', ',', '}']);
                    if depth <= 0 && end {
                        break;
                    }
                }
            }
            _ => {
                kept.push_str(line);
                kept.push('\n');
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_shared_branches_stay() {
        let c = "check_layout(&a,\n  1);\nif (b) check_layout(a);\nint a;\n#ifdef FIXED\nint b;\n#if X\nint x;\n#endif\n#else\nint c;\n#ifdef Y\nint y;\n#else\n\
                 int z;\n#endif\n#endif\n#ifndef FIXED\nint d;\n#else\nint e;\n#endif\nint f;\n";
        let kept = "check_layout(&a,\n  1);\n{}\nint a;\nint c;\n#ifdef Y\nint y;\n#else\nint z;\n#endif\nint d;\nint f;\n";
        assert_eq!(plain(c, Language::C), kept);
        let rust = "#[cfg_attr(fixed, repr(align(64)))]\n#[cfg(not(fixed))]\nstatic A: u8 = 0;\n#[cfg(fixed)]\n#[repr(align(64))]\nstruct B {\n    \
                    a: u8,\n}\nstruct C {\n    #[cfg(fixed)]\n    a: u8,\n    b: u8,\n}\n";
        let kept = "static A: u8 = 0;\nstruct C {\n    b: u8,\n}\n";
        assert_eq!(plain(rust, Language::Rust), kept);
    }
}
