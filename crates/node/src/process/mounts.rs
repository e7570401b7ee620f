//! Where a container believes its volumes to be, and where they are.
//!
//! Without a mount namespace a process sees the machine's files, so every mention of a mount path in its command, arguments and
//! environment is replaced by the real directory. Holds: a path is replaced only as a whole path (`/etc/kube` is not in
//! `/etc/kubernetes`), the longest mount wins, and what was put in is not looked at again.

use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Default)]
pub(super) struct Mounts(Vec<(String, PathBuf)>);

impl Mounts {
    pub fn new(mounts: impl IntoIterator<Item = (String, PathBuf)>) -> Self {
        let mut mounts: Vec<_> =
            mounts.into_iter().map(|(path, real)| (path.trim_end_matches('/').to_owned(), real)).collect();
        mounts.retain(|(path, _)| !path.is_empty());
        mounts.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        Self(mounts)
    }

    /// The text with every mount path replaced.
    pub fn rewrite(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let hit = self.0.iter().find(|(path, _)| rest.starts_with(path.as_str()) && ends(&rest[path.len()..]));
            match hit.filter(|_| begins(&text[..at])) {
                Some((path, real)) => {
                    out.push_str(&real.display().to_string());
                    at += path.len();
                }
                None => {
                    let width = rest.chars().next().map_or(1, char::len_utf8);
                    out.push_str(&rest[..width]);
                    at += width;
                }
            }
        }
        out
    }

    pub fn real(&self, path: &str) -> PathBuf {
        Path::new(&self.rewrite(path)).to_owned()
    }
}

fn part_of_path(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/')
}

/// A path may follow anything that is not path itself, or the `//` of a URL.
fn begins(before: &str) -> bool {
    before.ends_with("://") || !before.ends_with(part_of_path)
}

fn ends(after: &str) -> bool {
    after.starts_with('/') || !after.starts_with(part_of_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_paths_are_replaced_whole_and_longest_first() {
        let mounts = Mounts::new([
            ("/etc/kubernetes".to_owned(), "/p/conf".into()),
            ("/etc/kubernetes/pki/".to_owned(), "/p/pki".into()),
            ("/p".to_owned(), "/q".into()),
        ]);
        let rows = [
            ("--tls-cert-file=/etc/kubernetes/pki/apiserver.crt", "--tls-cert-file=/p/pki/apiserver.crt"),
            ("/etc/kubernetes/admin.conf", "/p/conf/admin.conf"),
            ("/etc/kubernetes", "/p/conf"),
            ("/etc/kubernetes-old/x", "/etc/kubernetes-old/x"),
            ("/mnt/etc/kubernetes/x", "/mnt/etc/kubernetes/x"),
            ("a=/etc/kubernetes,b=/etc/kubernetes/pki", "a=/p/conf,b=/p/pki"),
            ("file:///etc/kubernetes/x", "file:///p/conf/x"),
            ("test -f /etc/kubernetes/é", "test -f /p/conf/é"),
        ];
        for (text, expected) in rows {
            assert_eq!(mounts.rewrite(text), expected);
        }
    }
}
