//! What a bootstrap token may ask for: the first certificate of the kubelet of its own machine, and nothing else.
//!
//! Holds: nobody but Hangar approves what such a token asks for, since its group is bound to no approver; what is refused is told why, so that it is in the kubelet's log.

use hangar_api::Object;
use serde_json::Value;

use crate::step::TenantCall;

const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const NODES: &str = "system:nodes";
/// What kubelets ask for; keys of RSA also encipher others.
const USAGES: [&str; 2] = ["client auth", "digital signature"];
const USAGE_OF_RSA: &str = "key encipherment";

/// The name by which the API server knows a token.
pub fn user_of(token_id: &str) -> String {
    format!("system:bootstrap:{token_id}")
}

/// Whom a request wants a certificate for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requested {
    pub common_name: String,
    pub organizations: Vec<String>,
    /// It asks for more: other parts of a name, other names, addresses.
    pub asks_for_more: bool,
}

/// A CertificateSigningRequest that nobody has decided on.
#[derive(Debug, Clone, PartialEq)]
pub struct SigningRequest {
    pub object: Object,
    /// Or why it cannot be read.
    pub requested: Result<Requested, String>,
}

impl SigningRequest {
    /// The answer to a request of this token, which is good for this name.
    pub(super) fn decide(&self, token_id: &str, node: &str) -> TenantCall {
        TenantCall::DecideRequest {
            name: self.object.name().to_owned(),
            resource_version: self.object.resource_version().to_owned(),
            refusal: self.problem(token_id, node),
        }
    }

    fn problem(&self, token_id: &str, node: &str) -> Option<String> {
        let problem = |text: String| Some(format!("this bootstrap token is for Node {node} only: {text}"));
        let user = self.object.text("/spec/username");
        if user != user_of(token_id) {
            return problem(format!("{user} has another one"));
        }
        if self.object.text("/spec/signerName") != SIGNER {
            return problem(format!("signer {} is not {SIGNER}", self.object.text("/spec/signerName")));
        }
        let usages = self.object.get("/spec/usages").as_array().map(Vec::as_slice).unwrap_or_default();
        let mut usages: Vec<&str> = usages.iter().filter_map(Value::as_str).filter(|it| *it != USAGE_OF_RSA).collect();
        usages.sort_unstable();
        if usages != USAGES {
            return problem(format!("the usages are not those of a kubelet's client: {}", usages.join(", ")));
        }
        match &self.requested {
            Err(why) => problem(format!("the request cannot be read: {why}")),
            Ok(it) if it.common_name != format!("system:node:{node}") => {
                problem(format!("{:?} is asked for", it.common_name))
            }
            Ok(it) if it.organizations != [NODES] => problem(format!("the organization must be {NODES}")),
            Ok(it) if it.asks_for_more => problem("more than a name is asked for".to_owned()),
            Ok(_) => None,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{merge, object};

    pub fn request(fields: Value, requested: Requested) -> SigningRequest {
        let spec = json!({ "username": "system:bootstrap:abcdef", "signerName": SIGNER, "usages": ["digital signature", "client auth"] });
        let mut csr = object("certificates.k8s.io/v1", "CertificateSigningRequest", "csr", json!({ "spec": spec }));
        merge(&mut csr["spec"], &fields);
        SigningRequest { object: Object(csr), requested: Ok(requested) }
    }

    pub fn of_node(name: &str) -> Requested {
        let organizations = vec![NODES.to_owned()];
        Requested { common_name: format!("system:node:{name}"), organizations, asks_for_more: false }
    }

    #[test]
    fn a_token_is_good_for_the_certificate_of_one_kubelet() {
        let good = || of_node("n");
        let organized =
            |all: &[&str]| Requested { organizations: all.iter().map(|it| (*it).into()).collect(), ..good() };
        let named = |name: &str| Requested { common_name: name.into(), ..good() };
        for (what, fields, requested, refused) in [
            ("its own", json!({}), good(), None),
            (
                "with an RSA key",
                json!({ "usages": ["key encipherment", "digital signature", "client auth"] }),
                good(),
                None,
            ),
            ("another node", json!({}), of_node("other"), Some(r#""system:node:other" is asked for"#)),
            ("a longer name", json!({}), of_node("n2"), Some(r#""system:node:n2" is asked for"#)),
            ("no node", json!({}), named("admin"), Some(r#""admin" is asked for"#)),
            ("no name", json!({}), Requested::default(), Some(r#""" is asked for"#)),
            ("a group", json!({}), organized(&["system:masters"]), Some("the organization must be system:nodes")),
            (
                "one more group",
                json!({}),
                organized(&["system:nodes", "x"]),
                Some("the organization must be system:nodes"),
            ),
            ("names", json!({}), Requested { asks_for_more: true, ..good() }, Some("more than a name is asked for")),
            (
                "a server",
                json!({ "usages": ["digital signature", "server auth"] }),
                good(),
                Some("the usages are not those of a kubelet's client: digital signature, server auth"),
            ),
            (
                "one more usage",
                json!({ "usages": ["digital signature", "client auth", "server auth"] }),
                good(),
                Some("the usages are not those of a kubelet's client: client auth, digital signature, server auth"),
            ),
            (
                "another signer",
                json!({ "signerName": "kubernetes.io/kube-apiserver-client" }),
                good(),
                Some("signer kubernetes.io/kube-apiserver-client is not kubernetes.io/kube-apiserver-client-kubelet"),
            ),
            (
                "another token",
                json!({ "username": "system:bootstrap:ghijkl" }),
                good(),
                Some("system:bootstrap:ghijkl has another one"),
            ),
        ] {
            let expected = refused.map(|why| format!("this bootstrap token is for Node n only: {why}"));
            assert_eq!(request(fields, requested).problem("abcdef", "n"), expected, "{what}");
        }
    }
}
