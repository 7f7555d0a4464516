//! What a finding's result says in words: for SARIF, and for editors. Names come from programs, so no
//! word of theirs becomes a link or a mark.

use crate::clean::clean;
use crate::describe;
use crate::text::{escaped, with_code};
use serde_json::{Value, json};
use sunder_findings::{Finding, Findings};

/// A SARIF message that is shown as this text, cleaned. All messages with names from a program are
/// made here: `[text](target)` in one would be a link (section 3.11.6).
pub(crate) fn plain(text: &str) -> Value {
    json!({"text": clean(text).replace("](", "] (")})
}

/// What is shared, how, and what that costs or a fix gains; evidence, and the first advice.
pub(crate) fn message(all: &Findings, finding: &Finding) -> String {
    let evidence = describe::evidence(all, finding);
    let mut text = format!("{}. {evidence}.", headline(finding));
    if let Some(advice) = finding.advice.first() {
        text.push(' ');
        text.push_str(&clean(&advice.text));
    }
    text
}

/// The same with all advice as Markdown. `others` are the names of the result's related
/// locations, to which it links by their numbers.
pub(super) fn markdown(all: &Findings, finding: &Finding, others: &[&str]) -> String {
    let evidence = escaped(&describe::evidence(all, finding));
    let mut text = format!("**{}.** {evidence}.\n", escaped(&headline(finding)));
    for advice in &finding.advice {
        text.push_str(&format!("\n- {}", with_code(&advice.text)));
        if let Some(bytes) = advice.grows_by.filter(|&bytes| bytes > 0) {
            text.push_str(&format!(" (+{bytes} bytes)"));
        }
    }
    let links: Vec<String> = others
        .iter()
        .enumerate()
        // Two objects may be allocated on one line.
        .filter(|&(id, name)| !others[..id].contains(name))
        .map(|(id, name)| format!("[{}]({id})", escaped(name)))
        .collect();
    if !links.is_empty() {
        text.push_str(&format!("\n\nSee also: {}.", links.join(", ")));
    }
    text
}

/// `False sharing in counters (counter[8]): it costs 24 % of the time of its threads`.
fn headline(finding: &Finding) -> String {
    let mut text = format!(
        "{} in {}",
        describe::kind(finding),
        clean(&finding.subject())
    );
    if let Some(first) = text.get(..1).map(str::to_uppercase) {
        text.replace_range(..1, &first);
    }
    let whole = describe::whole_cost(finding);
    let part = describe::false_part(finding);
    let part = part.map(|part| format!(" ({part})")).unwrap_or_default();
    text + &match describe::gain(finding) {
        _ if finding.latent => format!(", {whole}"),
        Some(gain) => format!(": a fix saves {gain} of the program's time"),
        None => format!(": it costs {whole}{part} of the time of its threads"),
    }
}
