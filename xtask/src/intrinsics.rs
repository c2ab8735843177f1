//! `cargo xtask intrinsics [BINARY]`: does any kernel call its vector instructions?
//!
//! A kernel is compiled for its instruction set only where everything it calls is inlined into a function that carries the
//! target features. A closure, or a forgotten `#[inline(always)]`, is not: then each instruction becomes a call through
//! memory, correct and many times slower, which no test notices. The disassembly shows it.

use anyhow::{Context, bail};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, ErrorKind},
    path::Path,
    process::{Command, Stdio},
};

/// Packages of others whose own functions do so: the checksum of gzip files, a closure in its loop.
const ELSEWHERE: &[&str] = &["zlib_rs::"];

/// Disassembles a binary (the release one unless told otherwise) and fails on calls of intrinsics.
pub fn run(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    let binary = match words {
        [] => {
            let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
            root.join(target).join("release/paceline")
        }
        [binary] => Path::new(binary).to_owned(),
        _ => bail!("one binary at a time"),
    };
    if !binary.is_file() {
        bail!("no binary at `{}`: build it first", binary.display());
    }
    let started = Command::new("objdump")
        .args(["--disassemble", "--demangle", "--no-show-raw-insn"])
        .arg(&binary)
        .stdout(Stdio::piped())
        .spawn();
    let mut objdump = match started {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("skipped: no objdump on this machine (it comes with binutils)");
            return Ok(());
        }
        other => other.context("cannot run objdump")?,
    };
    let mut findings: BTreeMap<(String, String), usize> = BTreeMap::new();
    let (mut function, mut lines, mut named) = (String::new(), 0_usize, false);
    let output = objdump.stdout.take().context("objdump has no output")?;
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("cannot read what objdump prints")?;
        let line = String::from_utf8_lossy(&line);
        lines += 1;
        if let Some(name) = function_name(&line) {
            named |= name.contains("paceline_kernels");
            name.clone_into(&mut function);
        } else if let Some(intrinsic) = called_intrinsic(&line) {
            *findings.entry((function.clone(), intrinsic.to_owned())).or_default() += 1;
        }
    }
    let status = objdump.wait().context("objdump was lost")?;
    if !status.success() {
        bail!("objdump failed on `{}`: {status}", binary.display());
    }
    for ((function, intrinsic), calls) in &findings {
        let whose = if is_elsewhere(function) { " (of another package)" } else { "" };
        println!("{function}: {calls} calls of {intrinsic}{whose}");
    }
    let ours = findings.keys().filter(|(function, _)| !is_elsewhere(function)).count();
    // Without the names of functions nothing would be found anywhere.
    if !named {
        bail!("`{}` names no function of ours: it was stripped", binary.display());
    }
    if ours > 0 {
        bail!("{ours} functions call intrinsics that should be instructions");
    }
    println!("no calls of intrinsics of ours in {lines} lines of `{}`", binary.display());
    Ok(())
}

/// Whether a function is of another package, which is told and not held against us.
fn is_elsewhere(function: &str) -> bool {
    ELSEWHERE.iter().any(|package| function.starts_with(package))
}

/// The function that begins at this line: `0000000000001234 <name>:`.
fn function_name(line: &str) -> Option<&str> {
    let (address, rest) = line.split_once(" <")?;
    let is_address = !address.is_empty() && address.bytes().all(|byte| byte.is_ascii_hexdigit());
    rest.strip_suffix(">:").filter(|_| is_address)
}

/// The intrinsic that a line calls or jumps to as a function of its own.
fn called_intrinsic(line: &str) -> Option<&str> {
    let (_, instruction) = line.split_once(":\t")?;
    let (mnemonic, target) = instruction.trim_start().split_once(char::is_whitespace)?;
    if !mnemonic.starts_with("call") && !mnemonic.starts_with("jmp") {
        return None;
    }
    let (_, target) = target.split_once('<')?;
    let target = target.strip_suffix('>').unwrap_or(target);
    // A jump within an inlined function names it with an offset.
    let is_start = !target.rsplit_once('+').is_some_and(|(_, offset)| offset.starts_with("0x"));
    // The standard library asks the CPU what it has through functions of the same module.
    let detects = ["::_xgetbv", "::__cpuid", "::__cpuid_count"];
    let counts = target.contains("core_arch::") && is_start;
    (counts && !detects.iter().any(|name| target.ends_with(name))).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = "  1a2b3c:\tcall   9f10 <core::core_arch::x86::fma::_mm256_fmadd_ps>";

    #[test]
    fn calls_and_tail_calls_of_intrinsics_are_found() {
        assert_eq!(called_intrinsic(CALL), Some("core::core_arch::x86::fma::_mm256_fmadd_ps"));
        let tail = "  1a2b3c:\tjmp    9f10 <core::core_arch::x86::avx::_mm256_add_ps>";
        assert_eq!(called_intrinsic(tail), Some("core::core_arch::x86::avx::_mm256_add_ps"));
        let older = "  1a2b3c:\tcallq  9f10 <core::core_arch::x86::avx::_mm256_add_ps>";
        assert!(called_intrinsic(older).is_some());
    }

    #[test]
    fn instructions_other_calls_and_jumps_within_a_function_are_not() {
        for line in [
            "  1a2b3c:\tvfmadd231ps %ymm1,%ymm2,%ymm3",
            "  1a2b3c:\tcall   9f10 <paceline_kernels::gemm::drive::Panels::new>",
            "  1a2b3c:\tcall   *0x20(%rax)",
            "  1a2b3c:\tcall   9f10 <core::core_arch::x86::xsave::_xgetbv>",
            "  1a2b3c:\tjmp    9f10 <core::core_arch::x86::avx::_mm256_add_ps+0x1f>",
            "0000000000009f10 <core::core_arch::x86::avx::_mm256_add_ps>:",
            "",
        ] {
            assert_eq!(called_intrinsic(line), None, "{line}");
        }
    }

    #[test]
    fn a_function_is_named_where_it_begins() {
        assert_eq!(function_name("0000000000009f10 <main>:"), Some("main"));
        assert_eq!(
            function_name("0000000000009f10 <<Avx2 as Simd>::outline>:"),
            Some("<Avx2 as Simd>::outline")
        );
        assert_eq!(function_name(CALL), None);
    }
}
