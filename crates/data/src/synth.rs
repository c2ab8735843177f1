//! Examples the program draws itself, so that every command has something to work on offline.
//!
//! Everything is a pure function of (seed, example): the same on every machine and for any number
//! of threads. Only additions, multiplications and square roots lead to a pixel, because sine and its
//! kind differ in the last bit between platforms. `paceline-prepare` writes drawn examples to files.

mod canvas;
pub mod digits;
pub mod images;
mod random;
mod skeleton;

pub use random::Random;
