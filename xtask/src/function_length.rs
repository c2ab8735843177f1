//! How long functions are, for the rule that the command line is arguments, one library call, and words.
//!
//! Sources are formatted by rustfmt, so a function ends at the first brace that stands alone at the indentation of its
//! `fn`; no parser is needed.

/// A function of a source file.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// Its first line, counted from 1.
    pub line: usize,
    /// From the line with `fn` to the closing brace, both included.
    pub lines: usize,
}

/// All functions with a body, nested ones too.
pub fn functions(source: &str) -> Vec<Function> {
    let lines: Vec<&str> = source.lines().collect();
    lines
        .iter()
        .enumerate()
        .filter_map(|(at, line)| {
            let name = name(line)?;
            let length = length(&lines[at..])?;
            Some(Function { name, line: at + 1, lines: length })
        })
        .collect()
}

/// The name, where a line begins a function.
fn name(line: &str) -> Option<String> {
    let mut words = line.trim_start();
    loop {
        if let Some(rest) = words.strip_prefix("fn ") {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
            return Some(rest[..end].to_owned());
        }
        let (word, rest) = words.split_once(' ')?;
        let qualifies = word.starts_with("pub")
            || ["const", "async", "unsafe", "extern", "\"C\"", "super)", "crate)"].contains(&word);
        words = if qualifies { rest } else { return None };
    }
}

/// Lines up to the closing brace; nothing for a declaration without a body.
fn length(lines: &[&str]) -> Option<usize> {
    let first = lines.first()?;
    let indent = &first[..first.len() - first.trim_start().len()];
    if first.ends_with(';') {
        return None;
    }
    if first.ends_with('}') {
        return Some(1);
    }
    for (at, line) in lines.iter().enumerate().skip(1) {
        let Some(rest) = line.strip_prefix(indent) else { continue };
        if rest == "}" || rest.starts_with(')') && rest.ends_with("{}") {
            return Some(at + 1);
        }
        if rest.starts_with(')') && rest.ends_with(';') {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<(String, usize, usize)> {
        functions(source).into_iter().map(|it| (it.name, it.line, it.lines)).collect()
    }

    #[test]
    fn a_function_is_counted_from_its_name_to_its_brace() {
        let source = "/// Doc.\npub(crate) fn one(\n    a: u8,\n) -> u8 {\n    if a > 1 {\n        2\n    } else {\n        3\n    }\n}\n\nfn short() {}\n";
        assert_eq!(found(source), [("one".to_owned(), 2, 9), ("short".to_owned(), 12, 1)]);
    }

    #[test]
    fn methods_and_nested_functions_count_for_themselves() {
        let source = "impl A {\n    pub async unsafe fn b(&self) {\n        fn c() {\n            d();\n        }\n        c();\n    }\n}\n";
        assert_eq!(found(source), [("b".to_owned(), 2, 6), ("c".to_owned(), 3, 3)]);
    }

    #[test]
    fn declarations_and_pointers_to_functions_are_not_functions() {
        let source = "trait T {\n    fn a(&self);\n    fn b(\n        &self,\n        c: u8,\n    ) -> u8;\n    fn d(&self) {\n    }\n}\nstruct S {\n    f: fn (u8) -> u8,\n}\nlet fn_like = 1;\n";
        assert_eq!(found(source), [("d".to_owned(), 7, 2)]);
    }

    #[test]
    fn the_limit_is_crossed_by_one_line() {
        let of = |lines: usize| format!("fn long() {{\n{}}}\n", "    x();\n".repeat(lines - 2));
        assert_eq!(found(&of(60)), [("long".to_owned(), 1, 60)]);
        assert_eq!(found(&of(61)), [("long".to_owned(), 1, 61)]);
    }
}
