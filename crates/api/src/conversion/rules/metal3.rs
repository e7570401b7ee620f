//! Metal3's clusters, machines and data.

use super::core::condition_status;
use super::how::How;
use super::{Rule, below, moved, moved_below, rule};

pub fn rules(kind: &str) -> Vec<Rule> {
    match kind {
        "Metal3Cluster" => {
            let domains = rule(How::Named, "status.failureDomains", "status.failureDomains");
            [cluster_spec("spec"), vec![domains], status()].concat()
        }
        "Metal3ClusterTemplate" => cluster_spec("spec.template.spec"),
        "Metal3Machine" => [moved(&[("spec.image.format", "spec.image.diskFormat")]), status()].concat(),
        "Metal3MachineTemplate" => moved(&[("spec.template.spec.image.format", "spec.template.spec.image.diskFormat")]),
        "Metal3DataTemplate" => data_template(),
        "Metal3Remediation" => vec![below("spec.strategy", How::Seconds, "timeout", "timeoutSeconds")],
        "Metal3RemediationTemplate" => {
            vec![below("spec.template.spec.strategy", How::Seconds, "timeout", "timeoutSeconds")]
        }
        _ => vec![],
    }
}

fn cluster_spec(prefix: &str) -> Vec<Rule> {
    vec![
        below(prefix, How::Named, "failureDomains", "failureDomains"),
        // Whoever says both has said it with the newer field.
        below(prefix, How::Not, "noCloudProvider", "cloudProviderEnabled"),
    ]
}

fn status() -> Vec<Rule> {
    let mut rules = moved(&[("status.ready", "status.initialization.provisioned")]);
    rules.extend(condition_status());
    rules
}

fn data_template() -> Vec<Rule> {
    let mut rules = moved_below(
        "spec.metaData",
        &[
            ("ipAddressesFromIPPool", "ipAddressesFromPool"),
            ("prefixesFromIPPool", "prefixesFromPool"),
            ("gatewaysFromIPPool", "gatewaysFromPool"),
            ("dnsServersFromIPPool", "dnsServersFromPool"),
        ],
    );
    rules.push(below("spec.networkData.links.bonds[]", How::Pairs("name", "value"), "parameters", "parameters"));
    rules.push(rule(How::Pairs("name", "index"), "status.indexes", "status.indexes"));
    rules
}
