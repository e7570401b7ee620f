//! Finding out which cluster this is: the public ConfigMap cluster-info, trusted by the token's signature and the CA's pin.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hangar_pki::BootstrapToken;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::Value;

use super::api_client::{Credential, client};
use super::{Join, JoinError};

/// A cluster that is the one we were told of.
pub(super) struct Cluster {
    /// `https://host:port`
    pub server: String,
    pub ca_pem: String,
}

pub(super) async fn discover(join: &Join, token: &BootstrapToken) -> Result<Cluster, JoinError> {
    if join.ca_hashes.is_empty() && !join.skip_ca_verification {
        return Err(JoinError::NoPin);
    }
    let server = format!("https://{}", join.endpoint);
    // The CA is what is being asked for; signature and pin below replace the verification.
    let first = cluster_info(join, &server, None).await?;
    let found = trusted(&first, token, join)?;
    // Now with verification: the server must hold a certificate of that very CA.
    let second = cluster_info(join, &server, Some(&found.ca_pem)).await?;
    let again = trusted(&second, token, join)?;
    let server = if again.server.is_empty() { server } else { again.server };
    Ok(Cluster { server, ca_pem: again.ca_pem })
}

async fn cluster_info(join: &Join, server: &str, ca_pem: Option<&str>) -> Result<ConfigMap, JoinError> {
    let unreachable = |source| JoinError::Unreachable { endpoint: join.endpoint.clone(), source: Box::new(source) };
    let client = client(server, ca_pem, Credential::Anonymous).await.map_err(unreachable)?;
    Api::<ConfigMap>::namespaced(client, "kube-public").get("cluster-info").await.map_err(unreachable)
}

fn trusted(info: &ConfigMap, token: &BootstrapToken, join: &Join) -> Result<Cluster, JoinError> {
    let data = |key: &str| info.data.as_ref().and_then(|data| data.get(key));
    let kubeconfig = data("kubeconfig").ok_or_else(|| JoinError::ClusterInfo("it has no kubeconfig".to_owned()))?;
    let signature =
        data(&format!("jws-kubeconfig-{}", token.id)).ok_or_else(|| JoinError::NotSigned(token.id.clone()))?;
    if !signed_by(signature, kubeconfig, token) {
        return Err(JoinError::BadSignature(token.id.clone()));
    }
    let cluster = read_kubeconfig(kubeconfig).map_err(JoinError::ClusterInfo)?;
    if !join.ca_hashes.is_empty() {
        // There are two while an authority is rotated; kubeadm is content with one of them, too.
        let found = hangar_pki::ca_hashes(&cluster.ca_pem);
        if !found.iter().any(|found| join.ca_hashes.iter().any(|pin| pin.eq_ignore_ascii_case(found))) {
            return Err(JoinError::Pin { found: found.join(", ") });
        }
    }
    Ok(cluster)
}

/// A JWS whose payload is left out (`header..signature`), HS256 with the token's secret as key.
fn signed_by(signature: &str, content: &str, token: &BootstrapToken) -> bool {
    let mut parts = signature.split('.');
    let (Some(header), Some(""), Some(tag), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let read = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
    let fields = read(header).and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok()).unwrap_or_default();
    if fields["alg"] != "HS256" || fields["kid"] != token.id {
        return false;
    }
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.secret.as_bytes());
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(content));
    read(tag).is_some_and(|tag| hmac::verify(&key, signed.as_bytes(), &tag).is_ok())
}

