//! What can be typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

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
    /// Directory with ready-made components (kube-apiserver, etcd, ...)
    #[arg(long, global = true, value_name = "DIR")]
    pub components: Option<PathBuf>,
    /// A site with Kubernetes releases in the layout of the official one
    #[arg(long, global = true, value_name = "URL")]
    pub mirror: Option<String>,
    /// Namespace
    #[arg(long, short, global = true, default_value = "default", value_name = "NAME")]
    pub namespace: String,
    /// Form of the output
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
        /// Manifest to apply, `-` for standard input; ${VARIABLES} are filled in
        file: Option<PathBuf>,
        /// Give up waiting for a cluster after this time, such as 90s or 10m (a number alone: seconds)
        #[arg(long, default_value = "15m", value_name = "TIME", value_parser = time)]
        timeout: Duration,
        /// Return as soon as the manifest is applied
        #[arg(long)]
        no_wait: bool,
        /// Kubernetes version of the plane; without it, what this home ran before
        #[arg(long, value_name = "VERSION")]
        kubernetes: Option<String>,
        #[command(flatten)]
        substitute: Substitute,
        /// Also serve the Gateway API: GatewayClass, Gateway and TLSRoute
        #[arg(long)]
        gateway_api: bool,
        /// Stay in the foreground and log to the terminal, for systemd and containers
        #[arg(long, conflicts_with = "file")]
        foreground: bool,
    },
    /// Stop the management plane; `up` brings it back as it was
    Down {
        /// Remove everything that it kept as well
        #[arg(long)]
        purge: bool,
    },
    /// Show what runs
    Status,
    /// Apply a manifest (`-f -`: standard input); ${VARIABLES} are filled in
    Apply {
        #[arg(short, long, value_name = "FILE")]
        filename: PathBuf,
    },
    /// Run kubectl against the management plane or one of its clusters
    Kubectl {
        /// The cluster to talk to; without it, the management plane
        #[arg(long, value_name = "NAME")]
        cluster: Option<String>,
        /// What kubectl is asked
        #[arg(last = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Show a cluster as a tree, with what is not ready and why
    Describe {
        #[command(subcommand)]
        what: Described,
    },
    /// Print something
    Get {
        #[command(subcommand)]
        what: Got,
    },
    /// Print the CustomResourceDefinitions
    Crds(Crds),
    /// Programs that the plane and hosted control planes are made of
    Components {
        #[command(subcommand)]
        what: Components,
    },
    /// The simulated cloud
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
    },
}

/// A time as people write it: `90s`, `10m`, `1h30m`, or a number of seconds.
fn time(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let parsed = text.parse::<jiff::SignedDuration>().ok().and_then(|time| Duration::try_from(time).ok());
    parsed.ok_or_else(|| "this is not a time such as 90s, 10m or 1h30m".to_owned())
}

#[derive(Args, Clone, Copy)]
pub struct Substitute {
    /// Run the nearest version in the place of one that is not at hand; auto: only where the version cannot be downloaded and would have to be
    /// built, which takes minutes
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
    /// Where the API server finds the conversion webhook, as https://HOST:PORT; without it, at a Service
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
    /// What is in the store, and how much room it takes
    List,
    /// Get components; without names, what the plane needs
    Fetch {
        /// NAME or NAME@VERSION, such as kubelet or coredns@1.15.0
        names: Vec<String>,
        /// Version of the Kubernetes components
        #[arg(long, value_name = "VERSION")]
        kubernetes: Option<String>,
    },
    /// Compare everything in the store with what was stored
    Verify,
    /// Remove versions that are not the default, and with --all the rest as well
    Prune {
        #[arg(long)]
        all: bool,
    },
    /// Write the store into one file, for a machine without a network
    Bundle { file: PathBuf },
    /// Take the components of such a file into the store
    Load { file: PathBuf },
    /// Print where a component is
    #[command(disable_version_flag = true)]
    Path {
        name: String,
        #[arg(long, value_name = "VERSION")]
        version: Option<String>,
    },
}

#[derive(Subcommand)]
pub enum Simulated {
    /// Everything that tenants have in the running simulated cloud
    Inventory,
    /// Run a simulated OpenStack on its own, in the foreground
    Openstack(SimulatedOpenstack),
}

#[derive(clap::Args)]
pub struct SimulatedOpenstack {
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDRESS")]
    pub listen: String,
    /// Keep its state in this file
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Also write the clouds.yaml to this file
    #[arg(long, value_name = "FILE")]
    pub clouds: Option<PathBuf>,
    /// Begin with users and nothing else: no network, image or flavor
    #[arg(long)]
    pub bare: bool,
    /// Let everything happen this many times faster
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    pub speed: f64,
    /// Rules of trouble, as a JSON list in a file; `PUT /admin/faults` replaces them later
    #[arg(long, value_name = "FILE")]
    pub faults: Option<PathBuf>,
    /// What runs on servers
    #[arg(long, value_enum, default_value_t = Guests::None)]
    pub guests: Guests,
    /// Serve HTTPS, with a new authority whose certificate goes to this file
    #[arg(long, value_name = "CA_FILE")]
    pub tls: Option<PathBuf>,
    /// Let floating IPs and virtual IPs answer on this machine; the external network is 127.24.4.0/24 then
    #[arg(long)]
    pub forward: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Guests {
    /// Nothing: servers are ACTIVE and that is all
    None,
    /// Nodes that join as their user-data says and report that every pod runs
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
