//! SARIF 2.1.0: the content, and the form, which is checked against the used part of the
//! standard's schema, written out by hand.

use serde_json::{Value, json};
use std::path::Path;
use sunder_findings::{
    AccessKind, Answer, Finding, Findings, GainPercent, LatentOn, Limit, Location, Reason, Site,
    Verdict, examples, fingerprint,
};
use sunder_report::{sarif, sarif_with_root};

fn advised(findings: Vec<Finding>) -> Findings {
    let mut all = examples::result(findings);
    for finding in &mut all.findings {
        finding.advice = sunder_plan::advise(finding, all.machine.line_size);
    }
    all
}

fn log(all: &Findings, root: Option<&str>) -> Value {
    let text = match root {
        Some(root) => sarif_with_root(all, Path::new(root)),
        None => sarif(all),
    };
    serde_json::from_str(&text).expect("SARIF is JSON")
}

/// The required properties, and those that we write. As in the standard, no others are allowed
/// (sections 3.13 to 3.58).
fn schema() -> Value {
    let message = json!({
        "type": "object", "required": ["text"], "additionalProperties": false,
        "properties": {
            "text": {"type": "string", "minLength": 1},
            "markdown": {"type": "string", "minLength": 1}
        }
    });
    let artifact = json!({
        "type": "object", "required": ["uri"], "additionalProperties": false,
        "properties": {
            "uri": {"type": "string", "pattern": "^[A-Za-z0-9._~/%:-]+$"},
            "uriBaseId": {"const": "SRCROOT"}
        }
    });
    let physical = json!({
        "type": "object", "required": ["artifactLocation"], "additionalProperties": false,
        "properties": {
            "artifactLocation": artifact,
            "region": {
                "type": "object", "required": ["startLine"], "additionalProperties": false,
                "properties": {"startLine": {"type": "integer", "minimum": 1}}
            }
        }
    });
    let location = json!({
        "type": "object", "additionalProperties": false, "minProperties": 1,
        "properties": {
            "id": {"type": "integer", "minimum": 0},
            "physicalLocation": physical,
            "logicalLocations": {"type": "array", "items": {
                "type": "object", "additionalProperties": false,
                "properties": {"fullyQualifiedName": {"type": "string"}, "kind": {"const": "function"}}
            }},
            "message": message
        }
    });
    let stack = json!({
        "type": "object", "required": ["frames"], "additionalProperties": false,
        "properties": {
            "message": message,
            "frames": {"type": "array", "items": {
                "type": "object", "additionalProperties": false, "properties": {"location": location}
            }}
        }
    });
    let level = json!({"enum": ["none", "note", "warning", "error"]});
    let result = json!({
        "type": "object", "required": ["message", "ruleId", "locations"],
        "additionalProperties": false,
        "properties": {
            "ruleId": {"enum": ["false-sharing", "true-sharing", "latent-false-sharing"]},
            "ruleIndex": {"type": "integer", "minimum": 0, "maximum": 2},
            "kind": {"enum": ["fail"]},
            "level": level,
            "message": message,
            "stacks": {"type": "array", "items": stack, "uniqueItems": true},
            "rank": {"type": "number", "minimum": 0, "maximum": 100},
            "locations": {"type": "array", "items": location, "maxItems": 1},
            "relatedLocations": {"type": "array", "items": location, "uniqueItems": true},
            "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
            "properties": {"type": "object"}
        }
    });
    let rule = json!({
        "type": "object", "required": ["id"], "additionalProperties": false,
        "properties": {
            "id": {"type": "string"}, "name": {"type": "string"},
            "shortDescription": message, "fullDescription": message, "help": message,
            "defaultConfiguration": {
                "type": "object", "additionalProperties": false, "properties": {"level": level}
            }
        }
    });
    let invocation = json!({
        "type": "object", "required": ["executionSuccessful"], "additionalProperties": false,
        "properties": {
            "executionSuccessful": {"type": "boolean"},
            "commandLine": {"type": "string"},
            "exitCode": {"type": "integer"},
            "exitSignalNumber": {"type": "integer"},
            "toolExecutionNotifications": {"type": "array", "items": {
                "type": "object", "required": ["message"], "additionalProperties": false,
                "properties": {"level": level, "message": message}
            }}
        }
    });
    json!({
        "type": "object", "required": ["version", "runs"], "additionalProperties": false,
        "properties": {
            "$schema": {"type": "string", "format": "uri"},
            "version": {"const": "2.1.0"},
            "runs": {"type": "array", "minItems": 1, "items": {
                "type": "object", "required": ["tool", "results"], "additionalProperties": false,
                "properties": {
                    "tool": {
                        "type": "object", "required": ["driver"], "additionalProperties": false,
                        "properties": {"driver": {
                            "type": "object", "required": ["name"], "additionalProperties": false,
                            "properties": {
                                "name": {"const": "sunder"},
                                "version": {"type": "string"},
                                "rules": {"type": "array", "items": rule, "minItems": 3}
                            }
                        }}
                    },
                    "invocations": {"type": "array", "items": invocation},
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "originalUriBaseIds": {"type": "object", "additionalProperties": {
                        "type": "object", "required": ["uri"],
                        "properties": {"uri": {"type": "string", "pattern": "^file:///(.*/)?$"}}
                    }},
                    "results": {"type": "array", "items": result}
                }
            }}
        }
    })
}

