//! `hangar crds`: the CustomResourceDefinitions, for `kubectl apply --server-side` or for reading.
//!
//! Holds: the conversion stanza is never left out. Without a webhook an API server would drop what the other version does not know, so a
//! webhook that is not there must be an error, not a loss.

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hangar_api::crds::{Converter, WebhookAddress, definition};
use hangar_api::registry::{KindFacts, kinds};
use serde_json::json;

use crate::cli::{Crds, Output};

pub fn run(wanted: &Crds, output: Output) -> Result<()> {
    let converter = converter(wanted)?;
    let all: Vec<_> =
        kinds().iter().filter(|facts| fits(wanted, facts)).map(|facts| definition(facts, &converter)).collect();
    if all.is_empty() {
        let asked = [&wanted.only, &wanted.group, &wanted.kind].into_iter().flatten();
        let asked = asked.map(String::as_str).collect::<Vec<_>>().join(" ");
        bail!("unknown kind or group {asked}; `hangar crds` prints all");
    }
    if output == Output::Json {
        anstream::println!("{:#}", json!({ "apiVersion": "v1", "kind": "List", "items": all }));
        return Ok(());
    }
    for definition in all {
        let text = serde_saphyr::to_string(&definition).context("a definition could not be written as YAML")?;
        anstream::print!("---\n{text}");
    }
    Ok(())
}

fn fits(wanted: &Crds, facts: &KindFacts) -> bool {
    let is = |wanted: &Option<String>, names: &[&str]| {
        wanted.as_ref().is_none_or(|wanted| names.iter().any(|name| name.eq_ignore_ascii_case(wanted)))
    };
    is(&wanted.only, &[facts.kind, facts.group, facts.plural()])
        && is(&wanted.group, &[facts.group])
        && is(&wanted.kind, &[facts.kind])
}

fn converter(wanted: &Crds) -> Result<Converter> {
    let ca_bundle = match &wanted.webhook_ca {
        Some(file) => Some(STANDARD.encode(std::fs::read(file).with_context(|| file.display().to_string())?)),
        None => None,
    };
    if let Some(url) = &wanted.webhook_url {
        let ca_bundle = ca_bundle
            .context("--webhook-url requires --webhook-ca: the API server must trust the webhook's certificate")?;
        return Ok(Converter::At(WebhookAddress { url: url.trim_end_matches('/').to_owned(), ca_bundle }));
    }
    let (namespace, name) = wanted
        .webhook_service
        .split_once('/')
        .with_context(|| format!("{} is not a NAMESPACE/NAME", wanted.webhook_service))?;
    Ok(Converter::Service { namespace: namespace.to_owned(), name: name.to_owned(), ca_bundle })
}
