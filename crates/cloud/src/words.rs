//! Times and costs of jobs as people say them.

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

/// Dollars in cents; below ten cents two digits, so that no job seems to be free.
#[must_use]
pub fn dollars(usd: f64) -> String {
    if usd <= 0.0 || usd >= 0.1 {
        return format!("{usd:.2}");
    }
    let zeros = (-usd.log10()).floor().min(8.0) as usize;
    format!("{usd:.0$}", zeros + 2)
}

#[cfg(test)]
mod tests {
    use super::{dollars, time};

    #[test]
    fn a_job_of_less_than_half_a_cent_seemed_to_be_free() {
        let said: Vec<String> = [0.0, 0.00141, 0.0149, 0.1, 0.372, 12.0].map(dollars).into();
        assert_eq!(said, ["0.00", "0.0014", "0.015", "0.10", "0.37", "12.00"]);
    }

    #[test]
    fn a_time_has_the_unit_a_person_would_use() {
        let said: Vec<String> = [0.0, 9.0, 119.0, 600.0, 7200.0, 259_200.0].map(time).into();
        assert_eq!(said, ["0.0 s", "9.0 s", "119 s", "10 min", "2.0 h", "3.0 days"]);
    }
}
