//! `cargo xtask count`: how large the workspace is, by counters that read any revision the same way.
//!
//! A figure "before" and one "after" mean something only if one counter made both, so this one takes its sources from git
//! where a revision is named. Like the other checks it reads lines, which is enough for code that rustfmt has laid out.

use crate::{function_length::functions, words};
use anyhow::{Context, bail};
use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

/// Longest function that is not counted as long.
const LONG: usize = 60;
/// Lines above an unsafe block in which its argument is looked for: a statement may begin before its block.
const ARGUMENT_WITHIN: usize = 8;

/// What one crate, or all of them, come to. Tests are not counted: neither files nor modules of them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    files: usize,
    /// Neither blank nor comment.
    lines: usize,
    public_items: usize,
    long_functions: usize,
    unsafe_functions: usize,
    /// Of those, the ones without a `# Safety` section, their own or that of the trait they implement.
    unsafe_functions_unsaid: usize,
    unsafe_blocks: usize,
    /// Of those, the ones without a `SAFETY` argument.
    unsafe_blocks_unargued: usize,
}

impl Counts {
    /// Of one file without its tests.
    fn of(source: &str) -> Self {
        let lines: Vec<&str> = source.lines().collect();
        let mut counts = Self { files: 1, ..Self::default() };
        // The line that closes the implementation of a trait we are in: what its methods need is said by the trait.
        let mut trait_end: Option<String> = None;
        for (at, line) in lines.iter().enumerate() {
            let code = line.trim();
            if trait_end.as_deref() == Some(*line) {
                trait_end = None;
            } else if trait_end.is_none() && begins_trait_impl(&lines[at..]) {
                trait_end = Some(format!("{}}}", &line[..line.len() - line.trim_start().len()]));
            }
            counts.lines += usize::from(!code.is_empty() && !code.starts_with("//"));
            counts.public_items += usize::from(is_public_item(code));
            if is_unsafe_function(code) {
                counts.unsafe_functions += 1;
                let said = trait_end.is_some()
                    || comment_above(&lines[..at]).any(|line| line.contains("# Safety"));
                counts.unsafe_functions_unsaid += usize::from(!said);
            }
            if !code.starts_with("//")
                && (code.contains("unsafe {") || code.contains("unsafe impl"))
            {
                counts.unsafe_blocks += 1;
                let above = &lines[at.saturating_sub(ARGUMENT_WITHIN)..=at];
                let argued = above.iter().any(|line| line.contains("SAFETY"));
                counts.unsafe_blocks_unargued += usize::from(!argued);
            }
        }
        let long = |function: &&crate::function_length::Function| function.lines > LONG;
        counts.long_functions = functions(source).iter().filter(long).count();
        counts
    }

    fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.lines += other.lines;
        self.public_items += other.public_items;
        self.long_functions += other.long_functions;
        self.unsafe_functions += other.unsafe_functions;
        self.unsafe_functions_unsaid += other.unsafe_functions_unsaid;
        self.unsafe_blocks += other.unsafe_blocks;
        self.unsafe_blocks_unargued += other.unsafe_blocks_unargued;
    }

    fn row(&self) -> [usize; 8] {
        [
            self.files,
            self.lines,
            self.public_items,
            self.long_functions,
            self.unsafe_functions,
            self.unsafe_functions_unsaid,
            self.unsafe_blocks,
            self.unsafe_blocks_unargued,
        ]
    }
}

/// Prints the table.
pub fn run(root: &Path, revision: Option<&str>) -> anyhow::Result<()> {
    let sources = match revision {
        Some(revision) => of_revision(root, revision)?,
        None => of_tree(root)?,
    };
    let mut crates: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut words = 0;
    for (name, text) in &sources {
        words += if words::is_read(name) { words::count(text) } else { 0 };
        if let Some(of) = production(name) {
            crates.entry(of).or_default().add(&Counts::of(&without_tests(text)));
        }
    }
    let mut all = Counts::default();
    println!(
        "{:<12} {:>6} {:>8} {:>8} {:>6} {:>10} {:>8} {:>13} {:>8}",
        "crate", "files", "lines", "pub", "> 60", "unsafe fn", "unsaid", "unsafe block", "unargued"
    );
    for (name, counts) in &crates {
        print_row(name, counts);
        all.add(counts);
    }
    print_row("all", &all);
    println!("words that are out: {words}");
    Ok(())
}

