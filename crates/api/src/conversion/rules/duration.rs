//! Durations as Go writes them, in whole seconds.

/// Go's duration text in whole seconds, or nothing.
pub fn seconds(text: &str) -> Option<i64> {
    let mut total = 0_i64;
    let mut number = String::new();
    for letter in text.chars() {
        match letter {
            '0'..='9' => number.push(letter),
            'h' | 'm' | 's' => {
                let unit = match letter {
                    'h' => 3600,
                    'm' => 60,
                    _ => 1,
                };
                total = total.checked_add(number.parse::<i64>().ok()?.checked_mul(unit)?)?;
                number.clear();
            }
            _ => return None,
        }
    }
    (number.is_empty() && !text.is_empty()).then_some(total)
}

/// Whole seconds as Go writes them: `1h0m0s`, `1m30s`, `5s`, `0s`.
pub fn duration(seconds: i64) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_go_does() {
        let table = [
            ("10m", Some(600), "10m0s"),
            ("0s", Some(0), "0s"),
            ("1h30m", Some(5400), "1h30m0s"),
            ("45s", Some(45), "45s"),
        ];
        for (text, number, written) in table {
            assert_eq!(seconds(text), number, "{text}");
            assert_eq!(number.map(duration).as_deref(), Some(written));
        }
        for inexact in ["1.5s", "100ms", "", "10", "s", "99999999999999999999s"] {
            assert_eq!(seconds(inexact), None, "{inexact}");
        }
    }
}
