//! From a token to a certificate: a request to the cluster's own signer, as the kubelet makes it.

use std::time::Duration;

use hangar_pki::{BootstrapToken, SystemKeys, request};
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestSpec,
};
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, ResourceExt};

use super::api_client::{Credential, client};
use super::discovery::Cluster;
use super::{Identity, JoinError};

const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// As long as the kubelet waits before it asks anew.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

pub(super) async fn request_identity(
    node_name: &str,
    token: &BootstrapToken,
    cluster: Cluster,
) -> Result<Identity, JoinError> {
    let refused = |source| JoinError::Refused { node: node_name.to_owned(), source: Box::new(source) };
    let (key_pem, request) = request::create(&SystemKeys, &format!("system:node:{node_name}"), &["system:nodes"])
        .map_err(|error| JoinError::Request(error.to_string()))?;
    let client =
        client(&cluster.server, Some(&cluster.ca_pem), Credential::Token(token.expose())).await.map_err(refused)?;
    let requests: Api<CertificateSigningRequest> = Api::all(client);
    let made = requests.create(&PostParams::default(), &signing_request(request)).await.map_err(refused)?;
    let name = made.name_any();
    let settled = tokio::time::timeout(PATIENCE, await_condition(requests, &name, is_settled));
    let late = || JoinError::NotApproved { name: name.clone(), seconds: PATIENCE.as_secs() };
    let settled = match settled.await {
        Ok(Ok(Some(settled))) => settled,
        Ok(Ok(None)) | Err(_) => return Err(late()),
        Ok(Err(error)) => return Err(refused(kube::Error::Service(Box::new(error)))),
    };
    if let Some(condition) = refusal(&settled) {
        let why = condition.message.clone().or_else(|| condition.reason.clone()).unwrap_or_default();
        return Err(JoinError::Denied { name, why });
    }
    let certificate = settled.status.and_then(|status| status.certificate).ok_or_else(late)?;
    let certificate_pem = String::from_utf8(certificate.0).map_err(|error| JoinError::Request(error.to_string()))?;
    Ok(Identity { ca_pem: cluster.ca_pem, certificate_pem, key_pem, server: cluster.server })
}

fn signing_request(pem: String) -> CertificateSigningRequest {
    CertificateSigningRequest {
        metadata: ObjectMeta { generate_name: Some("node-csr-".to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: SIGNER.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), "client auth".to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}

fn is_settled(request: Option<&CertificateSigningRequest>) -> bool {
    request.is_some_and(|request| {
        let signed = request.status.as_ref().is_some_and(|status| status.certificate.is_some());
        signed || refusal(request).is_some()
    })
}

fn refusal(request: &CertificateSigningRequest) -> Option<&CertificateSigningRequestCondition> {
    let conditions = request.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| matches!(condition.type_.as_str(), "Denied" | "Failed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::certificates::v1::CertificateSigningRequestStatus;

    #[test]
    fn a_request_is_settled_by_a_certificate_or_a_denial() {
        let with = |certificate: Option<&str>, condition: &str| {
            let condition = CertificateSigningRequestCondition { type_: condition.to_owned(), ..Default::default() };
            CertificateSigningRequest {
                status: Some(CertificateSigningRequestStatus {
                    certificate: certificate.map(|pem| ByteString(pem.as_bytes().to_vec())),
                    conditions: Some(vec![condition]),
                }),
                ..signing_request(String::new())
            }
        };
        assert!(!is_settled(None));
        assert!(!is_settled(Some(&with(None, "Approved"))));
        assert!(is_settled(Some(&with(Some("pem"), "Approved"))));
        assert!(is_settled(Some(&with(None, "Denied"))));
        assert!(is_settled(Some(&with(None, "Failed"))));
    }
}
