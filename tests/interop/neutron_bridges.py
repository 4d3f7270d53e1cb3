"""What neutron-openvswitch-agent does to the database for a flat and a VLAN network, by Neutron's own library.

Runs with the system's Python, which has Neutron: `python3 neutron_bridges.py SOCKET`. Prints one line of JSON.
"""

import json
import sys

from neutron.agent.common import ovs_lib
from neutron.conf.agent import common as agent_config
from neutron.conf.plugins.ml2.drivers import ovs_conf
from oslo_config import cfg

DEAD_VLAN = 4095


def main():
    agent_config.register_root_helper(cfg.CONF)
    ovs_conf.register_ovs_agent_opts(cfg.CONF)
    cfg.CONF([], project="neutron")
    cfg.CONF.set_override("ovsdb_connection", f"unix:{sys.argv[1]}", group="OVS")
    cfg.CONF.set_override("ovsdb_timeout", 60, group="OVS")

    integration = ovs_lib.OVSBridge("br-int", datapath_type="netdev")
    integration.create()
    integration.set_secure_mode()
    integration.add_protocols("OpenFlow13")
    integration.set_controller(["tcp:127.0.0.1:16633"])
    integration.set_controllers_connection_mode("out-of-band")
    integration.set_controllers_inactivity_probe(10)
    physical = ovs_lib.OVSBridge("br-ex", datapath_type="netdev")
    physical.create()
    physical.set_secure_mode()
    physical.add_port("e1")
    # The pair of patch ports between the integration bridge and the physical one.
    to_physical = integration.add_patch_port("int-br-ex", "phy-br-ex")
    to_integration = physical.add_patch_port("phy-br-ex", "int-br-ex")

    # A port of a virtual machine: first in the dead VLAN, then in the local VLAN of its network.
    port = integration.add_port("tap1", ("type", "internal"), ("external_ids", {
        "iface-id": "11111111-1111-1111-1111-111111111111", "iface-status": "active", "attached-mac": "fa:16:3e:00:00:01"}))
    integration.set_db_attribute("Port", "tap1", "tag", DEAD_VLAN)
    found = integration.get_vif_port_by_id("11111111-1111-1111-1111-111111111111")
    integration.set_db_attribute("Port", "tap1", "tag", 1)
    integration.set_db_attribute("Port", "tap1", "other_config",
                                 {"net_uuid": "n", "network_type": "vlan", "physical_network": "physnet1", "segmentation_id": "100"})
    integration.create_egress_bw_limit_for_port("tap1", 1000, 100)
    integration.update_ingress_bw_limit_for_port("tap1", 2000, 200)
    bridges = ovs_lib.BaseOVS()
    print(json.dumps({
        "bridges": sorted(bridges.get_bridges()),
        "patches": [to_physical, to_integration],
        "port": port,
        "found": [found.port_name, found.ofport, found.vif_mac],
        "tags": integration.get_port_tag_dict(),
        "datapath_id": integration.get_datapath_id(),
        "ports": sorted(integration.get_port_name_list()),
        "ofport": integration.get_port_ofport("tap1"),
        "limits": [integration.get_egress_bw_limit_for_port("tap1"), integration.get_ingress_bw_limit_for_port("tap1")],
        "fail_mode": bridges.db_get_val("Bridge", "br-int", "fail_mode"),
    }))
    integration.delete_port("tap1")
    physical.destroy()
    integration.destroy()


main()
