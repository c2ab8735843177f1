//! Damaged, truncated and hostile files: each is a clear error with its place.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::Path;

use paceline_tfrecord::{
    Compression, Error, Index, IndexedFile, Reader, ReaderOptions, Writer, for_each_record, frame,
    fuzzing,
};
use proptest::prelude::*;

fn written(records: &[Vec<u8>], compression: Compression) -> Vec<u8> {
    let mut writer = Writer::with_compression(Vec::new(), compression);
    for record in records {
        writer.write(record).unwrap();
    }
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    Reader::new(bytes)?.collect_records()
}

/// Gives out bytes in pieces of varying, mostly tiny size.
struct Trickle<'a> {
    bytes: &'a [u8],
    piece: usize,
}

impl std::io::Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.piece = (self.piece * 7 + 3) % 41;
        let take = buffer.len().min(self.piece + 1).min(self.bytes.len());
        buffer[..take].copy_from_slice(&self.bytes[..take]);
        self.bytes = &self.bytes[take..];
        Ok(take)
    }
}

#[test]
fn every_flipped_bit_is_caught_at_its_record() {
    let records: Vec<Vec<u8>> = vec![vec![7; 5], (0..60).collect(), vec![], vec![0; 19]];
    let good = written(&records, Compression::Plain);
    let mut starts = vec![0];
    for record in &records {
        starts.push(starts.last().unwrap() + record.len() + 16);
    }
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let damaged = starts.iter().rposition(|start| *start <= bit / 8).unwrap();
        let error = read(&bad).expect_err("a flipped bit went unnoticed");
        let place = error.place().unwrap_or_else(|| panic!("bit {bit}: no place in {error:?}"));
        assert_eq!((place.record, place.offset), (damaged as u64, starts[damaged] as u64));
    }
}

/// A photo-sized record, each byte replaced in turn by something else.
#[test]
fn every_damaged_byte_of_a_large_record_is_caught() {
    let payload: Vec<u8> = (0..11_438u32).map(|i| ((i * i) >> 5) as u8).collect();
    let mut bytes = written(&[payload], Compression::Plain);
    for at in 0..bytes.len() {
        let kept = bytes[at];
        bytes[at] ^= 1 + (at % 255) as u8;
        let caught = ReaderOptions::default().compression(Compression::Plain).stream(&bytes[..]);
        assert!(caught.unwrap().next_record().is_err(), "byte {at}");
        bytes[at] = kept;
    }
}

#[test]
fn every_truncation_is_an_error_except_between_records() {
    let records: Vec<Vec<u8>> = vec![vec![1; 3], vec![], vec![2; 40]];
    let good = written(&records, Compression::Plain);
    let ends = [0, 19, 35, good.len()];
    for cut in 0..=good.len() {
        let outcome = read(&good[..cut]);
        if let Some(whole) = ends.iter().position(|end| *end == cut) {
            assert_eq!(outcome.unwrap(), records[..whole]);
            continue;
        }
        let before = ends.iter().rposition(|end| *end < cut).unwrap();
        let present = (cut - ends[before]) as u64;
        match outcome {
            Err(Error::TruncatedHeader { place, present: found }) => {
                assert_eq!((place.record, found), (before as u64, present));
                assert!(present < 12);
            }
            Err(Error::TruncatedRecord { place, present: found, .. }) => {
                assert_eq!((place.record, found), (before as u64, present));
            }
            other => panic!("cut at {cut}: {other:?}"),
        }
    }
}

/// A length of 2^63 with a right checksum must be refused before anything is allocated for it.
#[test]
fn absurd_lengths_are_refused_without_allocating() {
    let folder = tempfile::tempdir().unwrap();
    for length in [1u64 << 63, u64::MAX, u64::MAX - 15, 1 << 40, 1 << 30] {
        let mut bytes = frame::encode_header(length).to_vec();
        bytes.extend([0; 100]);
        let stream = read(&bytes);
        assert!(
            matches!(stream, Err(Error::Oversized { .. } | Error::TruncatedRecord { .. })),
            "{stream:?}"
        );
        let path = folder.path().join("hostile.tfrecord");
        std::fs::write(&path, &bytes).unwrap();
        for error in [
            Reader::open(&path).unwrap().next_record().unwrap_err(),
            Index::build(&path).unwrap_err(),
        ] {
            let Error::TruncatedRecord { place, present, .. } = error else { panic!("{error:?}") };
            assert_eq!((place.file.as_path(), present), (path.as_path(), 112));
        }
    }
}

#[test]
fn the_limit_is_the_callers_to_set() {
    let bytes = written(&[vec![1; 100]], Compression::Gzip);
    let mut small = ReaderOptions::default().max_record(99).stream(&bytes[..]).unwrap();
    let refused = small.next_record();
    assert!(matches!(refused, Err(Error::Oversized { length: 100, limit: 99, .. })));
    assert!(small.next_record().unwrap().is_none(), "a reader that failed has ended");
    let mut enough = ReaderOptions::default().max_record(100).stream(&bytes[..]).unwrap();
    assert_eq!(enough.next_record().unwrap().unwrap().len(), 100);
}

