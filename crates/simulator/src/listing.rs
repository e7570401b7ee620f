//! Filters and pages over lists, the way Neutron, Nova and Glance have them.
//!
//! Holds: a page costs what is on it. Rows before the marker are only compared by id, and filters that are about plain
//! text are asked before a row is turned into JSON.

use serde::Serialize;
use serde_json::{Value, json};

use crate::ask::Query;

/// No page is longer, whatever is asked for.
const LONGEST_PAGE: usize = 1000;
const NOT_FILTERS: [&str; 8] =
    ["limit", "marker", "fields", "sort_key", "sort_dir", "page_reverse", "all_tenants", "all_projects"];

/// Something that lists are made of.
pub(crate) trait Listed: Serialize {
    fn id(&self) -> &str;
    /// A field that can be looked at without turning the whole into JSON.
    fn text(&self, field: &str) -> Option<&str>;
}

/// `listed!(Port: name, network_id)`: the fields that are most asked for.
macro_rules! listed {
    ($($kind:ty: $($field:ident),*;)*) => {$(
        impl crate::listing::Listed for &$kind {
            fn id(&self) -> &str {
                &self.id
            }
            fn text(&self, field: &str) -> Option<&str> {
                match field {
                    "id" => Some(&self.id),
                    $(stringify!($field) => Some(&self.$field),)*
                    _ => None,
                }
            }
        }
    )*};
}
pub(crate) use listed;

/// What is already JSON.
impl Listed for Value {
    fn id(&self) -> &str {
        self["id"].as_str().unwrap_or_default()
    }

    fn text(&self, field: &str) -> Option<&str> {
        self[field].as_str()
    }
}

/// Plain fields first: most rows are sorted out here, and cheaply.
fn may_fit(item: &impl Listed, query: &Query) -> bool {
    query
        .names()
        .filter(|name| !NOT_FILTERS.contains(name))
        .all(|name| item.text(name).is_none_or(|is| query.all(name).any(|wanted| wanted == is)))
}

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
            // An unknown field filters nothing, as in Neutron.
            _ => item.get(name).is_none() || wanted.any(|value| matches(&item[name], value)),
        }
    })
}

fn matches(field: &Value, wanted: &str) -> bool {
    match field {
        Value::String(text) => text == wanted,
        Value::Bool(flag) => {
            wanted.eq_ignore_ascii_case(if *flag { "true" } else { "false" }) || wanted == if *flag { "1" } else { "0" }
        }
        Value::Number(number) => number.to_string() == wanted,
        Value::Array(items) => items.iter().any(|item| item == wanted || item["id"] == wanted),
        Value::Null => wanted.is_empty(),
        Value::Object(_) => false,
    }
}

/// What is wrong with a request for a page.
#[derive(Debug, PartialEq)]
pub(crate) enum BadPage {
    Limit(String),
    Marker(String),
}

pub(crate) struct Page {
    pub items: Vec<Value>,
    /// The query of the next page.
    pub next: Option<String>,
}

/// One page of `items` in their order, those that fit.
pub(crate) fn page<T: Listed>(
    items: impl Iterator<Item = T>,
    query: &Query,
    fits: impl Fn(&Value) -> bool,
) -> Result<Page, BadPage> {
    let limit = match query.first("limit") {
        Some(text) => text.parse::<usize>().map_err(|_| BadPage::Limit(text.to_owned()))?,
        None => LONGEST_PAGE,
    };
    let limit = if limit == 0 { LONGEST_PAGE } else { limit.min(LONGEST_PAGE) };
    let marker = query.first("marker").filter(|marker| !marker.is_empty());
    let mut items = items.peekable();
    if let Some(marker) = marker {
        let found = items.by_ref().any(|item| item.id() == marker);
        if !found {
            return Err(BadPage::Marker(marker.to_owned()));
        }
    }
    let fitting = items.filter(|item| may_fit(item, query)).map(|item| json!(item)).filter(|item| fits(item));
    let mut page: Vec<Value> = Vec::new();
    let mut more = false;
    if let Some(key) = query.first("sort_key") {
        let mut all: Vec<Value> = fitting.collect();
        all.sort_by_cached_key(|item| item[key].as_str().map_or_else(|| item[key].to_string(), str::to_owned));
        if query.first("sort_dir") == Some("desc") {
            all.reverse();
        }
        more = all.len() > limit;
        page.extend(all.into_iter().take(limit));
    } else {
        for item in fitting {
            if page.len() == limit {
                more = true;
                break;
            }
            page.push(item);
        }
    }
    let last = page.last().map(|item| item.id().to_owned()).filter(|_| more);
    let next = last.map(|marker| query.with(&[("limit", &limit.to_string()), ("marker", &marker)]));
    let fields: Vec<&str> = query.all("fields").collect();
    if !fields.is_empty() {
        page.iter_mut()
            .filter_map(Value::as_object_mut)
            .for_each(|item| item.retain(|key, _| fields.contains(&key.as_str())));
    }
    Ok(Page { items: page, next })
}

/// The body of a list in the form of Nova, Neutron, Cinder and Octavia.
pub(crate) fn body(collection: &str, url: &str, page: Page) -> Value {
    let mut body = json!({collection: page.items});
    if let Some(next) = page.next {
        body[format!("{collection}_links")] = json!([{"rel": "next", "href": format!("{url}?{next}")}]);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items() -> impl Iterator<Item = Value> {
        (0..5).map(|number| json!({"id": number.to_string(), "name": format!("n{}", number % 2), "tags": ["t"]}))
    }

    #[test]
    fn pages_follow_each_other_and_filters_come_first() {
        let query = Query::parse("limit=2&name=n0");
        let first = page(items(), &query, |item| neutron_filter(item, &query)).unwrap();
        assert_eq!(first.items.len(), 2);
        let query = Query::parse(&first.next.unwrap());
        let second = page(items(), &query, |item| neutron_filter(item, &query)).unwrap();
        assert_eq!((second.items[0].id(), second.next), ("4", None));
    }

    #[test]
    fn wrong_pages_are_refused_and_fields_are_cut() {
        let page = |text: &str| page(items(), &Query::parse(text), |_| true);
        assert_eq!(page("limit=x").err(), Some(BadPage::Limit("x".into())));
        assert_eq!(page("marker=9").err(), Some(BadPage::Marker("9".into())));
        assert_eq!(page("fields=id&limit=1").unwrap().items, [json!({"id": "0"})]);
        assert_eq!(page("sort_key=id&sort_dir=desc&limit=1").unwrap().items[0].id(), "4");
    }

    #[test]
    fn repeated_parameters_are_an_or_and_tags_have_four_forms() {
        let fits =
            |text: &str| neutron_filter(&json!({"name": "a", "up": true, "tags": ["x", "y"]}), &Query::parse(text));
        for yes in
            ["name=a&name=b", "tags=x,y", "tags-any=z,y", "not-tags=x,z", "not-tags-any=z", "up=True", "nonsense=1"]
        {
            assert!(fits(yes), "{yes}");
        }
        for no in ["name=b", "tags=x,z", "tags-any=z", "not-tags=x,y", "not-tags-any=x,z", "up=false"] {
            assert!(!fits(no), "{no}");
        }
    }
}
