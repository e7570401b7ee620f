//! Files whose content is a Go template: `{{ .controlPlane.version }}`, `{{ if ... }}`, `{{ else }}`, `{{ end }}`, comments and trim markers.
//!
//! Holds: what is understood gives what Go gives; everything else of the language is refused by its word. What is not known may be asked for, not used.

use serde_json::Value;

/// The text with its actions carried out, or what is wrong with it.
pub fn render(text: &str, data: &Value) -> Result<String, String> {
    let parts = parts(text)?;
    let mut out = String::new();
    let end = block(&parts, 0, data, true, &mut out)?;
    match parts.get(end) {
        None => Ok(out),
        Some(Part::Action(action)) => Err(format!("{{{{ {action} }}}} without an if")),
        Some(Part::Text(_)) => Err("the template does not end".to_owned()),
    }
}

enum Part<'a> {
    Text(&'a str),
    Action(&'a str),
}

fn parts(text: &str) -> Result<Vec<Part<'_>>, String> {
    let (mut parts, mut rest, mut trims) = (vec![], text, false);
    while let Some(start) = rest.find("{{") {
        let inside = &rest[start + 2..];
        let end = action_end(inside).ok_or_else(|| "an action {{ has no end }}".to_owned())?;
        let (mut before, mut action) = (&rest[..start], &inside[..end]);
        if trims {
            before = before.trim_start();
        }
        if let Some(shorter) = action.strip_prefix('-').filter(|rest| rest.starts_with(char::is_whitespace)) {
            (before, action) = (before.trim_end(), shorter);
        }
        trims = action.ends_with(" -") || action.ends_with("\n-") || action.ends_with("\t-");
        if trims {
            action = &action[..action.len() - 1];
        }
        parts.push(Part::Text(before));
        parts.push(Part::Action(action.trim()));
        rest = &inside[end + 2..];
    }
    parts.push(Part::Text(if trims { rest.trim_start() } else { rest }));
    Ok(parts)
}

/// Braces in a string are no end.
fn action_end(inside: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (None, false);
    for (at, letter) in inside.char_indices() {
        match quoted {
            _ if escaped => escaped = false,
            Some('"') if letter == '\\' => escaped = true,
            Some(quote) if letter == quote => quoted = None,
            Some(_) => {}
            None if letter == '"' || letter == '`' => quoted = Some(letter),
            None if inside[at..].starts_with("}}") => return Some(at),
            None => {}
        }
    }
    None
}

/// Writes parts until an `else` or `end` that is not its own; where that is.
fn block(parts: &[Part<'_>], start: usize, data: &Value, writes: bool, out: &mut String) -> Result<usize, String> {
    let mut at = start;
    while let Some(part) = parts.get(at) {
        match part {
            Part::Text(text) if writes => out.push_str(text),
            Part::Text(_) => {}
            Part::Action(action) if action.starts_with("/*") && action.ends_with("*/") => {}
            Part::Action(action) => match action.split_whitespace().next() {
                Some("if") => at = condition(parts, at, &action[2..], data, writes, out)?,
                Some("else" | "end") => return Ok(at),
                Some(word @ ("range" | "with" | "define" | "template" | "block" | "break" | "continue")) => {
                    return Err(format!("{word} is not built yet"));
                }
                _ if writes => out.push_str(&words(&evaluate(action, data)?)),
                _ => {}
            },
        }
        at += 1;
    }
    Ok(at)
}

/// An `if` with its branches; where its `end` is.
fn condition(
    parts: &[Part<'_>],
    start: usize,
    asked: &str,
    data: &Value,
    writes: bool,
    out: &mut String,
) -> Result<usize, String> {
    let (mut taken, mut holds) = (false, writes && is_true(&evaluate(asked, data)?));
    let mut at = start;
    loop {
        at = block(parts, at + 1, data, holds, out)?;
        taken |= holds;
        let Some(Part::Action(action)) = parts.get(at) else { return Err("an if has no end".to_owned()) };
        let Some(rest) = action.strip_prefix("else") else { return Ok(at) };
        holds = writes && !taken;
        if let Some(asked) = rest.trim().strip_prefix("if") {
            holds = holds && is_true(&evaluate(asked, data)?);
        }
    }
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::String(text) => !text.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Number(number) => number.as_f64() != Some(0.0),
    }
}

fn words(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Functions with operands: fields, strings, numbers, and the same in parentheses.
fn evaluate(text: &str, data: &Value) -> Result<Value, String> {
    let tokens = tokens(text)?;
    let (value, rest) = call(&tokens, data)?;
    if let Some(token) = rest.first() {
        return Err(format!("{token} is not understood"));
    }
    Ok(value)
}

fn tokens(text: &str) -> Result<Vec<String>, String> {
    let (mut tokens, mut rest) = (vec![], text.trim_start());
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '(' | ')' => 1,
            '|' => return Err("pipes are not built yet".to_owned()),
            '"' | '`' => {
                let end = rest[1..].find(first).ok_or_else(|| "a string has no end".to_owned())?;
                if rest[1..=end].contains('\\') {
                    return Err("escapes in strings are not built yet".to_owned());
                }
                end + 2
            }
            _ => rest.find(|letter: char| letter.is_whitespace() || "()|".contains(letter)).unwrap_or(rest.len()),
        };
        tokens.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

fn call<'a>(tokens: &'a [String], data: &Value) -> Result<(Value, &'a [String]), String> {
    let (first, mut rest) = tokens.split_first().ok_or_else(|| "an action is empty".to_owned())?;
    if !["eq", "ne", "and", "or", "not"].contains(&first.as_str()) {
        return operand(tokens, data);
    }
    let mut operands = vec![];
    while rest.first().is_some_and(|token| token != ")") {
        let (value, left) = operand(rest, data)?;
        operands.push(value);
        rest = left;
    }
    let missing = || format!("{first} has too few operands");
    let value = match (first.as_str(), operands.as_slice()) {
        ("eq", [one, others @ ..]) if !others.is_empty() => others.contains(one).into(),
        ("ne", [one, other]) => (one != other).into(),
        ("not", [one]) => (!is_true(one)).into(),
        ("and", [.., last]) => operands.iter().find(|one| !is_true(one)).unwrap_or(last).clone(),
        ("or", [.., last]) => operands.iter().find(|one| is_true(one)).unwrap_or(last).clone(),
        _ => return Err(missing()),
    };
    Ok((value, rest))
}

fn operand<'a>(tokens: &'a [String], data: &Value) -> Result<(Value, &'a [String]), String> {
    let (first, rest) = tokens.split_first().ok_or_else(|| "an action is empty".to_owned())?;
    if first == "(" {
        let (value, rest) = call(rest, data)?;
        return match rest.split_first() {
            Some((close, rest)) if close == ")" => Ok((value, rest)),
            _ => Err("a parenthesis has no end".to_owned()),
        };
    }
    let value = match first.as_str() {
        "true" => true.into(),
        "false" => false.into(),
        "." => data.clone(),
        field if field.starts_with('.') => self::field(field, data)?,
        text if text.starts_with(['"', '`']) => text[1..text.len() - 1].into(),
        number if number.parse::<i64>().is_ok() => number.parse::<i64>().unwrap_or_default().into(),
        word => return Err(format!("{word} is not built yet")),
    };
    Ok((value, rest))
}

