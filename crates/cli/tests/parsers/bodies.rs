//! One body per parser: what must hold for any bytes. Fuzz targets include this file too.

#![allow(unreachable_pub)] // fuzz targets include it as a module of their own

use paceline_cluster::spec;
use paceline_dashboard::{DashboardOptions, Server};
use paceline_data::{
    OpenOptions,
    manifest::Manifest,
    rows::{Hashing, Parser, formats},
};
use paceline_models::{Layout, pretrained};
use paceline_photo::{DecodeOptions, Decoder, Limits, Pixels, probe};
use paceline_runs::{Record, RunView};
use paceline_sweep::Recipe;
use paceline_wire::{Role, TaskId};
use std::{
    cell::RefCell,
    fs,
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    path::Path,
    sync::{OnceLock, atomic::AtomicBool},
    time::Duration,
};

thread_local! {
    /// A folder for parsers that read files.
    static FOLDER: RefCell<Option<tempfile::TempDir>> = const { RefCell::new(None) };
}

fn with_folder(look: impl FnOnce(&Path)) {
    FOLDER.with_borrow_mut(|folder| {
        let folder = folder.get_or_insert_with(|| tempfile::tempdir().expect("a temporary folder"));
        look(folder.path());
    });
}

/// A photo decodes to the size that its header says, twice the same, or not at all.
pub fn photo(bytes: &[u8]) {
    let options = DecodeOptions {
        limits: Limits { max_pixels: 1 << 18, max_side: 4096 },
        ..DecodeOptions::default()
    };
    let header = probe(bytes);
    let (mut once, mut twice) = (Pixels::new(), Pixels::new());
    let mut decoder = Decoder::new();
    let decoded = decoder.decode_into(bytes, &options, &mut once);
    assert_eq!(decoded.is_ok(), decoder.decode_into(bytes, &options, &mut twice).is_ok());
    if decoded.is_ok() {
        let header = header.expect("what decodes has a header");
        assert_eq!((once.width(), once.height()), header.upright_size());
        assert!(once.data() == twice.data(), "two decodings differ");
    }
}

/// Rows of a text format: every line is a row, refused or empty, and no feature lies beyond the weights.
fn rows(format: &str, bytes: &[u8]) {
    let format = formats::find(format).expect("a format of the list");
    let hashing = Hashing { bits: 12, ..Hashing::default() };
    let mut parser = Parser::new(format, hashing);
    parser.parse(bytes);
    let lines = bytes.split(|byte| *byte == b'\n').count();
    let found = parser.batch.len() + parser.refused.len();
    assert!(found <= lines, "{found} rows in {lines} lines");
    for refused in &parser.refused {
        let _ = format!("{refused:?}");
    }
    let (rows, refused) = (parser.batch.len(), parser.refused.len());
    parser.parse(bytes);
    assert_eq!(
        (rows, refused),
        (parser.batch.len(), parser.refused.len()),
        "memory of the last block"
    );
}

/// Rows of libsvm.
pub fn libsvm(bytes: &[u8]) {
    rows("libsvm", bytes);
}

/// Rows of Vowpal Wabbit.
pub fn vw(bytes: &[u8]) {
    rows("vw", bytes);
}

/// Rows of a click log.
pub fn criteo(bytes: &[u8]) {
    rows("clicks", bytes);
}

/// IDX images beside ten labels.
pub fn idx(bytes: &[u8]) {
    with_folder(|folder| {
        let folder = folder.join("idx");
        fs::create_dir_all(&folder).expect("a folder");
        let labels = [&[0, 0, 8, 1, 0, 0, 0, 10][..], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]].concat();
        fs::write(folder.join("train-labels-idx1-ubyte"), labels).expect("a file");
        fs::write(folder.join("train-images-idx3-ubyte"), bytes).expect("a file");
        let opened = paceline_data::open(&folder, &OpenOptions::default());
        if let Ok(source) = opened {
            assert_eq!(source.len(), 10);
        }
    });
}

/// A manifest is refused, or can be believed.
pub fn manifest(bytes: &[u8]) {
    with_folder(|folder| {
        let folder = folder.join("manifest");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("manifest.json"), bytes).expect("a file");
        let store = paceline_data::store::open(&folder).expect("a folder of this machine");
        if let Ok(Some(manifest)) = Manifest::read(&*store) {
            for shard in manifest.splits.iter().flat_map(|split| &split.shards) {
                assert!(!shard.name.contains('/') && shard.name != "..", "{}", shard.name);
            }
        }
    });
}

/// Weights of another program: fitting or refused, never beyond the model.
pub fn safetensors(bytes: &[u8]) {
    let mut layout = Layout::default();
    layout.push("features.0.0.weight", &[2, 3], true);
    layout.push("classifier.1.weight", &[2, 2], true);
    layout.push("classifier.1.bias", &[2], true);
    let mut params = vec![0.0; layout.len()];
    let _ = pretrained::load_bytes("mobilenet-v2", &layout, Path::new("x"), bytes, &mut params);
}

