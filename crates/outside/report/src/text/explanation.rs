//! A text that explains a word, from the Markdown of `docs/explain`: headings, paragraphs, and lines of
//! code. Called for `sunder explain`.

use super::options::TextOptions;
use super::page::{Page, Paint};

/// The text for a terminal.
pub fn explanation(markdown: &str, options: &TextOptions) -> String {
    let mut page = Page::new(options);
    let mut paragraph = String::new();
    let mut is_first = true;
    for line in markdown.lines().chain([""]) {
        let heading = line.strip_prefix("# ");
        let is_code = line.starts_with("    ");
        if heading.is_some() || is_code || line.is_empty() {
            if !paragraph.is_empty() {
                page.paragraph("", "", Paint::Plain, &paragraph);
                paragraph.clear();
                page.blank();
            }
        } else {
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph.push_str(line);
        }
        if let Some(heading) = heading {
            if !is_first {
                page.blank();
            }
            page.line(&[(Paint::Bold, heading)]);
            page.blank();
        } else if is_code {
            page.line(&[(Paint::Code, &line[2..])]);
        }
        is_first = false;
    }
    let text = page.finish();
    text.trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_wrapped_and_code_is_not() {
        let options = TextOptions {
            width: 40,
            ..TextOptions::default()
        };
        let text = "# A title\n\nSome words that are\nlonger than one line of forty.\n\n    code  stays\n\nMore.\n";
        assert_eq!(
            explanation(text, &options),
            "A title\n\nSome words that are longer than one line\nof forty.\n\n  code  stays\nMore.\n"
        );
    }
}