fn print_row(name: &str, counts: &Counts) {
    let [files, lines, public, long, functions, unsaid, blocks, unargued] = counts.row();
    println!(
        "{name:<12} {files:>6} {lines:>8} {public:>8} {long:>6} {functions:>10} {unsaid:>8} {blocks:>13} {unargued:>8}"
    );
}

/// The crate of a file that is production code.
fn production(name: &str) -> Option<&str> {
    let (of, rest) = name.strip_prefix("crates/")?.split_once("/src/")?;
    let is_test = rest.split('/').any(|part| part == "tests" || part == "tests.rs")
        || rest.ends_with("_tests.rs");
    let is_library = !of.contains('/') && !["testing", "conformance"].contains(&of);
    (rest.ends_with(".rs") && !is_test && is_library).then_some(of)
}

/// A source without its modules of tests.
fn without_tests(source: &str) -> String {
    let mut kept = String::with_capacity(source.len());
    let mut lines = source.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]"
            && lines.peek().is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'))
        {
            lines.by_ref().find(|line| *line == "}");
            continue;
        }
        kept.push_str(line);
        kept.push('\n');
    }
    kept
}

fn is_public_item(code: &str) -> bool {
    let Some(rest) = code.strip_prefix("pub ") else { return false };
    let kinds = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod", "union"];
    let word = rest.split([' ', '!']).next().unwrap_or_default();
    kinds.contains(&word) || ["unsafe", "async", "extern"].contains(&word)
}

fn is_unsafe_function(code: &str) -> bool {
    let code = code
        .strip_prefix("pub")
        .map_or(code, |rest| rest.split_once(' ').map_or(rest, |(_, rest)| rest));
    let code = code.strip_prefix("super) ").unwrap_or(code);
    let code = code.strip_prefix("const ").unwrap_or(code);
    // `unsafe fn(` is a type.
    code.strip_prefix("unsafe fn ").is_some_and(|rest| !rest.starts_with('('))
}

/// Whether `impl … for …` begins here; its head may be several lines long.
fn begins_trait_impl(lines: &[&str]) -> bool {
    let Some(first) = lines.first().map(|line| line.trim_start()) else { return false };
    if !first.starts_with("impl") && !first.starts_with("unsafe impl") {
        return false;
    }
    let end = lines.iter().position(|line| line.ends_with('{') || line.ends_with('}'));
    let head = &lines[..=end.unwrap_or(0)];
    head.iter().any(|line| line.contains(" for ") || line.trim_start().starts_with("for "))
}

/// The comment and the attributes right above an item, nearest first.
fn comment_above<'a>(lines: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let belongs = |line: &&str| line.starts_with("///") || line.starts_with("#[");
    lines.iter().rev().map(|line| line.trim()).take_while(belongs)
}

fn of_tree(root: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let names = git(root, &["ls-files", "--cached", "--others", "--exclude-standard"])?;
    let names = names.lines().filter(|name| words::is_read(name) && root.join(name).exists());
    names
        .map(|name| {
            let text = fs::read_to_string(root.join(name));
            Ok((name.to_owned(), text.with_context(|| format!("cannot read {name}"))?))
        })
        .collect()
}

