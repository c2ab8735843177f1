//! Quantities as people type them: `50us`, `10Gbit`, `16GiB`.

use std::time::Duration;

/// Seconds: `50us`, `1.5ms`, `2s`, `10m` or `10min`, `2h`; the unit is required, since 50 could be any of them.
pub fn seconds(text: &str) -> Result<f64, String> {
    let scale = |unit: &str| match unit {
        "s" => Some(1.0),
        "ms" => Some(1e-3),
        "us" | "µs" => Some(1e-6),
        "ns" => Some(1e-9),
        "m" | "min" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    };
    quantity(text, scale, ["us", "ms", "s", "min"], "a time such as 50us, 1.5ms, 2s or 10min")
}

/// Seconds above zero: a deadline, a time limit.
pub fn positive_seconds(text: &str) -> Result<f64, String> {
    match seconds(text)? {
        found if found > 0.0 => Ok(found),
        _ => Err("expected a time above zero".to_owned()),
    }
}

/// A length of time as typed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    seconds: f64,
    /// Whether it was typed without a unit.
    pub bare: bool,
}

impl Span {
    /// In seconds.
    pub fn seconds(self) -> f64 {
        self.seconds
    }

    /// As the standard library has it.
    pub fn duration(self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }
}

/// Times longer than this are slips of the unit: about 30 years.
const LONGEST: f64 = 1e9;

/// As [`seconds`], but a bare number is seconds too, with a note: it was so for these flags once.
pub fn span(text: &str) -> Result<Span, String> {
    let number: Option<f64> = text.trim().parse().ok();
    let bare = number.filter(|number| number.is_finite() && *number >= 0.0);
    let found = bare.map_or_else(|| seconds(text), Ok)?;
    if found > LONGEST {
        return Err("expected a time of at most 30 years".to_owned());
    }
    Ok(Span { seconds: found, bare: bare.is_some() })
}

/// Bytes per second: `10Gbit`, `100Mbit`, `1.2GB`, `800MB`, with `/s` or without.
pub fn rate(text: &str) -> Result<f64, String> {
    let scale = |unit: &str| match unit.trim_end_matches("/s").trim_end_matches("ps") {
        "Gbit" => Some(1e9 / 8.0),
        "Mbit" => Some(1e6 / 8.0),
        "Kbit" | "kbit" => Some(1e3 / 8.0),
        other => byte_scale(other),
    };
    let units = ["Mbit", "Gbit", "MB", "GB"];
    let found = quantity(text, scale, units, "a rate such as 10Gbit, 100Mbit or 1.2GB")?;
    if found > 0.0 { Ok(found) } else { Err(format!("`{text}`: a link must carry something")) }
}

/// A share above 0, 1 being all.
pub fn share(text: &str) -> Result<f64, String> {
    let found = text.trim().parse().ok().filter(|share: &f64| *share > 0.0 && *share <= 1.0);
    found.ok_or_else(|| format!("`{text}` is not a share above 0 and up to 1, such as 0.7"))
}

/// Bytes: `16GiB`, `500MB`; the unit is required.
pub fn bytes(text: &str) -> Result<f64, String> {
    quantity(text, byte_scale, ["B", "MB", "MiB", "GiB"], "a size such as 16GiB or 500MB")
}

/// Bytes above zero.
pub fn positive_bytes(text: &str) -> Result<f64, String> {
    match bytes(text)? {
        found if found > 0.0 => Ok(found),
        _ => Err("expected a size above zero".to_owned()),
    }
}

/// A number above zero, without a unit.
pub fn positive_number(text: &str) -> Result<f64, String> {
    let found = text.trim().parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    found.ok_or_else(|| "expected a number above zero".to_owned())
}

/// Bytes of memory that are to be used: whole, and at least one.
pub fn whole_bytes(text: &str) -> Result<u64, String> {
    match bytes(text)? as u64 {
        0 => Err("expected a size above zero".to_owned()),
        found => Ok(found),
    }
}

