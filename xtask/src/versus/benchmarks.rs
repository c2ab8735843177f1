//! `BENCHMARKS.md`: one section per area, each replaced when its comparison is run again.

use super::contest::{Outcome, median};
use anyhow::Context;
use std::fmt::Write;
use std::fs;
use std::path::Path;

const OPENING: &str = "# Benchmarks

Paceline compared with other tools, written by `cargo xtask versus`.

How to read the tables: every round measures each side once, in rotating order, on the same machine. The ratio is ours over
the peer's *within a round*, given as the median of the rounds with minimum and maximum. Rates are medians. Peers run with
the settings that worked best for them in trials (`xtask/peers`); their start-up and warm-up are not timed. The machine is
small, shared and noisy: the ratios are valid for this machine only.
";

/// Replaces the section of `area`.
pub fn write(
    root: &Path,
    area: &str,
    caveats: &[&str],
    outcomes: &[Outcome],
) -> anyhow::Result<()> {
    replace(root, area, &section(area, caveats, outcomes)?)
}

/// Replaces the section of `area` by a text of its own: heading, machine, then `body`.
pub fn write_body(root: &Path, area: &str, body: &str) -> anyhow::Result<()> {
    replace(root, area, &format!("## {area}\n\n{}\n\n{body}", machine()))
}

fn replace(root: &Path, area: &str, body: &str) -> anyhow::Result<()> {
    let path = root.join("BENCHMARKS.md");
    let text = fs::read_to_string(&path).unwrap_or_else(|_| OPENING.to_owned());
    let (start, end) = (format!("<!-- {area} -->\n"), format!("<!-- end of {area} -->\n"));
    let section = format!("{start}{body}{end}");
    let replaced = match (text.find(&start), text.find(&end)) {
        (Some(from), Some(to)) => {
            format!("{}{section}{}", &text[..from], &text[to + end.len()..])
        }
        _ => format!("{text}\n{section}"),
    };
    fs::write(&path, replaced).with_context(|| format!("cannot write {}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}

fn section(area: &str, caveats: &[&str], outcomes: &[Outcome]) -> anyhow::Result<String> {
    let mut text = format!("## {area}\n\n{}\n\n", machine());
    writeln!(text, "| work | side | rate | ours / theirs (min–max) |")?;
    writeln!(text, "| --- | --- | --- | --- |")?;
    for outcome in outcomes {
        for (index, (name, rates)) in outcome.sides.iter().enumerate() {
            let work = if index == 0 { outcome.work.as_str() } else { "" };
            let rate = number(median(rates));
            let ratio = if index == 0 {
                format!("n = {}", rates.len())
            } else {
                let mut ratios = outcome.ratios(index);
                ratios.sort_by(f64::total_cmp);
                let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
                format!("**{:.2}** ({least:.2}–{most:.2})", median(&ratios))
            };
            writeln!(text, "| {work} | {name} | {rate} {} | {ratio} |", outcome.unit)?;
        }
    }
    if !caveats.is_empty() {
        writeln!(text)?;
    }
    for caveat in caveats {
        writeln!(text, "- {caveat}")?;
    }
    Ok(text)
}

fn number(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.2}");
    }
    let whole = format!("{value:.0}");
    let first = (whole.len() - 1) % 3 + 1;
    let mut text = whole[..first].to_owned();
    for group in whole.as_bytes()[first..].chunks(3) {
        text.push(',');
        text.extend(group.iter().map(|&digit| char::from(digit)));
    }
    text
}

/// CPU, cores, memory and versions, as the reader of a figure wants them.
fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown CPU", |rest| rest.trim_start_matches([' ', '\t', ':']));
    // The brand alone does not say it: the same name comes with and without AVX-512.
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let vectors = ["avx512f", "avx2"].into_iter().find(|flag| flags.split(' ').any(|f| f == *flag));
    let vectors = match vectors {
        Some("avx512f") => " with AVX-512",
        Some(_) => " with AVX2",
        None => "",
    };
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let memory = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<f64>().ok())
        .map_or(0.0, |kib| kib / 1024.0 / 1024.0);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{model}{vectors}, {cores} cores, {memory:.0} GiB, Linux {}; Paceline {}, {}.",
        kernel.trim(),
        env!("CARGO_PKG_VERSION"),
        today()
    )
}

fn today() -> String {
    std::process::Command::new("date")
        .args(["-u", "+%Y-%m-%d"])
        .output()
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| "date unknown".to_owned(), |date| date.trim().to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn thousands_are_set_apart_at_every_length() {
        let shown = [0.5, 99.994, 100.0, 999.0, 1000.0, 65_536.0, 1_320_625.0].map(super::number);
        assert_eq!(shown, ["0.50", "99.99", "100", "999", "1,000", "65,536", "1,320,625"]);
    }
}
