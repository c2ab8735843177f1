//! `prepare` as a real process: killed at any moment, short of memory, short of disk.
#![allow(clippy::unwrap_used)] // also in functions that tests share

mod support;

use std::{
    collections::BTreeMap,
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use paceline_photo::{Colour, Encoder, Encoding, Pixels};
use paceline_prepare::photos::PhotoOptions;
use support::{assert_same, options, photos, run, snapshot};

const SRC: &str = "PACELINE_TEST_SRC";
const DST: &str = "PACELINE_TEST_DST";
const THREADS: &str = "PACELINE_TEST_THREADS";

fn child_options(threads: usize) -> PhotoOptions {
    PhotoOptions { shards: 12, threads: Some(threads), ..options() }
}

/// Not a test of its own: what the processes below run.
#[test]
fn child() {
    let (Some(src), Some(dst)) = (std::env::var_os(SRC), std::env::var_os(DST)) else { return };
    let threads = std::env::var(THREADS).unwrap().parse().unwrap();
    let outcome = run(Path::new(&src), Path::new(&dst), &child_options(threads));
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    std::fs::write(Path::new(&dst).with_extension("peak"), peak).unwrap();
    outcome.unwrap();
}

fn start(src: &Path, dst: &Path, threads: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(SRC, src)
        .env(DST, dst)
        .env(THREADS, threads.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Shards that have a report, by the number of their file; a file written again has another.
fn finished(dst: &Path) -> BTreeMap<String, u64> {
    let Ok(notes) = std::fs::read_dir(dst.join(".prepare")) else { return BTreeMap::new() };
    let names = notes.map(|note| note.unwrap().file_name().into_string().unwrap());
    names
        .filter_map(|name| name.strip_suffix(".json").map(|shard| format!("{shard}.tfrecord")))
        .filter_map(|shard| Some((shard.clone(), std::fs::metadata(dst.join(shard)).ok()?.ino())))
        .collect()
}

#[test]
fn killed_at_fifty_moments_it_goes_on_to_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (src, clean) = (dir.path().join("src"), dir.path().join("clean"));
    photos(&src, 300, 13);
    let begun = Instant::now();
    assert!(start(&src, &clean, 2).wait().unwrap().success());
    let mut undisturbed = begun.elapsed();
    let wanted = snapshot(&clean);

    let (mut killed, mut kept) = (0, 0);
    let mut random = 42u64;
    for moment in 0..50u32 {
        let dst = dir.path().join(format!("dst{moment}"));
        // Spread over the whole duration, with a jitter of one step.
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let jitter = (random >> 40) as f64 / (1u64 << 24) as f64;
        let mut part = (f64::from(moment) + jitter) / 50.0;
        // Every third is killed a second time, on its way through what was left.
        for _ in 0..if moment % 3 == 0 { 2 } else { 1 } {
            let mut process = start(&src, &dst, 1 + moment as usize % 3);
            thread::sleep(undisturbed.mul_f64(part));
            process.kill().unwrap();
            if process.wait().unwrap().success() {
                // The machine was busier when it was measured than it is now.
                undisturbed = undisturbed.mul_f64(0.9);
            } else {
                killed += 1;
            }
            part *= 0.7;
        }
        let before = finished(&dst);
        assert!(start(&src, &dst, 2).wait().unwrap().success());
        assert_same(&wanted, &snapshot(&dst), &format!("killed at moment {moment}"));
        for (shard, number) in before {
            let now = std::fs::metadata(dst.join(&shard)).unwrap().ino();
            assert_eq!(number, now, "finished shard {shard} was done again");
            kept += 1;
        }
        std::fs::remove_dir_all(&dst).unwrap();
    }
    println!(
        "{killed} processes killed, {kept} finished shards kept ({undisturbed:?} undisturbed)"
    );
    assert!(killed >= 30, "only {killed} were still running when killed");
    assert!(kept > 0, "no shard was ever finished before a kill");
}

/// Photos that take 240 MB each while they are decoded, on four threads.
#[test]
fn memory_is_bounded_whatever_the_photos() {
    let dir = tempfile::tempdir().unwrap();
    let (src, dst) = (dir.path().join("src"), dir.path().join("dst"));
    std::fs::create_dir_all(src.join("large")).unwrap();
    // A PNG is always decoded whole; of a large JPEG only an eighth of each side is.
    let png = |width: u32, height: u32, colour: Colour, encoding| {
        let data = vec![0; width as usize * height as usize * colour.channels()];
        let pixels = Pixels::from_data(width, height, colour, data).unwrap();
        let mut bytes = Vec::new();
        Encoder::new().encode_into(&pixels, encoding, &mut bytes).unwrap();
        bytes
    };
    let large = png(8000, 5000, Colour::Rgb, Encoding::Png);
    let jpeg = png(8000, 5000, Colour::Grey, Encoding::Jpeg { quality: 50 });
    for number in 0..6 {
        std::fs::write(src.join(format!("large/{number}.png")), &large).unwrap();
        std::fs::write(src.join(format!("large/{number}.jpg")), &jpeg).unwrap();
    }
    assert!(start(&src, &dst, 4).wait().unwrap().success());
    let rejects = std::fs::read_to_string(dst.join("rejects.jsonl")).unwrap();
    assert_eq!(rejects, "", "nothing is too large here");
    let peak = std::fs::read_to_string(dst.with_extension("peak")).unwrap();
    let kilobytes: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    println!("peak {} MB", kilobytes >> 10);
    assert!(kilobytes < 400 << 10, "{peak}");
}

/// A real full disk, where this process may mount one.
#[test]
fn full_disk_is_named_and_survived() {
    let dir = tempfile::tempdir().unwrap();
    let (src, clean) = (dir.path().join("src"), dir.path().join("clean"));
    let disk = dir.path().join("disk");
    photos(&src, 200, 0);
    std::fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=160k", "tmpfs"])
        .arg(&disk)
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!("skipped: cannot mount a small disk");
        return;
    }
    let dst = disk.join("dst");
    let outcome = std::panic::catch_unwind(|| {
        let error = run(&src, &dst, &child_options(2)).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(disk.to_str().unwrap()), "{message}");
        assert!(error.hint().is_some(), "{error:?}");
        let left = snapshot(&dst);
        assert!(!left.contains_key("manifest.json"));
        assert!(left.keys().all(|name| !name.contains("-tmp-")), "{:?}", left.keys());
        // More room, and the same call completes.
        let grown =
            Command::new("mount").args(["-o", "remount,size=8m"]).arg(&disk).status().unwrap();
        assert!(grown.success());
        let summary = run(&src, &dst, &child_options(2)).unwrap();
        assert!(summary.resumed_shards > 0, "what was finished is kept");
        run(&src, &clean, &child_options(2)).unwrap();
        assert_same(&snapshot(&clean), &snapshot(&dst), "after a full disk");
    });
    thread::sleep(Duration::from_millis(10));
    Command::new("umount").arg(&disk).status().unwrap();
    outcome.unwrap();
}
