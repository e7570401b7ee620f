//! IPAddressClaim: reads its pool and its address.

use hangar_api::Kind;
use hangar_api::kinds::{IPAddress, OpenStackFloatingIPPool};
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, named, read};
use hangar_planner::ip_address_claim::{self, IPAddressClaims};

use crate::Context;

impl Controller<Context> for IPAddressClaims {
    const READS: &'static [Read] = &[
        read(
            &[named(OpenStackFloatingIPPool::GROUP, OpenStackFloatingIPPool::KIND, ip_address_claim::pool)],
            &["/status/conditions[Ready]"],
        ),
        read(&[named(IPAddress::GROUP, IPAddress::KIND, ip_address_claim::address)], &["/spec"]),
    ];
}
