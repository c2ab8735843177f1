//! Wall-clock time as files want it: seconds since 1970, and dates that people read.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds since the start of 1970, UTC; 0 on a machine whose clock says it is earlier.
#[must_use]
pub fn unix_seconds() -> f64 {
    since_epoch().as_secs_f64()
}

pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// `2026-11-15 20:43:44` for a moment given in seconds since 1970; UTC, fractions cut off.
#[must_use]
pub fn format_utc(seconds: f64) -> String {
    let moment = Civil::from_unix(seconds.max(0.0) as u64);
    format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second
    )
}

/// `20261115-204344`, the sortable start of a run folder's name.
pub(crate) fn compact_utc(seconds: u64) -> String {
    let moment = Civil::from_unix(seconds);
    format!(
        "{:04}{:02}{:02}-{:02}{:02}{:02}",
        moment.year, moment.month, moment.day, moment.hour, moment.minute, moment.second
    )
}

struct Civil {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Civil {
    /// Proleptic Gregorian calendar. Years are counted from March, so that the leap day comes last
    /// and month lengths follow one formula; 146,097 days are 400 years.
    fn from_unix(seconds: u64) -> Self {
        let (days, rest) = (seconds / 86_400, seconds % 86_400);
        let shifted = days + 719_468; // days since 1 March of year 0
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        Self {
            year: era * 400 + year_of_era + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * march_month + 2) / 5 + 1,
            hour: rest / 3_600,
            minute: rest / 60 % 60,
            second: rest % 60,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_survive_leap_days_and_year_ends() {
        assert_eq!(format_utc(0.0), "1970-01-01 00:00:00");
        assert_eq!(format_utc(951_782_400.0), "2000-02-29 00:00:00");
        assert_eq!(format_utc(1_709_251_199.9), "2024-02-29 23:59:59");
        assert_eq!(format_utc(1_735_689_599.0), "2024-12-31 23:59:59");
        assert_eq!(compact_utc(4_107_542_400), "21000301-000000");
        assert_eq!(format_utc(-5.0), "1970-01-01 00:00:00");
    }
}
