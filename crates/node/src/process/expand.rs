//! `$(NAME)` in commands, arguments and values, as the API defines it: `$$(NAME)` is an escape, an unknown name stays as it is.

use std::collections::BTreeMap;

pub(super) fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match variables.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_as_kubernetes_does() {
        let variables =
            BTreeMap::from([("POD_IP".to_owned(), "127.9.0.16".to_owned()), ("A".to_owned(), "$(B)".to_owned())]);
        let rows = [
            ("--bind-address=$(POD_IP)", "--bind-address=127.9.0.16"),
            ("https://$(POD_IP):2379,$(POD_IP)", "https://127.9.0.16:2379,127.9.0.16"),
            ("$$(POD_IP)", "$(POD_IP)"),
            ("$(UNKNOWN) $(A)", "$(UNKNOWN) $(B)"),
            ("cost: 5$ $HOME $(open", "cost: 5$ $HOME $(open"),
        ];
        for (text, expected) in rows {
            assert_eq!(expand(text, &variables), expected);
        }
    }
}
