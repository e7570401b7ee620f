//! What nodes ask for by token, decided on in a real API server.

use hangar_controllers::decide_request;
use hangar_pki::SystemKeys;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::api::{Api, ObjectMeta, PostParams};

use crate::api_server::Etcd;

fn request(name: &str) -> CertificateSigningRequest {
    let (_, pem) = hangar_pki::request::create(&SystemKeys, "system:node:n", &["system:nodes"]).unwrap();
    CertificateSigningRequest {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: "kubernetes.io/kube-apiserver-client-kubelet".to_owned(),
            usages: Some(vec!["digital signature".to_owned(), "client auth".to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_decided_once_and_only_as_they_were_seen() {
    let etcd = Etcd::start().await;
    let server = etcd.serve("server", &["--authorization-mode=RBAC".to_owned()]).await;
    let client = server.client("masters").await;
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    for (name, refusal, seen, expected) in [
        ("good", None, true, vec![("Approved", "the bootstrap token was made for this Node")]),
        ("bad", Some("it is for another Node"), true, vec![("Denied", "it is for another Node")]),
        ("changed", None, false, vec![]),
    ] {
        let made = requests.create(&PostParams::default(), &request(name)).await.unwrap();
        let version = if seen { made.metadata.resource_version.unwrap() } else { "1".to_owned() };
        decide_request(&client, name, &version, refusal).await.unwrap();
        // Asked once more, as after a lost answer.
        decide_request(&client, name, &version, refusal).await.unwrap();
        let status = requests.get(name).await.unwrap().status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let found: Vec<(&str, &str)> =
            conditions.iter().map(|it| (it.type_.as_str(), it.message.as_deref().unwrap_or_default())).collect();
        assert_eq!(found, expected, "{name}");
    }
    decide_request(&client, "gone", "1", None).await.unwrap();
}
