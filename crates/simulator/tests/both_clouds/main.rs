//! One suite for the client, run unchanged against the simulator and against a real OpenStack.
//!
//! `HANGAR_TEST_CLOUDS` names a clouds.yaml with the entries `admin` and `demo` (a plain tenant) of a real cloud
//! (`cargo xtask openstack-real test` sets it); without it the simulator is what is tested. A difference is a bug of one of
//! the two or of what we believe, never a reason to skip.

#![allow(clippy::unwrap_used, reason = "the helpers of a test are tests too")]

mod identity;
mod load_balancers;
mod networks;
mod place;
mod quotas;
mod servers;
mod volumes;