/// All texts of a revision, by one process of git.
fn of_revision(root: &Path, revision: &str) -> anyhow::Result<Vec<(String, String)>> {
    let names = git(root, &["ls-tree", "-r", "--name-only", revision])?;
    let names: Vec<&str> = names.lines().filter(|name| words::is_read(name)).collect();
    let mut child = Command::new("git")
        .current_dir(root)
        .args(["cat-file", "--batch"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run git")?;
    let mut stdin = child.stdin.take().context("git has no standard input")?;
    let asked: String = names.iter().map(|name| format!("{revision}:{name}\n")).collect();
    // From a thread of its own: git answers while it is asked.
    let asking = std::thread::spawn(move || stdin.write_all(asked.as_bytes()));
    let output = child.wait_with_output().context("cannot read from git")?;
    match asking.join() {
        Ok(asked) => asked.context("cannot ask git")?,
        Err(_) => bail!("cannot ask git"),
    }
    let mut rest = &output.stdout[..];
    let mut texts = Vec::new();
    for name in names {
        let (text, after) =
            next_object(rest).with_context(|| format!("git has no {revision}:{name}"))?;
        texts.push((name.to_owned(), String::from_utf8_lossy(text).into_owned()));
        rest = after;
    }
    Ok(texts)
}

/// Content of the next object of `git cat-file --batch`, and what follows it.
fn next_object(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let size: usize = head.rsplit(' ').next()?.parse().ok()?;
    let content = bytes.get(end + 1..end + 1 + size)?;
    Some((content, bytes.get(end + 2 + size..)?))
}

fn git(root: &Path, words: &[&str]) -> anyhow::Result<String> {
    let output =
        Command::new("git").current_dir(root).args(words).output().context("cannot run git")?;
    if !output.status.success() {
        bail!("git {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).context("a file name is not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_code_and_tests_are_not_counted() {
        let source = "//! Why.\n\nuse a;\n// Note.\npub fn b() {}\n\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\nfn d() {}\n";
        let counts = Counts::of(&without_tests(source));
        assert_eq!((counts.lines, counts.public_items), (3, 1));
    }

    #[test]
    fn unsafe_code_is_told_apart_by_its_argument() {
        let said = "/// Reads.\n///\n/// # Safety\n/// In bounds.\n#[inline(always)]\npub(super) unsafe fn read(at: *const f32) -> f32 {\n    // SAFETY: the caller's.\n    unsafe { *at }\n}\n";
        let counts = Counts::of(said);
        assert_eq!((counts.unsafe_functions, counts.unsafe_functions_unsaid), (1, 0));
        assert_eq!((counts.unsafe_blocks, counts.unsafe_blocks_unargued), (1, 0));
        let bare = "unsafe fn read(at: *const f32) -> f32 {\n    unsafe { *at }\n}\ntype F = unsafe fn(u8);\n";
        let counts = Counts::of(bare);
        assert_eq!((counts.unsafe_functions, counts.unsafe_functions_unsaid), (1, 1));
        assert_eq!((counts.unsafe_blocks, counts.unsafe_blocks_unargued), (1, 1));
        let of_trait = "impl<A>\n    Kernel for B<A>\n{\n    unsafe fn run(self) {\n    }\n}\n\nimpl<A> B<A> {\n    unsafe fn walk(self) {\n    }\n}\n";
        let counts = Counts::of(of_trait);
        assert_eq!((counts.unsafe_functions, counts.unsafe_functions_unsaid), (2, 1));
    }

    #[test]
    fn only_sources_outside_tests_are_production() {
        assert_eq!(production("crates/wire/src/frame.rs"), Some("wire"));
        for name in [
            "crates/wire/tests/frame.rs",
            "crates/wire/src/frame/tests.rs",
            "crates/kernels/src/depthwise_tests.rs",
            "crates/testing/src/lib.rs",
            "crates/advisor/testdata/a/src/main.rs",
            "crates/report/src/a.js",
            "xtask/src/main.rs",
        ] {
            assert_eq!(production(name), None, "{name}");
        }
    }

    #[test]
    fn a_revision_is_counted_like_the_tree() {
        let objects = b"abc blob 5\na\nb\nc\ndef blob 0\n\n";
        let (first, rest) = next_object(objects).expect("an object");
        let (second, rest) = next_object(rest).expect("an object");
        assert_eq!((first, second, rest), (&b"a\nb\nc"[..], &b""[..], &b""[..]));
        assert!(next_object(b"abc missing\n").is_none());
    }
}