fn read_kubeconfig(text: &str) -> Result<Cluster, String> {
    let config = hangar_api::yaml::document(text).map_err(|error| error.to_string())?;
    let cluster = &config["clusters"][0]["cluster"];
    let ca =
        cluster["certificate-authority-data"].as_str().ok_or("its kubeconfig has no certificate-authority-data")?;
    let ca = STANDARD.decode(ca).map_err(|error| format!("its certificate-authority-data: {error}"))?;
    let ca_pem = String::from_utf8(ca).map_err(|error| format!("its certificate-authority-data: {error}"))?;
    Ok(Cluster { server: cluster["server"].as_str().unwrap_or_default().to_owned(), ca_pem })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hangar_pki::{Authority, SystemKeys};
    use std::collections::BTreeMap;

    fn token() -> BootstrapToken {
        BootstrapToken::parse("abcdef.0123456789abcdef").unwrap()
    }

    fn sign(content: &str, token: &BootstrapToken) -> String {
        let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"HS256","kid":"{}"}}"#, token.id));
        let key = hmac::Key::new(hmac::HMAC_SHA256, token.secret.as_bytes());
        let tag = hmac::sign(&key, format!("{header}.{}", URL_SAFE_NO_PAD.encode(content)).as_bytes());
        format!("{header}..{}", URL_SAFE_NO_PAD.encode(tag))
    }

    /// From Kubernetes' own test of the bootstrap signer.
    #[test]
    fn a_signature_made_by_kubernetes_is_accepted() {
        let content = "Hello from the other side. I must have called a thousand times.";
        let signature = "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9..VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8";
        let token = BootstrapToken { id: "joshua".to_owned(), secret: "my voice is my passcode".to_owned() };
        assert!(signed_by(signature, content, &token));
        assert!(!signed_by(signature, "Hello", &token));
    }

    #[test]
    fn signatures_are_bound_to_content_secret_and_token() {
        let good = sign("content", &token());
        let table = [
            (good.clone(), "content", token(), true),
            (good.clone(), "other", token(), false),
            (good.clone(), "content", BootstrapToken { secret: "x".repeat(16), ..token() }, false),
            (good.clone(), "content", BootstrapToken { id: "zzzzzz".into(), ..token() }, false),
            (good.replace("..", "."), "content", token(), false),
            (good.replace("..", ".x."), "content", token(), false),
            (String::new(), "content", token(), false),
        ];
        for (signature, content, token, expected) in table {
            assert_eq!(signed_by(&signature, content, &token), expected, "{signature} {content}");
        }
    }

    #[test]
    fn pins_decide_which_cluster_is_trusted() {
        let authority = Authority::create(&SystemKeys, "kubernetes", jiff::Timestamp::now()).unwrap();
        let ca = STANDARD.encode(authority.certificate_pem());
        let kubeconfig = format!(
            "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {ca}\n    server: https://10.0.0.1:6443\n  name: \"\"\n"
        );
        let data = BTreeMap::from([
            ("jws-kubeconfig-abcdef".to_owned(), sign(&kubeconfig, &token())),
            ("kubeconfig".to_owned(), kubeconfig),
        ]);
        let info = ConfigMap { data: Some(data), ..ConfigMap::default() };
        let pinned = |pin: String| Join { ca_hashes: vec![pin], ..Join::default() };
        let good = hangar_pki::ca_hash(authority.certificate_pem()).unwrap();
        assert_eq!(trusted(&info, &token(), &pinned(good)).ok().unwrap().server, "https://10.0.0.1:6443");
        let other = pinned(format!("sha256:{}", "0".repeat(64)));
        assert!(matches!(trusted(&info, &token(), &other), Err(JoinError::Pin { .. })));
        let unknown = BootstrapToken { id: "zzzzzz".into(), ..token() };
        assert!(matches!(trusted(&info, &unknown, &Join::default()), Err(JoinError::NotSigned(_))));
        let wrong = BootstrapToken { secret: "x".repeat(16), ..token() };
        assert!(matches!(trusted(&info, &wrong, &Join::default()), Err(JoinError::BadSignature(_))));
    }

    #[tokio::test]
    async fn without_a_pin_nothing_is_asked() {
        let join = Join { token: token().expose(), ..Join::default() };
        assert!(matches!(super::super::join(&join).await, Err(JoinError::NoPin)));
    }
}
