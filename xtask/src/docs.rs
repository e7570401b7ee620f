//! `cargo xtask docs`: links of all documents, and the book.
//!
//! Holds: every relative link in `docs/` and in the documents at the root leads to a file, and every page of the book is listed in
//! its summary, without which mdbook would leave it out.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{run, sources};

const SUMMARY: &str = "docs/src/SUMMARY.md";

/// Checks links always, and builds the book into `target/book` if mdbook is there.
pub fn run(root: &Path) -> Result<()> {
    let violations = violations(root)?;
    if !violations.is_empty() {
        bail!("{}", violations.join("\n"));
    }
    println!("every link leads somewhere");
    let found = Command::new("mdbook").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        println!("the book was not built, because mdbook is not installed: `cargo install mdbook` installs it");
        return Ok(());
    }
    let mut command = Command::new("mdbook");
    command.args(["build", "docs", "--dest-dir"]).arg(root.join("target/book")).current_dir(root);
    run::to_success(command)
}

/// Links to nothing, and pages that the summary leaves out.
pub fn violations(root: &Path) -> Result<Vec<String>> {
    let mut violations = vec![];
    for path in documents(root)? {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let directory = path.parent().unwrap_or(root);
        for link in links(&text) {
            if !directory.join(&link).exists() {
                violations.push(format!("{}: the link {link} leads nowhere", shown(root, &path)));
            }
        }
    }
    let pages = root.join("docs/src");
    if pages.is_dir() {
        let summary = std::fs::read_to_string(root.join(SUMMARY)).context(SUMMARY)?;
        let listed: Vec<PathBuf> = links(&summary).iter().map(|link| pages.join(link)).collect();
        let forgotten = sources::files(&pages, "md")?.into_iter().filter(|page| !page.ends_with("SUMMARY.md"));
        for page in forgotten.filter(|page| !listed.contains(page)) {
            violations.push(format!("{SUMMARY} does not list {}", shown(root, &page)));
        }
    }
    Ok(violations)
}

fn shown(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}

fn documents(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(root)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    if root.join("docs").is_dir() {
        found.extend(sources::files(&root.join("docs"), "md")?);
    }
    found.sort();
    Ok(found)
}

/// The targets of `[text](target)` that are files of ours, outside of code.
fn links(text: &str) -> Vec<String> {
    let mut found = vec![];
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            found.extend(line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target));
        }
    }
    let files = found.into_iter().filter(|target| !target.contains("://") && !target.starts_with("mailto:"));
    files.filter_map(|target| target.split('#').next()).filter(|file| !file.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_to_files_are_followed() {
        let text = "See [a](a.md) and [b](../b/c.md#part), [web](https://kubernetes.io), [here](#here).\n\
                    ```\n[code](not/a/link)\n```\n![picture](p.svg)\n";
        assert_eq!(links(text), ["a.md", "../b/c.md", "p.svg"]);
    }
}
