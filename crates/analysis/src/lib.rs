//! Statistics over measurements; pure functions.
