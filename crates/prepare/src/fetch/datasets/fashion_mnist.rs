//! Fashion-MNIST: MNIST's layout, harder pictures.

use super::{Dataset, RemoteFile};

/// The published files; checksums of their contents are not known for certain, so only these bytes pass.
pub(super) const ENTRY: Dataset = Dataset {
    name: "fashion-mnist",
    about: "70,000 pictures of clothes, 28x28 grey, 10 classes (31 MB)",
    licence: "Zalando SE; MIT",
    mirrors: &[
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
    ],
    files: &[
        RemoteFile {
            name: "train-images-idx3-ubyte.gz",
            bytes: 26_421_880,
            sha256: "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            content_sha256: None,
        },
        RemoteFile {
            name: "train-labels-idx1-ubyte.gz",
            bytes: 29_515,
            sha256: "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            content_sha256: None,
        },
        RemoteFile {
            name: "t10k-images-idx3-ubyte.gz",
            bytes: 4_422_102,
            sha256: "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            content_sha256: None,
        },
        RemoteFile {
            name: "t10k-labels-idx1-ubyte.gz",
            bytes: 5148,
            sha256: "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            content_sha256: None,
        },
    ],
    archive: None,
};
