//! Figures for people: few digits, a unit, no false precision. Used by text, HTML and SARIF;
//! never by JSON.

/// With commas: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Two or three significant digits and a suffix: `950`, `12 k`, `1.2 M`.
pub(crate) fn short(number: f64) -> String {
    if !number.is_finite() || number < 0.0 {
        return "?".to_owned();
    }
    for (unit, suffix) in [(1e9, " G"), (1e6, " M"), (1e3, " k")] {
        // A number that would round to the next unit is shown in that unit.
        if number >= unit * 0.9995 {
            let scaled = number / unit;
            let digits = usize::from(scaled < 9.95);
            return format!("{scaled:.digits$}{suffix}");
        }
    }
    format!("{number:.0}")
}

/// `71 %`, `4.2 %`, `under 0.1 %`, `0 %`.
pub(crate) fn percent(number: f64) -> String {
    if !number.is_finite() {
        "? %".to_owned()
    } else if number <= 0.0 {
        "0 %".to_owned()
    } else if number < 0.1 {
        "under 0.1 %".to_owned()
    } else if number < 9.95 {
        let text = format!("{number:.1}");
        format!("{} %", text.strip_suffix(".0").unwrap_or(&text))
    } else {
        format!("{number:.0} %")
    }
}

/// `3.2 s`, `85 ms`.
pub(crate) fn seconds(number: f64) -> String {
    if !number.is_finite() || number < 0.0 {
        "? s".to_owned()
    } else if number < 0.9995 {
        format!("{:.0} ms", number * 1000.0)
    } else if number < 99.95 {
        format!("{number:.1} s")
    } else {
        format!("{number:.0} s")
    }
}

/// `1 thread`, `1,200 threads`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    let number = grouped(count as u64);
    if count == 1 {
        format!("{number} {noun}")
    } else {
        format!("{number} {noun}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_round_as_people_do() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        for (number, wanted) in [
            (0.0, "0"),
            (999.0, "999"),
            (999.7, "1.0 k"),
            (1_215_500.0, "1.2 M"),
            (412_000.0, "412 k"),
            (999_600.0, "1.0 M"),
            (9_960.0, "10 k"),
            (f64::NAN, "?"),
        ] {
            assert_eq!(short(number), wanted, "{number}");
        }
        for (number, wanted) in [
            (70.6, "71 %"),
            (9.94, "9.9 %"),
            (9.96, "10 %"),
            (1.0, "1 %"),
            (0.05, "under 0.1 %"),
            (0.0, "0 %"),
            (f64::INFINITY, "? %"),
        ] {
            assert_eq!(percent(number), wanted, "{number}");
        }
        assert_eq!(seconds(3.214), "3.2 s");
        assert_eq!(seconds(0.085), "85 ms");
        assert_eq!(counted(1, "line"), "1 line");
        assert_eq!(counted(1200, "line"), "1,200 lines");
    }
}
