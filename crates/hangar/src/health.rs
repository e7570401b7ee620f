//! Whether the plane of a home answers, and if it does not, why.

use anyhow::{Context as _, Result};
use hangar_embedded::{Home, disk_space};

use crate::management;

/// An error says what to do.
pub async fn check(home: &Home) -> Result<()> {
    // A full disk ends etcd, and everything else with it: now, or at its next write while it still answers.
    disk_space::check(home.path(), disk_space::TO_RUN)?;
    answers(home).await.with_context(|| {
        format!(
            "the API server does not respond. Failed processes are restarted automatically; their logs are in {}",
            home.logs().display()
        )
    })
}

/// An API server may call itself ready for a second or two after its etcd has ended; to read something that only etcd knows is to ask both.
const READ_FROM_ETCD: &str = "/api/v1/namespaces/default";

async fn answers(home: &Home) -> Result<()> {
    let client = management::unchecked_client_for(home).await?;
    for question in ["/readyz", READ_FROM_ETCD] {
        let request = http::Request::get(question).body(vec![])?;
        client.request_text(request).await.map_err(|error| anyhow::anyhow!(reason(&error)))?;
    }
    Ok(())
}

fn reason(error: &kube::Error) -> String {
    // The innermost reason is the one that says something.
    let mut reason: &dyn std::error::Error = error;
    while let Some(source) = reason.source() {
        reason = source;
    }
    // The server lists all of its checks; those that failed are marked.
    let text = reason.to_string();
    let failed: Vec<&str> = text.lines().filter(|line| line.starts_with("[-]")).collect();
    if failed.is_empty() { text } else { failed.join(", ") }
}
