//! A result file is untrusted input. Whatever is in it, reading it either fails with one
//! sentence or gives a result that every report can show.

use serde_json::{Value, json};
use sunder_findings::{Finding, Findings, compare, examples, fingerprint};
use sunder_report::{TextOptions, comparison_text, html, json, sarif, text};

/// JSON pointers to everything in `value`.
fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                pointers(item, &format!("{at}/{i}"), out);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                pointers(field, &format!("{at}/{name}"), out);
            }
        }
        _ => {}
    }
}

/// Values of the same JSON type that Sunder would not write.
fn odd(value: &Value) -> Vec<Value> {
    match value {
        Value::Number(_) => vec![
            json!(0),
            json!(-1),
            json!(1e308),
            json!(u32::MAX),
            json!(u64::MAX),
            json!(i64::MIN),
        ],
        Value::String(_) => vec![
            json!(""),
            json!("[0].[1].\u{1b}数`"),
            json!("0xffffffffffffffff"),
        ],
        Value::Array(_) => vec![json!([])],
        Value::Bool(known) => vec![json!(!known)],
        Value::Null => vec![json!(7), json!({"line_size": u32::MAX}), json!("text")],
        Value::Object(_) => vec![json!({}), Value::Null],
    }
}

fn show_everything(mut all: Findings) {
    let options = TextOptions {
        all: true,
        words: true,
        ..TextOptions::default()
    };
    for finding in &mut all.findings {
        finding.advice = sunder_plan::advise(finding, all.machine.line_size);
        assert_eq!(fingerprint(finding).len(), 32);
    }
    assert!(!text(&all, &options).is_empty());
    assert!(html(&all).ends_with("</html>"));
    assert!(sarif(&all).ends_with("}\n"));
    assert!(
        json(&all).is_ok(),
        "what was read from JSON can be written as JSON"
    );
    let other = examples::report();
    assert!(!comparison_text(&compare(&other, &all), &options).is_empty());
}

fn survives(finding: Finding) {
    let text = examples::result(vec![finding]).to_json().expect("finite");
    let good: Value = serde_json::from_str(&text).expect("JSON");
    let mut all = Vec::new();
    pointers(&good, "", &mut all);
    let (mut read, mut refused) = (0, 0);
    for pointer in &all {
        let old = good.pointer(pointer).expect("it was found there");
        for new in odd(old) {
            let mut value = good.clone();
            *value.pointer_mut(pointer).expect("it was found there") = new;
            match Findings::read(value.to_string().as_bytes()) {
                Ok(result) => {
                    read += 1;
                    show_everything(result);
                }
                Err(error) => {
                    refused += 1;
                    assert!(!error.to_string().contains('\n'), "{error}");
                }
            }
        }
    }
    assert!(read > 50 && refused > 50, "{read} read, {refused} refused");
}

#[test]
fn a_pair_with_odd_values() {
    survives(examples::heap_pair());
}

#[test]
fn an_array_with_odd_values() {
    let mut finding = examples::linear_regression();
    finding.lines.truncate(1);
    finding.sites.truncate(1);
    survives(finding);
}

#[test]
fn a_latent_finding_with_odd_values() {
    survives(examples::latent());
}
