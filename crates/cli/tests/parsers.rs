//! Every parser on stored inputs and on what random changes make of them: no panic, no hang, no promise broken.
//!
//! `cargo xtask fuzz [SECONDS]` does the same for longer; `fuzz/` has the same bodies as targets of libFuzzer.

#![allow(clippy::unwrap_used)]

#[path = "parsers/bodies.rs"]
mod bodies;

use paceline_photo::{Colour, Encoder, Encoding, Pixels};
use paceline_testing::{fuzzing::drive, workspace};
use paceline_tfrecord::{Example, Feature, Writer};
use std::io::Write;

/// Tries a body on these inputs, on those in `fuzz/inputs` and on changes of both; says how much it tried.
#[allow(clippy::print_stdout)] // `cargo xtask fuzz` shows it
fn fuzz(name: &str, given: &[Vec<u8>], body: fn(&[u8])) {
    let mut stored = given.to_vec();
    // Whatever made a fuzzer find new paths, or once broke something.
    let folder = std::fs::read_dir(workspace().join("fuzz/inputs").join(name));
    let mut files: Vec<_> = folder.into_iter().flatten().map(|file| file.unwrap().path()).collect();
    files.sort();
    stored.extend(files.iter().map(|path| std::fs::read(path).unwrap()));
    let tried = drive(name, &stored, &body);
    println!("{name}: {} inputs in {:.1} s", tried.inputs, tried.took.as_secs_f64());
}

fn texts(all: &[&str]) -> Vec<Vec<u8>> {
    all.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// A small picture in every form that is written here.
fn photos() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (colour, channels) in [(Colour::Rgb, 3), (Colour::Grey, 1)] {
        let data = (0..16 * 24 * channels).map(|at| (at * 37 % 251) as u8).collect();
        let pixels = Pixels::from_data(16, 24, colour, data).unwrap();
        for encoding in [Encoding::Jpeg { quality: 80 }, Encoding::Png] {
            let mut out = Vec::new();
            Encoder::new().encode_into(&pixels, encoding, &mut out).unwrap();
            all.push(out);
        }
    }
    all
}

#[test]
fn photos_of_any_bytes() {
    fuzz("photo", &photos(), bodies::photo);
}

#[test]
fn idx_files_of_any_bytes() {
    let header = [0_u8, 0, 8, 3, 0, 0, 0, 10, 0, 0, 0, 2, 0, 0, 0, 2];
    let whole = [&header[..], &[7; 40]].concat();
    let padded = [gzip(&whole), vec![0; 512]].concat();
    fuzz("idx", &[gzip(&whole), padded, whole], bodies::idx);
}

#[test]
fn rows_of_any_bytes() {
    let libsvm = texts(&["1 1:0.5 7:2\n-1 3:1e-3 # why\n", "\u{feff}+1 qid:3 2:1\n0 4096:1\n"]);
    fuzz("libsvm", &libsvm, bodies::libsvm);
    let vw = texts(&["1 |a x:0.5 y |b z\n-1 'tag| w\n", "\u{feff}1 2.0 |user age:3\n"]);
    fuzz("vw", &vw, bodies::vw);
    let fields = "\t1\t2\t\t-4\t5\t6\t7\t8\t9\t10\t11\t12\t13";
    let categories = "\tabcdef01".repeat(26);
    let clicks = texts(&[&format!("1{fields}{categories}\n0{fields}{categories}\n")]);
    fuzz("criteo", &clicks, bodies::criteo);
}

#[test]
fn manifests_of_any_bytes() {
    let manifest = r#"{"version": 1, "kind": "photos", "settings": {"width": 8, "height": 8},
        "classes": ["a", "b"], "splits": [{"name": "train", "records": 2, "bytes": 30,
        "shards": [{"name": "train-00000-of-00001.tfrecord", "records": 2, "bytes": 30}]}]}"#;
    fuzz("manifest", &texts(&[manifest, "{\"version\": 9}"]), bodies::manifest);
}

#[test]
fn weights_of_any_bytes() {
    let header = br#"{"features.0.0.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"classifier.1.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[24,40]},"classifier.1.bias":{"dtype":"F32","shape":[2],"data_offsets":[40,48]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header);
    file.extend_from_slice(&[0; 48]);
    fuzz("safetensors", &[file], bodies::safetensors);
}

