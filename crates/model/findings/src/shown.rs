//! Text that came from outside: names and paths from binaries, command lines and recordings that
//! nobody has checked. Whatever shows such text, on a terminal or in a page, shows it by this type.

use core::fmt::{self, Display, Write};

/// Displays text without characters that move a terminal's cursor, hide text, or change its
/// direction: each is replaced by `U+FFFD`. Tabs become spaces.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a str);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| {
            f.write_char(match c {
                '\t' => ' ',
                c if c.is_control() || turns_text(c) => char::REPLACEMENT_CHARACTER,
                c => c,
            })
        })
    }
}

/// JSON in which no string moves a terminal's cursor or changes its direction: such characters, of which JSON
/// escapes only those below a space, are escaped. They mean what they meant.
pub fn escaped_json(json: String) -> String {
    let acts = |c: char| c == '\u{7f}' || ('\u{80}'..='\u{9f}').contains(&c) || turns_text(c);
    if !json.chars().any(acts) {
        return json;
    }
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match acts(c) {
            // All of them are below 2^16.
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => escaped.push(c),
        }
    }
    escaped
}

/// Directional overrides and isolates, and characters that break lines.
const fn turns_text(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_on_a_terminal_says_the_same_and_moves_nothing() {
        let evil = "a\u{1b}[2J\u{9b}31m\u{202e}\u{7f} größe";
        let json = serde_json::to_string(&[evil]).expect("text");
        let escaped = escaped_json(json.clone());
        assert!(!escaped.contains(['\u{9b}', '\u{202e}', '\u{7f}', '\u{1b}']));
        let read: [String; 1] = serde_json::from_str(&escaped).expect("it is JSON");
        assert_eq!(read, [evil]);
        assert_eq!(escaped_json("[\n\"größe\"]".into()), "[\n\"größe\"]");
    }

    #[test]
    fn nothing_reaches_a_terminal_but_text() {
        let shown = |text| Shown(text).to_string();
        assert_eq!(shown("counters[1].hits"), "counters[1].hits");
        assert_eq!(shown("größe\tπ 日本"), "größe π 日本");
        assert_eq!(
            shown("a\u{1b}[2Jb\nc\rd\u{7}"),
            "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d\u{fffd}"
        );
        assert_eq!(
            shown("x\u{202e}y\u{2066}z\u{9b}31m"),
            "x\u{fffd}y\u{fffd}z\u{fffd}31m"
        );
    }
}
