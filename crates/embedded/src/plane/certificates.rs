//! Keys, certificates and kubeconfigs of the plane, in `pki/` of the home.
//!
//! Flows: who needs a certificate ([`Certificates::leaves`]) -> what is missing, unreadable or due is issued anew -> its names, for whoever has to be told.
//! Holds: authorities and the service account key are made once and kept; a leaf is renewed before two thirds of its life are over, at a start and while the
//! plane runs. Everything is readable by its user alone.

use std::path::{Path, PathBuf};

use hangar_pki::{Authority, CertifiedKey, Kubeconfig, Leaf, SystemKeys, Usage, expires_at, is_due};
use jiff::Timestamp;

use super::PlaneError;
use super::state::State;
use crate::home::Home;
use crate::identities;

/// Who has a kubeconfig: the file of the certificate, and the user.
const USERS: [(&str, &str); 5] = [
    ("controller-manager", "system:kube-controller-manager"),
    ("scheduler", "system:kube-scheduler"),
    (identities::CONTROLLERS, identities::CONTROLLERS),
    (identities::NODE, identities::NODE),
    (identities::CLOUD, identities::CLOUD),
];
const ADMINISTRATOR: &str = "admin";
/// Had every right; nobody uses it any more.
const FORMER_KUBELET_CLIENT: &str = "apiserver-kubelet-client";

/// Where the material lies.
pub(super) struct Certificates {
    directory: PathBuf,
    kubeconfig: PathBuf,
}

impl Certificates {
    pub fn prepare(home: &Home, state: &State) -> Result<Self, PlaneError> {
        let made = Self { directory: home.pki(), kubeconfig: home.kubeconfig() };
        made.renew(state, Timestamp::now())?;
        for end in ["crt", "key"] {
            let _ = std::fs::remove_file(made.path(&format!("{FORMER_KUBELET_CLIENT}.{end}")));
        }
        Ok(made)
    }

    /// Makes what is missing or due, and says what that was.
    pub fn renew(&self, state: &State, now: Timestamp) -> Result<Vec<String>, PlaneError> {
        let ca = self.authority("ca", "hangar", now)?;
        let etcd_ca = self.authority("etcd-ca", "hangar-etcd", now)?;
        let front_proxy_ca = self.authority("front-proxy-ca", "hangar-front-proxy", now)?;
        self.service_account_keys()?;
        let mut renewed = vec![];
        for (name, signer, leaf) in leaves(state) {
            let authority = match signer {
                Signer::Plane => &ca,
                Signer::Etcd => &etcd_ca,
                Signer::FrontProxy => &front_proxy_ca,
            };
            if self.leaf(name, authority, &leaf, now)? {
                renewed.push(name.to_owned());
            }
        }
        let server = format!("https://{}:{}", state.network.plane(), state.api_port);
        for user in USERS.into_iter().map(|(name, _)| name).chain([ADMINISTRATOR]) {
            let Some(identity) = self.read_pair(user)? else { continue };
            let config = Kubeconfig {
                cluster: "hangar",
                user,
                server: &server,
                ca_pem: ca.certificate_pem(),
                identity: &identity,
            };
            let (path, text) = (self.kubeconfig_of(user), config.to_json());
            if std::fs::read(&path).ok().as_deref() != Some(text.as_bytes()) {
                write_private(&path, text.as_bytes())?;
            }
        }
        Ok(renewed)
    }

