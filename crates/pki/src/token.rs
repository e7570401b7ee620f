//! Bootstrap tokens: `abcdef.0123456789abcdef`.

use crate::{Keys, PkiError};

const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;

/// A token by which a new node proves that it may ask for a certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken {
    pub id: String,
    pub secret: String,
}

impl BootstrapToken {
    pub fn generate(keys: &dyn Keys) -> Result<Self, PkiError> {
        let text = random_text(keys, ID_LENGTH + SECRET_LENGTH)?;
        let (id, secret) = text.split_at(ID_LENGTH);
        Ok(Self { id: id.to_owned(), secret: secret.to_owned() })
    }

    pub fn parse(text: &str) -> Result<Self, PkiError> {
        let fits = |part: &str, length| part.len() == length && part.bytes().all(|byte| ALPHABET.contains(&byte));
        match text.split_once('.') {
            Some((id, secret)) if fits(id, ID_LENGTH) && fits(secret, SECRET_LENGTH) => {
                Ok(Self { id: id.to_owned(), secret: secret.to_owned() })
            }
            // Only the public half may end up in a log.
            _ => Err(PkiError::BadToken(text.chars().take(ID_LENGTH).collect::<String>() + "...")),
        }
    }

    /// The whole token, as it goes into user-data.
    pub fn expose(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }
}

impl std::fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BootstrapToken({}...)", self.id)
    }
}

fn random_text(keys: &dyn Keys, length: usize) -> Result<String, PkiError> {
    // Bytes beyond the last whole multiple of the alphabet are thrown away, else some letters would come up more often.
    let limit = 256 / ALPHABET.len() * ALPHABET.len();
    let mut text = String::with_capacity(length);
    let mut bytes = [0_u8; 32];
    while text.len() < length {
        keys.fill(&mut bytes)?;
        let fair = bytes.iter().map(|&byte| usize::from(byte)).filter(|&byte| byte < limit);
        text.extend(fair.take(length - text.len()).map(|byte| char::from(ALPHABET[byte % ALPHABET.len()])));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemKeys;

    #[test]
    fn a_generated_token_parses_and_hides_its_secret() {
        let token = BootstrapToken::generate(&SystemKeys).unwrap();
        assert_eq!(BootstrapToken::parse(&token.expose()).unwrap(), token);
        assert!(!format!("{token:?}").contains(&token.secret));
    }

    #[test]
    fn what_is_no_token_is_refused_without_showing_a_secret() {
        for bad in ["", "abcdef", "abcdef.short", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdeF"] {
            let error = BootstrapToken::parse(bad).unwrap_err().to_string();
            assert!(!error.contains("0123456789"), "{error}");
        }
    }
}
