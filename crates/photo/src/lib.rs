//! Photographs: decode, orient, resize, encode, safely and fast.
//!
//! A training set is made of files that strangers took, renamed, truncated and mislabelled. This
//! crate turns each into pixels or into a typed reason ([`PhotoError`]); it never panics, never hangs
//! and never allocates more than the file's own length justifies.
//!
//! Policies, in one place:
//! * The kind of a file is decided by its first bytes, never by its name.
//! * [`Limits`] are checked on the header, before pixels are allocated.
//! * A truncated photo is rejected: a half-grey picture would be silent damage. Defects that cannot
//!   change a pixel (bytes after the end, fill bytes, unknown segments) are tolerated.
//! * EXIF orientation is applied unless switched off; in PNG files without it, that of XMP.
//! * Transparency is laid over white. 16-bit samples keep their upper 8 bits, after that.
//! * CMYK and YCCK become RGB by the plain formula `R = C * K / 255` on Adobe's inverted values;
//!   colour profiles are not applied.
//!
//! The same bytes give the same pixels on every thread and on every instruction set.
//!
//! ```
//! use paceline_photo::{Colour, DecodeOptions, Decoder, Encoder, Encoding, Pixels};
//!
//! let grey = Pixels::from_data(2, 1, Colour::Grey, vec![0, 200]).expect("two pixels");
//! let mut file = Vec::new();
//! Encoder::new().encode_into(&grey, Encoding::Png, &mut file)?;
//!
//! let options = DecodeOptions { colour: Colour::Grey, ..DecodeOptions::default() };
//! let mut pixels = Pixels::new();
//! Decoder::new().decode_into(&file, &options, &mut pixels)?;
//! assert_eq!(pixels.data(), [0, 200]);
//! assert!(Decoder::new().decode_into(&file[..20], &options, &mut pixels).is_err());
//! # Ok::<(), paceline_photo::PhotoError>(())
//! ```

mod decode;
mod encode;
mod error;
mod exif;
mod fit;
mod header;
mod jpeg;
mod pixels;
mod png;
mod resize;
mod simd;

pub use decode::{DecodeOptions, Decoder};
pub use encode::{Encoder, Encoding};
pub use error::{Defect, PhotoError, Unsupported};
pub use exif::Orientation;
pub use fit::Fit;
pub use header::{Format, Header, Limits, probe};
pub use pixels::{Colour, Pixels};
pub use resize::Resizer;
pub use simd::Simd;
