//! Why a photo was refused, precise enough for a rejects list.

/// Why a photo could not be decoded, resized or encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PhotoError {
    /// The file has no bytes.
    #[error("the file is empty")]
    Empty,
    /// Neither JPEG nor PNG by its first bytes.
    #[error("neither JPEG nor PNG: the file starts with {start:02x?}")]
    UnknownFormat {
        /// Up to eight bytes from the start of the file.
        start: Vec<u8>,
    },
    /// The header promises more pixels than [`Limits`](crate::Limits) allow.
    #[error(
        "{width} x {height} pixels exceed the limit of {max_pixels} pixels and {max_side} per side"
    )]
    TooLarge {
        width: u32,
        height: u32,
        /// The limit on the area.
        max_pixels: u64,
        /// The limit on either side.
        max_side: u32,
    },
    /// More scans than the time for one photo allows.
    #[error(
        "its scans visit more than {max_blocks} blocks, the most that decoding one photo may take under the limit of pixels"
    )]
    TooManyScans {
        /// See [`Limits::max_blocks`](crate::Limits::max_blocks).
        max_blocks: u64,
    },
    /// The system has not that much memory.
    #[error("decoding takes {bytes} bytes of memory, which are not there")]
    NoMemory { bytes: u64 },
    /// The data ends before the last pixel.
    #[error("truncated: the data ends at byte {offset}, before the picture does")]
    Truncated { offset: usize },
    /// A valid kind of file that this crate does not decode.
    #[error("{0}")]
    Unsupported(#[from] Unsupported),
    /// A JPEG that breaks its own rules.
    #[error("damaged JPEG: {defect} at byte {offset}")]
    Jpeg {
        defect: Defect,
        /// About where, in bytes from the start.
        offset: usize,
    },
    /// A PNG that breaks its own rules; the text is the PNG reader's reason.
    #[error("damaged PNG: {reason}")]
    Png {
        /// The reason given by the PNG reader.
        reason: String,
    },
    /// A photo decoded into a slot of another size.
    #[error("the photo has {found_width} x {found_height} pixels, expected {width} x {height}")]
    WrongSize {
        /// Width of the photo, after orientation.
        found_width: u32,
        /// Height of the photo, after orientation.
        found_height: u32,
        width: u32,
        height: u32,
    },
    /// The output slice does not hold exactly one photo of the wanted shape.
    #[error("the output holds {found} bytes, the photo needs {wanted}")]
    WrongOutput { found: usize, wanted: usize },
    /// A target without pixels, or beyond what the output format can say.
    #[error("cannot produce a photo of {width} x {height} pixels")]
    BadTarget { width: u32, height: u32 },
}

/// Kinds of JPEG and PNG that exist, but are not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// Arithmetic coding instead of Huffman coding.
    #[error("JPEG with arithmetic coding is not supported")]
    ArithmeticCoding,
    /// Lossless or hierarchical JPEG.
    #[error("lossless and hierarchical JPEG are not supported (frame type {0:#04x})")]
    FrameType(u8),
    /// Samples of other than 8 bits.
    #[error("JPEG with {0}-bit samples is not supported")]
    Precision(u8),
    /// Not 1, 3 or 4 components.
    #[error("JPEG with {0} components is not supported")]
    Components(u8),
    /// Height given after the first scan (a DNL segment).
    #[error("JPEG with its height given after the data is not supported")]
    LateHeight,
}

/// What is wrong inside a damaged JPEG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Defect {
    /// No marker where one must be.
    #[error("no marker where one is expected")]
    MarkerExpected,
    /// A segment shorter or longer than its contents.
    #[error("a segment of the wrong length")]
    SegmentLength,
    /// No frame header before the first scan, or none at all.
    #[error("no frame header before the picture data")]
    MissingFrame,
    /// Two frame headers.
    #[error("a second frame header")]
    SecondFrame,
    /// No picture data before the end.
    #[error("no picture data")]
    MissingScan,
    /// Width or height of zero.
    #[error("a width or height of zero")]
    ZeroSize,
    /// Impossible sampling factors.
    #[error("impossible sampling factors")]
    Sampling,
    /// A component named twice, or one that the frame does not have.
    #[error("a component named twice or not at all")]
    Component,
    /// A table that does not exist or was never given.
    #[error("a missing quantisation or Huffman table")]
    MissingTable,
    /// A Huffman table whose codes do not fit.
    #[error("an impossible Huffman table")]
    HuffmanTable,
    /// An impossible quantisation table.
    #[error("an impossible quantisation table")]
    QuantisationTable,
    /// Impossible spectral selection or approximation.
    #[error("impossible scan parameters")]
    ScanParameters,
    /// Bits that do not form a code of the table.
    #[error("invalid Huffman code")]
    HuffmanCode,
    /// Coefficients beyond the block or beyond their range.
    #[error("coefficients out of range")]
    Coefficient,
    /// A marker in the middle of the picture data.
    #[error("an unexpected marker inside the picture data")]
    EarlyMarker,
    /// More scans than any real photo has.
    #[error("too many scans")]
    TooManyScans,
}
