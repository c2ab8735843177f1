//! How much of a file that is being written makes sense by itself.

use std::{fs::File, io, os::unix::fs::FileExt};

/// Endings of files that grow by lines.
const LINES: [&str; 4] = [".jsonl", ".csv", ".log", ".txt"];
/// Of these, those for people: their last line may end anywhere.
const PROSE: [&str; 2] = [".log", ".txt"];
/// What the names of TensorBoard's files contain: they grow by records.
const RECORDS: &str = ".tfevents.";
/// Bytes around a record: length and its checksum before, a checksum behind.
const AROUND: u64 = 16;
/// Bytes read at a time.
const CHUNK: u64 = 64 << 10;

/// Whether a file is only ever appended to.
pub(super) fn grows(key: &str) -> bool {
    is_text(key) || key.contains(RECORDS)
}

/// Whether what was written last counts although no line ends there.
pub(super) fn ends_anywhere(key: &str) -> bool {
    PROSE.iter().any(|ending| key.ends_with(ending))
}

fn is_text(key: &str) -> bool {
    LINES.iter().any(|ending| key.ends_with(ending))
}

/// How many of the `size` bytes of a file make whole lines or records, where it grows by them. The
/// `last` time, when writing has ended, plain text counts to its end.
pub(super) fn length(file: &File, key: &str, size: u64, last: bool) -> io::Result<u64> {
    let found = if key.contains(RECORDS) {
        records(file, size)
    } else if is_text(key) && !(last && ends_anywhere(key)) {
        lines(file, size)
    } else {
        Ok(size)
    };
    match found {
        // Shorter than a moment ago: it was truncated and restarted.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        found => found,
    }
}

fn lines(file: &File, size: u64) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK as usize];
    let mut end = size;
    while end > 0 {
        let start = end.saturating_sub(CHUNK);
        let piece = &mut chunk[..(end - start) as usize]; // no longer than the chunk
        file.read_exact_at(piece, start)?;
        if let Some(at) = piece.iter().rposition(|&byte| byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

fn records(file: &File, size: u64) -> io::Result<u64> {
    let mut end = 0;
    while end + AROUND <= size {
        let mut length = [0; 8];
        file.read_exact_at(&mut length, end)?;
        match end.checked_add(AROUND).and_then(|sum| sum.checked_add(u64::from_le_bytes(length))) {
            Some(next) if next <= size => end = next,
            _ => break,
        }
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn half_lines_and_half_records_do_not_count() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"one\ntwo\nthr").unwrap();
        assert_eq!(length(&file, "a.jsonl", 11, true).unwrap(), 8);
        assert_eq!(length(&file, "a.log", 11, false).unwrap(), 8);
        assert_eq!(length(&file, "a.log", 11, true).unwrap(), 11);
        assert_eq!(length(&file, "a.json", 11, false).unwrap(), 11);
        assert_eq!(length(&file, "a.csv", 3, false).unwrap(), 0);
        let mut file = tempfile::tempfile().unwrap();
        for size in [0_u64, 5, 70_000] {
            file.write_all(&size.to_le_bytes()).unwrap();
            file.write_all(&vec![7; size as usize + 8]).unwrap();
        }
        let whole = 70_005 + 3 * 16;
        let key = "tensorboard/worker-0/events.out.tfevents.1.host";
        assert_eq!(length(&file, key, whole, false).unwrap(), whole);
        assert_eq!(length(&file, key, whole - 1, false).unwrap(), 5 + 2 * 16);
        file.write_all(&u64::MAX.to_le_bytes()).unwrap();
        file.write_all(&[0; 20]).unwrap();
        assert_eq!(length(&file, key, whole + 28, false).unwrap(), whole);
    }
}
