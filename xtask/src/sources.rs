//! Rules about source files as text: how long they may be, and that nothing is left for later.
//!
//! Holds: a file is one idea. Generated code and tests are exempt, for nobody has to keep them in mind as a whole.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const LONGEST: usize = 400;
const GENERATED: [&str; 2] = ["crates/api/src/kinds", "crates/machine/src/cri/generated.rs"];

/// Everything that is wrong, in words.
pub fn violations(root: &Path) -> Result<Vec<String>> {
    let mut violations = vec![];
    for directory in ["crates", "xtask"] {
        for path in files(&root.join(directory), "rs")? {
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let name = path.strip_prefix(root).unwrap_or(&path);
            if !GENERATED.iter().any(|generated| name.starts_with(generated)) {
                violations.extend(judge(name, &text));
            }
        }
    }
    Ok(violations)
}

fn judge(name: &Path, text: &str) -> Vec<String> {
    let mut violations = vec![];
    let lines = lines_of_code(text);
    if !is_test(name) && lines > LONGEST {
        violations.push(format!("{} has {lines} lines: split it, {LONGEST} are the most", name.display()));
    }
    // Put together here, so that this file does not find itself.
    let words = [concat!("TO", "DO"), concat!("FIX", "ME")];
    for (index, line) in text.lines().enumerate() {
        if let Some(word) = words.iter().find(|word| line.contains(**word)) {
            violations.push(format!("{}:{} says {word}: do it, or open an issue", name.display(), index + 1));
        }
    }
    violations
}

/// The lines before the tests of the file.
fn lines_of_code(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|pair| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod "));
    tests.unwrap_or(lines.len())
}

fn is_test(name: &Path) -> bool {
    let file = name.file_stem().unwrap_or_default().to_string_lossy();
    file == "tests" || file.ends_with("_tests") || name.components().any(|part| part.as_os_str() == "tests")
}

/// All files below a directory with this extension, in order, without build results.
pub fn files(directory: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = vec![];
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            found.extend(files(&path, extension)?);
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_counts_for_the_length() {
        let long = "x();\n".repeat(LONGEST + 1);
        let tested = format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
        let table = [
            ("crates/node/src/a.rs", long.as_str(), 1),
            ("crates/node/src/a.rs", tested.as_str(), 0),
            ("crates/node/src/a_tests.rs", long.as_str(), 0),
            ("crates/node/tests/a.rs", long.as_str(), 0),
        ];
        for (name, text, expected) in table {
            assert_eq!(judge(Path::new(name), text).len(), expected, "{name}");
        }
    }

    #[test]
    fn nothing_is_left_for_later() {
        let text = format!("// {}: later\n", concat!("TO", "DO"));
        let found = judge(Path::new("crates/node/src/a.rs"), &text);
        assert!(found.len() == 1 && found[0].starts_with("crates/node/src/a.rs:1 says "), "{found:?}");
    }
}
