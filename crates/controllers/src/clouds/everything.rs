//! Everything of one sort that a project has, whoever made it: what is found by its address, or looked through.
//!
//! Holds: one list for all who ask; what we changed since is changed in it; after a call whose fate is unknown it is read anew.

use std::time::Duration;

use hangar_openstack::Error;
use tokio::sync::Mutex;
use tokio::time::Instant;

pub struct Everything<T>(Mutex<Option<Read<T>>>);

struct Read<T> {
    at: Instant,
    epoch: u64,
    items: Vec<T>,
}

impl<T> Default for Everything<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Everything<T> {
    /// What `look` sees in a list that is not older than `age`.
    pub async fn see<R>(
        &self,
        epoch: u64,
        age: Duration,
        read: impl Future<Output = Result<Vec<T>, Error>>,
        look: impl FnOnce(&[T]) -> R,
    ) -> Result<R, Error> {
        let mut known = self.0.lock().await;
        if let Some(known) = known.as_ref().filter(|known| known.epoch == epoch && known.at.elapsed() < age) {
            return Ok(look(&known.items));
        }
        let at = Instant::now();
        let items = read.await?;
        Ok(look(&known.insert(Read { at, epoch, items }).items))
    }

    /// One of them is like this now, or is gone.
    pub async fn changed(&self, is_it: impl Fn(&T) -> bool, now: Option<T>) {
        if let Some(known) = self.0.lock().await.as_mut() {
            known.items.retain(|item| !is_it(item));
            known.items.extend(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_list_serves_all_until_it_is_old_and_has_our_changes() {
        let everything = Everything::default();
        let second = Duration::from_secs(1);
        let see = async |epoch: u64, age: Duration, there: &[u8]| {
            everything.see(epoch, age, async { Ok(there.to_vec()) }, <[u8]>::to_vec).await.unwrap()
        };
        assert_eq!(see(0, second, &[1, 2]).await, [1, 2]);
        assert_eq!(see(0, second, &[3]).await, [1, 2], "it is new");
        everything.changed(|item| *item == 1, Some(7)).await;
        assert_eq!(see(0, second, &[3]).await, [2, 7]);
        everything.changed(|item| *item == 2, None).await;
        assert_eq!(see(0, second, &[3]).await, [7]);
        assert_eq!(see(1, second, &[4]).await, [4], "nobody knows what became of a call");
        tokio::time::advance(second).await;
        assert_eq!(see(1, second, &[5]).await, [5], "it is old");
    }
}