fn assert_valid(log: &Value) {
    let validator = jsonschema::validator_for(&schema()).expect("the schema is valid");
    if let Err(error) = validator.validate(log) {
        panic!("{error} at {}", error.instance_path());
    }
}

fn all_kinds() -> Findings {
    advised(vec![
        examples::linear_regression(),
        examples::global_array(),
        examples::heap_pair(),
        examples::mixed(),
        examples::true_sharing(),
        examples::one_writer(),
        examples::latent(),
        examples::no_debug_info(),
        examples::long_names(),
        Finding::default(),
    ])
}

#[test]
fn the_shape_is_the_standards() {
    for root in [None, Some("/home/user"), Some("/")] {
        let log = log(&all_kinds(), root);
        assert_valid(&log);
        assert_eq!(log["runs"][0]["results"].as_array().map(Vec::len), Some(10));
    }
    assert_valid(&log(&Findings::default(), None));
    let mut broken = log(&all_kinds(), None);
    broken["runs"][0]["results"][0]["extra"] = json!(1);
    let validator = jsonschema::validator_for(&schema()).expect("the schema is valid");
    assert!(!validator.is_valid(&broken), "the check checks");
}

/// A viewer would take no results for no false sharing.
#[test]
fn a_run_that_could_not_tell_says_so() {
    let blind = Findings {
        verdict: Some(Verdict {
            answer: Answer::Inconclusive,
            reasons: vec![Reason::NoCpuNumbers],
        }),
        ..Findings::default()
    };
    let log = log(&blind, None);
    assert_valid(&log);
    let said = &log["runs"][0]["invocations"][0]["toolExecutionNotifications"][0];
    assert_eq!(said["level"], "warning");
    let text = said["message"]["text"].as_str().expect("a sentence");
    assert!(text.starts_with("Not known whether"), "{text}");
}

