//! Cluster: reads what it refers to and everything that carries its name.

use hangar_api::{Object, kinds};
use hangar_engine::pass::Controller;
use hangar_engine::reads::{Read, members, read, reference};
use hangar_planner::cluster::Clusters;
use hangar_planner::step::ClusterName;

use crate::Context;

/// What the contract has to say, and the counts.
const PROVIDER: &[&str] = &[
    "/metadata/ownerReferences",
    "/metadata/labels",
    "/spec/controlPlaneEndpoint",
    "/status/initialization",
    "/status/ready",
    "/status/initialized",
    "/status/failureDomains",
    "/status/conditions[Ready]",
    "/status/conditions[Available]",
    "/status/replicas",
    "/status/readyReplicas",
    "/status/availableReplicas",
    "/status/upToDateReplicas",
];

impl Controller<Context> for Clusters {
    const READS: &'static [Read] = &[
        read(&[reference("/spec/infrastructureRef")], PROVIDER),
        read(&[reference("/spec/controlPlaneRef")], PROVIDER),
        read(
            &[members::<kinds::MachineDeployment>()],
            &[
                "/spec/replicas",
                "/status/replicas",
                "/status/readyReplicas",
                "/status/availableReplicas",
                "/status/upToDateReplicas",
                "/status/conditions[Available]",
            ],
        ),
        read(&[members::<kinds::MachineSet>()], &[]),
        read(&[members::<kinds::Machine>()], &[]),
    ];

    fn forget(context: &Context, cluster: &Object) {
        let name = ClusterName { namespace: cluster.namespace().to_owned(), name: cluster.name().to_owned() };
        context.tenants.forget(&name);
    }
}
