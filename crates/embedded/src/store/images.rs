//! Images are names of components: `registry.k8s.io/kube-apiserver:v1.28.10` is the program kube-apiserver, version 1.28.10.
//!
//! Images that are nothing but a shell and small tools (busybox, alpine, pause, ...) are the machine's own shell and tools.
//! Where that version is not at hand, the nearest one stands in and says so; flags which the stand-in does not know are dropped, for
//! it would not start with them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use futures::future::BoxFuture;
use hangar_node::process::{ImageError, Images, Program, Pulling};
use semver::Version;
use tokio::sync::watch;

use super::{Component, Store, builtin_images};

impl Images for Store {
    fn resolve(&self, image: &str) -> Result<Program, ImageError> {
        let (name, tag) = split_image(image);
        if let Some(program) = builtin_images::host_shell(name, tag) {
            return Ok(program);
        }
        let (image_name, wanted) = (name, wanted(name, tag));
        let name = component_of(image_name);
        let unknown = || ImageError { image: image.to_owned() };
        let (version, path) =
            self.nearest(name, &wanted.clone().unwrap_or_else(|| super::default_version(name))).ok_or_else(unknown)?;
        let substituted = wanted.filter(|wanted| {
            (wanted.major, wanted.minor, wanted.patch) != (version.major, version.minor, version.patch)
        });
        Ok(Program {
            path,
            version: format!("v{version}"),
            substituted_for: substituted.map(|wanted| format!("v{wanted}")),
            dropped_flags: vec![],
            default_args: builtin_images::default_args_of(image_name),
            container_paths: builtin_images::container_paths(image_name),
            files: self.files_of(image_name),
            is_host_shell: false,
        })
    }

    fn pull(&self, image: &str, news: watch::Sender<Pulling>) -> BoxFuture<'static, Result<(), String>> {
        let (name, tag) = split_image(image);
        let (wanted, name) = (wanted(name, tag), component_of(name));
        let version = wanted.unwrap_or_else(|| super::default_version(name));
        Box::pin(self.clone().pull_component(Component { name: name.to_owned(), version }, news))
    }

    fn adapt(&self, mut program: Program, args: Vec<String>) -> (Program, Vec<String>) {
        if program.substituted_for.is_none() {
            return (program, args);
        }
        let (kept, dropped) = keep_known(args, |flag| self.knows(&program.path, flag));
        program.dropped_flags = dropped;
        (program, kept)
    }
}

/// Flags that programs were asked about, by program and flag.
pub(super) type Flags = Mutex<HashMap<PathBuf, HashMap<String, bool>>>;

impl Store {
    /// Asks a program once for all that its help lists, and once for each flag beyond that.
    fn knows(&self, path: &Path, flag: &str) -> bool {
        let Ok(mut flags) = self.flags.lock() else { return true };
        let known = flags
            .entry(path.to_owned())
            .or_insert_with(|| listed_flags(path).into_iter().map(|flag| (flag, true)).collect());
        *known.entry(flag.to_owned()).or_insert_with(|| accepts(path, flag))
    }
}

/// Images whose name is not that of the program in them.
fn component_of(image: &str) -> &str {
    match image {
        "proxy-server" => "konnectivity-server",
        "proxy-agent" => "konnectivity-agent",
        // `kubectl proxy` can do nothing but show files.
        "httpd" | "nginx" => "kubectl",
        other => other,
    }
}

/// The version that a tag asks for. Some images have numbers of their own, which say nothing about the program that stands in for them.
fn wanted(image: &str, tag: Option<&str>) -> Option<Version> {
    let own_numbers = matches!(image, "agnhost" | "httpd" | "nginx");
    tag.and_then(version_of).filter(|_| !own_numbers)
}

/// The last part of the repository, and the tag if there is one.
fn split_image(image: &str) -> (&str, Option<&str>) {
    let image = image.split('@').next().unwrap_or(image);
    let last = image.rsplit('/').next().unwrap_or(image);
    match last.split_once(':') {
        Some((name, tag)) => (name, Some(tag)),
        None => (last, None),
    }
}

