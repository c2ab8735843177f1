//! Pretrained weights that can be fetched by the name of their model.
//!
//! PyTorch publishes no checksums beside them: the first eight digits of the SHA-256 are part of a file's name, as
//! `torch.hub` checks them, and nothing more is known for sure here. Sizes are torchvision's, in MiB with three digits.

use super::datasets::{Dataset, RemoteFile};

/// All weights, by the name of their model.
pub const ALL: &[&Dataset] = &[&MOBILENET_V2, &ALEXNET];

const MIRRORS: &[&str] = &["https://download.pytorch.org/models"];
const LICENCE: &str =
    "The PyTorch team; BSD 3-clause. Trained on ImageNet, whose terms allow research and education";

const MOBILENET_V2: Dataset = Dataset {
    name: "mobilenet-v2",
    about: "MobileNet-v2 as torchvision trained it on ImageNet, 1000 classes (14 MB)",
    licence: LICENCE,
    mirrors: MIRRORS,
    files: &[RemoteFile {
        name: "mobilenet_v2-b0353104.pth",
        bytes: mebibytes(13_555),
        sha256: "b0353104",
        content_sha256: None,
    }],
    archive: None,
};

const ALEXNET: Dataset = Dataset {
    name: "alexnet",
    about: "AlexNet as torchvision trained it on ImageNet, 1000 classes (244 MB)",
    licence: LICENCE,
    mirrors: MIRRORS,
    files: &[RemoteFile {
        name: "alexnet-owt-7be5be79.pth",
        bytes: mebibytes(233_087),
        sha256: "7be5be79",
        content_sha256: None,
    }],
    archive: None,
};

/// From thousandths of a MiB to bytes.
const fn mebibytes(thousandths: u64) -> u64 {
    (thousandths << 20) / 1000
}

/// The weights of a model; underscores are as good as hyphens.
#[must_use]
pub fn find(model: &str) -> Option<&'static Dataset> {
    let name = model.replace('_', "-");
    ALL.iter().copied().find(|weights| weights.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_carry_the_beginning_of_the_checksum() {
        for weights in ALL {
            let file = &weights.files[0];
            assert_eq!((file.sha256.len(), weights.files.len()), (8, 1));
            assert!(file.name.ends_with(&format!("-{}.pth", file.sha256)), "{}", file.name);
        }
        assert_eq!(find("mobilenet_v2").unwrap().name, "mobilenet-v2");
        assert!(find("resnet-20").is_none());
    }
}
