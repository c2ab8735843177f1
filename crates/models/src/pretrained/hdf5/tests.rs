//! What a file may claim, and what it is told.

use super::*;

const TINY: &[u8] = include_bytes!("../keras/tiny-new.h5");

/// A file in the newer layout whose root has these messages.
fn file(messages: &[(u8, &[u8])]) -> Vec<u8> {
    let mut file = [SIGNATURE, &[2, 8, 8, 0]].concat();
    file.resize(48, 0);
    file[36] = 48;
    let length: usize = messages.iter().map(|(_, body)| 4 + body.len()).sum();
    file.extend(b"OHDR\x02\x02");
    file.extend((length as u32).to_le_bytes());
    for (kind, body) in messages {
        file.push(*kind);
        file.extend((body.len() as u16).to_le_bytes());
        file.push(0);
        file.extend(*body);
    }
    file.extend([0; 4]);
    file
}

/// A link to what lies at an address.
fn link_to(name: &str, address: u64) -> Vec<u8> {
    let mut link = vec![1, 0, name.len() as u8];
    link.extend(name.bytes().chain(address.to_le_bytes()));
    link
}

const SPACE: &[u8] = &[2, 1, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0];
const FLOAT: &[u8] = &[0x11, 0x20, 0x1f, 0, 4, 0, 0, 0, 0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0];

fn refused(bytes: &[u8], needle: &str) {
    let error = arrays(bytes).unwrap_err().to_string();
    assert!(error.contains(needle), "{needle}: {error}");
}

#[test]
fn arrays_of_floats_are_found_and_others_passed_over() {
    let found = arrays(TINY).unwrap();
    let names: Vec<&str> = found.iter().map(|array| &*array.name).collect();
    assert!(names.contains(&"Conv1/kernel:0") && names.contains(&"half/kernel"), "{names:?}");
    assert!(!names.contains(&"step"), "{names:?}");
    let empty = found.iter().find(|array| array.name == "optimizer_weights/empty").unwrap();
    assert_eq!((&empty.shape[..], empty.data.len()), (&[0, 2][..], 0));
    let compact = file(&[(1, SPACE), (3, FLOAT), (8, &[3, 0, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8])]);
    assert_eq!(arrays(&compact).unwrap()[0].data, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn what_keras_does_not_write_is_named() {
    let pieces = [4, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    refused(&file(&[(1, SPACE), (3, FLOAT), (8, &pieces)]), "stored in pieces");
    refused(&file(&[(1, SPACE), (3, FLOAT), (8, &pieces), (11, &[2, 1])]), "is compressed");
    let dense = [0, 0, 9, 0, 0, 0, 0, 0, 0, 0];
    refused(&file(&[(2, &dense)]), "lists many members");
    let mut newer = file(&[]);
    newer[8] = 9;
    refused(&newer, "newer superblock");
    newer[8] = 2;
    newer[9] = 4;
    refused(&newer, "addresses that are not of 8 bytes");
    refused(b"\x89HDF", "does not begin as one");
}

#[test]
fn circles_and_claims_beyond_the_file_are_refused() {
    refused(&file(&[(6, &link_to("me", 48))]), "one object under two names");
    refused(&file(&[(6, &link_to("far", u64::MAX - 3))]), "beyond its end");
    let beyond = [&[3, 1][..], &8u64.to_le_bytes(), &u64::MAX.to_le_bytes()].concat();
    refused(&file(&[(1, SPACE), (3, FLOAT), (8, &beyond)]), "beyond its end");
    let large = [&[2, 2, 0, 1][..], &(1u64 << 40).to_le_bytes(), &(1u64 << 40).to_le_bytes()];
    refused(&file(&[(1, &large.concat()), (3, FLOAT), (8, &beyond)]), "larger than any file");
    // A header whose block continues with itself: the budget ends it.
    let itself = [&54u64.to_le_bytes()[..], &28u64.to_le_bytes()].concat();
    let round = file(&[(16, &itself)]);
    refused(&round, "in circles");
}

/// So many arrays of these bytes from the beginning of the file, each under a name of its own.
fn alike(count: usize, bytes: u64) -> Vec<u8> {
    let space = [&[2, 1, 0, 1][..], &(bytes / 4).to_le_bytes()].concat();
    let same = [&[3, 1][..], &0u64.to_le_bytes(), &bytes.to_le_bytes()].concat();
    let mut many = Vec::new();
    let mut addresses = Vec::new();
    let mut base = file(&[]);
    for _ in 0..count {
        addresses.push(base.len() as u64);
        let one = file(&[(1, &space), (3, FLOAT), (8, &same)]);
        base.extend(&one[48..]);
    }
    let links: Vec<Vec<u8>> = addresses.iter().map(|at| link_to(&at.to_string(), *at)).collect();
    many.extend(links.iter().map(|link| (6, &link[..])));
    let root = base.len() as u64;
    base.extend(&file(&many)[48..]);
    base[36..44].copy_from_slice(&root.to_le_bytes());
    base
}

#[test]
fn arrays_that_share_their_bytes_do_not_outgrow_the_file() {
    assert_eq!(arrays(&alike(200, 8)).unwrap().len(), 200);
    refused(&alike(200, 4000), "larger than the file");
}
