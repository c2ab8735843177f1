//! Writes one event file.

use super::{
    graph::{GraphNode, graph_def},
    histogram::Histogram,
    proto::{
        DOUBLE, Event, FLOAT, PluginData, SourceMetadata, Summary, SummaryMetadata, TensorProto,
        TensorShape, Value, What,
    },
};
use crate::{RunsError, clock};
use paceline_tfrecord::frame;
use prost::Message;
use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// A named number at a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scalar {
    /// Tag; the part before `/` groups charts.
    pub tag: &'static str,
    /// The number; TensorBoard keeps 32 bits of it.
    pub value: f64,
}

impl Scalar {
    /// A scalar of that tag.
    #[must_use]
    pub const fn new(tag: &'static str, value: f64) -> Self {
        Self { tag, value }
    }
}

/// An event file being written.
#[derive(Debug)]
pub struct EventWriter {
    file: BufWriter<File>,
    path: PathBuf,
    /// Tags whose plugin has been named: readers need it once per tag, and repeating it would make
    /// half the bytes of a scalar.
    introduced: HashSet<String>,
    payload: Vec<u8>,
}

impl EventWriter {
    /// Creates `folder/events.out.tfevents.<seconds>.<host>.<pid>.<n>.v2`. The name is unlike any
    /// other's: two writers in one folder, even within one second, do not overwrite each other.
    pub fn create(folder: &Path) -> Result<Self, RunsError> {
        static WRITERS: AtomicU64 = AtomicU64::new(0);
        let now = clock::since_epoch();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim().replace('/', "-");
        let host = if host.is_empty() { "localhost" } else { &host };
        fs::create_dir_all(folder)
            .map_err(|source| RunsError::Create { path: folder.to_path_buf(), source })?;
        loop {
            let number = WRITERS.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!(
                "events.out.tfevents.{:010}.{host}.{}.{number}.v2",
                now.as_secs(),
                std::process::id(),
            ));
            // A process with the same number on a host of the same name may share the folder.
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => return Self::begin(file, path, now.as_secs_f64()),
                Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(RunsError::Create { path, source }),
            }
        }
    }

    fn begin(file: File, path: PathBuf, time: f64) -> Result<Self, RunsError> {
        let mut writer = Self {
            file: BufWriter::with_capacity(64 << 10, file),
            path,
            introduced: HashSet::new(),
            payload: Vec::with_capacity(1024),
        };
        writer.write(&Event {
            wall_time: time,
            step: 0,
            what: Some(What::FileVersion("brain.Event:2".into())),
            source_metadata: Some(SourceMetadata { writer: "paceline.runs".into() }),
        })?;
        Ok(writer)
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes some scalars of one step as one record.
    pub fn scalars(&mut self, time: f64, step: u64, scalars: &[Scalar]) -> Result<(), RunsError> {
        let value = scalars
            .iter()
            .map(|scalar| Value {
                tag: scalar.tag.to_string(),
                metadata: self.introduce(scalar.tag, "scalars"),
                tensor: Some(TensorProto {
                    dtype: FLOAT,
                    tensor_shape: Some(TensorShape::of(&[])),
                    tensor_content: (scalar.value as f32).to_le_bytes().to_vec(),
                    ..TensorProto::default()
                }),
                ..Value::default()
            })
            .collect();
        self.summary(time, step, value)
    }

    /// Writes the distributions of some tensors at a step.
    pub fn histograms(
        &mut self,
        time: f64,
        step: u64,
        histograms: &[(String, Histogram)],
    ) -> Result<(), RunsError> {
        let value = histograms
            .iter()
            .map(|(tag, histogram)| Value {
                tag: tag.clone(),
                metadata: self.introduce(tag, "histograms"),
                tensor: Some(TensorProto {
                    dtype: DOUBLE,
                    tensor_shape: Some(TensorShape::of(&[histogram.counts.len(), 3])),
                    tensor_content: histogram
                        .buckets()
                        .flatten()
                        .flat_map(f64::to_le_bytes)
                        .collect(),
                    ..TensorProto::default()
                }),
                ..Value::default()
            })
            .collect();
        self.summary(time, step, value)
    }

    /// Writes the layer graph.
    pub fn graph(&mut self, time: f64, nodes: &[GraphNode]) -> Result<(), RunsError> {
        let graph = graph_def(nodes).encode_to_vec();
        self.write(&Event {
            wall_time: time,
            step: 0,
            what: Some(What::GraphDef(graph)),
            source_metadata: None,
        })
    }

    /// Hands everything to the system, so that a viewer sees it.
    pub fn flush(&mut self) -> Result<(), RunsError> {
        self.file.flush().map_err(|source| RunsError::Write { path: self.path.clone(), source })
    }

    fn introduce(&mut self, tag: &str, plugin: &str) -> Option<SummaryMetadata> {
        (!self.introduced.contains(tag)).then(|| {
            self.introduced.insert(tag.to_string());
            SummaryMetadata { plugin_data: Some(PluginData { plugin_name: plugin.to_string() }) }
        })
    }

    fn summary(&mut self, time: f64, step: u64, value: Vec<Value>) -> Result<(), RunsError> {
        self.write(&Event {
            wall_time: time,
            step: step as i64,
            what: Some(What::Summary(Summary { value })),
            source_metadata: None,
        })
    }

    fn write(&mut self, event: &Event) -> Result<(), RunsError> {
        self.payload.clear();
        self.payload.reserve(event.encoded_len());
        event.encode_raw(&mut self.payload);
        let Self { file, payload, .. } = self;
        file.write_all(&frame::encode_header(payload.len() as u64))
            .and_then(|()| file.write_all(payload))
            .and_then(|()| file.write_all(&frame::encode_footer(payload)))
            .map_err(|source| RunsError::Write { path: self.path.clone(), source })
    }
}
