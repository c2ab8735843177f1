//! Drives fuzz bodies without a fuzzer: stored inputs, and what random changes make of them.
//!
//! No coverage guides it, so it finds less than libFuzzer does (the same bodies are targets in `fuzz/`), but it needs nothing beyond
//! cargo and runs with every test. What it tries follows from the body's name and a number; an input that breaks a promise is
//! printed and kept in a file.

use paceline_stats::random::Random;
use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    time::{Duration, Instant},
};

/// Inputs that an ordinary test tries.
const INPUTS: u64 = 1500;
/// Longest input, in bytes.
const LONGEST: usize = 1 << 16;
/// Numbers that parsers trip over.
const NUMBERS: &[u64] =
    &[0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX >> 1, u64::MAX];
/// Text that parsers trip over.
const WORDS: &[&str] = &[
    "",
    "\0",
    "\n",
    "\r\n",
    "\u{feff}",
    "-",
    "-0",
    "1e999",
    "NaN",
    "inf",
    "null",
    "{}",
    "[]",
    "\"",
    "\\u0000",
    "../",
    "18446744073709551616",
    "0.1",
    ":",
    "|",
    "\t",
    " ",
    "é",
];

/// What was tried, for reports.
#[derive(Debug, Clone, Copy)]
pub struct Tried {
    pub inputs: u64,
    /// Time for them.
    pub took: Duration,
}

/// Tries a body on stored inputs and changes of them: some thousand, or for as long as `PACELINE_FUZZ_SECONDS` says.
///
/// # Panics
/// When the body does, after the input was printed.
pub fn drive(name: &str, stored: &[Vec<u8>], body: &dyn Fn(&[u8])) -> Tried {
    let seconds = std::env::var("PACELINE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let seed = name.bytes().fold(27, |seed: u64, byte| seed.wrapping_mul(31) + u64::from(byte));
    // A longer test tries other inputs than the last one did.
    let salt = seconds.map_or(0, |_| u64::from(std::process::id()));
    let mut random = Random::new(seed, salt);
    let begun = Instant::now();
    let mut inputs = 0;
    for input in stored {
        attempt(name, input, body);
        inputs += 1;
    }
    let mut pool: Vec<Vec<u8>> = stored.to_vec();
    pool.push(Vec::new());
    let goes_on = |inputs: u64| match seconds {
        Some(seconds) => begun.elapsed() < Duration::from_secs(seconds),
        None => inputs < INPUTS,
    };
    while goes_on(inputs) {
        let other = random.below(pool.len());
        let from = random.below(pool.len());
        let mut input = pool[from].clone();
        for _ in 0..=random.below(4) {
            change(&mut input, &pool[other], &mut random);
        }
        input.truncate(LONGEST);
        attempt(name, &input, body);
        inputs += 1;
    }
    Tried { inputs, took: begun.elapsed() }
}

#[allow(clippy::print_stdout)] // tests show it with what failed
fn attempt(name: &str, input: &[u8], body: &dyn Fn(&[u8])) {
    if let Err(broken) = catch_unwind(AssertUnwindSafe(|| body(input))) {
        let file = std::env::temp_dir().join(format!("paceline-fuzz-{name}-{}", input.len()));
        let kept = fs::write(&file, input).is_ok();
        let place = if kept { file.display().to_string() } else { "nowhere".to_owned() };
        println!("{name} breaks on {} bytes, kept in {place}", input.len());
        println!("{:?}", String::from_utf8_lossy(&input[..input.len().min(400)]));
        resume_unwind(broken);
    }
}

/// One random change.
fn change(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(input.len() + 1);
    let end = (at + 1 + random.below(16)).min(input.len());
    match random.below(9) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = random.bits() as u8,
        2 => input.truncate(at),
        3 if at < end => drop(input.drain(at..end)),
        4 if at < end => {
            let piece = input[at..end].to_vec();
            let to = random.below(input.len() + 1);
            input.splice(to..to, piece);
        }
        5 => {
            let number = NUMBERS[random.below(NUMBERS.len())];
            let width = [1, 2, 4, 8][random.below(4)];
            let bytes = if random.below(2) == 0 {
                number.to_le_bytes()[..width].to_vec()
            } else {
                number.to_be_bytes()[8 - width..].to_vec()
            };
            let over = (at + width).min(input.len());
            input.splice(at..over, bytes);
        }
        6 => drop(input.splice(at..at, WORDS[random.below(WORDS.len())].bytes())),
        7 => {
            // The beginning of this one and the end of another.
            let cut = random.below(other.len() + 1);
            input.truncate(at);
            input.extend_from_slice(&other[cut..]);
        }
        _ => {
            let digits = (at..input.len()).find(|at| input[*at].is_ascii_digit());
            if let Some(digit) = digits {
                let number = NUMBERS[random.below(NUMBERS.len())].to_string();
                input.splice(digit..=digit, number.bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn stored_inputs_come_first_and_changes_differ() {
        let seen = RefCell::new(Vec::new());
        let stored = [b"first".to_vec(), b"second 12".to_vec()];
        let tried = drive("seen", &stored, &|input| seen.borrow_mut().push(input.to_vec()));
        let seen = seen.into_inner();
        assert_eq!(tried.inputs, seen.len() as u64);
        assert_eq!(seen[..2], stored);
        let different: std::collections::BTreeSet<_> = seen.iter().collect();
        assert!(different.len() as u64 > INPUTS / 2, "{}", different.len());
    }

    #[test]
    #[should_panic(expected = "found")]
    fn a_body_that_breaks_is_told() {
        drive("breaks", &[b"harmless".to_vec()], &|input| assert!(input.len() < 20, "found"));
    }
}
