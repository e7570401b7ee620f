//! From a prepared machine to a node: `kubeadm join --config FILE` and the JoinConfiguration in it.

use std::collections::BTreeMap;

use hangar_machine::cloud_init::Prepared;
use hangar_node::hollow::{Join, Taint};
use serde_json::Value;

use super::Guest;

#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum JoinConfigError {
    #[error("no command in runcmd or in a script is `kubeadm join --config FILE`, so nothing joins")]
    NoCommand,
    #[error("kubeadm: the file {0} does not exist")]
    NoFile(String),
    #[error("kubeadm: {file} is not valid YAML: {why}")]
    Yaml { file: String, why: String },
    #[error("kubeadm: {0} holds no JoinConfiguration of kubeadm.k8s.io")]
    NoJoinConfiguration(String),
    #[error("kubeadm: the API version {0} is not known, only kubeadm.k8s.io/v1beta1 to v1beta4")]
    Version(String),
    #[error("kubeadm: {0} is missing in the JoinConfiguration")]
    Missing(&'static str),
    #[error("kubelet: {0}")]
    Kubelet(String),
}

const VERSIONS: [&str; 4] = ["v1beta1", "v1beta2", "v1beta3", "v1beta4"];
const DEFAULT_VERSION: &str = "v1.34.4";

pub(super) fn read(guest: &Guest, prepared: &Prepared) -> Result<Join, JoinConfigError> {
    let mut lines = prepared.commands.iter().chain(&prepared.scripts);
    let file = lines.find_map(|line| config_file(line)).ok_or(JoinConfigError::NoCommand)?;
    let text = prepared.files.get(&file).ok_or_else(|| JoinConfigError::NoFile(file.clone()))?;
    let documents = hangar_api::yaml::documents(text)
        .map_err(|error| JoinConfigError::Yaml { file: file.clone(), why: error.to_string() })?;
    let found = documents.iter().find(|document| document["kind"] == "JoinConfiguration");
    let config = found.ok_or(JoinConfigError::NoJoinConfiguration(file))?;
    let version = config["apiVersion"].as_str().unwrap_or_default();
    if !version.strip_prefix("kubeadm.k8s.io/").is_some_and(|version| VERSIONS.contains(&version)) {
        return Err(JoinConfigError::Version(version.to_owned()));
    }
    join(guest, config)
}

/// Where a machine writes that its bootstrap went well, if its user-data says so.
pub(super) const SENTINEL: &str = "/run/cluster-api/bootstrap-success.complete";

pub(super) fn writes_sentinel(prepared: &Prepared) -> bool {
    prepared.commands.iter().chain(&prepared.scripts).any(|line| line.contains(SENTINEL))
}

/// The word after `--config` of a `kubeadm join`, wherever in a line of shell it stands.
fn config_file(line: &str) -> Option<String> {
    let words: Vec<&str> =
        line.split(|c: char| c.is_whitespace() || ";&|()\"'".contains(c)).filter(|word| !word.is_empty()).collect();
    let start = words
        .windows(2)
        .position(|pair| (pair[0] == "kubeadm" || pair[0].ends_with("/kubeadm")) && pair[1] == "join")?;
    let mut rest = words[start + 2..].iter();
    while let Some(word) = rest.next() {
        match word.strip_prefix("--config") {
            Some("") => return rest.next().map(|&file| file.to_owned()),
            Some(file) if file.starts_with('=') => return Some(file[1..].to_owned()),
            _ => {}
        }
    }
    None
}

