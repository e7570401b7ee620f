//! What runs on a server: the cloud boots guests and shuts them down, a driver decides what that means.

mod cloud_init;
mod hollow;
mod join_config;
mod multipart;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

pub use hollow::HollowGuests;

/// Called when a server turns ACTIVE and when it is gone; neither may block.
pub trait GuestDriver: Send + Sync {
    fn boot(&self, guest: Guest);
    /// The server is gone, and its disk with it.
    fn shut_down(&self, server_id: &str);
    /// The server is switched off; its disk stays.
    fn stop(&self, _server_id: &str) {}
}

/// A server as its guest sees it.
#[derive(Clone)]
pub struct Guest {
    pub server_id: String,
    pub name: String,
    pub project_id: String,
    pub image_properties: BTreeMap<String, String>,
    pub metadata: BTreeMap<String, String>,
    pub availability_zone: String,
    pub addresses: Vec<String>,
    /// As given at creation, no longer base64.
    pub user_data: Vec<u8>,
    pub console: Console,
}

/// User-data holds a bootstrap token.
impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest").field("server_id", &self.server_id).field("name", &self.name).finish_non_exhaustive()
    }
}

/// What a machine would have done to itself with its user-data: files by path, and the lines it would have run.
pub fn dry_run(guest: &Guest) -> Result<(BTreeMap<String, String>, Vec<String>), String> {
    let prepared = cloud_init::prepare(guest).map_err(|error| error.to_string())?;
    Ok((prepared.files, prepared.commands.into_iter().chain(prepared.scripts).collect()))
}

/// The serial console: lines in, text out.
#[derive(Clone, Debug, Default)]
pub struct Console(Arc<Mutex<String>>);

impl Console {
    /// A guest that retries for days must not fill the memory.
    const LONGEST: usize = 64 << 10;

    pub fn line(&self, text: impl AsRef<str>) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.push_str(text.as_ref());
        log.push('\n');
        if log.len() > Self::LONGEST {
            let cut = log.ceil_char_boundary(log.len() - Self::LONGEST / 2);
            let start = log[cut..].find('\n').map_or(log.len(), |at| cut + at + 1);
            log.drain(..start);
        }
    }

    pub fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
