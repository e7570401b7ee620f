//! Names of fields and types in Rust.

/// The name of one item of a list.
pub fn singular(plural: &str) -> String {
    if let Some(stem) = plural.strip_suffix("ies") {
        return format!("{stem}y");
    }
    let stem = plural.strip_suffix("es").filter(|stem| ["ch", "sh", "ss", "x"].iter().any(|end| stem.ends_with(end)));
    stem.or_else(|| plural.strip_suffix('s').filter(|stem| !stem.ends_with('s'))).unwrap_or(plural).to_owned()
}

/// `apiServerFixedIP` -> `api_server_fixed_ip`: runs of capitals are one word, with the `s` of their plural, and so are units.
pub fn snake(name: &str) -> String {
    let name = name.replace("GiB", "Gib").replace("MiB", "Mib");
    let letters: Vec<char> = name.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
    let mut out = String::new();
    for (index, &letter) in letters.iter().enumerate() {
        let after_lower = index > 0 && (letters[index - 1].is_lowercase() || letters[index - 1].is_ascii_digit());
        let plural = letters.get(index + 1) == Some(&'s') && letters.get(index + 2).is_none_or(|n| n.is_uppercase());
        let ends_run = index > 0
            && letters[index - 1].is_uppercase()
            && !plural
            && letters.get(index + 1).is_some_and(|n| n.is_lowercase());
        if letter.is_uppercase() && (after_lower || ends_run) {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out.trim_matches('_').to_owned()
}

/// What serde's camelCase makes of a snake_case name.
pub fn camel(snake: &str) -> String {
    let mut out = String::new();
    for (index, word) in snake.split('_').enumerate() {
        let mut letters = word.chars();
        match letters.next() {
            Some(first) if index > 0 => out.extend(first.to_uppercase()),
            Some(first) => out.push(first),
            None => {}
        }
        out.push_str(letters.as_str());
    }
    out
}

pub fn pascal(name: &str) -> String {
    let camel = camel(&snake(name));
    let mut letters = camel.chars();
    letters.next().map(|first| first.to_uppercase().collect::<String>() + letters.as_str()).unwrap_or_default()
}

pub fn rust_name(property: &str) -> String {
    let name = snake(property);
    match name.as_str() {
        "type" | "ref" | "match" | "enum" | "use" | "static" | "const" => format!("r#{name}"),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_fields_are_words() {
        let table = [
            ("apiServerFixedIP", "api_server_fixed_ip"),
            ("fixedIPs", "fixed_ips"),
            ("dnsServiceIPs", "dns_service_ips"),
            ("certSANs", "cert_sans"),
            ("sizeGiB", "size_gib"),
            ("APIServerPort", "api_server_port"),
            ("providerID", "provider_id"),
            ("OpenStackMachine", "open_stack_machine"),
        ];
        for (name, expected) in table {
            assert_eq!(snake(name), expected, "{name}");
        }
    }

    #[test]
    fn an_item_of_a_list_is_one_thing() {
        let table = [
            ("patches", "patch"),
            ("additionalProperties", "additionalProperty"),
            ("addresses", "address"),
            ("skipPhases", "skipPhase"),
            ("fixedIPs", "fixedIP"),
            ("ports", "port"),
            ("ingress", "ingress"),
        ];
        for (plural, expected) in table {
            assert_eq!(singular(plural), expected, "{plural}");
        }
    }
}
