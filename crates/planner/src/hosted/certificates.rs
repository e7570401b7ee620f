//! What keys and certificates a control plane needs, in which Secrets, and in which order.

use std::time::Duration;

use hangar_api::Object;
use hangar_api::names::{CLUSTER_NAME_LABEL, SECRET_TYPE};
use jiff::Timestamp;
use serde_json::json;

use super::{Addresses, ControlPlane};
use crate::Gauge;
use crate::intent::fingerprint;
use crate::step::{Identity, Issue, LeafCertificate, Material, Signer};

/// What a Secret was issued for: another wish means another Secret.
pub const ISSUED_FOR_ANNOTATION: &str = "hangar.dev/issued-for";

/// From when on a certificate is to be issued anew: two thirds of its life.
pub const RENEW_AFTER_ANNOTATION: &str = "hangar.dev/renew-after";
/// When what is in a Secret expires.
pub const EXPIRES_ANNOTATION: &str = "hangar.dev/expires";
const RENEWAL_METRIC: &str = "hangar_certificate_renewal_timestamp_seconds";
const EXPIRATION_METRIC: &str = "hangar_certificate_expiration_timestamp_seconds";

/// When certificates of a control plane are renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal {
    /// The first that is due.
    pub next: Option<Timestamp>,
    /// When the first of those that are renewed expires.
    pub expires: Option<Timestamp>,
    now: Timestamp,
}

impl Renewal {
    /// Of these Secrets.
    pub fn of<'a>(secrets: impl Iterator<Item = &'a Object>, now: Timestamp) -> Self {
        let renewed: Vec<&Object> = secrets.filter(|secret| renew_after(secret).is_some()).collect();
        let expires = |secret: &&Object| secret.annotation(EXPIRES_ANNOTATION)?.parse().ok();
        Self {
            next: renewed.iter().filter_map(|secret| renew_after(secret)).min(),
            expires: renewed.iter().filter_map(expires).min(),
            now,
        }
    }

    /// Whether this one is issued anew: as soon as one is due, all are, since pods restart for it anyway. A rotation leaves them with different dates.
    pub fn is_due(&self, secret: &Object) -> bool {
        self.next.is_some_and(|next| next <= self.now) && renew_after(secret).is_some()
    }

    pub fn gauges(&self) -> Vec<Gauge> {
        let gauge = |name, help, at: Option<Timestamp>| at.map(|at| Gauge { name, help, value: at.as_second() as f64 });
        let renewal = gauge(RENEWAL_METRIC, "When certificates of the control plane are issued anew", self.next);
        let end = gauge(EXPIRATION_METRIC, "When the first certificate of the control plane expires", self.expires);
        renewal.into_iter().chain(end).collect()
    }

    /// How long until then.
    pub fn remaining(&self) -> Option<Duration> {
        self.next.map(|next| Duration::try_from(next.duration_since(self.now)).unwrap_or_default())
    }
}

fn renew_after(secret: &Object) -> Option<Timestamp> {
    secret.annotation(RENEW_AFTER_ANNOTATION)?.parse().ok()
}

/// Who may do everything without asking RBAC; only what Hangar itself uses is in this group.
const SUPER_ADMINS: &str = "system:masters";
/// Bound to cluster-admin in the tenant, and so revocable; the same as kubeadm has since 1.29.
pub const ADMINS: &str = "kubeadm:cluster-admins";
/// Hangar's own kubeconfig; it is published nowhere.
pub const SUPER_ADMIN_FILE: &str = "super-admin.conf";

/// Whether the group of administrators is bound in the tenant already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admins {
    Bound,
    /// A control plane from before: its kubeconfigs keep the group that they have until the binding is there.
    NotBoundYet,
}

impl Admins {
    fn group(self) -> &'static str {
        match self {
            Self::Bound => ADMINS,
            Self::NotBoundYet => SUPER_ADMINS,
        }
    }
}

/// Who the server of the tunnel is, to its agents and to the API server.
const KONNECTIVITY: &str = "system:konnectivity-server";

