//! Who may do what to the simulated cloud besides its users: the first password, and the token of `/admin`.
//!
//! Holds: neither shows in `Debug`. A web page that the same person has open can send requests to loopback addresses, but it can neither read the token nor
//! send a request without saying where it comes from: `/admin` wants the former and refuses the latter.

use crate::ask::Ask;
use crate::reply::Refusal;
use crate::starter;

/// What a place sets up once and keeps.
#[derive(Clone, Default)]
pub struct Access {
    /// Of the users of a new cloud; without one it is [`starter::PASSWORD`], which everybody knows.
    pub password: Option<String>,
    /// What `X-Admin-Token` must be; without one everybody who reaches the port is an administrator.
    pub admin_token: Option<String>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("admin_token", &self.admin_token.is_some()).finish_non_exhaustive()
    }
}

impl Access {
    /// Words that nobody can guess.
    pub fn random_word() -> String {
        uuid::Uuid::new_v4().simple().to_string()
    }

    pub(crate) fn first_password(&self) -> &str {
        self.password.as_deref().unwrap_or(starter::PASSWORD)
    }

    /// Whether a call below `/admin` is one of our own.
    pub(crate) fn check(&self, ask: &Ask) -> Result<(), Refusal> {
        // No page of ours calls it, so that whichever does is somebody else's.
        if ask.headers.contains_key(http::header::ORIGIN) {
            return Err(Refusal::keystone(403, "Forbidden", "/admin is not for web pages (Origin header)"));
        }
        let given = ask.header("x-admin-token").unwrap_or_default();
        match &self.admin_token {
            Some(token) if !same(token, given) => {
                let text = "/admin needs the header X-Admin-Token: it is in cloud/admin-token of the home";
                Err(Refusal::keystone(401, "Unauthorized", text))
            }
            _ => Ok(()),
        }
    }
}

/// Takes the same time wherever the first difference is.
fn same(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.bytes().zip(other.bytes()).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}
