//! Keys, certificates and kubeconfigs of the plane, in `pki/` of the home.
//!
//! Holds: authorities and the service account key are made once and kept; a leaf is made again when it is missing,
//! unreadable, or within 30 days of its end. Everything is readable by its user alone.

use std::path::{Path, PathBuf};

use hangar_pki::{Authority, CertifiedKey, Kubeconfig, Leaf, SystemKeys, Usage, expires_at};
use jiff::{Timestamp, ToSpan as _};

use super::PlaneError;
use super::state::State;
use crate::home::Home;

const RENEW_DAYS: i64 = 30;

/// Where the material lies.
pub(super) struct Certificates {
    directory: PathBuf,
}

impl Certificates {
    pub fn prepare(home: &Home, state: &State) -> Result<Self, PlaneError> {
        let made = Self { directory: home.pki() };
        let now = Timestamp::now();
        let (plane, network) = (state.network.plane().to_string(), state.network);
        let ca = made.authority("ca", "hangar", now)?;
        let etcd_ca = made.authority("etcd-ca", "hangar-etcd", now)?;
        let front_proxy_ca = made.authority("front-proxy-ca", "hangar-front-proxy", now)?;
        made.service_account_keys()?;
        let mut names: Vec<String> =
            ["localhost", "127.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
                .map(String::from)
                .to_vec();
        names.extend([
            "kubernetes.default.svc.cluster.local".into(),
            plane.clone(),
            network.kubernetes_service().to_string(),
        ]);
        made.leaf("apiserver", &ca, &Leaf::server("kube-apiserver", names), now)?;
        let kubelet = Leaf::server("system:node:hangar", [plane.clone(), "localhost".into()]);
        made.leaf("kubelet", &ca, &kubelet, now)?;
        made.leaf("webhook", &ca, &Leaf::server("hangar-webhook", [plane.clone()]), now)?;
        made.leaf(
            "apiserver-kubelet-client",
            &ca,
            &Leaf::client("kube-apiserver-kubelet-client", &["system:masters"]),
            now,
        )?;
        let mut etcd = Leaf::server("etcd", [plane.clone(), "localhost".into()]);
        etcd.usage = Usage::ServerAndClient;
        made.leaf("etcd", &etcd_ca, &etcd, now)?;
        made.leaf("apiserver-etcd-client", &etcd_ca, &Leaf::client("kube-apiserver", &[]), now)?;
        made.leaf("front-proxy-client", &front_proxy_ca, &Leaf::client("front-proxy-client", &[]), now)?;
        let server = format!("https://{plane}:{}", state.api_port);
        let users = [
            (home.kubeconfig(), "admin", Leaf::client("kubernetes-admin", &["system:masters"])),
            (
                made.path("controller-manager.conf"),
                "controller-manager",
                Leaf::client("system:kube-controller-manager", &[]),
            ),
            (made.path("scheduler.conf"), "scheduler", Leaf::client("system:kube-scheduler", &[])),
        ];
        for (path, user, leaf) in users {
            let identity = made.leaf(user, &ca, &leaf, now)?;
            let config = Kubeconfig {
                cluster: "hangar",
                user,
                server: &server,
                ca_pem: ca.certificate_pem(),
                identity: &identity,
            };
            write_private(&path, config.to_json().as_bytes())?;
        }
        Ok(made)
    }

    /// The path of a file as an argument.
    pub fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn authority(&self, name: &str, common_name: &str, now: Timestamp) -> Result<Authority, PlaneError> {
        let pki = |source| PlaneError::Pki { path: self.path(name), source };
        if let Some(kept) = self.read_pair(name)? {
            return Authority::load(&kept.certificate_pem, &kept.key_pem).map_err(pki);
        }
        let made = Authority::create(&SystemKeys, common_name, now).map_err(pki)?;
        let pair = CertifiedKey { certificate_pem: made.certificate_pem().into(), key_pem: made.key_pem().into() };
        self.write_pair(name, &pair)?;
        Ok(made)
    }

    fn leaf(&self, name: &str, authority: &Authority, leaf: &Leaf, now: Timestamp) -> Result<CertifiedKey, PlaneError> {
        if let Some(kept) = self.read_pair(name)?
            && expires_at(&kept.certificate_pem).is_ok_and(|end| end > now + (RENEW_DAYS * 24).hours())
        {
            return Ok(kept);
        }
        let pki = |source| PlaneError::Pki { path: self.path(name), source };
        let made = authority.issue(&SystemKeys, leaf, now).map_err(pki)?;
        self.write_pair(name, &made)?;
        Ok(made)
    }

    fn service_account_keys(&self) -> Result<(), PlaneError> {
        if self.path("sa.key").exists() && self.path("sa.pub").exists() {
            return Ok(());
        }
        let pki = |source| PlaneError::Pki { path: self.path("sa.key"), source };
        let (public, private) = hangar_pki::service_account_keys(&SystemKeys).map_err(pki)?;
        write_private(&self.path("sa.pub"), public.as_bytes())?;
        write_private(&self.path("sa.key"), private.as_bytes())
    }

    fn read_pair(&self, name: &str) -> Result<Option<CertifiedKey>, PlaneError> {
        let (certificate, key) = (self.path(&format!("{name}.crt")), self.path(&format!("{name}.key")));
        if !certificate.exists() || !key.exists() {
            return Ok(None);
        }
        Ok(Some(CertifiedKey { certificate_pem: read(&certificate)?, key_pem: read(&key)? }))
    }

    fn write_pair(&self, name: &str, pair: &CertifiedKey) -> Result<(), PlaneError> {
        write_private(&self.path(&format!("{name}.key")), pair.key_pem.as_bytes())?;
        write_private(&self.path(&format!("{name}.crt")), pair.certificate_pem.as_bytes())
    }
}

fn read(path: &Path) -> Result<String, PlaneError> {
    std::fs::read_to_string(path).map_err(|source| PlaneError::File { path: path.to_owned(), source })
}

fn write_private(path: &Path, content: &[u8]) -> Result<(), PlaneError> {
    hangar_node::small_file::keep(path, content).map_err(|source| PlaneError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::net::LoopbackNet;

    #[test]
    fn material_is_private_and_kept_and_old_leaves_are_renewed() {
        let directory = tempfile::tempdir().unwrap();
        let home = Home::open(directory.path().join("home")).unwrap();
        let network = LoopbackNet::new(9);
        let state = State {
            network,
            api_port: 1,
            etcd_port: 2,
            etcd_peer_port: 3,
            controller_manager_port: 4,
            scheduler_port: 5,
        };
        let made = Certificates::prepare(&home, &state).unwrap();
        let before = std::fs::read_to_string(made.path("apiserver.crt")).unwrap();
        let ca = std::fs::read_to_string(made.path("ca.crt")).unwrap();
        assert_eq!(home.kubeconfig().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        Certificates::prepare(&home, &state).unwrap();
        assert_eq!(std::fs::read_to_string(made.path("apiserver.crt")).unwrap(), before);

        let authority = Authority::load(&ca, &std::fs::read_to_string(made.path("ca.key")).unwrap()).unwrap();
        let past = Timestamp::now() - (340 * 24).hours();
        let old = authority.issue(&SystemKeys, &Leaf::server("kube-apiserver", []), past).unwrap();
        made.write_pair("apiserver", &old).unwrap();
        Certificates::prepare(&home, &state).unwrap();
        assert_ne!(std::fs::read_to_string(made.path("apiserver.crt")).unwrap(), old.certificate_pem);
        assert_eq!(std::fs::read_to_string(made.path("ca.crt")).unwrap(), ca);
    }
}
