//! Licence expressions (SPDX): whether one can be met with allowed licences alone.
//!
//! Holds: `OR` needs one side, `AND` both and binds tighter; `WITH` names an exception, which counts together with its licence; a `/` is an old way to write `OR`.

use std::collections::BTreeSet;

/// An error says why the expression cannot be read.
pub fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = Words { words: spaced.split_whitespace().collect(), at: 0, allowed };
    let answer = words.either()?;
    match words.peek() {
        None => Ok(answer),
        Some(word) => Err(format!("{word:?} is not expected there")),
    }
}

struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
    allowed: &'a BTreeSet<String>,
}

impl<'a> Words<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).copied()
    }

    fn take(&mut self, word: &str) -> bool {
        let is_next = self.peek() == Some(word);
        self.at += usize::from(is_next);
        is_next
    }

    fn either(&mut self) -> Result<bool, String> {
        let mut answer = self.both()?;
        while self.take("OR") {
            answer |= self.both()?;
        }
        Ok(answer)
    }

    fn both(&mut self) -> Result<bool, String> {
        let mut answer = self.one()?;
        while self.take("AND") {
            answer &= self.one()?;
        }
        Ok(answer)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let answer = self.either()?;
            return if self.take(")") { Ok(answer) } else { Err("a parenthesis is not closed".to_owned()) };
        }
        let name = self.next_name()?;
        let name = if self.take("WITH") { format!("{name} WITH {}", self.next_name()?) } else { name.to_owned() };
        Ok(self.allowed.contains(&name))
    }

    fn next_name(&mut self) -> Result<&'a str, String> {
        let word = self.peek().filter(|word| !["OR", "AND", "WITH", "(", ")"].contains(word));
        self.at += 1;
        word.ok_or_else(|| "a licence is missing".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_mean_what_spdx_says() {
        let allowed: BTreeSet<String> =
            ["MIT", "Apache-2.0", "ISC", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).into();
        let rows = [
            ("MIT", Some(true)),
            ("GPL-3.0", Some(false)),
            ("MIT OR GPL-3.0", Some(true)),
            ("MIT AND GPL-3.0", Some(false)),
            ("GPL-3.0 OR MIT AND ISC", Some(true)),
            ("(GPL-3.0 OR MIT) AND GPL-2.0", Some(false)),
            ("MIT/Apache-2.0", Some(true)),
            ("Apache-2.0 / GPL-3.0", Some(true)),
            ("Apache-2.0 WITH LLVM-exception", Some(true)),
            ("MIT WITH LLVM-exception", Some(false)),
            ("ISC AND (Apache-2.0 OR ISC) AND MIT", Some(true)),
            ("", None),
            ("MIT OR", None),
            ("(MIT", None),
            ("MIT ISC", None),
            ("MIT)", None),
        ];
        for (expression, expected) in rows {
            assert_eq!(is_allowed(expression, &allowed).ok(), expected, "{expression}");
        }
    }
}
