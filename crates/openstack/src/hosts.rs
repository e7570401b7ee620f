//! Which hosts a client may talk to.
//!
//! Holds: a clouds.yaml and the catalog behind it are written by whoever may write a Secret. In a shared management cluster they must not lead to
//! what only the manager can reach: its own machine, the metadata service of its server, its API server. A name counts for nothing: what it resolves to
//! is checked when the connection is made, so that a name which changes its address in between gains nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use ipnet::IpNet;
use tower::Service;

/// Metadata services that are not link-local.
const METADATA: [IpAddr; 2] =
    [IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)), IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200))];

/// Why a host is not talked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("host {host} is not allowed for clouds: {why}")]
pub struct HostRefused {
    pub host: String,
    pub why: &'static str,
}

/// Clones are cheap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPolicy(Arc<Rules>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Rules {
    everything: bool,
    denied: Vec<Pattern>,
    /// If there are any, nothing else is allowed.
    allowed: Vec<Pattern>,
}

/// An address, a network, a name, or `*.` and the end of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Network(IpNet),
    Name(String),
    Below(String),
}

impl Pattern {
    fn parse(text: &str) -> Self {
        let text = text.trim().trim_end_matches('.').to_ascii_lowercase();
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Self::Network(address.to_canonical().into());
        }
        match (text.parse::<IpNet>(), text.strip_prefix("*.")) {
            (Ok(network), _) => Self::Network(network),
            (_, Some(end)) => Self::Below(format!(".{end}")),
            _ => Self::Name(text),
        }
    }

    fn names(&self, host: &str) -> bool {
        match self {
            Self::Network(_) => false,
            Self::Name(name) => host == name,
            Self::Below(end) => host.ends_with(end.as_str()),
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        matches!(self, Self::Network(network) if network.contains(&address))
    }
}

impl HostPolicy {
    /// For a plane that belongs to the user who writes the Secrets.
    pub fn everything() -> Self {
        Self(Arc::new(Rules { everything: true, ..Rules::default() }))
    }

    /// For a manager in a cluster of many: neither this machine nor what is reachable from it alone. `denied` are further hosts, above all those of the
    /// management API; `allowed`, if it is not empty, is all that may be reached. Both have addresses, networks, names, and `*.` with the end of a name.
    pub fn shared<S: AsRef<str>>(denied: &[S], allowed: &[S]) -> Self {
        let parse = |list: &[S]| list.iter().map(|text| Pattern::parse(text.as_ref())).collect();
        Self(Arc::new(Rules { everything: false, denied: parse(denied), allowed: parse(allowed) }))
    }

    /// Of a URL: what can be said before its name is resolved.
    pub fn check_url(&self, url: &str) -> Result<(), HostRefused> {
        let uri: Option<http::Uri> = url.parse().ok();
        self.check_host(uri.as_ref().and_then(http::Uri::host).unwrap_or_default())
    }

    pub(crate) fn check_host(&self, host: &str) -> Result<(), HostRefused> {
        let host = normal(host);
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.check_address(&host, address);
        }
        let Rules { everything, denied, allowed } = &*self.0;
        let refuse = |why| Err(HostRefused { host: host.clone(), why });
        if *everything {
            return Ok(());
        }
        if denied.iter().any(|pattern| pattern.names(&host)) || host == "localhost" || host.ends_with(".localhost") {
            return refuse("it is reserved for the management cluster");
        }
        let networks = allowed.iter().any(|pattern| matches!(pattern, Pattern::Network(_)));
        if !allowed.is_empty() && !networks && !allowed.iter().any(|pattern| pattern.names(&host)) {
            return refuse("it is not on the list of allowed hosts");
        }
        Ok(())
    }

    /// What `host` resolved to.
    pub(crate) fn check_address(&self, host: &str, address: IpAddr) -> Result<(), HostRefused> {
        let host = normal(host);
        let Rules { everything, denied, allowed } = &*self.0;
        let address = unwrapped(address);
        let refuse = |why| Err(HostRefused { host: host.clone(), why });
        if *everything || allowed.iter().any(|pattern| pattern.contains(address)) {
            return Ok(());
        }
        if denied.iter().any(|pattern| pattern.contains(address)) {
            return refuse("it is reserved for the management cluster");
        }
        if let Some(why) = special(address) {
            return refuse(why);
        }
        if !allowed.is_empty() && !allowed.iter().any(|pattern| pattern.names(&host)) {
            return refuse("it is not on the list of allowed hosts");
        }
        Ok(())
    }
}

fn normal(host: &str) -> String {
    host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase()
}

/// The IPv4 address in an IPv6 one that leads to it.
fn unwrapped(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => match six.segments() {
            // NAT64 and the deprecated compatible form.
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] => four(high, low),
            [0, 0, 0, 0, 0, 0, high, low] if high != 0 => four(high, low),
            // 6to4.
            [0x2002, high, low, ..] => four(high, low),
            _ => IpAddr::V6(six),
        },
        four => four,
    }
}

