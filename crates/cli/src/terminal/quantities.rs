//! Quantities as people read them: `1.50 ms`, `$0.0156`, `2.0 GiB`, `1 run`.

use std::fmt::Display;

/// Seconds with a unit that leaves two to four digits.
pub fn show_seconds(seconds: f64) -> String {
    match seconds.abs() {
        s if s >= 100.0 => format!("{seconds:.0} s"),
        s if s >= 1.0 => format!("{seconds:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", 1e3 * seconds),
        s if s > 0.0 => format!("{:.1} µs", 1e6 * seconds),
        _ => "0".to_owned(),
    }
}

/// Dollars with three digits that count; cents at least.
pub fn show_dollars(usd: f64) -> String {
    let places = if usd > 0.0 { (2.0 - usd.log10().floor()).clamp(2.0, 9.0) } else { 2.0 };
    format!("${usd:.0$}", places as usize)
}

/// A number of things whose name has no other plural than one with an s: `1 run`, `2 runs`.
pub fn show_count<N: Copy + Display + PartialEq + From<u8>>(count: N, thing: &str) -> String {
    let ending = if count == N::from(1) { "" } else { "s" };
    format!("{count} {thing}{ending}")
}

/// Bytes with a unit.
pub fn show_bytes(bytes: f64) -> String {
    match bytes {
        b if b >= (1u64 << 40) as f64 => format!("{:.1} TiB", b / (1u64 << 40) as f64),
        b if b >= f64::from(1u32 << 30) => format!("{:.1} GiB", b / f64::from(1u32 << 30)),
        b if b >= f64::from(1u32 << 20) => format!("{:.1} MiB", b / f64::from(1u32 << 20)),
        b if b >= 1024.0 => format!("{:.1} KiB", b / 1024.0),
        b => format!("{b:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_not_plural_and_large_sizes_have_a_unit() {
        assert_eq!([1, 2].map(|count| show_count(count, "seed")), ["1 seed", "2 seeds"]);
        assert_eq!(show_bytes(1.6e13), "14.6 TiB");
    }

    #[test]
    fn small_prices_do_not_vanish() {
        assert_eq!(show_dollars(0.0), "$0.00");
        assert_eq!(show_dollars(1234.5), "$1234.50");
        assert_eq!(show_dollars(0.015_58), "$0.0156");
        assert_eq!(show_dollars(0.000_012_34), "$0.0000123");
    }
}