fn join(guest: &Guest, config: &Value) -> Result<Join, JoinConfigError> {
    let registration = &config["nodeRegistration"];
    let discovery = &config["discovery"]["bootstrapToken"];
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let tls_token = text(&config["discovery"]["tlsBootstrapToken"]);
    let token =
        text(&discovery["token"]).or(tls_token).ok_or(JoinConfigError::Missing("discovery.bootstrapToken.token"))?;
    let endpoint = text(&discovery["apiServerEndpoint"])
        .ok_or(JoinConfigError::Missing("discovery.bootstrapToken.apiServerEndpoint"))?;
    let hashes = discovery["caCertHashes"].as_array().into_iter().flatten();
    let args = kubelet_args(&registration["kubeletExtraArgs"]);
    let name = text(&registration["name"]).or_else(|| args.get("hostname-override").cloned());
    let address = |ip: &String| ("InternalIP".to_owned(), ip.clone());
    let addresses: Vec<(String, String)> = match args.get("node-ip") {
        Some(ip) => vec![("InternalIP".to_owned(), ip.clone())],
        None => guest.addresses.iter().map(address).collect(),
    };
    Ok(Join {
        endpoint: endpoint.trim_start_matches("https://").to_owned(),
        token,
        ca_hashes: hashes.filter_map(text).collect(),
        skip_ca_verification: discovery["unsafeSkipCAVerification"] == true,
        // Node names are lower case: kubeadm makes them so.
        node_name: name.unwrap_or_else(|| guest.name.clone()).trim().to_lowercase(),
        labels: labels(args.get("node-labels").map_or("", String::as_str))?,
        taints: taints(registration, args.get("register-with-taints").map_or("", String::as_str))?,
        provider_id: args.get("provider-id").filter(|id| !id.is_empty()).cloned(),
        addresses,
        external_cloud_provider: args.get("cloud-provider").is_some_and(|provider| provider == "external"),
        kubelet_version: guest
            .image_properties
            .get("kube_version")
            .cloned()
            .unwrap_or_else(|| DEFAULT_VERSION.to_owned()),
    })
}

/// A map up to v1beta3, a list of name and value since v1beta4; the last of equal names wins.
fn kubelet_args(value: &Value) -> BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match value {
        Value::Object(map) => map.iter().map(|(name, value)| (name.clone(), text(value))).collect(),
        Value::Array(list) => list.iter().map(|one| (text(&one["name"]), text(&one["value"]))).collect(),
        _ => BTreeMap::new(),
    }
}

/// `a=b,c=d`; what the kubelet may not set on itself it refuses to start with.
fn labels(list: &str) -> Result<BTreeMap<String, String>, JoinConfigError> {
    let mut labels = BTreeMap::new();
    for pair in list.split(',').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let reserved =
            ["kubernetes.io", "k8s.io"].iter().any(|own| domain == *own || domain.ends_with(&format!(".{own}")));
        let allowed = ["node.kubernetes.io", "kubelet.kubernetes.io"]
            .iter()
            .any(|own| domain == *own || domain.ends_with(&format!(".{own}")));
        let known = [
            "kubernetes.io/hostname",
            "kubernetes.io/os",
            "kubernetes.io/arch",
            "topology.kubernetes.io/zone",
            "topology.kubernetes.io/region",
            "node.kubernetes.io/instance-type",
        ]
        .contains(&key);
        // Cluster API's own domain ends in x-k8s.io, which is not the reserved one.
        if reserved && !allowed && !known {
            let why = format!("unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [{key}]");
            return Err(JoinConfigError::Kubelet(why));
        }
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}

fn taints(registration: &Value, list: &str) -> Result<Vec<Taint>, JoinConfigError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let written = registration["taints"].as_array().into_iter().flatten();
    let mut taints: Vec<Taint> = written
        .map(|taint| Taint { key: text(&taint["key"]), value: text(&taint["value"]), effect: text(&taint["effect"]) })
        .collect();
    for taint in list.split(',').filter(|taint| !taint.is_empty()) {
        let bad = || JoinConfigError::Kubelet(format!("invalid taint spec in --register-with-taints: {taint}"));
        let (front, effect) = taint.rsplit_once(':').ok_or_else(bad)?;
        let (key, value) = front.split_once('=').unwrap_or((front, ""));
        taints.push(Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned() });
    }
    Ok(taints)
}

#[cfg(test)]
pub(super) mod tests {
    use hangar_machine::cloud_init::prepare;

    use super::*;

    pub fn guest(user_data: impl Into<Vec<u8>>) -> Guest {
        Guest {
            server_id: "1f".to_owned(),
            name: "worker-1".to_owned(),
            project_id: "p".to_owned(),
            image_properties: BTreeMap::from([("kube_version".to_owned(), "v1.34.4".to_owned())]),
            availability_zone: "nova".to_owned(),
            addresses: vec!["10.6.0.2".to_owned()],
            user_data: user_data.into(),
            ..Guest::default()
        }
    }