#[test]
fn weights_of_pytorch_and_keras_of_any_bytes() {
    let folder = workspace().join("crates/models/src/pretrained");
    let files = ["pth/tiny.pth", "pth/tiny-bare.pth", "keras/tiny.h5", "keras/tiny.weights.h5"];
    let files = files.into_iter().chain(["keras/tiny.keras", "keras/tiny-new.h5"]);
    let stored: Vec<_> = files.map(|name| std::fs::read(folder.join(name)).unwrap()).collect();
    fuzz("foreign_weights", &stored, bodies::foreign_weights);
}

#[test]
fn recipes_of_any_bytes() {
    let folder = std::fs::read_dir(workspace().join("recipes")).unwrap();
    let stored: Vec<Vec<u8>> = folder
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| std::fs::read(path).unwrap())
        .collect();
    fuzz("recipe", &stored, bodies::recipe);
}

#[test]
fn descriptions_of_clusters_of_any_bytes() {
    let stored = texts(&[
        "worker = [\"a:1\", \"b:2\"]\nps = [\"c:3\"]\n",
        r#"{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}"#,
        "node[01-03,07],gpu[1-2]",
        "10.0.0.1",
    ]);
    fuzz("cluster_specs", &stored, bodies::cluster_specs);
}

#[test]
fn logs_of_any_bytes() {
    let frozen = workspace().join("crates/runs/testdata/events-v1.jsonl");
    fuzz("events", &[std::fs::read(frozen).unwrap()], bodies::events);
}

#[test]
fn records_of_any_bytes() {
    let example = Example::new()
        .with("image/encoded", Feature::bytes([&b"pixels"[..]]))
        .with("image/class/label", Feature::ints([3]));
    let payload = example.to_bytes();
    let mut writer = Writer::new(Vec::new());
    writer.write(&payload).unwrap();
    writer.write(b"second").unwrap();
    let (file, _) = writer.finish_with_index().unwrap();
    fuzz("tfrecord", &[gzip(&file), file], bodies::tfrecord);
    fuzz("example", &[payload], bodies::example);
}

#[test]
fn matrices_of_any_bytes() {
    let file = |dict: &str, data: &[u8]| {
        let mut text = dict.as_bytes().to_vec();
        text.resize(118, b' ');
        let length = text.len() as u16;
        [b"\x93NUMPY\x01\x00", &length.to_le_bytes()[..], &text, data].concat()
    };
    let single = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }";
    let double = "{'descr': '<f8', 'fortran_order': True, 'shape': (3, 3), }";
    fuzz("npy", &[file(single, &[7; 16]), file(double, &[1; 72])], bodies::npy);
}

#[test]
fn links_of_any_bytes() {
    let message = |kind: u8, payload: &[u8]| {
        let (number, length) = (17_u64.to_le_bytes(), (payload.len() as u64).to_le_bytes());
        [&[kind][..], b"PL1", &[0; 4], &number, &length, payload].concat()
    };
    let stored = [[message(1, b"gradient"), message(2, b"")].concat(), message(3, &[9; 300])];
    fuzz("frames", &stored, bodies::frames);
    let hello = r#"{"task":{"role":"worker","index":0},"to":{"role":"worker","index":1},"run":"run","version":"0.1.0","plan":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],"purpose":"control"}"#;
    let length = (hello.len() as u16).to_le_bytes();
    let client = [b"PLNK\x00\x01\x00P", &[5; 32][..], &length, hello.as_bytes(), &[6; 32]].concat();
    let server = [&b"A"[..], &[5; 32], b"A", &length, hello.as_bytes(), &[6; 32]].concat();
    fuzz("handshake", &[client, server, hello.as_bytes().to_vec()], bodies::handshake);
}

#[test]
fn requests_of_any_bytes() {
    let stored = texts(&[
        "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
        "GET /run?name=a&task=worker%2F0 HTTP/1.1\r\nhost: 127.0.0.1\r\nif-none-match: \"1\"\r\n\r\n",
        "POST /api/v1/notes HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}",
        "GET /api/v1/runs HTTP/1.0\r\nhost: [::1]\r\ncookie: token=x\r\n\r\n",
    ]);
    fuzz("http", &stored, bodies::http);
}
