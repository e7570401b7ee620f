//! A download with checksum from a site with the layout of dl.k8s.io.
//!
//! Holds: the file counts only after its SHA-256 matched the one beside it on the site, and the one that it had here before; nothing but HTTPS is
//! spoken, redirects included, unless plain HTTP was allowed for a mirror.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::io::AsyncWriteExt as _;

use super::{Component, StoreOptions};

pub(super) const OFFICIAL: &str = "https://dl.k8s.io";
const CONNECT: Duration = Duration::from_secs(3);
/// Between two pieces; a site that is silent for so long will not come back.
const STALLED: Duration = Duration::from_secs(30);
const REDIRECTS: usize = 5;

struct Web {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    plain_http: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error("{url} is not a URL")]
    BadUrl { url: String },
    #[error("{url} could not be reached: {reason}")]
    Unreachable { url: String, reason: String },
    #[error("{url} answered {status}")]
    Refused { url: String, status: u16 },
    #[error("{url} has SHA-256 {got}, expected {expected}")]
    WrongChecksum { url: String, got: String, expected: String },
    #[error(
        "{url} has SHA-256 {got}, but what was downloaded under this name before had {known}: find out why it was replaced; if that is right, remove {record} and fetch it again"
    )]
    Replaced { url: String, got: String, known: String, record: String },
    #[error("{url} is not HTTPS: name a mirror with https://, or allow plain HTTP with --insecure-mirror")]
    PlainHttp { url: String },
    #[error("could not write {path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error("could not set up TLS: {0}")]
    Tls(String),
}

/// Where a component lies, if it may be downloaded. etcd is published as an archive on another site, so only a mirror has it.
pub(super) fn url(options: &StoreOptions, component: &Component) -> Option<String> {
    let site = match &options.mirror {
        Some(mirror) => mirror.trim_end_matches('/'),
        None if options.download && component.name.starts_with("kube") => OFFICIAL,
        None => return None,
    };
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    Some(format!("{site}/v{}/bin/linux/{arch}/{}", component.version, component.name))
}

/// Whether the site has it, asked without much patience.
pub(super) async fn is_published(url: &str, plain_http: bool) -> bool {
    let ask = async { get(&Web::new(plain_http)?, &format!("{url}.sha256")).await };
    matches!(tokio::time::timeout(CONNECT, ask).await, Ok(Ok(_)))
}

/// Whether a mirror may be asked at all.
pub(super) fn check_scheme(url: &str, plain_http: bool) -> Result<(), DownloadError> {
    let uri: Uri = url.parse().map_err(|_| DownloadError::BadUrl { url: url.to_owned() })?;
    match uri.scheme_str() {
        Some("https") => Ok(()),
        Some("http") if plain_http => Ok(()),
        Some("http") => Err(DownloadError::PlainHttp { url: url.to_owned() }),
        _ => Err(DownloadError::BadUrl { url: url.to_owned() }),
    }
}

/// Downloads to `file` and checks the digest, which it returns.
pub(super) async fn verified(
    url: &str,
    plain_http: bool,
    file: &Path,
    tell: &(dyn Fn(u64, Option<u64>) + Send + Sync),
) -> Result<String, DownloadError> {
    let web = Web::new(plain_http)?;
    let unreachable =
        |error: hyper::Error| DownloadError::Unreachable { url: url.to_owned(), reason: error.to_string() };
    let announced = get(&web, &format!("{url}.sha256")).await?.into_body().collect().await.map_err(unreachable)?;
    let announced = String::from_utf8_lossy(&announced.to_bytes()).to_lowercase();
    let expected = announced.split_whitespace().next().unwrap_or_default().to_owned();
    save(get(&web, url).await?, url, file, tell).await?;
    let broken = |source| DownloadError::File { path: file.display().to_string(), source };
    let got = super::fetch::sha256(file).map_err(broken)?;
    if got != expected {
        return Err(DownloadError::WrongChecksum { url: url.to_owned(), got, expected });
    }
    Ok(got)
}