#[test]
fn other_kinds_of_file_are_named_as_such() {
    let text = b"once upon a time there was a text file";
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01";
    let jpeg = b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01";
    for bytes in [&text[..], png, jpeg, &[0xff; 64]] {
        assert!(matches!(read(bytes), Err(Error::NotTfRecord { .. })), "{bytes:?}");
    }
    // Zeros are a believable length with a wrong checksum.
    assert!(matches!(read(&[0; 64]), Err(Error::LengthChecksum { .. })));
    assert!(matches!(read(b"short"), Err(Error::TruncatedHeader { present: 5, .. })));
    assert!(read(b"").unwrap().is_empty());
}

#[test]
fn errors_name_file_record_and_offset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train-00003-of-00016.tfrecord");
    let mut bytes = written(&[vec![1; 10], vec![2; 10]], Compression::Plain);
    bytes[26 + 12] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    reader.next_record().unwrap();
    let message = reader.next_record().unwrap_err().to_string();
    let start = format!("`{}`, record 1 at byte 26: payload checksum 0x", path.display());
    assert!(message.starts_with(&start), "{message}");
    let missing = Reader::open(folder.path().join("absent")).err().unwrap();
    assert!(missing.to_string().contains("absent"), "{missing}");
}

#[test]
fn compressed_files_with_a_tail_or_without_an_end_are_refused() {
    let records = vec![vec![3; 1000], vec![4; 1000]];
    for compression in [Compression::Gzip, Compression::Zlib] {
        let good = written(&records, compression);
        assert_eq!(read(&good).unwrap(), records);
        for cut in 1..good.len() {
            assert!(read(&good[..cut]).is_err(), "{compression} cut at {cut}");
        }
        let mut longer = good.clone();
        longer.extend(b"tail");
        let error = read(&longer).unwrap_err();
        assert!(matches!(error, Error::TrailingGarbage { .. }), "{error:?}");
        assert_eq!(error.place().map(|place| place.record), Some(2));
    }
    // Several gzip members make one file, as `cat a.gz b.gz` does.
    let joined =
        [written(&records[..1], Compression::Gzip), written(&records[1..], Compression::Gzip)];
    assert_eq!(read(&joined.concat()).unwrap(), records);
}

#[test]
fn compressed_files_without_records_are_empty() {
    for compression in Compression::ALL {
        assert!(read(&written(&[], compression)).unwrap().is_empty());
    }
}

#[test]
fn records_larger_than_the_buffer_come_out_whole() {
    let big: Vec<u8> = (0..3_000_001u32).map(|i| (i ^ (i >> 9)) as u8).collect();
    let records = vec![vec![1; 300_000], big, vec![], vec![9; 524_288], vec![5; 70]];
    for compression in Compression::ALL {
        let bytes = written(&records, compression);
        assert_eq!(read(&bytes).unwrap(), records, "{compression}");
        let trickle = Trickle { bytes: &bytes, piece: 0 };
        assert_eq!(Reader::new(trickle).unwrap().collect_records().unwrap(), records);
    }
}

/// Blocks are 256 KiB: records must survive a seam at each of their bytes.
#[test]
fn records_across_a_block_boundary_come_out_whole() {
    for first in (1 << 18) - 60..=1 << 18 {
        let records = vec![vec![1; first], (0..20).collect(), vec![3; 7]];
        assert_eq!(read(&written(&records, Compression::Plain)).unwrap(), records);
    }
}

#[test]
fn a_file_cut_short_while_it_is_read_is_an_error_not_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shrinking.tfrecord");
    std::fs::write(&path, written(&vec![vec![8; 10_000]; 100], Compression::Plain)).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    reader.next_record().unwrap();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(20_000).unwrap();
    let error = loop {
        match reader.next_record() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the missing records went unnoticed"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::TruncatedRecord { .. } | Error::TruncatedHeader { .. }));
}

fn store(path: &Path, records: &[Vec<u8>]) -> Index {
    let mut writer = Writer::create(path, Compression::Plain).unwrap();
    for record in records {
        writer.write(record).unwrap();
    }
    writer.finish_with_index().unwrap().1
}

