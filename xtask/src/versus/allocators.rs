//! How a peer's process allocates memory. With glibc's defaults large tensors go to the kernel at every step and return
//! as zeroed pages; which remedy is the best depends on the work, so each is tried.

use std::path::Path;
use std::process::Command;

/// Settings of glibc with which large tensors are not given back to the kernel at every step.
const KEEP_MEMORY: [(&str, &str); 3] = [
    ("MALLOC_MMAP_MAX_", "0"),
    ("MALLOC_TRIM_THRESHOLD_", "17179869184"),
    ("MALLOC_TOP_PAD_", "268435456"),
];

/// Where distributions put the allocators that people preload; a missing one is not tried.
const PRELOADED: [&[&str]; 2] = [
    &["/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "/usr/lib64/libjemalloc.so.2"],
    &[
        "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4",
        "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4",
        "/usr/lib64/libtcmalloc.so.4",
    ],
];

/// One way to allocate memory.
#[derive(Debug, Clone, Copy)]
pub enum Allocator {
    /// glibc as it is.
    Plain,
    /// glibc that keeps large blocks.
    Keeping,
    /// A library loaded before glibc.
    Preloaded(&'static str),
}

impl Allocator {
    /// Those that this machine has.
    pub fn here() -> Vec<Self> {
        let installed = |paths: &[&'static str]| {
            paths.iter().copied().find(|path| Path::new(path).exists()).map(Self::Preloaded)
        };
        let preloaded = PRELOADED.into_iter().filter_map(installed);
        [Self::Plain, Self::Keeping].into_iter().chain(preloaded).collect()
    }

    /// Sets it for a process and those that it starts.
    pub fn set(self, command: &mut Command) {
        match self {
            Self::Plain => {}
            Self::Keeping => {
                command.envs(KEEP_MEMORY);
            }
            Self::Preloaded(library) => {
                command.env("LD_PRELOAD", library);
            }
        }
    }
}