#[test]
fn a_result_marks_the_writing_code_and_names_the_rest() {
    let finding = examples::linear_regression();
    let all = advised(vec![finding.clone()]);
    let log = log(&all, Some("/home/user/phoenix"));
    let result = &log["runs"][0]["results"][0];
    assert_eq!(
        result["locations"][0]["physicalLocation"],
        json!({
            "artifactLocation": {"uri": "linear_regression.c", "uriBaseId": "SRCROOT"},
            "region": {"startLine": 84}
        })
    );
    assert_eq!(
        log["runs"][0]["originalUriBaseIds"]["SRCROOT"]["uri"],
        "file:///home/user/phoenix/"
    );
    let related = result["relatedLocations"].as_array().expect("a list");
    // The allocation, then the four other instructions.
    assert_eq!(related.len(), 5);
    assert_eq!(
        related[0]["physicalLocation"]["region"]["startLine"],
        json!(133)
    );
    assert_eq!(
        result["partialFingerprints"]["sunder/v1"],
        json!(fingerprint(&finding))
    );
    let message = result["message"]["text"].as_str().unwrap_or_default();
    for part in [
        "False sharing in lreg_args[4]",
        "71 %",
        "aligned_alloc(64, 256)",
    ] {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

/// A viewer shows either of the two.
#[test]
fn the_message_is_a_sentence_and_as_markdown_has_all_advice_and_places() {
    let mut latent = examples::latent();
    latent.latent_on = Some(LatentOn::LineSize(128));
    let log = log(&advised(vec![examples::linear_regression(), latent]), None);
    let message = |n: usize| &log["runs"][0]["results"][n]["message"];
    let text = message(0)["text"].as_str().unwrap_or_default();
    let cost = "it costs 71 % of the time of its threads. ";
    assert!(text.contains(cost), "{text}");
    let latent = message(1)["text"].as_str().unwrap_or_default();
    assert!(latent.starts_with("Latent false sharing in "), "{latent}");
    assert!(latent.contains(", with 128-byte lines. "), "{latent}");

    let shown = message(0)["markdown"].as_str().unwrap_or_default();
    assert!(
        shown.starts_with("**False sharing in lreg\\_args\\[4\\]"),
        "{shown}"
    );
    let advice = &advised(vec![examples::linear_regression()]).findings[0].advice;
    assert!(advice.len() > 1);
    assert_eq!(shown.matches("\n- ").count(), advice.len(), "{shown}");
    let related = &log["runs"][0]["results"][0]["relatedLocations"];
    let link = "[linear\\_regression.c:133](0)";
    assert!(shown.contains(link), "{shown}");
    assert_eq!(related[0]["id"], 0);
    assert_eq!(related[0]["physicalLocation"]["region"]["startLine"], 133);
}

#[test]
fn the_stack_of_an_allocation_is_there_innermost_first() {
    let finding = examples::linear_regression();
    let log = log(&advised(vec![finding.clone()]), None);
    let frames = &log["runs"][0]["results"][0]["stacks"][0]["frames"];
    let names: Vec<&Value> = frames.as_array().expect("a list").iter().collect();
    assert_eq!(names.len(), finding.object.allocation.len());
    for (frame, wanted) in names.iter().zip(&finding.object.allocation) {
        let name = &frame["location"]["logicalLocations"][0]["fullyQualifiedName"];
        assert_eq!(name, wanted.function.as_str());
    }
}

#[test]
fn a_place_of_two_objects_is_linked_to_once() {
    let mut finding = examples::heap_pair();
    let neighbour = finding.neighbour.as_mut().expect("the pair's other block");
    neighbour.type_name = Some("other".into());
    assert_eq!(neighbour.allocation, finding.object.allocation);
    let log = log(&advised(vec![finding]), None);
    let result = &log["runs"][0]["results"][0];
    let at = |n: usize| &result["relatedLocations"][n]["physicalLocation"];
    assert_eq!(at(0), at(1), "both are told");
    let shown = result["message"]["markdown"].as_str().unwrap_or_default();
    assert!(shown.contains("](0)") && !shown.contains("](1)"), "{shown}");
}

/// The marked line is not told again, and what happens on one line is told once.
#[test]
fn each_line_of_code_is_told_once() {
    let mut finding = examples::one_writer();
    let first = Site {
        file: Some("/src/a b.c".into()),
        ..finding.sites[0].clone()
    };
    let on = |line: u32, kind: AccessKind| {
        let line = Some(line);
        Site {
            line,
            kind,
            ..first.clone()
        }
    };
    finding.sites = vec![
        on(19, AccessKind::Write),
        on(19, AccessKind::Read),
        on(21, AccessKind::Write),
        on(21, AccessKind::Read),
    ];
    let log = log(&advised(vec![finding]), None);
    let related = &log["runs"][0]["results"][0]["relatedLocations"];
    let shown = log["runs"][0]["results"][0]["message"]["markdown"].as_str();
    assert!(
        shown.is_some_and(|text| text.contains("[a b.c:21](")),
        "{shown:?}"
    );
    let code: Vec<&Value> = related
        .as_array()
        .expect("a list")
        .iter()
        .filter(|place| {
            place["message"]["text"]
                .as_str()
                .is_some_and(|t| t.starts_with("also"))
        })
        .collect();
    assert_eq!(code.len(), 1, "{related}");
    assert_eq!(code[0]["message"]["text"], "also read and written here");
    assert_eq!(code[0]["physicalLocation"]["region"]["startLine"], 21);
}

#[test]
fn what_a_fix_gains_decides_if_it_was_measured() {
    let mut finding = examples::one_writer();
    finding.cost_percent = 58.44;
    finding.gain_percent = Some(GainPercent {
        low: 1.0,
        likely: 2.04,
        high: 3.0,
        comparisons: 9,
    });
    let log = log(&advised(vec![finding]), None);
    let result = &log["runs"][0]["results"][0];
    assert_eq!(result["level"], "warning");
    assert_eq!(result["rank"], 2.0);
    assert_eq!(result["properties"]["gainPercent"], 2.0);
    assert_eq!(result["properties"]["costPercent"], 58.4);
}

#[test]
fn the_level_follows_the_cost() {
    let with_cost = |cost: f64| {
        let mut finding = examples::one_writer();
        finding.cost_percent = cost;
        finding
    };
    for (finding, level, rule) in [
        (with_cost(10.0), "error", "false-sharing"),
        (with_cost(9.9), "warning", "false-sharing"),
        (with_cost(1.0), "warning", "false-sharing"),
        (with_cost(0.9), "note", "false-sharing"),
        (examples::true_sharing(), "note", "true-sharing"),
        (examples::latent(), "note", "latent-false-sharing"),
        // 38 % of 15 % is the false part.
        (examples::mixed(), "warning", "false-sharing"),
    ] {
        let log = log(&advised(vec![finding]), None);
        let result = &log["runs"][0]["results"][0];
        assert_eq!(result["level"], level);
        assert_eq!(result["ruleId"], rule);
        let index = result["ruleIndex"].as_u64().unwrap_or(99) as usize;
        let rules = &log["runs"][0]["tool"]["driver"]["rules"];
        assert_eq!(rules[index]["id"], rule, "the index points at the rule");
    }
}

#[test]
fn code_without_source_lines_is_named_by_function() {
    let log = log(&advised(vec![examples::no_debug_info()]), None);
    let place = &log["runs"][0]["results"][0]["locations"][0];
    assert!(place.get("physicalLocation").is_none());
    assert_eq!(
        place["logicalLocations"][0]["fullyQualifiedName"],
        "mystery+0x12f4"
    );
}

#[test]
fn hostile_names_make_no_links_and_no_broken_uris() {
    let mut finding = examples::linear_regression();
    finding.object.type_name = Some("[click](https://example.com)\u{1b}[2J".into());
    finding.sites[0].file = Some("/a b\"<>\n\u{202e}.c".into());
    finding.object.declared = Some(Location {
        file: "/a.c".into(),
        line: Some(1),
    });
    let mut all = advised(vec![finding]);
    all.limits.push(Limit::Names(
        "/bin/l[click](mailto:x@y): its code has no names.".into(),
    ));
    let log = log(&all, None);
    assert_valid(&log);
    let mut texts = Vec::new();
    messages(&log, &mut texts);
    for start in [
        "[click] (https://example.com)",
        "/bin/l[click] (mailto:x@y)",
    ] {
        assert!(texts.iter().any(|t| t.starts_with(start)), "{texts:#?}");
    }
    for text in texts {
        assert!(!text.contains("]("), "{text}");
        assert!(!text.contains('\u{1b}'));
    }
    let shown = log["runs"][0]["results"][0]["message"]["markdown"].as_str();
    let shown = shown.expect("a text");
    assert!(shown.contains("\\[click\\](https"), "{shown}");
    assert!(!shown.contains('\u{1b}'));
}

/// The texts of all messages.
fn messages<'a>(log: &'a Value, found: &mut Vec<&'a str>) {
    match log {
        Value::Object(fields) => {
            found.extend(fields.get("text").and_then(Value::as_str));
            fields.values().for_each(|v| messages(v, found));
        }
        Value::Array(all) => all.iter().for_each(|v| messages(v, found)),
        _ => {}
    }
}