/// Everything that the authorities sign.
pub fn leaves(
    plane: &ControlPlane,
    addresses: &Addresses,
    ca: &Signer,
    front_proxy: &Signer,
    data_store: Option<&Signer>,
    admins: Admins,
) -> Vec<Issue> {
    let mut issues = vec![
        leaf(plane, "-api-server-certificate", ca, server(plane, addresses), "apiserver", None),
        leaf(
            plane,
            "-api-server-kubelet-client-certificate",
            ca,
            client("kube-apiserver-kubelet-client", &[admins.group()]),
            "apiserver-kubelet-client",
            None,
        ),
        leaf(
            plane,
            "-front-proxy-client-certificate",
            front_proxy,
            client("front-proxy-client", &[]),
            "front-proxy-client",
            None,
        ),
    ];
    if let (Some(signer), Some(tenancy)) = (data_store, plane.tenancy()) {
        let subject = client(&tenancy.user, &[]);
        issues.push(leaf(plane, "-datastore-certificate", signer, subject, "server", Some("ca.crt")));
    }
    issues.extend(kubeconfigs(plane, addresses, ca, admins));
    if plane.addons.konnectivity.is_some() {
        let subject = LeafCertificate { common_name: KONNECTIVITY.into(), ..server(plane, addresses) };
        issues.push(leaf(plane, "-konnectivity-certificate", ca, subject, "konnectivity-server", None));
    }
    issues
}

fn kubeconfigs(plane: &ControlPlane, addresses: &Addresses, ca: &Signer, admins: Admins) -> Vec<Issue> {
    let public = format!("https://{}", host_port(&addresses.endpoint, plane.exposure.port));
    let inner = format!("https://{}", host_port(&addresses.cluster_ip, plane.exposure.port));
    let identity = |leaf: LeafCertificate, user: &str, files: &[(&str, &String)]| Identity {
        leaf,
        user: user.to_owned(),
        files: files.iter().map(|(file, server)| ((*file).to_owned(), (*server).clone())).collect(),
    };
    let component = |name: &str, file: &str| vec![identity(client(name, &[]), name, &[(file, &inner)])];
    let mut administrators = vec![identity(
        client("kubernetes-admin", &[admins.group()]),
        &format!("{}-admin", plane.cluster_name),
        &[("admin.conf", &public), ("admin.svc", &inner)],
    )];
    if admins == Admins::Bound {
        administrators.push(identity(
            client("hangar-super-admin", &[SUPER_ADMINS]),
            &format!("{}-super-admin", plane.cluster_name),
            &[(SUPER_ADMIN_FILE, &public), ("super-admin.svc", &inner)],
        ));
    }
    let mut all = vec![
        kubeconfig(plane, "-admin-kubeconfig", ca, administrators),
        kubeconfig(
            plane,
            "-controller-manager-kubeconfig",
            ca,
            component("system:kube-controller-manager", "controller-manager.conf"),
        ),
        kubeconfig(plane, "-scheduler-kubeconfig", ca, component("system:kube-scheduler", "scheduler.conf")),
    ];
    if plane.addons.konnectivity.is_some() {
        let server = component(KONNECTIVITY, "konnectivity-server.conf");
        all.push(kubeconfig(plane, "-konnectivity-kubeconfig", ca, server));
    }
    all
}

fn kubeconfig(plane: &ControlPlane, suffix: &str, ca: &Signer, identities: Vec<Identity>) -> Issue {
    let trusted = ca.trust_pem.as_ref().unwrap_or(&ca.certificate_pem);
    let wish = |it: &Identity| json!([it.leaf.common_name, it.leaf.organizations, it.files, trusted]);
    let wish = match &identities[..] {
        [only] => wish(only),
        several => several.iter().map(wish).collect(),
    };
    Issue {
        secret: secret(plane, &plane.object(suffix), &wish.to_string()),
        material: Material::Kubeconfig { authority: ca.clone(), cluster: plane.cluster_name.clone(), identities },
        replaces: false,
    }
}

