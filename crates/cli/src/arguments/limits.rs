//! How much may be wrong with data before a command stops: rejected photos, malformed rows, pixels of a photo.

use crate::terminal::failure::usage;
use paceline_data::rejects::RejectLimit;

/// `64M` or `64000000`.
pub(crate) fn parse_pixels(text: &str) -> Result<u64, String> {
    let (digits, scale) = match text.strip_suffix(['M', 'm']) {
        Some(digits) => (digits, 1_000_000),
        None => (text, 1),
    };
    let pixels = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(scale));
    let expected = || "expected a number of pixels such as 100M or 12000000".to_owned();
    pixels.filter(|pixels| *pixels > 0).ok_or_else(expected)
}

/// `10` is a number, `5%` a share; `0.05`, which `train` took before, is a share too.
pub(crate) fn parse_limit(text: &str) -> Result<RejectLimit, String> {
    let bad = || "expected a number such as 10, or a percentage such as 5%".to_owned();
    match text.strip_suffix('%') {
        Some(percent) => match percent.parse::<f64>() {
            Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(RejectLimit::Percent(percent)),
            _ => Err(bad()),
        },
        None => match (text.parse(), text.parse::<f64>()) {
            (Ok(count), _) => Ok(RejectLimit::Count(count)),
            (_, Ok(share)) if (0.0..=1.0).contains(&share) => {
                Ok(RejectLimit::Percent(100.0 * share))
            }
            _ => Err(bad()),
        },
    }
}

/// The share of malformed rows that a limit allows.
pub(crate) fn share_of_rows(limit: RejectLimit) -> anyhow::Result<f64> {
    match limit {
        RejectLimit::Percent(percent) => Ok(percent / 100.0),
        RejectLimit::Count(0) => Ok(0.0),
        RejectLimit::Count(_) => Err(usage(
            "the limit of malformed rows is a percentage, since their number is not known beforehand",
            "use a percentage such as --max-rejects 1%",
        )),
    }
}
