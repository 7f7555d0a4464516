//! Where new lines must begin so that bytes of different threads share none: before each member
//! that follows one of another thread. A break before the first member alone would leave the
//! members behind it on the line of the others. Called for fields of one object.

use crate::layout::{Layout, Part};

/// The members before which a line must begin, by position, if parts of different classes may not
/// share a line. A part without a class may lie beside any other. No line can begin inside a member,
/// so that classes that meet in one have no break there.
pub(crate) fn breaks<C: PartialEq>(
    layout: &Layout,
    class: impl Fn(&Part) -> Option<C>,
) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut last: Option<(C, String)> = None;
    for part in &layout.parts {
        let Some(own) = class(part) else {
            continue;
        };
        let member = part.member(layout).unwrap_or_else(|| part.bytes(layout));
        if let Some((before, beside)) = &last
            && *before != own
            && *beside != member
            && found.last() != Some(&member)
        {
            found.push(member.clone());
        }
        last = Some((own, member));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_findings::Finding;
    use sunder_findings::examples::{line, word};

    /// Fields of eight bytes, each written by one thread.
    fn found(fields: &[(&str, u32)]) -> Vec<String> {
        let words = fields
            .iter()
            .enumerate()
            .map(|(i, (field, thread))| word(8 * i as u32, 8, field, &[(*thread, 0, 90, 0, 0)]));
        let finding = Finding {
            lines: vec![line(0x1000, 0, 10.0, words.collect())],
            ..Finding::default()
        };
        breaks(&Layout::of(&finding, 64), |p| p.owner())
    }

    #[test]
    fn a_line_begins_behind_the_last_member_of_a_thread_too() {
        assert_eq!(found(&[("s.a", 1), ("s.b", 2)]), ["`b`"]);
        assert_eq!(found(&[("s.a", 1), ("s.b", 2), ("s.c", 1)]), ["`b`", "`c`"]);
        assert_eq!(found(&[("s.a", 1), ("s.b", 1)]), [""; 0]);
    }

    #[test]
    fn no_line_begins_inside_a_member() {
        assert_eq!(found(&[("s.hist[0]", 1), ("s.hist[1]", 2)]), [""; 0]);
        assert_eq!(
            found(&[("s.hist[0]", 1), ("s.hist[1]", 2), ("s.n", 1)]),
            ["`n`"]
        );
    }
}
