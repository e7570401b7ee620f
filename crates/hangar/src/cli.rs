//! What can be typed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

/// Kubernetes clusters with hosted control planes, from one program
#[derive(Parser)]
#[command(name = "hangar", version, about, propagate_version = true)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Args, Clone)]
pub struct Global {
    /// Directory with all state of this management plane
    #[arg(long, global = true, env = "HANGAR_HOME", value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// Directory with prebuilt components (kube-apiserver, etcd, ...)
    #[arg(long, global = true, value_name = "DIR")]
    pub components: Option<PathBuf>,
    /// Download site with the layout of dl.k8s.io
    #[arg(long, global = true, value_name = "URL")]
    pub mirror: Option<String>,
    /// Allow a download site without TLS
    #[arg(long, global = true)]
    pub insecure_mirror: bool,
    /// Namespace
    #[arg(long, short, global = true, default_value = "default", value_name = "NAME")]
    pub namespace: String,
    /// Output format
    #[arg(long, short, global = true, default_value = "text")]
    pub output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Text,
    Json,
    /// For `crds` only
    Yaml,
}

#[derive(Subcommand)]
pub enum Command {
    /// Start the management plane, apply a manifest and wait until its clusters are ready
    Up {
        /// Manifest to apply, `-` for standard input; ${VARIABLES} are substituted
        file: Option<PathBuf>,
        /// How long to wait for each cluster, such as 90s or 10m (a plain number is seconds)
        #[arg(long, default_value = "15m", value_name = "TIME", value_parser = time)]
        timeout: Duration,
        /// Return as soon as the manifest is applied
        #[arg(long)]
        no_wait: bool,
        /// Kubernetes version of the plane (default: the version that this home ran before)
        #[arg(long, value_name = "VERSION")]
        kubernetes: Option<String>,
        #[command(flatten)]
        substitute: Substitute,
        /// What runs on the servers of the simulated cloud
        #[arg(long, env = "HANGAR_GUESTS", value_enum, default_value_t, value_name = "KIND")]
        guests: PlaneGuests,
        /// Install the Gateway API: GatewayClass, Gateway and TLSRoute
        #[arg(long)]
        gateway_api: bool,
        /// Run in the foreground and log to the terminal, for systemd and containers
        #[arg(long, conflicts_with = "file")]
        foreground: bool,
        /// Format of the log in the foreground
        #[arg(long, env = "HANGAR_LOG_FORMAT", value_enum, default_value_t, value_name = "FORMAT")]
        log_format: LogFormat,
    },
    /// Run the controllers and the webhook against a management cluster; of several processes one acts, the others take over when it ends
    Run(Run),
    /// Stop the management plane; `up` starts it again with all of its data
    Down {
        /// Also delete all of its data
        #[arg(long)]
        purge: bool,
    },
    /// Show the state of the management plane and its clusters
    Status,
    /// Apply a manifest (`-f -`: standard input); ${VARIABLES} are substituted
    Apply {
        #[arg(short, long, value_name = "FILE")]
        filename: PathBuf,
    },
    /// Run kubectl against the management plane or one of its clusters
    Kubectl {
        /// Cluster to use (default: the management plane)
        #[arg(long, value_name = "NAME")]
        cluster: Option<String>,
        /// Arguments of kubectl
        #[arg(last = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Show a cluster as a tree, with the reasons why objects are not ready
    Describe {
        #[command(subcommand)]
        what: Described,
    },
    /// Print credentials
    Get {
        #[command(subcommand)]
        what: Got,
    },
    /// Print the CustomResourceDefinitions
    Crds(Crds),
    /// Manage the programs of the plane and of hosted control planes
    Components {
        #[command(subcommand)]
        what: Components,
    },
    /// Manage the simulated cloud
    Simulator {
        #[command(subcommand)]
        what: Simulated,
    },
    /// The background process
    #[command(hide = true)]
    Daemon {
        #[arg(long)]
        kubernetes: Option<String>,
        #[command(flatten)]
        substitute: Substitute,
        #[arg(long, value_enum, default_value_t)]
        guests: PlaneGuests,
    },
}

/// What a server of the local plane's cloud is.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum PlaneGuests {
    /// Processes in namespaces with the real kubelet; pods run
    Machine,
    /// A node that joins and reports every pod as running
    #[default]
    Hollow,
    /// Machines where the system allows them and memory lasts, hollow nodes otherwise
    Auto,
}

impl PlaneGuests {
    pub fn word(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Hollow => "hollow",
            Self::Auto => "auto",
        }
    }
}

/// A time as people write it: `90s`, `10m`, `1h30m`, or a number of seconds.
fn time(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let parsed = text.parse::<jiff::SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
    parsed.ok_or_else(|| "not a duration such as 90s, 10m or 1h30m".to_owned())
}

#[derive(Args, Clone, Copy)]
pub struct Substitute {
    /// Run the nearest installed version instead of one that is not installed; auto: only if the requested version cannot be downloaded and
    /// would have to be built, which takes minutes
    #[arg(
        long = "substitute-versions",
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "always"
    )]
    pub when: Option<When>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    Never,
    Always,
    Auto,
}

impl When {
    pub fn word(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Always => "always",
            Self::Auto => "auto",
        }
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    /// One JSON object per line
    Json,
}

