//! A record of a watched machine in a few lines.

use crate::clean::clean;
use sunder_findings::{Happening, Sharing, Watched};

/// What became of a finding, where, what it costs, and what to do: a line each. Nothing in it commands a
/// terminal.
pub fn watched_text(watched: &Watched) -> String {
    let (origin, finding) = (&watched.origin, &watched.finding);
    let mut place = format!("{} ({}", origin.program, origin.pid);
    if let Some(unit) = &origin.unit {
        place.push_str(&format!(", {unit}"));
    }
    if let Some(container) = &origin.container {
        let short: String = container.chars().take(12).collect();
        place.push_str(&format!(", container {short}"));
    }
    place.push(')');
    let what = match finding.sharing {
        Sharing::Mixed => "mixed sharing",
        Sharing::True => "true sharing",
        Sharing::False => "false sharing",
    };
    let cost = match watched.before_percent {
        Some(before) if watched.event == Happening::Changed => format!(
            "{:.0} % of its threads' time, {before:.0} % before",
            finding.cost_percent
        ),
        _ => format!("{:.0} % of its threads' time", finding.cost_percent),
    };
    let event = match watched.event {
        Happening::Present => String::new(),
        other => format!("{}: ", other.word()),
    };
    let mut lines = vec![format!(
        "{event}{place}: {what} in {}: {cost}",
        finding.subject()
    )];
    if let Some(location) = finding.place() {
        let line = location.line.map(|line| format!(":{line}"));
        lines.push(format!("  {}{}", location.file, line.unwrap_or_default()));
    }
    if watched.event != Happening::Gone {
        let advice = finding.advice.first();
        lines.extend(advice.map(|advice| format!("  {}", advice.text)));
    }
    let cleaned: Vec<String> = lines.iter().map(|line| clean(line)).collect();
    cleaned.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_findings::{Origin, examples};

    #[test]
    fn a_record_tells_where_what_and_how_much() {
        let mut watched = Watched {
            schema: "sunder-watch".into(),
            version: 1,
            tool: String::new(),
            time_unix_ns: 0,
            event: Happening::Changed,
            fingerprint: String::new(),
            origin: Origin {
                pid: 42,
                program: "ser\u{1b}[2Jver".into(),
                unit: Some("server.service".into()),
                container: Some("ab".repeat(32)),
                ..Origin::default()
            },
            before_percent: Some(10.0),
            finding: examples::linear_regression(),
        };
        let cost = watched.finding.cost_percent;
        let text = watched_text(&watched);
        let first = format!(
            "(42, server.service, container abababababab): false sharing in {}: {cost:.0} % of its \
             threads' time, 10 % before\n",
            watched.finding.subject()
        );
        assert!(
            text.starts_with("changed: ser") && text.contains(&first),
            "{text}"
        );
        assert!(!text.contains('\u{1b}'), "{text:?}");
        watched.event = Happening::Present;
        assert!(watched_text(&watched).starts_with("ser"));
    }
}
