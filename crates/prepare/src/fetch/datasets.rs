//! The data sets that can be fetched by name.
//!
//! Sizes and checksums are those of the published files, as recorded alike by several independent
//! projects; the contents of MNIST's files were hashed from a copy that came another way.

mod fashion_mnist;
mod flowers;
mod mnist;

/// All data sets.
pub const ALL: &[&Dataset] = &[&mnist::ENTRY, &fashion_mnist::ENTRY, &flowers::ENTRY];

/// A data set and where it is published.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// Name on the command line.
    pub name: &'static str,
    /// What it is, in a line.
    pub about: &'static str,
    /// Who made it, and under which terms.
    pub licence: &'static str,
    /// Folders that hold the files, tried in this order.
    pub mirrors: &'static [&'static str],
    pub files: &'static [RemoteFile],
    /// Set if the only file is an archive to be unpacked.
    pub archive: Option<Archive>,
}

/// A published file.
#[derive(Debug, Clone)]
pub struct RemoteFile {
    /// Name, in the mirror's folder and in ours.
    pub name: &'static str,
    /// Size in bytes; about it, where only the beginning of the checksum is known.
    pub bytes: u64,
    /// SHA-256 in hexadecimal, or what is known of its beginning.
    pub sha256: &'static str,
    /// Size and SHA-256 of the decompressed contents, where known.
    pub content_sha256: Option<(u64, &'static str)>,
}

impl RemoteFile {
    /// Whether size and checksum are known to the last digit.
    pub(super) fn is_exact(&self) -> bool {
        self.sha256.len() == 64
    }
}

/// What is in an archive.
#[derive(Debug, Clone)]
pub struct Archive {
    /// The one folder in it.
    pub folder: &'static str,
    /// Files in that folder and below.
    pub files: u64,
    /// More bytes than they have.
    pub max_bytes: u64,
}

/// The data set of that name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Dataset> {
    ALL.iter().copied().find(|dataset| dataset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_file_is_registered_and_every_entry_sound() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/fetch/datasets");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        let names: BTreeSet<String> =
            ALL.iter().map(|dataset| dataset.name.replace('-', "_")).collect();
        assert_eq!(files, names);
        for dataset in ALL {
            assert!(!dataset.mirrors.is_empty());
            assert!(dataset.archive.is_none() || dataset.files.len() == 1);
            for file in dataset.files {
                let hashes = [Some(file.sha256), file.content_sha256.map(|(_, hash)| hash)];
                for hash in hashes.into_iter().flatten() {
                    assert!(hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()));
                }
            }
        }
    }
}
