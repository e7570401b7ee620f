//! How long ago something was, in the few characters that kubectl spends on it.

use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// The time between two moments, coarser the longer it is; a clock that runs behind yields `0s`.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = (now.as_second() - since.as_second()).max(0);
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => two(seconds, MINUTE, "m", 1, "s"),
        600..10_800 => format!("{}m", seconds / MINUTE),
        10_800..28_800 => two(seconds, HOUR, "h", MINUTE, "m"),
        28_800..172_800 => format!("{}h", seconds / HOUR),
        172_800..691_200 => two(seconds, DAY, "d", HOUR, "h"),
        691_200..63_072_000 => format!("{}d", seconds / DAY),
        _ => two(seconds, YEAR, "y", DAY, "d"),
    }
}

fn two(seconds: i64, large: i64, large_unit: &str, small: i64, small_unit: &str) -> String {
    match seconds % large / small {
        0 => format!("{}{large_unit}", seconds / large),
        rest => format!("{}{large_unit}{rest}{small_unit}", seconds / large),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_written_as_kubectl_writes_them() {
        let table = [
            (-5, "0s"),
            (0, "0s"),
            (12, "12s"),
            (119, "119s"),
            (120, "2m"),
            (163, "2m43s"),
            (720, "12m"),
            (3 * HOUR, "3h"),
            (5 * HOUR, "5h"),
            (5 * HOUR + 120, "5h2m"),
            (30 * HOUR, "30h"),
            (2 * DAY + 3 * HOUR, "2d3h"),
            (30 * DAY, "30d"),
            (3 * YEAR, "3y"),
        ];
        for (seconds, expected) in table {
            let now = Timestamp::from_second(1_000_000_000).unwrap();
            let since = Timestamp::from_second(1_000_000_000 - seconds).unwrap();
            assert_eq!(age(since, now), expected, "{seconds} seconds");
        }
    }
}