/// Tags carry more than a version: `v1.28.10`, `3.5.16-0` (a build of etcd 3.5.16), `1.34`.
fn version_of(tag: &str) -> Option<Version> {
    let core = tag.trim_start_matches('v').split(['-', '+']).next()?;
    let mut parts = core.split('.').map(|part| part.parse::<u64>().ok());
    let (major, minor, patch) = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    Some(Version::new(major, minor, patch))
}

fn listed_flags(path: &Path) -> Vec<String> {
    let Ok(output) = Command::new(path).arg("--help").output() else { return vec![] };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let flags = text.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = line.split_once(", ").filter(|(short, _)| short.len() == 2).map_or(line, |(_, long)| long);
        let name: String = line.strip_prefix("--")?.chars().take_while(|c| c.is_alphanumeric() || *c == '-').collect();
        Some(name)
    });
    flags.collect()
}

/// Deprecated flags are hidden from the help, so what is not listed there is tried.
fn accepts(path: &Path, flag: &str) -> bool {
    let Ok(output) = Command::new(path).arg(format!("--{flag}=0")).arg("--help").output() else { return true };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    !(text.contains("unknown flag: ") || text.contains("flag provided but not defined: "))
}

/// Drops flags nobody knows. A value given as a word of its own goes along with its flag.
fn keep_known(args: Vec<String>, mut known: impl FnMut(&str) -> bool) -> (Vec<String>, Vec<String>) {
    let (mut kept, mut dropped) = (vec![], vec![]);
    let mut args = args.into_iter().peekable();
    while let Some(arg) = args.next() {
        let Some(flag) = arg.strip_prefix("--").filter(|flag| !flag.is_empty()) else {
            kept.push(arg);
            continue;
        };
        let (name, has_value) = flag.split_once('=').map_or((flag, false), |(name, _)| (name, true));
        if known(name) {
            kept.push(arg);
            continue;
        }
        dropped.push(format!("--{name}"));
        if !has_value {
            args.next_if(|next| !next.starts_with('-'));
        }
    }
    (kept, dropped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_a_component_and_a_version() {
        let rows = [
            ("registry.k8s.io/kube-apiserver:v1.28.10", "kube-apiserver", Some((1, 28, 10))),
            ("localhost:5000/etcd:3.5.16-0", "etcd", Some((3, 5, 16))),
            ("etcd:3.6@sha256:00", "etcd", Some((3, 6, 0))),
            ("quay.io/x/kubectl", "kubectl", None),
            ("kubectl:latest", "kubectl", None),
        ];
        for (image, name, version) in rows {
            let (found, tag) = split_image(image);
            let found_version = tag.and_then(version_of).map(|v| (v.major, v.minor, v.patch));
            assert_eq!((found, found_version), (name, version), "{image}");
        }
    }

    #[test]
    fn a_stand_in_drops_what_it_does_not_know_and_says_so() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("kube-apiserver-1.34.4/kube-apiserver");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        // Lists one flag, takes a hidden one, and refuses all others, as the real ones do.
        let script = "#!/bin/sh\ncase \"$1\" in --help) echo '      --port int   x';; --hidden=*) ;; *) echo \"unknown flag: $1\";; esac\n";
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let options = crate::StoreOptions {
            directory: directory.path().into(),
            path_lookup: false,
            ..crate::StoreOptions::default()
        };
        let store = Store::new(options);
        let found = store.resolve("registry.k8s.io/kube-apiserver:v1.28.10").unwrap();
        assert_eq!(found.substituted_for.as_deref(), Some("v1.28.10"));
        let args = ["--port=1", "--hidden=2", "--cloud-provider=external"].map(String::from).to_vec();
        let (adapted, kept) = store.adapt(found, args);
        assert_eq!(kept, ["--port=1", "--hidden=2"]);
        assert_eq!(adapted.dropped_flags, ["--cloud-provider"]);
        assert!(store.resolve("redis:8").unwrap_err().to_string().contains("hangar components fetch"));
    }

    #[test]
    fn unknown_flags_go_with_their_values() {
        let args =
            ["--a=1", "--gone=2", "--b", "x", "--lost", "y", "--lost-too", "--c", "word"].map(String::from).to_vec();
        let (kept, dropped) = keep_known(args, |flag| ["a", "b", "c"].contains(&flag));
        assert_eq!(kept, ["--a=1", "--b", "x", "--c", "word"]);
        assert_eq!(dropped, ["--gone", "--lost", "--lost-too"]);
    }
}
