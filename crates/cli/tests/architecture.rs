//! Holds the dependency table of `docs/ARCHITECTURE.md` against the workspace:
//! a room may use the rooms that the table allows and no others.

use std::collections::{BTreeMap, BTreeSet};

/// Which rooms each room may use. The program may use all but the runtime,
/// which it embeds.
const ALLOWED: &[(&str, &[&str])] = &[
    ("sunder-access", &[]),
    ("sunder-kernel", &[]),
    ("sunder-next", &["sunder-kernel"]),
    ("sunder-transaction", &[]),
    ("sunder-wire", &["sunder-access"]),
    ("sunder-observe", &["sunder-access"]),
    ("sunder-sharing", &["sunder-access"]),
    ("sunder-coherence", &["sunder-access"]),
    ("sunder-objects", &["sunder-access"]),
    ("sunder-trace", &["sunder-access", "sunder-kernel"]),
    (
        "sunder-tracer",
        &["sunder-access", "sunder-next", "sunder-trace"],
    ),
    ("sunder-emulator", &["sunder-access", "sunder-trace"]),
    ("sunder-announce", &["sunder-next", "sunder-trace"]),
    ("sunder-findings", &["sunder-access"]),
    ("sunder-report", &["sunder-findings"]),
    ("sunder-plan", &["sunder-findings"]),
    ("sunder-placement", &["sunder-access"]),
    ("sunder-rewrite", &["sunder-access", "sunder-wire"]),
    (
        "sunder-isolate",
        &[
            "sunder-hooks",
            "sunder-kernel",
            "sunder-next",
            "sunder-transaction",
            "sunder-wire",
        ],
    ),
    (
        "sunder-heap",
        &["sunder-access", "sunder-kernel", "sunder-placement"],
    ),
    ("sunder-hooks", &["sunder-kernel", "sunder-wire"]),
    (
        "sunder-remap",
        &[
            "sunder-hooks",
            "sunder-kernel",
            "sunder-next",
            "sunder-wire",
        ],
    ),
    (
        "sunder-runtime",
        &[
            "sunder-access",
            "sunder-kernel",
            "sunder-next",
            "sunder-wire",
        ],
    ),
    (
        "sunder-cli",
        &[
            "sunder-access",
            "sunder-wire",
            "sunder-observe",
            "sunder-sharing",
            "sunder-coherence",
            "sunder-objects",
            "sunder-findings",
            "sunder-report",
            "sunder-plan",
            "sunder-trace",
            "sunder-placement",
            "sunder-rewrite",
            "sunder-hooks",
        ],
    ),
    ("sunder-workloads", &[]),
    ("sunder-eval", &["sunder-workloads", "sunder-findings"]),
    (
        "sunder-entries",
        &[
            "sunder-access",
            "sunder-wire",
            "sunder-observe",
            "sunder-objects",
            "sunder-findings",
            "sunder-report",
            "sunder-plan",
            "sunder-rewrite",
            "sunder-trace",
            "sunder-transaction",
        ],
    ),
];

#[test]
fn rooms_use_only_what_the_table_allows() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let metadata = cargo_metadata::MetadataCommand::new()
        .manifest_path(manifest)
        .no_deps()
        .exec()
        .expect("cargo metadata runs");
    let allowed: BTreeMap<&str, BTreeSet<&str>> = ALLOWED
        .iter()
        .map(|(room, uses)| (*room, uses.iter().copied().collect()))
        .collect();
    let mut wrong = Vec::new();
    for package in &metadata.packages {
        let name = package.name.as_str();
        let Some(may) = allowed.get(name) else {
            wrong.push(format!("{name} has no row in the table"));
            continue;
        };
        for dependency in &package.dependencies {
            let room = dependency.name.as_str();
            // Tests may use what they like; the table is about what ships.
            let ships = dependency.kind == cargo_metadata::DependencyKind::Normal;
            if ships && room.starts_with("sunder-") && !may.contains(room) {
                wrong.push(format!("{name} uses {room}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
