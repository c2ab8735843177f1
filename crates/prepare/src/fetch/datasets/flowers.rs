//! Flowers: real photographs in class folders.

use super::{Archive, Dataset, RemoteFile};

/// The archive of TensorFlow's tutorials: five classes and a list of licences.
pub(super) const ENTRY: Dataset = Dataset {
    name: "flowers",
    about: "3,670 photographs of flowers, 5 classes (229 MB)",
    licence: "The TensorFlow team and the photographers; CC BY 2.0, listed in LICENSE.txt",
    mirrors: &[
        "https://storage.googleapis.com/download.tensorflow.org/example_images",
        "http://download.tensorflow.org/example_images",
    ],
    files: &[RemoteFile {
        name: "flower_photos.tgz",
        bytes: 228_813_984,
        sha256: "4c54ace7911aaffe13a365c34f650e71dd5bf1be0a58b464e5a7183e3e595d9c",
        content_sha256: None,
    }],
    // 3,670 photos and LICENSE.txt.
    archive: Some(Archive { folder: "flower_photos", files: 3671, max_bytes: 300_000_000 }),
};
