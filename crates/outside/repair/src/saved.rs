//! What a saved result says of the remedies that were tried: which objects are not to be moved again, and why.
//! Called by `Repairer::follow`. It reads the result only, and must not look at the program.

use crate::attempt::Rethought;
use std::collections::{BTreeMap, BTreeSet};
use sunder_access::Span;
use sunder_findings::{Findings, IsolatedObject, Moved};
use sunder_plan::progress::WORTH_KEEPING;

/// Why an object of a saved result is left in its place without a try. The last reason weighs most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// Its bytes went back in the saved run, as threads got on no faster. Another remedy may take it.
    MovedInVain,
    /// It was isolated in the saved run.
    Isolated,
    /// It was shared again in the saved run, as isolating it did not help. It is left alone by all.
    IsolatedInVain,
}

impl Left {
    /// As a clause after the object's name. A result in which an object was left for such a reason says
    /// so in these words, and is a saved result in its turn.
    pub const fn why(self) -> &'static str {
        match self {
            Self::MovedInVain => "in the saved run moving it did not help",
            Self::Isolated => "the plan says to isolate it",
            Self::IsolatedInVain => "in the saved run isolating it did not help",
        }
    }

    /// Whether another remedy may take the object.
    pub const fn is_to_others(self) -> bool {
        !matches!(self, Self::IsolatedInVain)
    }
}

/// How reasons begin for which bytes went back because threads got on no faster.
pub const IN_VAIN: &str = "it did not help";

/// The names of the objects that are left in their places, with the reason.
pub fn left(saved: &Findings, isolated: &[IsolatedObject]) -> BTreeMap<String, Left> {
    let mut all = BTreeMap::new();
    let mut leave = |name: &str, why: Left| {
        let known = all.entry(name.to_owned()).or_insert(why);
        *known = why.max(*known);
    };
    for name in moved_in_vain(saved) {
        leave(name, Left::MovedInVain);
    }
    for left in saved.repair.iter().flat_map(|repair| &repair.refused) {
        for why in [Left::MovedInVain, Left::IsolatedInVain] {
            if left.reason == why.why() {
                leave(&left.object, why);
            }
        }
    }
    for one in isolated {
        let mut same = isolated.iter().filter(|other| other.object == one.object);
        let why = match same.all(|one| one.in_vain.is_some()) {
            true => Left::IsolatedInVain,
            false => Left::Isolated,
        };
        leave(&one.object, why);
    }
    all
}

/// The objects that lay on pages whose bytes went back in vain, and on none whose bytes stayed or gained.
fn moved_in_vain(saved: &Findings) -> BTreeSet<&str> {
    let (mut in_vain, mut gained) = (BTreeSet::new(), BTreeSet::new());
    for moved in saved.repair.iter().flat_map(|repair| &repair.moved) {
        let names = match has_gained(moved) {
            Some(true) => &mut gained,
            Some(false) => &mut in_vain,
            None => continue,
        };
        let pages = Span::new(moved.address, moved.bytes);
        names.insert(moved.object.as_str());
        for finding in &saved.findings {
            if finding
                .lines
                .iter()
                .any(|line| pages.contains(line.address))
            {
                names.insert(finding.object.short_name());
            }
        }
    }
    in_vain.difference(&gained).copied().collect()
}