    const USER_DATA: &str = "\
## template: jinja
#cloud-config

write_files:
-   path: /run/kubeadm/kubeadm-join-config.yaml
    owner: root:root
    permissions: '0640'
    content: |
      ---
      apiVersion: kubeadm.k8s.io/VERSION
      kind: JoinConfiguration
      discovery:
        bootstrapToken:
          apiServerEndpoint: 172.18.0.9:6443
          caCertHashes: ['sha256:00ff']
          token: abcdef.0123456789abcdef
      nodeRegistration:
        name: '{{ local_hostname }}'
        taints:
        - key: node.cluster.x-k8s.io/uninitialized
          effect: NoSchedule
        kubeletExtraArgs:
ARGUMENTS
runcmd:
  - COMMAND
";

    fn user_data(version: &str, arguments: &str, command: &str) -> String {
        USER_DATA.replace("VERSION", version).replace("ARGUMENTS", arguments).replace("COMMAND", command)
    }

    const COMMAND: &str = "kubeadm join --config /run/kubeadm/kubeadm-join-config.yaml  && \
        echo success > /run/cluster-api/bootstrap-success.complete";
    const MAP: &str = "
          cloud-provider: external
          provider-id: openstack:///{{ ds.meta_data.uuid }}
          node-labels: a=b,c=
";
    const LIST: &str = "
        - {name: cloud-provider, value: external}
        - name: provider-id
          value: openstack:///{{ ds.meta_data.uuid }}
        - {name: node-labels, value: 'a=b,c='}
";

    fn read_text(text: String) -> Result<Join, JoinConfigError> {
        let guest = guest(text);
        read(&guest, &prepare(&guest.instance()).unwrap())
    }

    #[test]
    fn every_version_of_kubeadm_says_the_same() {
        for (version, args) in [("v1beta1", MAP), ("v1beta2", MAP), ("v1beta3", MAP), ("v1beta4", LIST)] {
            let join = read_text(user_data(version, args, COMMAND)).unwrap();
            assert_eq!((join.node_name.as_str(), join.endpoint.as_str()), ("worker-1", "172.18.0.9:6443"));
            assert_eq!(join.token, "abcdef.0123456789abcdef");
            assert_eq!(join.ca_hashes, ["sha256:00ff"]);
            assert_eq!(join.provider_id.as_deref(), Some("openstack:///1f"));
            assert!(join.external_cloud_provider && !join.skip_ca_verification);
            assert_eq!(join.labels["a"], "b");
            assert_eq!(join.taints[0].key, "node.cluster.x-k8s.io/uninitialized");
            assert_eq!(join.kubelet_version, "v1.34.4");
            assert_eq!(join.addresses, [("InternalIP".to_owned(), "10.6.0.2".to_owned())]);
        }
    }

    #[test]
    fn the_command_is_found_wherever_it_stands() {
        let table = [
            ("kubeadm join --config /a", Some("/a")),
            ("kubeadm join --config=/a -v 5", Some("/a")),
            ("/usr/bin/kubeadm join --ignore-preflight-errors all --config /a && touch /b", Some("/a")),
            ("sh -c \"kubeadm join --config /a\"", Some("/a")),
            ("kubeadm init --config /a", None),
            ("kubeadm join 10.0.0.1:6443", None),
            ("echo kubeadm", None),
        ];
        for (line, file) in table {
            assert_eq!(config_file(line).as_deref(), file, "{line}");
        }
    }

    #[test]
    fn what_is_wrong_stays_out_and_is_said() {
        let good = user_data("v1beta3", MAP, COMMAND);
        let table = [
            (user_data("v1beta3", MAP, "date"), "no command in runcmd or in a script"),
            (user_data("v1beta9", MAP, COMMAND), "kubeadm.k8s.io/v1beta9"),
            (user_data("v1beta3", MAP, "kubeadm join --config /other"), "/other does not exist"),
            (good.replace("JoinConfiguration", "InitConfiguration"), "no JoinConfiguration"),
            (good.replace("token: abcdef.0123456789abcdef", "x: y"), "discovery.bootstrapToken.token is missing"),
            (good.replace("apiServerEndpoint", "endpoint"), "apiServerEndpoint is missing"),
            (good.replace("a=b", "node-role.kubernetes.io/worker=b"), "unknown 'kubernetes.io' or 'k8s.io' labels"),
        ];
        for (text, words) in table {
            let error = read_text(text).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn taints_of_the_kubelet_are_read_too() {
        let both = taints(&Value::Null, "a=b:NoSchedule,c:NoExecute").unwrap();
        assert_eq!((both[0].value.as_str(), both[1].effect.as_str()), ("b", "NoExecute"));
        assert!(taints(&Value::Null, "a=b").is_err());
    }
}
