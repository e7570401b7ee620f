//! Arguments that users may add to the programs of a hosted control plane.
//!
//! Holds: what keeps tenants apart, and what the control plane stands on, is Hangar's to set, however it is spelled: Kubernetes takes `_` for `-`.

/// Addresses, keys and certificates.
const RESERVED: [&str; 25] = [
    "advertise-address",
    "authentication-kubeconfig",
    "authorization-kubeconfig",
    "bind-address",
    "client-ca-file",
    "cluster-signing-cert-file",
    "cluster-signing-key-file",
    "egress-selector-config-file",
    "encryption-provider-config",
    "encryption-provider-config-automatic-reload",
    "kubeconfig",
    "kubelet-client-certificate",
    "kubelet-client-key",
    "proxy-client-cert-file",
    "proxy-client-key-file",
    "requestheader-allowed-names",
    "requestheader-client-ca-file",
    "root-ca-file",
    "secure-port",
    "service-account-key-file",
    "service-account-private-key-file",
    "service-account-signing-key-file",
    "service-cluster-ip-range",
    "tls-cert-file",
    "tls-private-key-file",
];

/// The name of an argument, as the programs understand it.
pub fn name(argument: &str) -> String {
    argument.trim_start_matches('-').split('=').next().unwrap_or_default().replace('_', "-").to_ascii_lowercase()
}

/// Why an argument cannot be added.
pub fn problem(argument: &str) -> Option<String> {
    let name = name(argument);
    let is_flag = argument.starts_with("--") && !name.is_empty() && !name.contains(char::is_whitespace);
    if !is_flag {
        return Some(format!("{argument:?} is not an argument; write it as --name=value"));
    }
    // Another prefix, other servers or other certificates could lead to another tenant's data.
    (name.starts_with("etcd-") || RESERVED.contains(&name.as_str()))
        .then(|| format!("--{name} is set by Hangar, because the control plane depends on it; remove it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_tenants_apart_cannot_be_set_in_any_spelling() {
        let table = [
            ("--cloud-provider=external", true),
            ("--v=4", true),
            ("--feature-gates=A=true,B=false", true),
            ("--profiling", true),
            ("--etcd-prefix=/other", false),
            ("--etcd_prefix=/other", false),
            ("--ETCD-SERVERS=https://x", false),
            ("--etcd-servers-overrides=/events#https://x", false),
            ("--client_ca_file=/x", false),
            ("--encryption-provider-config=/x", false),
            ("--encryption_Provider_config=/x", false),
            ("--encryption-provider-config-automatic-reload", false),
            ("--tls-private-key-file", false),
            ("--kubeconfig=/x", false),
            ("-v", false),
            ("/other", false),
            ("", false),
            ("--", false),
            ("--a b=c", false),
        ];
        for (argument, usable) in table {
            assert_eq!(problem(argument).is_none(), usable, "{argument:?}");
        }
    }
}
