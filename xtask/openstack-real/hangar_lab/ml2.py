"""Stands for the agents of a network: ports are up once they are bound, floating IPs once they lead somewhere."""
from neutron_lib import constants
from neutron_lib.api.definitions import portbindings
from neutron_lib.callbacks import events, registry, resources
from neutron_lib.plugins import constants as plugin_names
from neutron_lib.plugins import directory
from neutron_lib.plugins.ml2 import api


class Driver(api.MechanismDriver):
    connectivity = portbindings.CONNECTIVITY_L2

    def initialize(self):
        for moment in (events.AFTER_CREATE, events.AFTER_UPDATE):
            registry.subscribe(self.report_floating_ip, resources.FLOATING_IP, moment)

    def report_floating_ip(self, resource, event, trigger, payload):
        bound = payload.latest_state.get('port_id') or payload.latest_state.get('fixed_port_id')
        status = constants.FLOATINGIP_STATUS_ACTIVE if bound else constants.FLOATINGIP_STATUS_DOWN
        router = directory.get_plugin(plugin_names.L3)
        router.update_floatingip_status(payload.context.elevated(), payload.resource_id, status)

    def bind_port(self, context):
        segment = context.segments_to_bind[0][api.ID]
        details = {portbindings.CAP_PORT_FILTER: True, portbindings.VIF_DETAILS_CONNECTIVITY: self.connectivity}
        context.set_binding(segment, portbindings.VIF_TYPE_OVS, details, status=constants.PORT_STATUS_ACTIVE)
