//! Clocks that tests can set: a library in front of the system's that adds to the time of day.
//!
//! A machine's own clock cannot be set for one process, and no namespace has a time of day of its own.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile long *ahead;
__attribute__((constructor)) static void begin(void) {
    char path[4096];
    const char *folder = getenv("TEST_CLOCKS");
    if (!folder) return;
    snprintf(path, sizeof path, "%s/%d", folder, (int)getpid());
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (!ftruncate(file, sizeof *ahead)) {
        void *mapped = mmap(0, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
        if (mapped != MAP_FAILED) ahead = mapped;
    }
    close(file);
}
int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (!result && clock == CLOCK_REALTIME && ahead) time->tv_sec += *ahead;
    return result;
}
"#;

/// The clocks of some processes.
pub struct Clocks {
    folder: PathBuf,
    library: PathBuf,
}

impl Clocks {
    /// Nothing without a C compiler, said aloud.
    pub fn new(under: &Path) -> Option<Self> {
        let folder = under.join("clocks");
        fs::create_dir(&folder).unwrap();
        let (source, library) = (under.join("clock.c"), under.join("clock.so"));
        fs::write(&source, SOURCE).unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
        match compiler.output() {
            Ok(output) if output.status.success() => Some(Self { folder, library }),
            Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stderr)),
            Err(_) => paceline_testing::missing("a C compiler, for clocks that tests can set"),
        }
    }

    /// What a command starts has such a clock.
    pub fn govern(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("TEST_CLOCKS", &self.folder);
    }

    /// Sets a process's clock: so many seconds ahead of ours.
    pub fn set(&self, process: u32, ahead: i64) {
        // It is mapped, so its length must stay.
        let path = self.folder.join(process.to_string());
        let file = fs::OpenOptions::new().write(true).open(&path);
        let file = file.unwrap_or_else(|error| panic!("process {process} has no clock: {error}"));
        file.write_all_at(&ahead.to_ne_bytes(), 0).unwrap();
    }
}
