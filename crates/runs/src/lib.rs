//! The files a training run leaves behind.