fn field(path: &str, data: &Value) -> Result<Value, String> {
    let (mut value, mut known) = (data, String::new());
    for name in path[1..].split('.') {
        if value.is_null() {
            return Err(format!("{known} is not known: ask for it with {{{{ if {known} }}}}"));
        }
        if !value.is_object() {
            return Err(format!("{known} has no field {name}"));
        }
        known = format!("{known}.{name}");
        value = value.get(name).unwrap_or(&Value::Null);
    }
    Ok(value.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn b5_templates_give_what_go_gives() {
        let data = json!({ "controlPlane": { "version": "v1.34.4" } });
        for (text, expected) in [
            ("plain } {", "plain } {"),
            ("v={{ .controlPlane.version }}!", "v=v1.34.4!"),
            ("a\n{{- /* nothing */ -}}\nb", "ab"),
            ("a {{- .controlPlane.version -}} b", "av1.34.4b"),
            ("{{ if .controlPlane }}{{ .controlPlane.version }}{{ else }}none{{ end }}", "v1.34.4"),
            ("{{ if .other }}a{{ else if eq .controlPlane.version \"v1.34.4\" }}b{{ else }}c{{ end }}", "b"),
            ("{{ if not .other }}{{ if ne .controlPlane.version `x` }}in{{ end }}{{ end }}", "in"),
            ("{{ if and .other .other.deeper }}a{{ end }}", "!.other is not known: ask for it with {{ if .other }}"),
            ("{{ if .other }}{{ .other.deeper }}{{ end }}", ""),
            ("{{ if or .other (eq .controlPlane.version \"y\") }}a{{ else }}b{{ end }}", "b"),
            ("{{ .controlPlane.other }}", "<no value>"),
            ("{{ \"}}\" }}", "}}"),
            ("{{ .other.deeper }}", "!.other is not known: ask for it with {{ if .other }}"),
            ("{{ .controlPlane.version.x }}", "!.controlPlane.version has no field x"),
            ("{{ range .x }}{{ end }}", "!range is not built yet"),
            ("{{ printf \"%s\" .x }}", "!printf is not built yet"),
            ("{{ .x | upper }}", "!pipes are not built yet"),
            ("{{ if .x }}", "!an if has no end"),
            ("{{ end }}", "!{{ end }} without an if"),
            ("{{ .x ", "!an action {{ has no end }}"),
            ("{{ }}", "!an action is empty"),
            ("{{ eq .x }}", "!eq has too few operands"),
        ] {
            let rendered = render(text, &data).unwrap_or_else(|why| format!("!{why}"));
            assert_eq!(rendered, expected, "{text}");
        }
        assert_eq!(render("{{ if .controlPlane }}a{{ else }}b{{ end }}", &json!({})).unwrap(), "b");
    }
}