#[test]
fn a_stale_or_damaged_index_is_built_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tfrecord");
    let records = vec![vec![1; 10], vec![2; 9000], vec![]];
    let index = store(&path, &records);
    assert_eq!(Index::build(&path).unwrap(), index);
    assert!(matches!(Index::load(&path), Err(Error::Read { .. })));
    assert_eq!(Index::load_or_build(&path).unwrap(), index);
    assert_eq!(Index::load(&path).unwrap(), index);
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "a temporary file was left behind: {names:?}");

    // The file grows: the index no longer fits.
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(&written(&[vec![7; 7]], Compression::Plain)).unwrap();
    assert!(matches!(Index::load(&path), Err(Error::StaleIndex { .. })));
    assert!(matches!(IndexedFile::with_index(&path, index), Err(Error::StaleIndex { .. })));
    let indexed = IndexedFile::open(&path).unwrap();
    assert_eq!(indexed.len(), 4);
    assert_eq!(indexed.read(3, &mut Vec::new()).unwrap(), [7; 7]);

    // Any damaged byte of the stored index shows, and it is replaced.
    let stored = Index::path_of(&path);
    let good = std::fs::read(&stored).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        assert_eq!(Index::decode(&bad), None, "byte {at}");
        assert_eq!(Index::decode(&good[..at]), None, "cut at {at}");
    }
    std::fs::write(&stored, &good[..10]).unwrap();
    assert!(matches!(Index::load(&path), Err(Error::DamagedIndex { .. })));
    assert_eq!(Index::load_or_build(&path).unwrap(), *indexed.index());
    assert_eq!(std::fs::read(&stored).unwrap(), good);
}

#[test]
fn another_file_of_the_same_size_under_the_index_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tfrecord");
    store(&path, &[vec![1; 10], vec![2; 30]]).save(&path).unwrap();
    store(&path, &[vec![1; 20], vec![2; 20]]);
    let indexed = IndexedFile::open(&path).unwrap();
    let mut buffer = Vec::new();
    assert!(matches!(indexed.read(0, &mut buffer), Err(Error::IndexMismatch { found: 20, .. })));
    assert!(matches!(indexed.read(1, &mut buffer), Err(Error::LengthChecksum { .. })));
}

#[test]
fn reading_in_parallel_sees_every_record_once_and_reports_the_damaged_file() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..7)
        .map(|i| {
            let path = folder.path().join(format!("{i}.tfrecord"));
            store(&path, &(0..i * 5).map(|j| vec![i as u8; j]).collect::<Vec<_>>());
            path
        })
        .collect();
    for threads in [0, 1, 3, 20] {
        let seen = std::sync::Mutex::new(Vec::new());
        let totals = for_each_record(&paths, threads, |file, record, payload| {
            assert!(payload.iter().all(|byte| usize::from(*byte) == file));
            seen.lock().unwrap().push((file, record, payload.len()));
        })
        .unwrap();
        let mut seen = seen.into_inner().unwrap();
        seen.sort_unstable();
        let wanted: Vec<_> =
            (0..7).flat_map(|i| (0..i * 5).map(move |j| (i, j as u64, j))).collect();
        assert_eq!(seen, wanted);
        assert_eq!(totals.records, 105);
        assert_eq!(totals.record_bytes, totals.payload_bytes + 105 * 16);
    }
    let mut bytes = std::fs::read(&paths[4]).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&paths[4], bytes).unwrap();
    let error = for_each_record(&paths, 2, |_, _, _| {}).unwrap_err();
    assert_eq!(error.place().map(|place| &place.file), Some(&paths[4]));
}

fn any_records() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let record = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..200),
        1 => (0usize..600_000, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
    ];
    prop::collection::vec(record, 0..12)
}

fn any_compression() -> impl Strategy<Value = Compression> {
    prop::sample::select(&Compression::ALL[..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_is_written_is_read(records in any_records(), compression in any_compression()) {
        let bytes = written(&records, compression);
        prop_assert_eq!(&read(&bytes).unwrap(), &records);
        if compression == Compression::Plain {
            let size: usize = records.iter().map(|record| record.len() + 16).sum();
            prop_assert_eq!(bytes.len(), size);
        }
    }

    #[test]
    fn arbitrary_truncation_never_invents_records(
        records in any_records(), compression in any_compression(), cut in any::<prop::sample::Index>(),
    ) {
        let bytes = written(&records, compression);
        let cut = cut.index(bytes.len() + 1);
        let Ok(mut reader) = Reader::new(&bytes[..cut]) else { return Ok(()) };
        let mut read = 0;
        while let Ok(Some(payload)) = reader.next_record() {
            prop_assert_eq!(payload, &records[read][..]);
            read += 1;
        }
    }

    #[test]
    fn arbitrary_flips_never_pass_for_records(
        records in any_records(),
        compression in any_compression(),
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
    ) {
        let mut bytes = written(&records, compression);
        if bytes.is_empty() {
            return Ok(());
        }
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let outcome = read(&bytes);
        if compression == Compression::Plain {
            prop_assert!(outcome.is_err());
        } else if let Ok(read) = outcome {
            // A gzip header has bytes that mean nothing, such as the time; records must still be right.
            prop_assert_eq!(read, records);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        fuzzing::reader(&bytes);
    }

    #[test]
    fn arbitrary_bytes_after_a_good_record_never_panic(
        records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 1..4),
        compression in any_compression(),
        tail in prop::collection::vec(any::<u8>(), 0..40),
        length in any::<u64>(),
    ) {
        let mut bytes = written(&records, compression);
        bytes.extend_from_slice(&tail);
        fuzzing::reader(&bytes);
        bytes.extend_from_slice(&frame::encode_header(length));
        fuzzing::reader(&bytes);
    }
}