fn four(high: u16, low: u16) -> IpAddr {
    Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)).into()
}

fn special(address: IpAddr) -> Option<&'static str> {
    let link_local = match address {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    };
    let this_network = matches!(address, IpAddr::V4(four) if four.octets()[0] == 0 || four.is_broadcast());
    if address.is_loopback() {
        Some("it is a loopback address")
    } else if link_local || METADATA.contains(&address) {
        Some("it is a link-local address or a metadata service")
    } else if address.is_unspecified() || this_network || address.is_multicast() {
        Some("it is not the address of a host")
    } else {
        None
    }
}

/// Resolves names, and leaves out what must not be connected to.
#[derive(Clone)]
pub(crate) struct CheckedResolver {
    pub(crate) policy: HostPolicy,
    pub(crate) inner: GaiResolver,
}

impl Service<Name> for CheckedResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = crate::BoxError;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (policy, host) = (self.policy.clone(), name.as_str().to_owned());
        let resolving = self.inner.call(name);
        Box::pin(async move {
            let resolved: Vec<SocketAddr> = resolving.await?.collect();
            Ok(permitted(&policy, &host, resolved)?.into_iter())
        })
    }
}

fn permitted(policy: &HostPolicy, host: &str, resolved: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, HostRefused> {
    let mut refused = None;
    let mut good = vec![];
    for address in resolved {
        match policy.check_address(host, address.ip()) {
            Ok(()) => good.push(address),
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(refused) if good.is_empty() => Err(refused),
        _ => Ok(good),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [&str; 0] = [];

    #[test]
    fn in_a_shared_cluster_nothing_leads_inside() {
        let policy =
            HostPolicy::shared(&["10.96.0.1", "kubernetes.default.svc", "10.0.0.0/28", "*.cluster.local"], &NONE);
        let table = [
            ("http://127.0.0.1:5000/v3", false),
            ("http://127.8.9.1/", false),
            ("http://localhost:8080", false),
            ("http://[::1]:5000", false),
            ("http://[::ffff:127.0.0.1]/", false),
            ("http://[64:ff9b::7f00:1]/", false),
            ("http://[2002:a9fe:a9fe::1]/", false),
            ("http://169.254.169.254/latest/meta-data", false),
            ("http://[fe80::1]/", false),
            ("http://[fd00:ec2::254]/", false),
            ("http://0.0.0.0:6443", false),
            ("http://0.1.2.3", false),
            ("http://[::]/", false),
            ("http://224.0.0.1/", false),
            ("https://10.96.0.1/", false),
            ("https://10.0.0.7/", false),
            ("https://kubernetes.default.svc./", false),
            ("https://KUBERNETES.default.SVC", false),
            ("https://etcd.kube-system.svc.cluster.local", false),
            ("https://10.0.0.16:5000", true),
            ("https://keystone.example.org:5000/v3", true),
            ("https://192.168.1.1/", true),
            ("https://[2001:db8::1]:5000", true),
        ];
        for (url, expected) in table {
            assert_eq!(policy.check_url(url).is_ok(), expected, "{url}");
            assert!(HostPolicy::everything().check_url(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn a_list_of_allowed_hosts_is_all_there_is() {
        let policy =
            HostPolicy::shared(&NONE, &["*.cloud.example.org", "keystone.example.org", "192.0.2.0/24", "127.0.0.1"]);
        let public: IpAddr = "198.51.100.1".parse().unwrap();
        let table = [
            ("nova.cloud.example.org", public, true),
            ("keystone.example.org", public, true),
            ("evil.example.org", public, false),
            ("cloud.example.org.evil.example", public, false),
            ("evil.example.org", "192.0.2.7".parse().unwrap(), true),
            ("127.0.0.1", "127.0.0.1".parse().unwrap(), true),
            ("keystone.example.org", "169.254.169.254".parse().unwrap(), false),
        ];
        for (host, address, expected) in table {
            assert_eq!(policy.check_address(host, address).is_ok(), expected, "{host} {address}");
        }
        let names = HostPolicy::shared(&NONE, &["keystone.example.org"]);
        assert!(names.check_url("https://evil.example.org").is_err());
        assert!(names.check_url("https://keystone.example.org").is_ok());
    }

    #[test]
    fn a_name_is_what_it_resolves_to_when_the_connection_is_made() {
        let policy = HostPolicy::shared(&NONE, &NONE);
        let good: SocketAddr = "198.51.100.1:443".parse().unwrap();
        let bad: SocketAddr = "169.254.169.254:80".parse().unwrap();
        assert_eq!(permitted(&policy, "rebound.example", vec![bad, good]).unwrap(), vec![good]);
        let refused = permitted(&policy, "rebound.example", vec![bad]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "host rebound.example is not allowed for clouds: it is a link-local address or a metadata service"
        );
    }
}