async fn save(
    response: Response<Incoming>,
    url: &str,
    file: &Path,
    tell: &(dyn Fn(u64, Option<u64>) + Send + Sync),
) -> Result<(), DownloadError> {
    let broken = |source| DownloadError::File { path: file.display().to_string(), source };
    let unreachable = |reason: String| DownloadError::Unreachable { url: url.to_owned(), reason };
    let total = response.headers().get(http::header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
    let mut out = tokio::fs::File::create(file).await.map_err(broken)?;
    let (mut body, mut done) = (response.into_body(), 0);
    loop {
        let frame = tokio::time::timeout(STALLED, body.frame()).await;
        let frame = frame.map_err(|_| unreachable("no data received for 30 seconds".into()))?;
        let Some(frame) = frame else { break };
        if let Ok(data) = frame.map_err(|error| unreachable(error.to_string()))?.into_data() {
            done += data.len() as u64;
            out.write_all(&data).await.map_err(broken)?;
            tell(done, total);
        }
    }
    out.flush().await.map_err(broken)
}

async fn get(web: &Web, url: &str) -> Result<Response<Incoming>, DownloadError> {
    let mut uri: Uri = url.parse().map_err(|_| DownloadError::BadUrl { url: url.to_owned() })?;
    for _ in 0..REDIRECTS {
        check_scheme(&uri.to_string(), web.plain_http)?;
        let request = Request::get(uri.clone())
            .header(http::header::USER_AGENT, "hangar")
            .body(Empty::new())
            .map_err(|_| DownloadError::BadUrl { url: uri.to_string() })?;
        let unreachable = |reason: String| DownloadError::Unreachable { url: uri.to_string(), reason };
        let answer = tokio::time::timeout(STALLED, web.client.request(request)).await;
        let answer = answer.map_err(|_| unreachable("no response for 30 seconds".into()))?;
        let response = answer.map_err(|error| unreachable(chain(&error)))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let target =
            response.headers().get(http::header::LOCATION).and_then(|value| value.to_str().ok()?.parse::<Uri>().ok());
        match target.filter(|target| response.status().is_redirection() && target.host().is_some()) {
            Some(target) if target.scheme() == uri.scheme() || target.scheme_str() == Some("https") => uri = target,
            _ => return Err(DownloadError::Refused { url: uri.to_string(), status: response.status().as_u16() }),
        }
    }
    Err(DownloadError::Unreachable { url: url.to_owned(), reason: "too many redirects".into() })
}

fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl Web {
    fn new(plain_http: bool) -> Result<Self, DownloadError> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| DownloadError::Tls(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(CONNECT));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(connector), plain_http })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::super::{Silent, Store};
    use super::*;

    /// A site with one program; `announced` is what its checksum file says.
    async fn site(announced: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = vec![0; 4096];
                let n = stream.read(&mut request).await.unwrap();
                let body = if String::from_utf8_lossy(&request[..n]).contains(".sha256") { announced } else { "abc" };
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
            }
        });
        format!("http://{address}/")
    }

    fn options(directory: &Path, mirror: String) -> StoreOptions {
        StoreOptions {
            directory: directory.into(),
            named: None,
            mirror: Some(mirror),
            insecure_mirror: true,
            download: false,
            path_lookup: false,
            ..StoreOptions::default()
        }
    }

    #[tokio::test]
    async fn a_mirror_serves_what_its_checksum_announces() {
        let directory = tempfile::tempdir().unwrap();
        let mirror = site("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad").await;
        let component = Component { name: "kubectl".into(), version: semver::Version::new(9, 9, 9) };
        let store = Store::new(options(directory.path(), mirror));
        let paths = store.fetch(&[component], &Silent).await.unwrap();
        assert_eq!(std::fs::read(&paths[0]).unwrap(), b"abc");
    }

    #[tokio::test]
    async fn a_wrong_checksum_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("{}v1/kubectl", site("00").await);
        let error = verified(&url, true, &directory.path().join("kubectl"), &|_, _| ()).await.unwrap_err();
        assert!(matches!(error, DownloadError::WrongChecksum { .. }), "{error}");
    }
    #[tokio::test]
    async fn plain_http_needs_permission() {
        let directory = tempfile::tempdir().unwrap();
        let mirror = site("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad").await;
        let error = verified(&mirror, false, &directory.path().join("kubectl"), &|_, _| ()).await.unwrap_err();
        assert!(error.to_string().contains("--insecure-mirror"), "{error}");
        let store = Store::new(StoreOptions { insecure_mirror: false, ..options(directory.path(), mirror) });
        let error = store.check_sources().unwrap_err().to_string();
        assert!(error.contains("--mirror"), "{error}");
    }

    /// A site that serves another program under an old name, with a checksum that is right.
    #[tokio::test]
    async fn another_content_under_a_known_name_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let component = Component { name: "kubectl".into(), version: semver::Version::new(9, 9, 9) };
        let mirror = site("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad").await;
        let store = Store::new(options(directory.path(), mirror));
        store.fetch(std::slice::from_ref(&component), &Silent).await.unwrap();
        store.remove(&component).unwrap();
        store.fetch(std::slice::from_ref(&component), &Silent).await.unwrap();
        store.remove(&component).unwrap();
        let record = directory.path().join("downloads/kubectl-9.9.9");
        std::fs::write(&record, "00\n").unwrap();
        let error = store.fetch(std::slice::from_ref(&component), &Silent).await.unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("before had 00") && source.contains(&record.display().to_string()), "{source}");
        assert!(store.list().is_empty(), "nothing else is put into its place, not even a build");
    }
}