/// An IPv6 address needs brackets before a port.
pub fn host_port(host: &str, port: i64) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn server(plane: &ControlPlane, addresses: &Addresses) -> LeafCertificate {
    let domain = &plane.network.domain;
    let mut names = vec![
        "localhost".to_owned(),
        "127.0.0.1".into(),
        "kubernetes".into(),
        "kubernetes.default".into(),
        "kubernetes.default.svc".into(),
        format!("kubernetes.default.svc.{domain}"),
        plane.name.clone(),
        format!("{}.{}.svc", plane.name, plane.namespace),
        format!("{}.{}.svc.cluster.local", plane.name, plane.namespace),
        plane.kubernetes_service_ip(),
        addresses.cluster_ip.clone(),
        addresses.endpoint.clone(),
    ];
    names.extend(plane.network.certificate_names.iter().cloned());
    names.sort();
    names.dedup();
    LeafCertificate { common_name: "kube-apiserver".into(), organizations: vec![], names, server: true, client: false }
}

fn client(common_name: &str, organizations: &[&str]) -> LeafCertificate {
    LeafCertificate {
        common_name: common_name.to_owned(),
        organizations: organizations.iter().map(|name| (*name).to_owned()).collect(),
        names: vec![],
        server: false,
        client: true,
    }
}

fn leaf(
    plane: &ControlPlane,
    suffix: &str,
    authority: &Signer,
    leaf: LeafCertificate,
    file: &str,
    ca_file: Option<&str>,
) -> Issue {
    let wish = json!([leaf.common_name, leaf.organizations, leaf.names, authority.certificate_pem]).to_string();
    Issue {
        secret: secret(plane, &plane.object(suffix), &wish),
        material: Material::Leaf {
            authority: authority.clone(),
            leaf,
            files: (format!("{file}.crt"), format!("{file}.key")),
            ca_file: ca_file.map(str::to_owned),
        },
        replaces: false,
    }
}

pub(super) fn secret(plane: &ControlPlane, name: &str, wish: &str) -> Object {
    let mut secret = Object::named("v1", "Secret", &plane.namespace, name);
    secret.0["metadata"]["labels"] = plane.own_labels();
    secret.0["metadata"]["annotations"] = json!({ ISSUED_FOR_ANNOTATION: fingerprint(&wish.into()) });
    secret
}

/// A Secret that Cluster API and its users look for, with the content of another.
pub fn published(plane: &ControlPlane, name: &str, data: serde_json::Value) -> Object {
    let mut secret = Object::named("v1", "Secret", &plane.namespace, name);
    secret.0["metadata"]["labels"] = json!({ CLUSTER_NAME_LABEL: plane.cluster_name });
    secret.0["type"] = SECRET_TYPE.into();
    secret.0["data"] = data;
    secret
}

#[cfg(test)]
mod renewal_tests {
    use super::*;
    use crate::testing::at;

    fn secret(renew_after: Option<i64>) -> Object {
        let mut secret = Object::named("v1", "Secret", "n", "s");
        if let Some(second) = renew_after {
            secret.0["metadata"]["annotations"] = json!({ RENEW_AFTER_ANNOTATION: at(second).to_string() });
        }
        secret
    }

    #[test]
    fn what_is_due_is_renewed_together() {
        let day = 24 * 3600;
        // Due times, now, and which of them are renewed.
        let table = [
            (vec![Some(100), Some(200)], 99, vec![false, false]),
            (vec![Some(100), Some(200)], 100, vec![true, true]),
            (vec![Some(100), Some(100 + 200 * day)], 99, vec![false, false]),
            (vec![Some(100), Some(100 + 200 * day)], 100, vec![true, true]),
            (vec![Some(100), None], 5000 * day, vec![true, false]),
            (vec![None], 5000 * day, vec![false]),
        ];
        for (due, now, renewed) in table {
            let secrets: Vec<Object> = due.iter().map(|second| secret(*second)).collect();
            let renewal = Renewal::of(secrets.iter(), at(now));
            let answer: Vec<bool> = secrets.iter().map(|secret| renewal.is_due(secret)).collect();
            assert_eq!(answer, renewed, "{due:?} at {now}");
        }
        assert_eq!(Renewal::of([secret(Some(100))].iter(), at(40)).remaining(), Some(Duration::from_secs(60)));
    }
}