/// Whether a move helped; `None` if the result does not tell, as the bytes went back for another reason.
fn has_gained(moved: &Moved) -> Option<bool> {
    let Some(back) = &moved.rolled_back else {
        return Some(true);
    };
    // Nor did it where a loop that it shares with another move had to leave its copy all the time.
    if back.reason.starts_with(IN_VAIN) || back.reason == Rethought::Crossed.why() {
        return Some(false);
    }
    let gain = moved.progress.as_ref()?.gain;
    (gain >= WORTH_KEEPING).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::Address;
    use sunder_findings::{
        Finding, Line, Object, ObjectKind, Progress, Repair, RolledBack, Unrepaired,
    };

    fn moved(object: &str, page: u64, back: Option<&str>) -> Moved {
        Moved {
            object: object.into(),
            address: Address(page),
            bytes: 4096,
            rolled_back: back.map(|reason| RolledBack {
                reason: reason.into(),
                at_seconds: 0.5,
            }),
            ..Moved::default()
        }
    }

    fn isolated(object: &str, in_vain: bool) -> IsolatedObject {
        IsolatedObject {
            object: object.into(),
            in_vain: in_vain.then(|| "threads got on 0.70 times as fast".into()),
            ..IsolatedObject::default()
        }
    }

    fn found(name: &str, line: u64) -> Finding {
        Finding {
            object: Object {
                kind: ObjectKind::Global,
                name: Some(name.into()),
                ..Object::default()
            },
            lines: vec![Line {
                address: Address(line),
                ..Line::default()
            }],
            ..Finding::default()
        }
    }

    const SLOWER: &str = "it did not help: threads got on 0.70 times as fast as before";

    #[test]
    fn what_was_moved_in_vain_is_left_and_what_stayed_is_not() {
        let saved = Findings {
            findings: vec![found("beside", 0x1040), found("elsewhere", 0x9000)],
            repair: Some(Repair {
                moved: vec![
                    moved("vain", 0x1000, Some(SLOWER)),
                    moved("stayed", 0x3000, None),
                    moved(
                        "needed",
                        0x4000,
                        Some("the kernel was given a pointer to the bytes"),
                    ),
                    moved("crossed", 0x7000, Some(Rethought::Crossed.why())),
                    // Another layout of it helped.
                    moved("twice", 0x5000, Some(SLOWER)),
                    moved("twice", 0x5000, None),
                ],
                ..Repair::default()
            }),
            ..Findings::default()
        };
        let all = left(&saved, &[]);
        let expected = ["beside", "crossed", "vain"];
        assert_eq!(
            all,
            expected
                .map(|name| (name.to_owned(), Left::MovedInVain))
                .into()
        );
    }

    #[test]
    fn what_lost_by_isolation_is_left_alone_by_all() {
        let saved = Findings {
            repair: Some(Repair {
                moved: vec![moved("first moved", 0x1000, Some(SLOWER))],
                ..Repair::default()
            }),
            ..Findings::default()
        };
        let all = left(
            &saved,
            &[
                IsolatedObject {
                    progress: Some(Progress {
                        gain: 0.9,
                        ..Progress::default()
                    }),
                    ..isolated("seemed slower", false)
                },
                isolated("first moved", false),
                isolated("slower", true),
                isolated("once slower", true),
                isolated("once slower", false),
            ],
        );
        let why = |name: &str| all.get(name).copied();
        assert_eq!(why("first moved"), Some(Left::Isolated));
        assert_eq!(why("slower"), Some(Left::IsolatedInVain));
        // One window showed a loss, and no second one: it stayed isolated.
        assert_eq!(why("seemed slower"), Some(Left::Isolated));
        assert_eq!(why("once slower"), Some(Left::Isolated));
        assert!(!Left::IsolatedInVain.is_to_others());
    }

    /// A run with a plan is a plan itself, and it has not tried what was left.
    #[test]
    fn what_was_left_by_a_plan_is_left_by_the_next() {
        let refused = |object: &str, why: Left| Unrepaired {
            object: object.into(),
            reason: why.why().into(),
            ..Unrepaired::default()
        };
        let saved = Findings {
            repair: Some(Repair {
                refused: vec![
                    refused("moved", Left::MovedInVain),
                    refused("isolated", Left::IsolatedInVain),
                    refused("not isolated this time", Left::Isolated),
                ],
                ..Repair::default()
            }),
            ..Findings::default()
        };
        let all = left(&saved, &[isolated("moved", false)]);
        assert_eq!(all.get("moved"), Some(&Left::Isolated));
        assert_eq!(all.get("isolated"), Some(&Left::IsolatedInVain));
        assert_eq!(all.len(), 2);
    }
}
