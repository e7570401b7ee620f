//! The component store: from a name and a version to a program on this machine.
//!
//! Flows: a directory the user named, the store, PATH, a download with checksum, a build from Go modules. The first three need no
//! network ([`Store::installed`]); [`Store::fetch`] takes the whole ladder. Holds: what lies in the store under its name is complete
//! (made beside it and renamed), and one process at a time makes the same thing.

mod archive;
mod build;
mod builtin_images;
mod download;
mod fetch;
mod go_settings;
mod images;
mod lookup;
mod maintenance;
mod pull;

use std::path::PathBuf;
use std::sync::Arc;

use semver::Version;

pub use archive::ArchiveError;
pub use build::BuildError;
pub use download::DownloadError;
pub use maintenance::Damage;
pub(crate) use maintenance::damage_of;
pub use pull::Substitution;

/// The Kubernetes version that is used where none is named.
pub const KUBERNETES: &str = "1.34.4";
/// The etcd version that is used where none is named.
pub const ETCD: &str = "3.6.16";

/// Programs that can be fetched.
pub const NAMES: [&str; 17] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "kubeadm",
    "kube-proxy",
    "etcdctl",
    "etcdutl",
    "coredns",
    "konnectivity-server",
    "konnectivity-agent",
    "helm",
    "clusterctl",
    "agnhost",
    "e2e",
];

/// The version of a program that is used where none is named.
pub fn default_version(name: &str) -> Version {
    let text = match name {
        "etcd" | "etcdctl" | "etcdutl" => ETCD,
        "coredns" => "1.15.0",
        "konnectivity-server" | "konnectivity-agent" => "0.34.0",
        "helm" => "3.22.0",
        "clusterctl" => "1.13.6",
        _ => KUBERNETES,
    };
    Version::parse(text).unwrap_or(Version::new(0, 0, 0))
}

/// A program of one version.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Component {
    /// One of [`NAMES`], or a program that the user put into a directory and named.
    pub name: String,
    pub version: Version,
}

impl std::fmt::Display for Component {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// Where components may come from.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Where fetched components are kept.
    pub directory: PathBuf,
    /// A directory the user named, looked at first.
    pub named: Option<PathBuf>,
    /// A site with the layout of dl.k8s.io.
    pub mirror: Option<String>,
    /// Whether that site may be spoken to without TLS.
    pub insecure_mirror: bool,
    /// Whether the official site may be asked.
    pub download: bool,
    /// Whether programs on PATH count.
    pub path_lookup: bool,
    /// Whether the nearest version may stand in for one that is not at hand.
    pub substitution: Substitution,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            directory: default_directory(),
            named: None,
            mirror: None,
            insecure_mirror: false,
            download: true,
            path_lookup: true,
            substitution: Substitution::default(),
        }
    }
}

/// A component that is in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredComponent {
    pub component: Component,
    pub path: PathBuf,
    pub bytes: u64,
    /// Hexadecimal, as written when it was stored.
    pub sha256: String,
}

/// What happens to a component while it is fetched, for a progress bar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    Found(PathBuf),
    Downloading {
        done: u64,
        total: Option<u64>,
    },
    /// The download failed and a build is tried instead.
    DownloadFailed {
        reason: String,
    },
    Building {
        package_lines: u64,
    },
    Waiting {
        holder: String,
    },
    Done {
        seconds: u64,
    },
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Found(_) => write!(f, "installed"),
            Self::Downloading { done, total: Some(total) } => {
                write!(f, "downloading {} of {} MB", done / 1_000_000, total / 1_000_000)
            }
            Self::Downloading { done, total: None } => write!(f, "downloading {} MB", done / 1_000_000),
            Self::DownloadFailed { reason } => write!(f, "download failed ({reason}), building it instead"),
            Self::Building { .. } => {
                write!(f, "building from Go modules (5 to 10 minutes for all components on two cores, only once)")
            }
            Self::Waiting { holder } => write!(f, "waiting for process {holder}, which is fetching it"),
            Self::Done { seconds } => write!(f, "done after {seconds} s"),
        }
    }
}

/// Told about every stage of every component.
pub trait Progress: Send + Sync {
    fn stage(&self, component: &Component, stage: Stage);
}

/// Nobody watches.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _component: &Component, _stage: Stage) {}
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the component store {path} is not writable: choose another one with HANGAR_COMPONENTS")]
    NotWritable { path: PathBuf, source: std::io::Error },
    #[error("the directory {path} (--components) cannot be read")]
    NamedUnreadable { path: PathBuf, source: std::io::Error },
    #[error(
        "the directory {path} (--components) lacks {lacking}: put each there as NAME or NAME-VERSION/NAME, or leave --components out to have them downloaded or built"
    )]
    NamedLacks { path: PathBuf, lacking: String },
    #[error("{0} can neither be downloaded nor built: put it into a directory and name that with --components")]
    Unknown(Component),
    #[error("the download site (--mirror) cannot be used")]
    Mirror(#[source] Box<DownloadError>),
    #[error("could not download {component}")]
    Download { component: Component, source: Box<DownloadError> },
    #[error("could not build {names}{after}")]
    Build { names: String, after: String, source: BuildError },
}

/// Finds and fetches components. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    options: Arc<StoreOptions>,
    probed: Arc<lookup::ProbedVersions>,
    flags: Arc<images::Flags>,
    /// Certificate and key of an image that has some.
    localhost: Arc<std::sync::OnceLock<Vec<hangar_node::process::ImageFile>>>,
    pulls: Arc<pull::Pulls>,
}

impl Store {
    pub fn new(options: StoreOptions) -> Store {
        Store {
            options: Arc::new(options),
            probed: Arc::default(),
            flags: Arc::default(),
            localhost: Arc::default(),
            pulls: Arc::default(),
        }
    }

    /// Whether what the user named can be used, before anything is fetched from there.
    pub fn check_sources(&self) -> Result<(), StoreError> {
        if let Some(mirror) = &self.options.mirror {
            download::check_scheme(mirror, self.options.insecure_mirror)
                .map_err(|error| StoreError::Mirror(Box::new(error)))?;
        }
        self.check_named()
    }

    pub fn options(&self) -> &StoreOptions {
        &self.options
    }
}

/// `HANGAR_COMPONENTS`, else `hangar/components` in the user's cache directory.
pub fn default_directory() -> PathBuf {
    match std::env::var_os("HANGAR_COMPONENTS").filter(|path| !path.is_empty()) {
        Some(path) => path.into(),
        None => crate::cache_directory().join("components"),
    }
}
