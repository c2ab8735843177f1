//! Differences of counters that may wrap or start over.

/// How much a counter grew, if that can be known.
///
/// A counter below its old value either wrapped at 32 bits (it had been close to the top) or belongs
/// to a device that came back with zeroed counters; the growth of the latter is unknown.
pub(crate) fn growth(old: u64, new: u64) -> Option<u64> {
    const TOP: u64 = 1 << 32;
    if new >= old {
        Some(new - old)
    } else if old < TOP && old > TOP / 4 * 3 {
        Some(TOP - old + new)
    } else {
        None
    }
}

/// The first number of a line after its name, or of the word at `index`.
pub(crate) fn word(line: &str, index: usize) -> Option<u64> {
    line.split_ascii_whitespace().nth(index)?.parse().ok()
}

/// The value behind `key` in files of the form `key value` or `key: value kB`.
pub(crate) fn value_of(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix([':', ' ', '\t']))
        .and_then(|rest| word(rest, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrapped_counters_go_on_and_reset_ones_are_unknown() {
        assert_eq!(growth(5, 9), Some(4));
        assert_eq!(growth((1 << 32) - 10, 5), Some(15));
        assert_eq!(growth(1000, 0), None);
        assert_eq!(growth(1 << 40, 3), None);
    }

    #[test]
    fn values_are_found_by_their_whole_key() {
        let text = "MemTotal: 100 kB\nMemFree:  40 kB\nSwap 3\n";
        assert_eq!(value_of(text, "MemFree"), Some(40));
        assert_eq!(value_of(text, "Mem"), None);
        assert_eq!(value_of(text, "Swap"), Some(3));
    }
}
