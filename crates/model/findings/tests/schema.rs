//! The published JSON Schema is that of the code, and results obey it.

use serde_json::Value;
use std::path::PathBuf;
use sunder_findings::{examples, json_schema};

fn published() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../docs/schema/sunder-findings-1.json")
}

fn validator() -> jsonschema::Validator {
    let schema: Value = serde_json::from_str(&json_schema()).expect("a schema is JSON");
    jsonschema::validator_for(&schema).expect("the schema is valid")
}

/// `SUNDER_PUBLISH=1 cargo test -p sunder-findings` writes it again.
#[test]
fn the_published_schema_is_current() {
    let path = published();
    if std::env::var_os("SUNDER_PUBLISH").is_some() {
        std::fs::write(&path, json_schema()).expect("docs/schema is writable");
    }
    let found = std::fs::read_to_string(&path).expect("docs/schema is there");
    assert!(
        found == json_schema(),
        "{} is out of date: run SUNDER_PUBLISH=1 cargo test -p sunder-findings",
        path.display()
    );
}

#[test]
fn results_obey_the_schema() {
    let validator = validator();
    for finding in [
        examples::linear_regression(),
        examples::global_array(),
        examples::heap_pair(),
        examples::mixed(),
        examples::true_sharing(),
        examples::one_writer(),
        examples::latent(),
        examples::no_debug_info(),
        examples::long_names(),
    ] {
        let text = examples::result(vec![finding]).to_json().expect("finite");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        if let Err(error) = validator.validate(&value) {
            panic!("{error} at {}", error.instance_path());
        }
    }
}

#[test]
fn the_schema_refuses_what_is_no_result() {
    let validator = validator();
    let text = examples::report().to_json().expect("finite");
    let good: Value = serde_json::from_str(&text).expect("JSON");
    for (pointer, bad) in [
        ("/schema", Value::from("sarif")),
        ("/version", Value::from(2)),
        ("/findings/0/sharing", Value::from("maybe")),
        ("/findings/0/lines/0/words/0/offset", Value::from(-1)),
        ("/findings/0/cost_percent", Value::Null),
    ] {
        let mut value = good.clone();
        *value.pointer_mut(pointer).expect("it is there") = bad;
        assert!(!validator.is_valid(&value), "{pointer} was not checked");
    }
}

/// The names that the documentation promises to tools.
#[test]
fn the_promised_names_are_there() {
    let text = examples::report().to_json().expect("finite");
    let value: Value = serde_json::from_str(&text).expect("JSON");
    for pointer in [
        "/program",
        "/machine",
        "/run/seconds",
        "/run/threads",
        "/run/samples",
        "/run/accesses",
        "/run/observer",
        "/findings/0/rank",
        "/findings/0/sharing",
        "/findings/0/latent",
        "/findings/0/object/kind",
        "/findings/0/object/name",
        "/findings/0/object/type",
        "/findings/0/object/size",
        "/findings/0/object/address",
        "/findings/0/object/allocation/1/function",
        "/findings/0/object/allocation/1/file",
        "/findings/0/object/allocation/1/line",
        "/findings/0/neighbour",
        "/findings/0/lines/0/address",
        "/findings/0/lines/0/object_offset",
        "/findings/0/lines/0/words/0/offset",
        "/findings/0/lines/0/words/0/size",
        "/findings/0/lines/0/words/0/field",
        "/findings/0/lines/0/words/0/threads/0/id",
        "/findings/0/lines/0/words/0/threads/0/name",
        "/findings/0/lines/0/words/0/threads/0/reads",
        "/findings/0/lines/0/words/0/threads/0/writes",
        "/findings/0/lines/0/words/0/threads/0/updates",
        "/findings/0/sites/0/function",
        "/findings/0/sites/0/file",
        "/findings/0/sites/0/line",
        "/findings/0/sites/0/kind",
        "/findings/0/sites/0/threads",
        "/findings/0/sites/0/accesses",
        "/findings/0/interleavings_per_second",
        "/findings/0/cost_percent",
        "/findings/0/advice",
        "/limits",
    ] {
        assert!(value.pointer(pointer).is_some(), "{pointer} is missing");
    }
}
