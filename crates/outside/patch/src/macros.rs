//! Macros of C and C++, as far as a parser of declarations must know them: which stand for
//! attributes only, which call an allocator, and one branch of each condition. It is no
//! preprocessor: what it leaves out is replaced by spaces, so that all offsets stay.

use std::collections::BTreeMap;

/// The definitions of macros in a program's sources.
#[derive(Debug, Default)]
pub(crate) struct Macros(BTreeMap<String, Vec<Definition>>);

/// A definition of a macro.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    /// The names of its parameters, if it has a list of them.
    pub(crate) parameters: Option<Vec<String>>,
    /// What it stands for, on one line.
    pub(crate) body: String,
}

/// Whether it may be part of a name.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

impl Macros {
    /// Adds the definitions in a text.
    pub(crate) fn read(&mut self, text: &str) {
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            let Some(rest) = directive(line).and_then(|d| d.strip_prefix("define")) else {
                continue;
            };
            let mut whole = rest.trim_end().to_owned();
            while whole.ends_with('\\') {
                whole.pop();
                whole.push_str(lines.next().unwrap_or_default().trim_end());
            }
            let whole = whole.trim_start();
            let end = whole.find(|c| !is_word(c)).unwrap_or(whole.len());
            let (name, rest) = whole.split_at(end);
            let (parameters, body) = match rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
                Some((list, body)) => {
                    let names = list.split(',').map(|p| p.trim().to_owned());
                    (Some(names.collect()), body)
                }
                None => (None, rest),
            };
            let body = body.split("/*").next().unwrap_or_default();
            let body = body.split("//").next().unwrap_or_default().trim();
            self.0.entry(name.to_owned()).or_default().push(Definition {
                parameters,
                body: body.to_owned(),
            });
        }
    }

    /// All definitions of a name.
    pub(crate) fn definitions(&self, name: &str) -> &[Definition] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// The macros whose text has the name.
    pub(crate) fn mentioning(&self, name: &str) -> Vec<&str> {
        let uses = |d: &Definition| words(&d.body).any(|(_, word)| word == name);
        let all = self.0.iter().filter(|(_, all)| all.iter().any(uses));
        all.map(|(own, _)| own.as_str()).collect()
    }

    /// Whether all definitions of the name stand for attributes and the like, or for nothing.
    fn is_attribute(&self, name: &str, depth: u32) -> bool {
        let all = self.definitions(name);
        // Depth: macros that name each other.
        !all.is_empty() && depth < 8 && all.iter().all(|d| self.only_attributes(&d.body, depth))
    }

    fn only_attributes(&self, body: &str, depth: u32) -> bool {
        let mut rest = body.trim_start();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix("[[") {
                let Some(end) = after.find("]]") else {
                    return false;
                };
                rest = after[end + 2..].trim_start();
                continue;
            }
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let takes = match word {
                "__attribute__" | "__attribute" | "_Alignas" | "alignas" | "__declspec" => true,
                "__extension__" | "static" | "inline" | "extern" | "__inline" | "__restrict" => {
                    false
                }
                "" => return false,
                name if self.is_attribute(name, depth + 1) => self
                    .definitions(name)
                    .iter()
                    .any(|d| d.parameters.is_some()),
                _ => return false,
            };
            rest = after.trim_start();
            if takes {
                let Some(end) = closing(rest) else {
                    return false;
                };
                rest = rest[end..].trim_start();
            }
        }
        true
    }

    /// The text with spaces in place of macros that stand for attributes.
    pub(crate) fn without_attributes(&self, text: &str) -> String {
        let mut out = text.as_bytes().to_vec();
        for (start, word) in words(text) {
            if !self.0.contains_key(word)
                || !self.is_attribute(word, 0)
                || in_directive(text, start)
            {
                continue;
            }
            let mut end = start + word.len();
            if self
                .definitions(word)
                .iter()
                .any(|d| d.parameters.is_some())
            {
                let gap = text[end..].len() - text[end..].trim_start().len();
                end = closing(&text[end + gap..]).map_or(end, |len| end + gap + len);
            }
            blank(&mut out, start, end);
        }
        String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
    }

    /// The text with spaces in place of all directives and of the branches that are not taken.
    pub(crate) fn one_configuration(&self, text: &str, cpp: bool) -> String {
        let mut out = text.as_bytes().to_vec();
        // For each open condition: whether the code around it is taken, whether this branch is, and
        // whether one was.
        let mut open: Vec<(bool, bool, bool)> = Vec::new();
        let mut at = 0;
        let mut continued = false;
        let mut lines = text.split_inclusive('\n').peekable();
        while let Some(line) = lines.next() {
            let taken = open.last().is_none_or(|o| o.0 && o.1);
            let told = if continued { None } else { directive(line) };
            let is_directive = told.is_some() || continued;
            continued = is_directive && line.trim_end().ends_with('\\');
            if let Some(told) = told {
                let end = told
                    .find(|c: char| !c.is_ascii_alphabetic())
                    .unwrap_or(told.len());
                let (what, rest) = (&told[..end], told[end..].trim());
                match what {
                    "if" | "ifdef" | "ifndef" => {
                        let guard = what == "ifndef" && {
                            let next = lines.peek().and_then(|l| directive(l));
                            next.is_some_and(|n| {
                                n.strip_prefix("define").is_some_and(|n| n.trim() == rest)
                            })
                        };
                        let holds = guard || self.holds(what, rest, cpp);
                        open.push((taken, holds, holds));
                    }
                    "elif" => {
                        if let Some(last) = open.last_mut() {
                            let holds = !last.2 && self.holds("if", rest, cpp);
                            *last = (last.0, holds, last.2 || holds);
                        }
                    }
                    "else" => {
                        if let Some(last) = open.last_mut() {
                            *last = (last.0, !last.2, true);
                        }
                    }
                    "endif" => {
                        open.pop();
                    }
                    _ => {}
                }
            }
            // `#include` and `#define` are left: they disturb no parser between declarations.
            let keep = told.is_some_and(|t| t.starts_with("include"));
            if (is_directive && !keep) || !taken {
                blank(&mut out, at, at + line.len());
            }
            at += line.len();
        }
        String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
    }

    fn holds(&self, what: &str, condition: &str, cpp: bool) -> bool {
        let defined = |name: &str| match name.trim() {
            "__GNUC__" | "__linux__" | "__x86_64__" | "__unix__" | "__LP64__" => true,
            "__cplusplus" => cpp,
            name => self.0.contains_key(name),
        };
        match what {
            "ifdef" => defined(condition),
            "ifndef" => !defined(condition),
            _ => {
                let inside = |text: &str| {
                    let rest = text.trim().strip_prefix("defined")?.trim();
                    let name = rest.trim_start_matches('(').trim_end_matches(')').trim();
                    name.chars().all(is_word).then(|| defined(name))
                };
                match condition.trim() {
                    "0" => false,
                    other => match other.strip_prefix('!').map(inside) {
                        Some(Some(is)) => !is,
                        _ => inside(other).unwrap_or(true),
                    },
                }
            }
        }
    }
}

