//! The members of a store one by one: how large their files are, and giving back what they no longer use.
//!
//! Holds: a member that is defragmented answers nobody meanwhile, so the others must be there; which one and when is the planner's decision.

use std::time::Duration;

use hangar_planner::data_store::Member;

use super::wire::{Empty, StatusAnswer};
use super::{ANSWER_WITHIN, Etcd, EtcdError};

/// A file of 8 GiB is written anew meanwhile.
const DEFRAGMENTED_WITHIN: Duration = Duration::from_secs(300);

impl Etcd {
    /// Every member, in the order of the endpoints; those that do not answer say nothing of themselves.
    pub async fn members(&self) -> Vec<Member> {
        futures::future::join_all(self.endpoints.iter().map(|endpoint| self.member(endpoint))).await
    }

    async fn member(&self, endpoint: &str) -> Member {
        let asked = self.ask::<_, StatusAnswer>(endpoint, "Maintenance/Status", &Empty {}, ANSWER_WITHIN).await;
        let Ok(answer) = asked else { return Member { endpoint: endpoint.to_owned(), ..Member::default() } };
        let bytes = |number: i64| u64::try_from(number).unwrap_or_default();
        Member {
            endpoint: endpoint.to_owned(),
            answers: true,
            leads: answer.header.is_some_and(|header| header.member == answer.leader),
            size: bytes(answer.size),
            in_use: bytes(answer.in_use),
        }
    }

    /// Writes the file of one member anew, without what is no longer used.
    pub async fn defragment(&self, endpoint: &str) -> Result<(), EtcdError> {
        self.ask::<_, Empty>(endpoint, "Maintenance/Defragment", &Empty {}, DEFRAGMENTED_WITHIN).await.map(drop)
    }
}
