//! Advice for counters that a compiler added to measure coverage or to profile: nobody can declare them
//! otherwise, and the program that is shipped does not have them.

use crate::words::quoted;
use sunder_findings::{Advice, Finding, Fix, Object};

/// How the names of such counters begin: of gcc (`gcov`), of Clang for `gcov`, and of LLVM's profiles.
const BEGINNINGS: [&str; 3] = ["__gcov", "__llvm_gcov_ctr", "__profc_"];

/// Advice for a finding whose objects are all such counters; `None` if one of them is not.
pub(crate) fn advise(finding: &Finding) -> Option<Advice> {
    let objects: Vec<&Object> = std::iter::once(&finding.object)
        .chain(&finding.neighbour)
        .collect();
    if !objects.iter().all(|object| is_counter(object)) {
        return None;
    }
    let mut names: Vec<String> = objects.iter().map(|o| quoted(o.short_name())).collect();
    names.dedup();
    let hold = match names.len() {
        1 => "holds counters",
        _ => "hold counters",
    };
    Some(Advice {
        fix: Fix::ShareLess,
        text: format!(
            "{} {hold} that the compiler added to measure coverage or to profile: look at a program that is \
             built without them (`--coverage`, `-fprofile-generate`).",
            names.join(" and ")
        ),
        grows_by: None,
    })
}

fn is_counter(object: &Object) -> bool {
    let name = object.name.as_deref().unwrap_or("");
    BEGINNINGS.iter().any(|begins| name.starts_with(begins))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_coverage_are_not_to_be_declared_otherwise() {
        let named = |name: &str| Object {
            name: Some(name.into()),
            ..Object::default()
        };
        let mut finding = Finding {
            object: named("__gcov0.readers"),
            neighbour: Some(named("__gcov0.writers")),
            ..Finding::default()
        };
        for latent in [false, true] {
            finding.latent = latent;
            let advice = crate::advise(&finding, 64);
            let [one] = &advice[..] else {
                panic!("{advice:?}");
            };
            assert!(
                one.text
                    .starts_with("`__gcov0.readers` and `__gcov0.writers` hold counters"),
                "{}",
                one.text
            );
        }
        finding.neighbour = Some(named("counts"));
        assert!(advise(&finding).is_none());
    }
}
