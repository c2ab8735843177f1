//! What building for another target needs beyond cargo: the target's standard library, a compiler for C, a linker.
//!
//! One C compiler for all targets comes as a Python package, so that neither cross-compilers nor C libraries have to be installed;
//! rustc brings its own linker and, for musl, the C library it links.

use crate::environment::{self, Environment};
use anyhow::Context;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

const ZIG: Environment = Environment { folder: "dist-env-zig", packages: &["ziglang==0.17.0"] };

/// Makes a build for `target` possible, unless the caller has set up a compiler of their own.
pub fn prepare(root: &Path, target: &str, cargo: &mut Command) -> anyhow::Result<()> {
    let name = target.replace('-', "_");
    let installed = Command::new("rustup").args(["target", "add", target]).status();
    if !installed.is_ok_and(|status| status.success()) {
        eprintln!("warning: `rustup target add {target}` failed; the build tries without");
    }
    if std::env::var_os(format!("CC_{name}")).is_some() {
        return Ok(());
    }
    let python = ZIG.ensure(root)?;
    let folder = environment::target(root).join("dist-tools");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let compiler = script(
        &folder.join(format!("cc-{target}")),
        // cc's crate names the target in rustc's way, which the compiler does not know.
        &format!(
            "words=(); for word in \"$@\"; do case $word in --target=*) ;; *) words+=(\"$word\") ;; esac; done\n\
             exec {} -m ziglang cc -target {} -fno-sanitize=all \"${{words[@]}}\"",
            python.display(),
            in_zig(target)
        ),
    )?;
    let archiver = script(
        &folder.join(format!("ar-{target}")),
        &format!("exec {} -m ziglang ar \"$@\"", python.display()),
    )?;
    cargo.env(format!("CC_{name}"), compiler).env(format!("AR_{name}"), archiver);
    cargo.env(format!("CARGO_TARGET_{}_LINKER", name.to_uppercase()), "rust-lld");
    Ok(())
}

/// `x86_64-unknown-linux-musl` is `x86_64-linux-musl` there.
fn in_zig(target: &str) -> String {
    target.replace("-unknown", "")
}

fn script(path: &Path, line: &str) -> anyhow::Result<PathBuf> {
    let wrong = || format!("cannot write {}", path.display());
    fs::write(path, format!("#!/usr/bin/env bash\n{line}\n")).with_context(wrong)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).with_context(wrong)?;
    Ok(path.to_owned())
}
