//! The archive of PyTorch (around a pickle) and of Keras (around HDF5): entries that are stored as they are, found by the directory at its end.

const DIRECTORY_END: &[u8] = b"PK\x05\x06";
const DIRECTORY_ENTRY: &[u8] = b"PK\x01\x02";
const LOCAL: &[u8] = b"PK\x03\x04";
/// Bytes of the end of the directory, and the longest remark behind it.
const END_BYTES: usize = 22;
const LONGEST_REMARK: usize = 65_535;

/// Names and contents, in the order of the directory.
pub(super) fn entries(bytes: &[u8]) -> Result<Vec<(&str, &[u8])>, &'static str> {
    let from = bytes.len().saturating_sub(END_BYTES + LONGEST_REMARK);
    let end = bytes[from..]
        .windows(DIRECTORY_END.len())
        .rposition(|window| window == DIRECTORY_END)
        .ok_or("has no directory: the file is cut off, or no archive")?;
    let end = &bytes[from + end..];
    if end.len() < END_BYTES {
        return Err(SHORT);
    }
    let count = number::<2>(end, 10)?;
    let mut at = number::<4>(end, 16)?;
    if count == 0xffff || at == 0xffff_ffff {
        return Err("is of the form for more than 4 GiB, which is not read");
    }
    let mut entries = Vec::with_capacity(count.min(4096));
    for _ in 0..count {
        let entry = bytes.get(at..).ok_or(SHORT)?;
        if !entry.starts_with(DIRECTORY_ENTRY) {
            return Err("has a damaged directory");
        }
        if number::<2>(entry, 10)? != 0 {
            return Err("is compressed, which those of PyTorch and Keras are not");
        }
        let size = number::<4>(entry, 24)?;
        let lengths = [28, 30, 32].map(|at| number::<2>(entry, at));
        let [name, extra, remark] = lengths;
        let (name_len, behind) = (name?, extra?.saturating_add(remark?));
        let name = entry.get(46..46 + name_len).ok_or(SHORT)?;
        let name = std::str::from_utf8(name).map_err(|_| "has a name that is not text")?;
        let local = bytes.get(number::<4>(entry, 42)?..).ok_or(SHORT)?;
        if !local.starts_with(LOCAL) {
            return Err("has a directory that points elsewhere");
        }
        let start = 30 + number::<2>(local, 26)? + number::<2>(local, 28)?;
        let data = start.checked_add(size).and_then(|end| local.get(start..end)).ok_or(SHORT)?;
        entries.push((name, data));
        at = at + 46 + name_len + behind;
    }
    Ok(entries)
}

const SHORT: &str = "ends too early";

/// A number of so many bytes, the lowest first.
fn number<const BYTES: usize>(bytes: &[u8], at: usize) -> Result<usize, &'static str> {
    let found = bytes.get(at..at + BYTES).ok_or(SHORT)?;
    Ok(found.iter().rev().fold(0, |value, &byte| value << 8 | usize::from(byte)))
}
