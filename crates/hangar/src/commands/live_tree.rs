//! The tree of a cluster while it comes up.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use hangar_api::Object;
use hangar_embedded::Home;
use kube::Client;

use crate::cli::Output;
use crate::management;

const REDRAW: Duration = Duration::from_millis(400);
/// An API server that ended is started again; for this long nobody needs to know.
const SILENCE: Duration = Duration::from_secs(20);

/// Shows the tree until the cluster is ready: on a terminal in place, elsewhere whenever it changed, and to programs not at all.
/// Returns why it is not ready in time, if so.
pub async fn watch(
    client: &Client,
    home: &Home,
    cluster: &Object,
    output: Output,
    timeout: Duration,
) -> Result<Vec<String>> {
    let (namespace, began) = (cluster.namespace(), Instant::now());
    let (terminal, silent) = (std::io::stdout().is_terminal(), output == Output::Json);
    let (mut drawn, mut last, mut answered) = (0, String::new(), Instant::now());
    loop {
        // Without it nothing happens any more, even where the API server still answers.
        if !home.is_held() {
            bail!("the management plane was stopped or killed; start it again with `hangar up`");
        }
        let snapshot = match management::snapshot(client, namespace, cluster.name()).await {
            Ok(snapshot) => snapshot,
            Err(_) if answered.elapsed() < SILENCE => {
                tokio::time::sleep(REDRAW).await;
                continue;
            }
            Err(error) => {
                let way = "the management plane no longer answers: see `hangar status`, and start it with `hangar up`";
                return Err(error).context(way);
            }
        };
        answered = Instant::now();
        let Some(snapshot) = snapshot else { bail!("Cluster {namespace}/{} was deleted", cluster.name()) };
        let root = hangar_views::tree(&snapshot);
        let ready = hangar_views::is_ready(&root);
        let options = hangar_views::RenderOptions { color: terminal, width: super::describe::width() };
        if silent {
            // What it came to is told at the end.
        } else if terminal {
            let text = hangar_views::render(&root, jiff::Timestamp::now(), &options);
            if drawn > 0 {
                print!("\x1b[{drawn}A\x1b[J");
            }
            print!("{text}");
            drop(std::io::Write::flush(&mut std::io::stdout()));
            drawn = text.lines().count();
        } else if ready || signature(&root) != last {
            last = signature(&root);
            anstream::println!("{}", hangar_views::render(&root, jiff::Timestamp::now(), &options));
        }
        if ready {
            return Ok(vec![]);
        }
        if began.elapsed() > timeout {
            anstream::eprintln!("{namespace}/{} is not ready after {} s:", cluster.name(), timeout.as_secs());
            let mut reasons = hangar_views::why(&root);
            if reasons.is_empty() {
                reasons.push("no reason was reported".to_owned());
            }
            reasons.iter().for_each(|line| anstream::eprintln!("  {line}"));
            return Ok(reasons);
        }
        tokio::time::sleep(REDRAW).await;
    }
}

/// What of a tree is worth showing again; time passing is not.
fn signature(root: &hangar_views::Row) -> String {
    let mut text = format!("{}{:?}{}{}", root.name, root.ready, root.reason, root.message);
    root.children.iter().for_each(|child| text.push_str(&signature(child)));
    text
}
