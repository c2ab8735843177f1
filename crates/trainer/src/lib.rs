//! The step loop: the one place where model, data and strategy meet.
