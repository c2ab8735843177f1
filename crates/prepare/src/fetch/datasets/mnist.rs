//! MNIST: 70,000 handwritten digits.

use super::{Dataset, RemoteFile};

/// The four files of LeCun's page, which no longer answers; the mirrors hold the same bytes.
pub(super) const ENTRY: Dataset = Dataset {
    name: "mnist",
    about: "70,000 handwritten digits, 28x28 grey, 10 classes (12 MB)",
    licence: "Yann LeCun, Corinna Cortes; CC BY-SA 3.0",
    mirrors: &[
        "https://storage.googleapis.com/cvdf-datasets/mnist",
        "https://ossci-datasets.s3.amazonaws.com/mnist",
    ],
    files: &[
        RemoteFile {
            name: "train-images-idx3-ubyte.gz",
            bytes: 9_912_422,
            sha256: "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            content_sha256: Some((
                47_040_016,
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            )),
        },
        RemoteFile {
            name: "train-labels-idx1-ubyte.gz",
            bytes: 28_881,
            sha256: "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            content_sha256: Some((
                60_008,
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            )),
        },
        RemoteFile {
            name: "t10k-images-idx3-ubyte.gz",
            bytes: 1_648_877,
            sha256: "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            content_sha256: Some((
                7_840_016,
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            )),
        },
        RemoteFile {
            name: "t10k-labels-idx1-ubyte.gz",
            bytes: 4542,
            sha256: "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            content_sha256: Some((
                10_008,
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            )),
        },
    ],
    archive: None,
};
