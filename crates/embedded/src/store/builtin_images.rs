//! What images bring along besides a program, for those that people try things with.
//!
//! busybox, alpine and the like are the machine's own shell and tools; pause is a shell that waits; httpd and nginx are `kubectl proxy`, which can
//! show files; agnhost finds the certificate that its image has. Holds: a web server listens on the pod's own address only.

use std::path::{Path, PathBuf};

use hangar_node::process::{ImageFile, Program};
use hangar_pki::{Authority, Leaf, SystemKeys};

use super::Store;

/// A process that does nothing and goes when it is told to.
const PAUSE: &str = "trap 'exit 0' TERM INT; sleep infinity & wait $!";

/// Images without a program of their own.
pub(super) fn host_shell(name: &str, tag: Option<&str>) -> Option<Program> {
    let default_args: &[&str] = match name {
        "pause" => &["-c", PAUSE],
        "busybox" | "alpine" | "debian" | "ubuntu" | "bash" => &[],
        _ => return None,
    };
    // The shell of such images knows more than POSIX has, `[[` for one; bash does too.
    let bash = Some(PathBuf::from("/bin/bash")).filter(|path| name != "pause" && path.is_file());
    let container_paths = bash.iter().map(|_| PathBuf::from("/bin/sh")).collect();
    Some(Program {
        path: bash.unwrap_or_else(|| PathBuf::from("/bin/sh")),
        version: format!("{name}:{}", tag.unwrap_or("latest")),
        substituted_for: None,
        dropped_flags: vec![],
        default_args: default_args.iter().map(|word| (*word).to_owned()).collect(),
        container_paths,
        files: vec![],
        is_host_shell: true,
    })
}

/// Where a web server has its pages.
fn pages_of(image: &str) -> Option<&'static str> {
    match image {
        "httpd" => Some("/usr/local/apache2/htdocs"),
        "nginx" => Some("/usr/share/nginx/html"),
        _ => None,
    }
}

/// The words an image starts its program with by itself.
pub(super) fn default_args_of(image: &str) -> Vec<String> {
    if image == "agnhost" {
        return vec!["pause".to_owned()];
    }
    let Some(pages) = pages_of(image) else { return vec![] };
    let www = format!("--www={pages}");
    // No API is behind it: that prefix leads nowhere.
    let server = ["proxy", "--server=http://127.0.0.1:1", "--api-prefix=/.none/", "--www-prefix=/", &www];
    let listen = ["--address=$(HANGAR_POD_IP)", "--port=80", "--accept-hosts=.*"];
    server.into_iter().chain(listen).map(str::to_owned).collect()
}

pub(super) fn container_paths(image: &str) -> Vec<PathBuf> {
    if image == "agnhost" { ["/agnhost", "/agnhost-2"].map(PathBuf::from).into() } else { vec![] }
}

impl Store {
    /// Files of an image, by path.
    pub(super) fn files_of(&self, image: &str) -> Vec<ImageFile> {
        if image == "agnhost" {
            return self.localhost.get_or_init(|| localhost().unwrap_or_default()).clone();
        }
        let page = |pages: &str| ImageFile { at: Path::new(pages).join("index.html"), content: PAGE.to_vec() };
        pages_of(image).map(page).into_iter().collect()
    }
}

const PAGE: &[u8] = b"<html><body><h1>It works!</h1></body></html>\n";

/// A certificate that nobody has to trust, made anew in every run of the store.
fn localhost() -> Result<Vec<ImageFile>, hangar_pki::PkiError> {
    let now = jiff::Timestamp::now();
    let authority = Authority::create(&SystemKeys, "localhost", now)?;
    let pair = authority.issue(&SystemKeys, &Leaf::server("localhost", ["localhost".to_owned()]), now)?;
    let file = |at: &str, text: String| ImageFile { at: at.into(), content: text.into_bytes() };
    Ok(vec![file("/localhost.crt", pair.certificate_pem), file("/localhost.key", pair.key_pem)])
}