    fn kubeconfig_of(&self, user: &str) -> PathBuf {
        if user == ADMINISTRATOR { self.kubeconfig.clone() } else { self.path(&format!("{user}.conf")) }
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

    /// Whether it was issued anew.
    fn leaf(&self, name: &str, authority: &Authority, leaf: &Leaf, now: Timestamp) -> Result<bool, PlaneError> {
        if self.read_pair(name)?.is_some_and(|kept| !is_due(&kept.certificate_pem, now)) {
            return Ok(false);
        }
        let pki = |source| PlaneError::Pki { path: self.path(name), source };
        let made = authority.issue(&SystemKeys, leaf, now).map_err(pki)?;
        self.write_pair(name, &made)?;
        Ok(true)
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

/// Who signs a leaf.
enum Signer {
    Plane,
    Etcd,
    FrontProxy,
}

/// Every certificate of a plane, by the name of its files.
fn leaves(state: &State) -> Vec<(&'static str, Signer, Leaf)> {
    let plane = state.network.plane().to_string();
    let mut names: Vec<String> =
        ["localhost", "127.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
            .map(String::from)
            .to_vec();
    let service = state.network.kubernetes_service().to_string();
    names.extend(["kubernetes.default.svc.cluster.local".into(), plane.clone(), service]);
    let here = || [plane.clone(), "localhost".to_owned()];
    let etcd = Leaf { usage: Usage::ServerAndClient, ..Leaf::server("etcd", here()) };
    let mut leaves = vec![
        ("apiserver", Signer::Plane, Leaf::server("kube-apiserver", names)),
        ("kubelet", Signer::Plane, Leaf::server("system:node:hangar", here())),
        ("webhook", Signer::Plane, Leaf::server("hangar-webhook", [plane.clone()])),
        ("kubelet-client", Signer::Plane, Leaf::client(identities::KUBELET_CLIENT, &[])),
        ("etcd", Signer::Etcd, etcd),
        ("apiserver-etcd-client", Signer::Etcd, Leaf::client("kube-apiserver", &[])),
        ("front-proxy-client", Signer::FrontProxy, Leaf::client("front-proxy-client", &[])),
        (ADMINISTRATOR, Signer::Plane, Leaf::client("kubernetes-admin", &["system:masters"])),
    ];
    leaves.extend(USERS.map(|(name, user)| (name, Signer::Plane, Leaf::client(user, &[]))));
    leaves
}

/// Which certificate of a home ends first, and when: what is renewed in time never comes near.
pub fn first_to_expire(home: &Home) -> Option<(String, Timestamp)> {
    let files = home.pki().read_dir().ok()?.flatten().map(|entry| entry.path());
    let certificates = files.filter(|path| path.extension().is_some_and(|end| end == "crt"));
    let dated = certificates.filter_map(|path| {
        let end = expires_at(&std::fs::read_to_string(&path).ok()?).ok()?;
        Some((path.file_stem()?.to_string_lossy().into_owned(), end))
    });
    dated.min_by_key(|(_, end)| *end)
}

fn read(path: &Path) -> Result<String, PlaneError> {
    std::fs::read_to_string(path).map_err(|source| PlaneError::File { path: path.to_owned(), source })
}

fn write_private(path: &Path, content: &[u8]) -> Result<(), PlaneError> {
    hangar_node::small_file::keep(path, content).map_err(|source| PlaneError::File { path: path.to_owned(), source })
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use jiff::ToSpan as _;

    use super::*;
    use crate::net::LoopbackNet;

    pub(in crate::plane) fn state() -> State {
        State {
            network: LoopbackNet::new(9),
            api_port: 1,
            etcd_port: 2,
            etcd_peer_port: 3,
            controller_manager_port: 4,
            scheduler_port: 5,
        }
    }

    fn home(directory: &tempfile::TempDir) -> Home {
        Home::open(directory.path().join("home")).unwrap()
    }

    #[test]
    fn material_is_private_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let home = home(&directory);
        let made = Certificates::prepare(&home, &state()).unwrap();
        let files: Vec<PathBuf> = home.pki().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        for path in files.iter().chain([&home.kubeconfig()]) {
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{}", path.display());
        }
        let content = |path: &PathBuf| std::fs::read(path).unwrap();
        let before: Vec<Vec<u8>> = files.iter().map(content).collect();
        assert_eq!(made.renew(&state(), Timestamp::now()).unwrap(), Vec::<String>::new());
        assert_eq!(files.iter().map(content).collect::<Vec<_>>(), before);
    }

    #[test]
    fn leaves_are_renewed_before_two_thirds_of_their_life_and_authorities_stay() {
        let directory = tempfile::tempdir().unwrap();
        let home = home(&directory);
        let made = Certificates::prepare(&home, &state()).unwrap();
        let (ca, began) = (std::fs::read(made.path("ca.crt")).unwrap(), Timestamp::now());
        let all: Vec<&str> = leaves(&state()).iter().map(|(name, ..)| *name).collect();
        for (day, expected) in [(0, false), (200, false), (243, true), (244, false), (484, false), (487, true)] {
            let renewed = made.renew(&state(), began + (day * 24).hours()).unwrap();
            assert_eq!(renewed == all, expected, "day {day}: {renewed:?}");
            let (name, end) = first_to_expire(&home).unwrap();
            assert!(end > began + (day * 24 + 365 * 8).hours(), "day {day}: {name} ends on {end}");
        }
        assert_eq!(std::fs::read(made.path("ca.crt")).unwrap(), ca);
        let kubeconfig = std::fs::read_to_string(made.path("hangar-controllers.conf")).unwrap();
        let mut config: serde_json::Value = serde_json::from_str(&kubeconfig).unwrap();
        let inside = config["users"][0]["user"]["client-certificate-data"].take();
        use base64::Engine as _;
        let certificate = std::fs::read(made.path("hangar-controllers.crt")).unwrap();
        assert_eq!(inside, base64::engine::general_purpose::STANDARD.encode(certificate));
    }

    #[test]
    fn only_the_administrator_may_do_everything() {
        for (name, _, leaf) in leaves(&state()) {
            let is_master = leaf.organizations.iter().any(|group| group == "system:masters");
            assert_eq!(is_master, name == ADMINISTRATOR, "{name}");
        }
    }

    #[test]
    fn a_home_from_before_loses_the_certificate_with_every_right() {
        let directory = tempfile::tempdir().unwrap();
        let home = home(&directory);
        let former = home.pki().join("apiserver-kubelet-client.key");
        std::fs::write(&former, "key").unwrap();
        Certificates::prepare(&home, &state()).unwrap();
        assert!(!former.exists());
    }
}
