//! Models, optimisers and loss curves against PyTorch, weight files against Keras, and gradients against finite differences.
//!
//! The stored numbers are small: `make_reference.py` makes them from inputs and weights that both
//! sides compute by the same formula.

#![allow(clippy::unwrap_used, clippy::print_stderr)] // a failed test says what it saw

mod curves;
mod formula;
mod gradients;
mod keras;
mod models;
mod optimizers;