#[derive(Args)]
pub struct Run {
    /// Kubeconfig of the management cluster (default: the service account of this pod)
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Only these controllers, by kind, such as OpenStackCluster,OpenStackMachine (default: all)
    #[arg(long, value_delimiter = ',', value_name = "KINDS")]
    pub controllers: Vec<String>,
    /// Address of the webhook, of /healthz, /readyz and /metrics
    #[arg(long, default_value = "0.0.0.0:9443", value_name = "ADDRESS")]
    pub bind_address: SocketAddr,
    /// Directory with tls.crt, tls.key and ca.crt, read again when they change (default: a certificate of its own making, which no API server trusts)
    #[arg(long, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,
    /// Hosts that a clouds.yaml may lead to: addresses, networks, names, *.DOMAIN (default: all but this machine, metadata services and the management API)
    #[arg(long, value_delimiter = ',', value_name = "HOSTS")]
    pub cloud_hosts: Vec<String>,
    /// Objects that are worked on at the same time
    #[arg(long, default_value_t = 16, value_name = "NUMBER")]
    pub workers: usize,
    #[command(flatten)]
    pub election: Election,
    /// Format of the log
    #[arg(long, env = "HANGAR_LOG_FORMAT", value_enum, default_value_t, value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// The options of Kubernetes' own controllers.
#[derive(Args)]
pub struct Election {
    /// Act only while holding the Lease
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub leader_elect: bool,
    /// Nobody else takes a Lease that was renewed within this time
    #[arg(long, default_value = "15s", value_name = "TIME", value_parser = time)]
    pub leader_elect_lease_duration: Duration,
    /// Whoever could not renew it for this long stops
    #[arg(long, default_value = "10s", value_name = "TIME", value_parser = time)]
    pub leader_elect_renew_deadline: Duration,
    /// Between two attempts to take or renew it
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = time)]
    pub leader_elect_retry_period: Duration,
    /// Namespace of the Lease (default: that of this pod, or hangar-system)
    #[arg(long, value_name = "NAMESPACE")]
    pub leader_elect_resource_namespace: Option<String>,
}

#[derive(Args)]
pub struct Crds {
    /// Only this kind, plural name or group
    pub only: Option<String>,
    /// Only kinds of this group
    #[arg(long, value_name = "GROUP")]
    pub group: Option<String>,
    /// Only this kind
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
    /// URL of the conversion webhook, as https://HOST:PORT (default: a Service)
    #[arg(long, value_name = "URL")]
    pub webhook_url: Option<String>,
    /// Service of the conversion webhook
    #[arg(
        long,
        value_name = "NAMESPACE/NAME",
        default_value = "hangar-system/hangar-webhook",
        conflicts_with = "webhook_url"
    )]
    pub webhook_service: String,
    /// PEM file with the certificate authority of the webhook
    #[arg(long, value_name = "FILE")]
    pub webhook_ca: Option<PathBuf>,
}

#[derive(Subcommand)]
pub enum Described {
    /// One cluster
    Cluster { name: String },
}

#[derive(Subcommand)]
pub enum Got {
    /// The administrator's kubeconfig of a cluster
    Kubeconfig { name: String },
}

#[derive(Subcommand)]
pub enum Components {
    /// List the installed components with their sizes
    List,
    /// Install components (default: those that the plane needs)
    Fetch {
        /// NAME or NAME@VERSION, such as kubelet or coredns@1.15.0
        names: Vec<String>,
        /// Version of the Kubernetes components
        #[arg(long, value_name = "VERSION")]
        kubernetes: Option<String>,
    },
    /// Verify the checksums of all installed components
    Verify,
    /// Remove versions that are not the default; with --all, everything
    Prune {
        #[arg(long)]
        all: bool,
    },
    /// Write all installed components to one file, for machines without a network
    Bundle { file: PathBuf },
    /// Install the components of such a file
    Load { file: PathBuf },
    /// Print the path of a component
    #[command(disable_version_flag = true)]
    Path {
        name: String,
        #[arg(long, value_name = "VERSION")]
        version: Option<String>,
    },
}

#[derive(Subcommand)]
pub enum Simulated {
    /// List all resources of tenants in the running simulated cloud
    Inventory,
    /// Run a standalone simulated OpenStack in the foreground
    Openstack(SimulatedOpenstack),
}

#[derive(clap::Args)]
pub struct SimulatedOpenstack {
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub listen: String,
    /// Persist its state in this file
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Also write the clouds.yaml to this file
    #[arg(long, value_name = "FILE")]
    pub clouds: Option<PathBuf>,
    /// Start with users only: no network, image or flavor
    #[arg(long)]
    pub bare: bool,
    /// Speed up time by this factor
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    pub speed: f64,
    /// File with a JSON list of fault injection rules; `PUT /admin/faults` replaces them at run time
    #[arg(long, value_name = "FILE")]
    pub faults: Option<PathBuf>,
    /// What runs on servers
    #[arg(long, value_enum, default_value_t = Guests::None)]
    pub guests: Guests,
    /// Serve HTTPS; the certificate of a new CA is written to this file
    #[arg(long, value_name = "CA_FILE")]
    pub tls: Option<PathBuf>,
    /// Forward floating IPs and virtual IPs on this machine; the external network is then 127.24.4.0/24
    #[arg(long)]
    pub forward: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Guests {
    /// Nothing: servers only become ACTIVE
    None,
    /// Hollow nodes, which join as their user-data says and report every pod as running
    Hollow,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_kubectl_reads_them() {
        for (text, seconds) in [("40", 40), ("40s", 40), ("2m", 120), ("1h30m", 5400), ("0", 0)] {
            assert_eq!(time(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "soon", "-5s", "-5", "1y"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
