//! What a browser may do with a page, as a Content-Security-Policy.
//!
//! Pages name the hash of each style and script they bring. `'unsafe-inline'` would allow those and every other one: injected
//! markup could then run.

use sha2::{Digest, Sha256};

/// The source expression that allows exactly this text as the content of a `<style>` or `<script>`, such as `'sha256-…='`.
#[must_use]
pub fn hash_source(text: &str) -> String {
    format!("'sha256-{}'", base64(&Sha256::digest(text.as_bytes())))
}

/// The standard alphabet, with padding.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            if place > chunk.len() {
                out.push('=');
            } else {
                out.push(char::from(LETTERS[(bits >> (18 - 6 * place) & 63) as usize]));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_specification() {
        // The example of the CSP specification, section 2.3.1 (https://www.w3.org/TR/CSP3/).
        let example = "alert('Hello, world.');";
        assert_eq!(hash_source(example), "'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng='");
    }

    #[test]
    fn padding_follows_the_length() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
