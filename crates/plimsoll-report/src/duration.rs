//! Times as people say them.

/// Seconds as `0.12 s`, `45 s`, `3 min 20 s`, `3 h 20 min`, `8.7 days`, `3.2 years`.
pub fn duration(seconds: f64) -> String {
    const MINUTE: f64 = 60.0;
    const DAY: f64 = 86_400.0;
    const YEAR: f64 = 365.25 * DAY;
    if !seconds.is_finite() || seconds < 0.0 {
        return "an unknown time".into();
    }
    if seconds < 9.95 {
        let digits = if seconds < 0.995 { 2 } else { 1 };
        return format!("{seconds:.digits$} s");
    }
    // Rounded first, so that no `60 s` or `60 min` comes about.
    let (whole, minutes) = (seconds.round(), (seconds / MINUTE).round());
    if whole < MINUTE {
        return format!("{whole:.0} s");
    }
    if whole < 10.0 * MINUTE {
        return parts(whole, MINUTE, ["min", "s"]);
    }
    if minutes < MINUTE {
        return format!("{minutes:.0} min");
    }
    if minutes < 48.0 * MINUTE {
        return parts(minutes, MINUTE, ["h", "min"]);
    }
    match seconds {
        few if few < 99.95 * DAY => format!("{:.1} days", few / DAY),
        many if many < 2.0 * YEAR => format!("{:.0} days", many / DAY),
        years if years < 1e6 * YEAR => format!("{:.1} years", years / YEAR),
        ages => format!("{:.0e} years", ages / YEAR),
    }
}

/// A whole number of small units, as large ones and what is left.
fn parts(small: f64, per_large: f64, [large_unit, small_unit]: [&str; 2]) -> String {
    let (large, rest) = ((small / per_large).floor(), small % per_large);
    match rest {
        0.0 => format!("{large:.0} {large_unit}"),
        rest => format!("{large:.0} {large_unit} {rest:.0} {small_unit}"),
    }
}

/// A whole number with commas between thousands: `250,000`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_with_the_units_that_fit() {
        for (seconds, said) in [
            (0.0, "0.00 s"),
            (0.123, "0.12 s"),
            (0.999, "1.0 s"),
            (9.96, "10 s"),
            (45.2, "45 s"),
            (59.7, "1 min"),
            (200.0, "3 min 20 s"),
            (1199.0, "20 min"),
            (3599.0, "1 h"),
            (12_000.0, "3 h 20 min"),
            (86_400.0, "24 h"),
            (751_680.0, "8.7 days"),
            (8_640_000.0, "100 days"),
            (101.0e6, "3.2 years"),
            (f64::NAN, "an unknown time"),
            (f64::INFINITY, "an unknown time"),
            (-1.0, "an unknown time"),
        ] {
            assert_eq!(duration(seconds), said, "{seconds}");
        }
        assert!(duration(1e300).ends_with("years"));
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(
            [0, 999, 1000, 28_800, 1_234_567].map(grouped),
            ["0", "999", "1,000", "28,800", "1,234,567"]
        );
    }
}
