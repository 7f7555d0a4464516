//! Which builds of which programs were looked at closely: without this a record that names no finding
//! could mean that nobody has looked. Pure.

use std::collections::HashMap;
use sunder_findings::{Looked, Origin};

/// The most builds that are kept. Of further ones nothing is told.
const MOST: usize = 1024;

/// See the module's head.
#[derive(Debug, Default)]
pub struct LookedAt {
    /// By path and build id; and whether it was looked at since the last status.
    builds: HashMap<(Option<String>, Option<String>), (Looked, bool)>,
}

impl LookedAt {
    /// A look at a process has come to a result, from that many samples, of which so many have no address.
    pub fn add(&mut self, origin: &Origin, (samples, unattributed): (u64, f64), now_unix_ns: u64) {
        let key = (origin.path.clone(), origin.build_id.clone());
        if self.builds.len() >= MOST && !self.builds.contains_key(&key) {
            return;
        }
        let (build, is_new) = self.builds.entry(key).or_insert_with(|| {
            let build = Looked {
                program: origin.program.clone(),
                path: origin.path.clone(),
                build_id: origin.build_id.clone(),
                first_unix_ns: now_unix_ns,
                ..Looked::default()
            };
            (build, true)
        });
        build.looks += 1;
        build.samples += samples;
        build.samples_unattributed += unattributed;
        if origin.version.is_some() {
            build.version.clone_from(&origin.version);
        }
        build.last_unix_ns = now_unix_ns;
        *is_new = true;
    }

    /// Those that were looked at since the last call, by program.
    pub fn take(&mut self) -> Vec<Looked> {
        let all = self.builds.values_mut();
        let new = all.filter_map(|(build, is_new)| std::mem::take(is_new).then(|| build.clone()));
        let mut new: Vec<Looked> = new.collect();
        new.sort_by(|a, b| (&a.program, &a.build_id).cmp(&(&b.program, &b.build_id)));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(build: &str) -> Origin {
        Origin {
            program: "server".into(),
            path: Some("/srv/server".into()),
            build_id: Some(build.into()),
            ..Origin::default()
        }
    }

    #[test]
    fn looks_are_counted_since_the_beginning_and_told_when_there_are_new_ones() {
        let mut looked = LookedAt::default();
        assert_eq!(looked.take(), []);
        looked.add(&origin("b"), (100, 1.0), 1);
        looked.add(&origin("a"), (50, 0.0), 2);
        looked.add(&origin("b"), (20, 0.5), 3);
        let told = |looked: &mut LookedAt| {
            let all = looked.take().into_iter();
            all.map(|l| {
                (
                    l.build_id.unwrap_or_default(),
                    l.looks,
                    (l.samples, l.samples_unattributed),
                    l.first_unix_ns,
                    l.last_unix_ns,
                )
            })
            .collect::<Vec<_>>()
        };
        assert_eq!(
            told(&mut looked),
            [
                ("a".into(), 1, (50, 0.0), 2, 2),
                ("b".into(), 2, (120, 1.5), 1, 3)
            ]
        );
        assert_eq!(told(&mut looked), []);
        looked.add(&origin("a"), (30, 3.0), 9);
        assert_eq!(told(&mut looked), [("a".into(), 2, (80, 3.0), 2, 9)]);
    }

    #[test]
    fn a_machine_with_very_many_programs_is_bounded() {
        let mut looked = LookedAt::default();
        (0..MOST + 5).for_each(|n| looked.add(&origin(&n.to_string()), (1, 0.0), 1));
        assert_eq!(looked.take().len(), MOST);
    }
}
