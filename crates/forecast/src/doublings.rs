//! Which sizes a forecast shows: far apart enough to be few, close enough to show a bend.

/// Powers of two below `most`, and `most` itself.
#[must_use]
pub fn doublings(most: usize) -> Vec<usize> {
    let mut sizes: Vec<usize> = std::iter::successors(Some(1usize), |size| size.checked_mul(2))
        .take_while(|size| *size < most)
        .collect();
    sizes.push(most);
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_size_is_always_shown_and_once() {
        assert_eq!(doublings(1), [1]);
        assert_eq!(doublings(8), [1, 2, 4, 8]);
        assert_eq!(doublings(9), [1, 2, 4, 8, 9]);
    }
}
