//! timm's names of MobileNet-v2's tensors (`mobilenetv2_100` and its relatives).

/// Blocks of each stage.
const STAGES: [usize; 7] = [1, 2, 3, 4, 3, 3, 1];

/// timm's name for one of torchvision's; `None` if the model has no tensor of that name.
pub(super) fn name(torchvision: &str) -> Option<String> {
    if let Some(rest) = torchvision.strip_prefix("classifier.1.") {
        return Some(format!("classifier.{rest}"));
    }
    let (number, rest) = torchvision.strip_prefix("features.")?.split_once('.')?;
    let number: usize = number.parse().ok()?;
    let last = 1 + STAGES.iter().sum::<usize>();
    if number == 0 || number == last {
        let (convolution, norm) =
            if number == 0 { ("conv_stem", "bn1") } else { ("conv_head", "bn2") };
        let (part, rest) = rest.split_once('.')?;
        return Some(format!("{}.{rest}", if part == "0" { convolution } else { norm }));
    }
    let mut block = number - 1;
    let stage = STAGES.iter().position(|&blocks| {
        let here = block < blocks;
        if !here {
            block -= blocks;
        }
        here
    })?;
    let rest = rest.strip_prefix("conv.")?;
    // The first block has no expanding convolution.
    let parts: &[(&str, &str)] = if number == 1 {
        &[("0.0.", "conv_dw"), ("0.1.", "bn1"), ("1.", "conv_pw"), ("2.", "bn2")]
    } else {
        &[
            ("0.0.", "conv_pw"),
            ("0.1.", "bn1"),
            ("1.0.", "conv_dw"),
            ("1.1.", "bn2"),
            ("2.", "conv_pwl"),
            ("3.", "bn3"),
        ]
    };
    let (prefix, part) = parts.iter().find(|(prefix, _)| rest.starts_with(prefix))?;
    Some(format!("blocks.{stage}.{block}.{part}.{}", &rest[prefix.len()..]))
}
