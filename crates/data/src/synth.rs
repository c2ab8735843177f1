//! Data the program draws itself, so that every command has something to work on offline.
//!
//! Everything is a pure function of (seed, example): the same on every machine and for any number
//! of threads. Digits and images use only additions, multiplications and square roots on the way to
//! a pixel, because sine and its kind differ in the last bit between platforms.

mod canvas;
pub mod clicks;
pub mod digits;
pub mod images;
pub mod photos;
mod random;
mod skeleton;

pub use clicks::{ClicksOptions, ClicksWritten, write_clicks};
pub use digits::{DigitsOptions, write_digits};
pub use photos::{PhotosOptions, write_photos};
