//! Unpacks gzip data of a known size in one go.
//!
//! A decoder that sees all of its input and all of its output needs no state between calls and no
//! window to copy from: 52 ms for the images of MNIST, where a streaming one takes 100, and that is a
//! third of a short run. It cannot say what is wrong with the data: a caller that gets
//! `false` streams the data again to find out.

#![allow(unsafe_code)] // a C library, and advice about memory

use std::{
    alloc::{Layout, alloc_zeroed},
    ffi::c_void,
    io::{self, BufRead, Read},
    ptr,
};

use flate2::bufread::GzDecoder;

/// Linux gives pages of this size to memory that asks for them: fewer faults while it is filled, fewer
/// translation misses while it is read all over.
const HUGE_PAGE: usize = 2 << 20;

/// `len` zeros, on huge pages where they are many; nothing where there is not that much memory. Memory
/// is used only as it is written to, whatever `len` promises.
pub(crate) fn zeroed(len: usize) -> Option<Vec<u8>> {
    if len == 0 {
        return Some(Vec::new());
    }
    let layout = Layout::array::<u8>(len).ok()?;
    // SAFETY: the layout is not empty; the vector gets memory of its own layout, all of it set.
    let mut bytes = unsafe {
        let start = alloc_zeroed(layout);
        if start.is_null() {
            return None;
        }
        Vec::from_raw_parts(start, len, len)
    };
    #[cfg(target_os = "linux")]
    if len >= 2 * HUGE_PAGE {
        let before = bytes.as_ptr().align_offset(HUGE_PAGE);
        let whole = len.saturating_sub(before) / HUGE_PAGE * HUGE_PAGE;
        // SAFETY: the range lies within the vector; the call is advice and changes no contents. Where
        // it fails, ordinary pages remain.
        unsafe { libc::madvise(bytes.as_mut_ptr().add(before).cast(), whole, libc::MADV_HUGEPAGE) };
    }
    Some(bytes)
}

/// Unpacks all members of `packed` into `unpacked`; says whether they are sound, checksums included, and
/// fill it exactly.
pub(crate) fn gunzip(packed: &[u8], unpacked: &mut [u8]) -> bool {
    let Some(decoder) = Decoder::new() else { return false };
    let (mut from, mut to) = (0, 0);
    while from < packed.len() {
        let (input, output) = (&packed[from..], &mut unpacked[to..]);
        let (mut read, mut written) = (0, 0);
        // SAFETY: pointers and lengths are those of live slices that do not overlap, and the library
        // keeps to them whatever the input holds.
        let result = unsafe {
            libdeflate_sys::libdeflate_gzip_decompress_ex(
                decoder.0.as_ptr(),
                input.as_ptr().cast::<c_void>(),
                input.len(),
                output.as_mut_ptr().cast::<c_void>(),
                output.len(),
                &raw mut read,
                &raw mut written,
            )
        };
        if result != libdeflate_sys::libdeflate_result_LIBDEFLATE_SUCCESS || read == 0 {
            return false;
        }
        from += read;
        to += written;
    }
    to == unpacked.len()
}

/// Unpacks gzip data as it is read: all members, and zeros behind them, with which tapes and blocks are filled up.
#[derive(Debug)]
pub(crate) struct Members<R> {
    /// Absent when all is read.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Members<R> {
    pub(crate) fn new(packed: R) -> Self {
        Self { member: Some(GzDecoder::new(packed)) }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let count = member.read(into)?;
            if count > 0 || into.is_empty() {
                return Ok(count);
            }
            let Some(member) = self.member.take() else { break };
            let mut packed = member.into_inner();
            self.member = skip_zeros(&mut packed)?.then(|| GzDecoder::new(packed));
        }
        Ok(0)
    }
}

/// Whether something else than zeros follows.
fn skip_zeros(packed: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = match packed.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            bytes => bytes?,
        };
        if bytes.is_empty() {
            return Ok(false);
        }
        let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
        let all = zeros == bytes.len();
        packed.consume(zeros);
        if !all {
            return Ok(true);
        }
    }
}

/// The library's working memory.
struct Decoder(ptr::NonNull<libdeflate_sys::libdeflate_decompressor>);

impl Decoder {
    /// Nothing where memory is short.
    fn new() -> Option<Self> {
        // SAFETY: takes nothing, gives memory or null.
        ptr::NonNull::new(unsafe { libdeflate_sys::libdeflate_alloc_decompressor() }).map(Self)
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`, freed once.
        unsafe { libdeflate_sys::libdeflate_free_decompressor(self.0.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    proptest! {
        #[test]
        fn members_come_back_one_after_the_other(parts: Vec<Vec<u8>>) {
            let packed: Vec<u8> = parts.iter().flat_map(|part| gzip(part)).collect();
            let wanted = parts.concat();
            let mut found = zeroed(wanted.len()).unwrap();
            prop_assert!(gunzip(&packed, &mut found));
            prop_assert_eq!(found, wanted);
        }

        #[test]
        fn damage_is_never_taken_for_data(contents: Vec<u8>, at: prop::sample::Index, flip in 1_u8..) {
            let mut packed = gzip(&contents);
            // Bytes 4 to 9 are a date, a hint and a system: nothing depends on them.
            let at = at.index(packed.len());
            prop_assume!(!(4..10).contains(&at));
            packed[at] ^= flip;
            let mut found = zeroed(contents.len()).unwrap();
            prop_assert!(!gunzip(&packed, &mut found) || found == contents);
        }

        #[test]
        fn arbitrary_bytes_never_panic(packed: Vec<u8>, len in 0_usize..100) {
            let _ = gunzip(&packed, &mut zeroed(len).unwrap());
        }
    }

    #[test]
    fn zeros_behind_the_last_member_are_padding_and_anything_else_is_damage() {
        let packed = [gzip(b"first "), gzip(b"second")].concat();
        let read = |bytes: &[u8]| {
            let mut text = String::new();
            Members::new(bytes).read_to_string(&mut text).map(|_| text)
        };
        assert_eq!(read(&packed).unwrap(), "first second");
        assert_eq!(read(&[&packed[..], &[0; 9000]].concat()).unwrap(), "first second");
        assert!(read(&[&packed[..], &[0, 0, 7]].concat()).is_err());
        assert!(read(&packed[..packed.len() - 1]).is_err());
    }

    #[test]
    fn another_size_than_promised_is_refused() {
        let packed = gzip(&[7; 1000]);
        for len in [0, 999, 1001] {
            assert!(!gunzip(&packed, &mut zeroed(len).unwrap()), "{len}");
        }
        assert!(!gunzip(&packed[..packed.len() - 1], &mut zeroed(1000).unwrap()));
        assert!(!gunzip(&[&packed[..], &[0]].concat(), &mut zeroed(1000).unwrap()));
    }

    #[test]
    fn memory_on_huge_pages_is_zero_and_can_be_written() {
        let mut bytes = zeroed(5 * HUGE_PAGE + 17).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));
        bytes.fill(1);
        assert!(zeroed(usize::MAX / 4).is_none());
    }
}
