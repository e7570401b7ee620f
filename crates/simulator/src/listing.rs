//! Filters and pages over lists of JSON objects, the way Neutron, Nova and Glance have them.

use serde_json::{Value, json};

use crate::front::Query;

/// No page is longer, whatever is asked for.
const LONGEST_PAGE: usize = 1000;
const NOT_FILTERS: [&str; 7] = ["limit", "marker", "fields", "sort_key", "sort_dir", "page_reverse", "all_tenants"];

/// Neutron: a repeated parameter is an OR, values are exact, tags have four forms.
pub(crate) fn neutron_filter(item: &Value, query: &Query) -> bool {
    let tags: Vec<&str> =
        item["tags"].as_array().map(|tags| tags.iter().filter_map(Value::as_str).collect()).unwrap_or_default();
    let tagged = |tag: &str| tags.contains(&tag);
    query.names().filter(|name| !NOT_FILTERS.contains(name)).all(|name| {
        let mut wanted = query.all(name);
        match name {
            "tags" => wanted.all(|list| list.split(',').all(tagged)),
            "tags-any" => wanted.all(|list| list.split(',').any(tagged)),
            "not-tags" => wanted.all(|list| !list.split(',').all(tagged)),
            "not-tags-any" => wanted.all(|list| !list.split(',').any(tagged)),
            "fixed_ips" => wanted.all(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or(("ip_address", pair));
                item["fixed_ips"].as_array().is_some_and(|ips| ips.iter().any(|ip| ip[key] == value))
            }),
            _ => wanted.any(|value| matches(&item[name], value)),
        }
    })
}

fn matches(field: &Value, wanted: &str) -> bool {
    match field {
        Value::String(text) => text == wanted,
        Value::Bool(flag) => wanted.eq_ignore_ascii_case(if *flag { "true" } else { "false" }),
        Value::Number(number) => number.to_string() == wanted,
        Value::Array(items) => items.iter().any(|item| item == wanted),
        Value::Null => wanted.is_empty(),
        Value::Object(_) => false,
    }
}

/// One page of `items`, and the query of the next one.
pub(crate) fn page(items: Vec<Value>, query: &Query) -> Result<(Vec<Value>, Option<String>), String> {
    let limit = match query.first("limit") {
        Some(text) => text.parse::<usize>().map_err(|_| format!("limit {text} is not a number"))?,
        None => LONGEST_PAGE,
    };
    let limit = if limit == 0 { LONGEST_PAGE } else { limit.min(LONGEST_PAGE) };
    let start = match query.first("marker") {
        Some(marker) => {
            1 + items
                .iter()
                .position(|item| item["id"] == marker)
                .ok_or_else(|| format!("marker [{marker}] not found"))?
        }
        None => 0,
    };
    let more = items.len() > start + limit;
    let page: Vec<Value> = items.into_iter().skip(start).take(limit).collect();
    let last = page.last().and_then(|item| item["id"].as_str()).filter(|_| more);
    let next = last.map(|marker| query.with(&[("limit", &limit.to_string()), ("marker", marker)]));
    Ok((page, next))
}

/// The body of a list in the form of Nova and Neutron.
pub(crate) fn body(collection: &str, url: &str, page: Vec<Value>, next: Option<String>) -> Value {
    let mut body = json!({collection: page});
    if let Some(next) = next {
        body[format!("{collection}_links")] = json!([{"rel": "next", "href": format!("{url}?{next}")}]);
    }
    body
}
