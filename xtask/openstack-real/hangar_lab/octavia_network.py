"""Octavia's own Neutron driver; only the plugging into a virtual machine, which does not exist, is remembered instead."""
from collections import defaultdict

from octavia.network import data_models
from octavia.network.drivers.neutron import allowed_address_pairs

PLUGGED = defaultdict(list)


class Driver(allowed_address_pairs.AllowedAddressPairsDriver):
    def get_plugged_networks(self, compute_id):
        return list(PLUGGED[compute_id])

    def plug_port(self, amphora, port):
        card = data_models.Interface(compute_id=amphora.compute_id, network_id=port.network_id, port_id=port.id,
                                     fixed_ips=port.fixed_ips, vnic_type='normal')
        PLUGGED[amphora.compute_id].append(card)
        return card

    def unplug_network(self, compute_id, network_id):
        PLUGGED[compute_id] = [card for card in PLUGGED[compute_id] if card.network_id != network_id]
