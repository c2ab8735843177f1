//! Times of jobs as people say them.

/// The largest unit that gives at least two, with two digits.
#[must_use]
pub fn time(seconds: f64) -> String {
    const DAY: f64 = 86_400.0;
    let (value, unit) = match seconds {
        s if s >= 2.0 * DAY => (s / DAY, "days"),
        s if s >= 7200.0 => (s / 3600.0, "h"),
        s if s >= 120.0 => (s / 60.0, "min"),
        s => (s, "s"),
    };
    if value >= 10.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn a_time_has_the_unit_a_person_would_use() {
        let said: Vec<String> = [0.0, 9.0, 119.0, 600.0, 7200.0, 259_200.0].map(time).into();
        assert_eq!(said, ["0.0 s", "9.0 s", "119 s", "10 min", "2.0 h", "3.0 days"]);
    }
}