fn byte_scale(unit: &str) -> Option<f64> {
    Some(match unit {
        "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        "KiB" => 1024.0,
        "MiB" => f64::from(1u32 << 20),
        "GiB" => f64::from(1u32 << 30),
        "TiB" => 1024.0 * f64::from(1u32 << 30),
        _ => return None,
    })
}

/// A number and its unit. Without a unit the message spells the number with those the flag knows.
fn quantity(
    text: &str,
    scale: impl Fn(&str) -> Option<f64>,
    units: [&str; 4],
    wanted: &str,
) -> Result<f64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let value: Option<f64> = number.parse().ok();
    if value.is_some() && unit.is_empty() {
        let [first, second, third, last] = units.map(|unit| format!("{number}{unit}"));
        return Err(format!("the unit is missing: write {first}, {second}, {third} or {last}"));
    }
    match (value, scale(unit.trim())) {
        (Some(value), Some(scale)) if (value * scale).is_finite() => Ok(value * scale),
        _ => Err(format!("expected {wanted}")),
    }
}

/// The most tasks of a run, or threads of a task: more is a slip of the hand, and would take all memory before anything could refuse it.
const MOST_TASKS: usize = 4096;

/// A number of tasks or threads; whether it may be zero is checked where it is used.
pub fn task_count(text: &str) -> Result<usize, String> {
    let count: usize = text.parse().map_err(|error| format!("{error}"))?;
    if count <= MOST_TASKS { Ok(count) } else { Err(format!("expected at most {MOST_TASKS}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_bare_numbers_are_seconds() {
        assert_eq!(span("500ms").unwrap().duration(), Duration::from_millis(500));
        assert_eq!(span("5m").unwrap().seconds(), 300.0);
        assert_eq!(span("2h").unwrap().seconds(), 7200.0);
        assert_eq!(span("1500ms").unwrap().seconds(), 1.5);
        assert_eq!(span("60").unwrap(), Span { seconds: 60.0, bare: true });
        assert!(!span("60s").unwrap().bare);
        for wrong in ["", "-1s", "soon", "5 parsecs", "1e400s", "99999999h", "NaN"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn people_write_units_in_many_ways() {
        assert_eq!(seconds("50us").unwrap(), 50.0 * 1e-6);
        assert_eq!(seconds("1.5 ms").unwrap(), 1.5 * 1e-3);
        assert_eq!(seconds("10min").unwrap(), 600.0);
        assert_eq!(seconds("2h").unwrap(), 7200.0);
        assert_eq!(rate("10Gbit").unwrap(), 1.25e9);
        assert_eq!(rate("100Mbit/s").unwrap(), 1.25e7);
        assert_eq!(rate("1.2GB").unwrap(), 1.2e9);
        assert_eq!(bytes("16GiB").unwrap(), 16.0 * 1024.0 * 1024.0 * 1024.0);
        assert_eq!(bytes("1000B").unwrap(), 1000.0);
        for wrong in ["", "fast", "-5ms", "10 parsecs", "1e400s"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        for wrong in ["10", "0Gbit", "Gbit", "10Gbyte"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn bare_numbers_are_refused_with_the_right_spelling() {
        assert_eq!(
            seconds("50").unwrap_err(),
            "the unit is missing: write 50us, 50ms, 50s or 50min"
        );
        assert!(bytes("4096").unwrap_err().contains("4096B, 4096MB, 4096MiB or 4096GiB"));
        assert!(rate("10").unwrap_err().contains("10Mbit, 10Gbit, 10MB or 10GB"));
        assert!(positive_seconds("0s").unwrap_err().contains("above zero"));
        assert_eq!(whole_bytes("1.5 MiB"), Ok(3 << 19));
        assert!(whole_bytes("0B").unwrap_err().contains("above zero"));
    }

    /// Four thousand million threads were begun one after the other; as many workers asked for 32 GB.
    #[test]
    fn numbers_of_tasks_are_bounded() {
        assert_eq!(task_count("4096"), Ok(4096));
        assert_eq!(task_count("0"), Ok(0));
        for wrong in ["4097", "4000000000", "18446744073709551616", "-1", "x"] {
            assert!(task_count(wrong).is_err(), "{wrong}");
        }
    }
}