/// What stands behind the sign of a directive.
fn directive(line: &str) -> Option<&str> {
    Some(line.trim_start().strip_prefix('#')?.trim())
}

/// Whether the line of the byte is a directive.
fn in_directive(text: &str, at: usize) -> bool {
    let start = text[..at].rfind('\n').map_or(0, |n| n + 1);
    text[start..]
        .trim_start_matches([' ', '\t'])
        .starts_with('#')
}

/// Behind the parenthesis that closes the one at the text's beginning.
pub(crate) fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if at == 0 => return None,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// Puts spaces in the place of these bytes, except line ends.
fn blank(bytes: &mut [u8], start: usize, end: usize) {
    for byte in &mut bytes[start..end] {
        if !byte.is_ascii_whitespace() {
            *byte = b' ';
        }
    }
}

/// The names in a text, with their positions.
pub(crate) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = at + text[at..].find(is_word)?;
        let end = text[start..]
            .find(|c| !is_word(c))
            .map_or(text.len(), |n| start + n);
        at = end;
        Some((start, &text[start..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn macros(text: &str) -> Macros {
        let mut macros = Macros::default();
        macros.read(text);
        macros
    }

    #[test]
    fn macros_for_attributes_are_blanked_and_others_are_not() {
        let m = macros(
            "#ifdef FIXED\n#define OWN __attribute__((aligned(64)))\n#else\n#define OWN\n#endif\n\
             #define ALIGNED(n) __attribute__((aligned(n)))\n#define MOST 64\n#define BOTH OWN ALIGNED(8)\n",
        );
        let seen = m.without_attributes("OWN int a[MOST] ALIGNED(64);\nBOTH int b;");
        assert_eq!(seen, "    int a[MOST]            ;\n     int b;");
        assert_eq!(m.without_attributes("#define X OWN"), "#define X OWN");
    }

    #[test]
    fn one_branch_of_a_condition_stays() {
        let m = macros("#define HAVE 1\n");
        let text = "a\n#ifdef FIXED\nb\n#else\nc\n#endif\n#if defined(HAVE)\nd\n#endif\n";
        let seen = m.one_configuration(text, false);
        assert_eq!(seen.split_whitespace().collect::<Vec<_>>(), ["a", "c", "d"]);
        assert_eq!(seen.len(), text.len());
    }

    #[test]
    fn a_guard_of_a_header_hides_nothing() {
        let text = "#ifndef A_H\n#define A_H\nint x;\n#endif\n";
        assert_eq!(macros(text).one_configuration(text, false).trim(), "int x;");
    }

    #[test]
    fn definitions_have_parameters_and_one_line() {
        let m = macros("#define CALLOC(n, t) \\\n  ((t *)calloc((n), sizeof(t))) /* zeroed */\n");
        let all = m.definitions("CALLOC");
        assert_eq!(all.len(), 1);
        assert_eq!(
            all[0].parameters,
            Some(vec!["n".to_owned(), "t".to_owned()])
        );
        assert_eq!(all[0].body, "((t *)calloc((n), sizeof(t)))");
    }
}
