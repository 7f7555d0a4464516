//! A comparison as Markdown, for a comment on a pull request: the answer first, then a table of what
//! changed. Names come from programs, so whatever Markdown would take as its own is escaped.

use crate::clean::clean;
use crate::describe::place;
use crate::figures::{counted, percent};
use sunder_findings::{Change, Comparison, Sharing};

/// A comparison for a pull request.
pub fn comparison_markdown(comparison: &Comparison) -> String {
    let mut out = String::from("### ");
    out.push_str(answer(comparison));
    out.push('\n');
    if let Some(why) = comparison
        .unknown
        .as_ref()
        .filter(|_| !comparison.is_worse())
    {
        out.push_str(&format!(
            "\nThe new run could not tell: {}.\n",
            escaped(why)
        ));
    }
    let lists = [
        ("appeared", &comparison.appeared),
        ("grew", &comparison.grew),
        ("gone", &comparison.gone),
        ("shrank", &comparison.shrank),
    ];
    if lists.iter().any(|(_, changes)| !changes.is_empty()) {
        out.push_str("\n| | object | where | before | now |\n|---|---|---|---:|---:|\n");
    }
    for (title, changes) in lists {
        for change in changes {
            out.push_str(&row(title, change));
        }
    }
    if !comparison.unchanged.is_empty() {
        let many = counted(comparison.unchanged.len(), "finding");
        out.push_str(&format!("\n{many} unchanged.\n"));
    }
    for caveat in &comparison.caveats {
        out.push_str(&format!("\n> {}\n", escaped(caveat)));
    }
    out.push_str(&format!(
        "\n<sub>A cost, in percent of the threads' time, counts as changed from a factor of {} and {} points.</sub>\n",
        comparison.noise_factor, comparison.noise_percent
    ));
    out
}

fn answer(comparison: &Comparison) -> &'static str {
    let is_empty = |lists: [&Vec<Change>; 2]| lists.iter().all(|list| list.is_empty());
    if comparison.is_worse() {
        "False sharing was added"
    } else if comparison.unknown.is_some() {
        "Not known whether there is less false sharing"
    } else if !is_empty([&comparison.gone, &comparison.shrank]) {
        "Less false sharing than before"
    } else if !is_empty([&comparison.appeared, &comparison.grew]) {
        "No false sharing was added"
    } else {
        "No change in sharing"
    }
}

fn row(title: &str, change: &Change) -> String {
    let kind = match (change.latent, change.sharing) {
        (true, _) => " (latent)",
        (false, Sharing::False) => "",
        (false, Sharing::True) => " (true sharing)",
        (false, Sharing::Mixed) => " (mixed)",
    };
    let at = change.place.as_ref().map(place).unwrap_or_default();
    let cost = |measure: Option<sunder_findings::Measure>| match measure {
        _ if change.latent => String::new(),
        Some(measure) => percent(measure.cost_percent),
        None => "-".to_owned(),
    };
    format!(
        "| {title} | {}{kind} | {} | {} | {} |\n",
        escaped(&change.subject),
        escaped(&at),
        cost(change.old),
        cost(change.new)
    )
}

/// `text` as Markdown shows it unchanged, in one line.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in clean(text).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // A name must not notify a user of that name.
            '@' => out.push_str("&#64;"),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '~' | '!' => {
                out.push('\\');
                out.push(c);
            }
            '\n' | '\r' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// As [`escaped`], but what stands between two backticks stays code.
pub(crate) fn with_code(text: &str) -> String {
    let text = clean(text).replace(['\n', '\r'], " ");
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return escaped(&text);
    }
    let shown = parts.iter().enumerate().map(|(at, part)| match at % 2 {
        1 if !part.is_empty() => format!("`{part}`"),
        _ => escaped(part),
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_stays_code_and_names_can_command_nothing_around_it() {
        assert_eq!(
            with_code("Align `struct a_b` in x_y."),
            "Align `struct a_b` in x\\_y."
        );
        let odd = "`a` and ` [l](u)";
        assert_eq!(
            with_code(odd),
            escaped(odd),
            "nothing says which part is code"
        );
        assert_eq!(with_code("``[l](u)``"), "\\[l\\](u)");
    }

    #[test]
    fn names_can_command_nothing() {
        assert_eq!(
            escaped("a|b<script>@me`x`[l](u)"),
            "a\\|b&lt;script&gt;&#64;me\\`x\\`\\[l\\](u)"
        );
        assert_eq!(escaped("vector<int*>"), "vector&lt;int\\*&gt;");
        assert_eq!(escaped("a\nb").lines().count(), 1);
    }
}