/// Weights as PyTorch and Keras write them: tensors that can be believed, or refused.
pub fn foreign_weights(bytes: &[u8]) {
    let path = Path::new("x");
    if let Ok(made) = pretrained::in_safetensors(path, bytes.to_vec()) {
        // Views of a few bytes may be repeated, but not without end.
        assert!(made.len() <= 16 * bytes.len() + (1 << 16), "{} of {}", made.len(), bytes.len());
        safetensors(&made);
    }
}

/// A recipe of runs.
pub fn recipe(bytes: &[u8]) {
    let _ = Recipe::parse("fuzz", &String::from_utf8_lossy(bytes));
}

/// Every description of a cluster.
pub fn cluster_specs(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let own = TaskId::new(Role::Worker, 0);
    if let Ok(cluster) = spec::from_toml(&text, own) {
        assert!(cluster.tasks().contains(&own));
    }
    let _ = spec::workers_per_host(&text);
    for name in ["TF_CONFIG", "CLUSTER_SPEC", "SLURM_JOB_NODELIST", "MASTER_ADDR"] {
        let others = [
            ("RANK", "0"),
            ("WORLD_SIZE", "2"),
            ("MASTER_PORT", "7000"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "2"),
            ("SLURM_JOB_ID", "1"),
            ("SLURM_STEP_NODELIST", &text),
        ];
        let read = |asked: &str| {
            let known = others.iter().find(|(known, _)| *known == asked);
            let known = known.map(|(_, value)| (*value).to_owned());
            if asked == name { Some(text.clone()) } else { known }
        };
        if let Ok(Some(cluster)) = spec::from_environment(&read) {
            let _ = cluster.origin;
        }
    }
}

/// A log of events: lines are records or skipped, and the run that they tell of is judged.
pub fn events(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        if let Some(record) = Record::parse(line) {
            let _ = format!("{record:?}");
        }
    }
    with_folder(|folder| {
        let folder = folder.join("run");
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("events-worker-0.jsonl"), bytes).expect("a file");
        if let Ok(view) = RunView::read(&folder) {
            assert!(!view.summary.verdict.is_empty());
        }
    });
}

/// A file of records.
pub fn tfrecord(bytes: &[u8]) {
    paceline_tfrecord::fuzzing::reader(bytes);
}

/// A `tf.train.Example`.
pub fn example(bytes: &[u8]) {
    paceline_tfrecord::fuzzing::example_view(bytes);
    paceline_tfrecord::fuzzing::example_prost_agreement(bytes);
}

/// A matrix in a file of NumPy.
pub fn npy(bytes: &[u8]) {
    with_folder(|folder| {
        let path = folder.join("matrix.npy");
        fs::write(&path, bytes).expect("a file");
        paceline_matmul::fuzzing::npy(&path);
    });
}

/// Messages between tasks.
pub fn frames(bytes: &[u8]) {
    paceline_wire::fuzzing::frames(bytes);
}

/// The first words of a connection.
pub fn handshake(bytes: &[u8]) {
    paceline_wire::fuzzing::handshake(bytes);
}

/// The live page of an empty folder, for as long as the process lives.
fn live_page() -> SocketAddr {
    static PAGE: OnceLock<SocketAddr> = OnceLock::new();
    static STOP: AtomicBool = AtomicBool::new(false);
    *PAGE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let server = Server::bind(&DashboardOptions::loopback(folder.path().to_path_buf()));
        let server = server.expect("a port of loopback");
        let address = server.address();
        std::thread::spawn(move || {
            let _folder = folder;
            server.run(&STOP).expect("nothing a visitor says ends it");
        });
        address
    })
}

/// A request to the live page: an answer whose head is plain text, or none; it blames no error on itself, and lives on.
pub fn http(bytes: &[u8]) {
    let mut visitor = TcpStream::connect(live_page()).expect("the page lives");
    visitor.set_read_timeout(Some(Duration::from_secs(600))).expect("a time limit");
    // A server that has heard enough closes before all is said.
    let _ = visitor.write_all(bytes).and_then(|()| visitor.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(count) = visitor.read(&mut piece) {
        answer.extend_from_slice(&piece[..count]);
        // Updates that are pushed have no end.
        if count == 0 || answer.windows(4).any(|four| four == b"\r\n\r\n") {
            break;
        }
    }
    if answer.is_empty() {
        return;
    }
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(answer.len());
    let head = String::from_utf8(answer[..end].to_vec()).expect("a head of plain text");
    assert!(head.starts_with("HTTP/1."), "{head}");
    assert!(!head[8..].trim_start().starts_with('5') || head.contains(" 501 "), "{head}");
    let plain = |line: &str| line.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    assert!(head.split("\r\n").all(plain), "{head:?}");
}
