//! Values of HTTP headers that cannot hold what would end one.

/// The value of a header: visible ASCII and spaces. A line break would let an attacker add headers or a body (header
/// injection); this type cannot hold one, and headers can only be made of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderValue(String);

impl HeaderValue {
    /// Checks a text; nothing if a character is a control character or outside of ASCII.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Option<HeaderValue> {
        let text = text.into();
        text.bytes().all(|byte| matches!(byte, b' '..=b'~')).then_some(HeaderValue(text))
    }

    /// A value that is written in this program.
    pub(crate) fn fixed(text: &'static str) -> HeaderValue {
        HeaderValue::new(text).expect("the program's own headers are visible ASCII")
    }

    /// Hexadecimal digits in quotation marks: what a browser sends back to learn whether something has changed.
    pub(crate) fn tag(hash: u64) -> HeaderValue {
        HeaderValue(format!("\"{hash:016x}\""))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&HeaderValue> for axum::http::HeaderValue {
    fn from(value: &HeaderValue) -> Self {
        Self::from_str(value.as_str()).expect("visible ASCII is a header's value")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_becomes_part_of_a_header() {
        for code in (0..32).chain(127..160).chain([0x2028]) {
            let c = char::from_u32(code).unwrap();
            assert_eq!(HeaderValue::new(format!("a{c}b")), None, "{code:#x}");
        }
        assert_eq!(HeaderValue::new("W/\"a b~\"").unwrap().as_str(), "W/\"a b~\"");
    }
}
