//! What holds for any input: the body of a fuzz target, which ordinary tests run too.

use crate::{MatmulError, npy::Npy};
use std::path::Path;

/// A file of any bytes is refused, or every element of its matrix can be read, or the first that is not a number is named.
///
/// # Panics
/// If that is not so.
pub fn npy(path: &Path) {
    let Ok(mut matrix) = Npy::open(path) else { return };
    let size = usize::try_from(matrix.size()).expect("a matrix that fits into a file");
    let bytes = std::fs::metadata(path).expect("a file that was opened").len();
    let elements = (size * size) as u64;
    assert!(4 * elements < bytes, "{size} x {size} elements in {bytes} bytes");
    let mut all = vec![0.0; size * size];
    if size == 0 {
        return;
    }
    match matrix.read(0..size, 0..size, &mut all) {
        Ok(()) => assert!(all.iter().all(|value| value.is_finite())),
        Err(MatmulError::NotFinite { row, column, .. }) => {
            assert!(row < size as u64 && column < size as u64, "element {row}, {column}");
        }
        Err(error) => panic!("a file as long as its header says: {error}"),
    }
}
