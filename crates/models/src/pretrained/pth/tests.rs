//! Files as PyTorch lays them out, and files that mean harm.

use super::*;
use safetensors::SafeTensors;

/// Made by `make_tiny.py` with Python's pickle: the archive of today, and the bare pickles of before 1.6.
const ARCHIVED: &[u8] = include_bytes!("tiny.pth");
const BEFORE: &[u8] = include_bytes!("tiny-bare.pth");

#[test]
fn both_layouts_give_the_same_tensors() {
    for bytes in [ARCHIVED, BEFORE] {
        assert!(is_pth(bytes));
        let made = to_safetensors(bytes).unwrap();
        let file = SafeTensors::deserialize(&made).unwrap();
        let floats = |name: &str| -> (Vec<usize>, Vec<f32>) {
            let tensor = file.tensor(name).unwrap();
            assert_eq!(tensor.dtype(), Dtype::F32, "{name}");
            let words = tensor.data().as_chunks::<4>().0;
            (tensor.shape().to_vec(), words.iter().map(|word| f32::from_le_bytes(*word)).collect())
        };
        assert_eq!(floats("whole.weight"), (vec![2, 3], vec![-1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
        assert_eq!(floats("turned.weight"), (vec![3, 2], vec![-1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
        assert_eq!(floats("double.bias"), (vec![1], vec![0.25]));
        let half = file.tensor("half.bias").unwrap();
        assert_eq!((half.dtype(), half.data()), (Dtype::F16, &[0, 0x3e, 0, 0xc0][..]));
        let count = file.tensor("norm.num_batches_tracked").unwrap();
        assert_eq!((count.dtype(), count.shape()), (Dtype::I64, &[][..]));
    }
}

#[test]
fn a_file_cut_anywhere_is_an_error_and_nothing_worse() {
    for bytes in [ARCHIVED, BEFORE] {
        for end in 0..bytes.len() - 1 {
            assert!(to_safetensors(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut bent = bytes.to_vec();
                bent[at] ^= flip;
                let _ = to_safetensors(&bent); // any outcome but a crash
            }
        }
    }
}

/// A bare file whose weights are this pickle.
fn bare(weights: &[u8]) -> Vec<u8> {
    let start = BEFORE.windows(2).enumerate().filter(|(_, pair)| pair == b"\x80\x02");
    let fourth = start.map(|(at, _)| at).nth(3).unwrap();
    [&BEFORE[..fourth], weights].concat()
}

#[test]
fn code_is_named_and_never_called() {
    let shell = b"\x80\x02cos\nsystem\nX\x09\x00\x00\x00touch owned\x85R.";
    let error = to_safetensors(&bare(shell)).unwrap_err();
    assert_eq!(error, PthError::Call("os.system".to_owned()));
    assert!(error.to_string().contains("nothing is executed"), "{error}");
    // The instruction that builds objects of any class.
    let object = to_safetensors(&bare(b"\x80\x02)\x81.")).unwrap_err();
    assert_eq!(object, PthError::Instruction(0x81));
}

#[test]
fn pickles_that_would_exhaust_a_machine_end_with_an_error() {
    // A tuple in a tuple a million times: freeing it must not recurse.
    let deep = [b"\x80\x02)".as_slice(), &vec![0x85; 1 << 20], b"."].concat();
    assert!(to_safetensors(&bare(&deep)).is_err());
    // A tensor of 2^60 views of one value.
    let storage = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01NtQ";
    let side = b"\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x10";
    let tensor = [
        b"\x80\x02}X\x01\x00\x00\x00w".as_slice(),
        b"ctorch._utils\n_rebuild_tensor_v2\n(",
        storage,
        b"K\x00",
        side,
        b"\x85K\x00\x85\x89}tRs.",
        b"\x80\x02]X\x01\x00\x00\x000a.",
        &1u64.to_le_bytes(),
        &1f32.to_le_bytes(),
    ]
    .concat();
    let error = to_safetensors(&bare(&tensor)).unwrap_err();
    assert!(error.to_string().contains("larger than the file"), "{error}");
    assert_eq!(to_safetensors(&bare(b"\x80\x02K\x01.\x80\x02].")), Err(PthError::NoWeights));
}
