"""The real `openstack` client walks through what a cluster needs: `walk.py WORK_DIRECTORY AUTH_URL`.

Each step is one command line of the client, run in a fork of an interpreter that has loaded the client once. A step is
(user, command, what its output must contain or `None`, name under which its first line is kept or `None`).
"""
import io
import os
import shlex
import sys
import time

from openstackclient import shell

WORK, AUTH = sys.argv[1:]
os.environ['OS_CLIENT_CONFIG_FILE'] = f'{WORK}/clouds.yaml'
kept, done, wrong = {}, 0, []


def client(arguments):
    reader, writer = os.pipe()
    if not (child := os.fork()):
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        try:
            code = shell.main(arguments)
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else int(bool(code)))
    os.close(writer)
    text = io.open(reader, 'rb').read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text.strip()


def step(user, command, expected=None, keep=None):
    global done
    code, text = client(['--os-cloud', user, *shlex.split(command.format(**kept, work=WORK))])
    if code or (expected is not None and expected not in text):
        wrong.append(f'{command}: {code}: {text[-400:]}')
        print('WRONG', wrong[-1], flush=True)
    done += 1
    if keep:
        kept[keep] = text.splitlines()[0].strip() if text else ''


def until(user, command, wanted):
    """Counts as one step."""
    global done
    done += 1
    for _ in range(60):
        code, text = client(['--os-cloud', user, *shlex.split(command.format(**kept))])
        if (wanted is None and code) or (wanted is not None and text == wanted):
            return
        time.sleep(0.1)
    wrong.append(f'{command} never said {wanted}: {text[-200:]}')
    print('WRONG', wrong[-1], flush=True)


open(f'{WORK}/image', 'wb').write(bytes(4096))
open(f'{WORK}/user-data', 'w').write('#cloud-config\n')
A, D, ID, STATUS = 'admin', 'demo', ' -f value -c id', ' -f value -c status'
for user, command, expected, keep in [
    (A, 'token issue -f value -c expires', None, None), (A, 'catalog list -f value -c Name', 'octavia', None),
    (A, 'project list -f value -c Name', 'demo', None), (A, 'user list -f value -c Name', 'demo', None),
    (A, 'compute service list -f value -c Binary', 'nova-compute', None), (A, 'volume service list -f value -c Binary', 'cinder-volume', None),
    (A, 'hypervisor list -f value', None, None), (A, 'extension list --network -f value -c Alias', 'trunk', None),
    (A, 'availability zone list -f value', 'nova', None), (A, 'network create --external --provider-network-type flat --provider-physical-network p outside' + ID, None, 'outside'),
    (A, 'subnet create --network outside --subnet-range 198.51.100.0/24 --no-dhcp outside-range' + ID, None, None),
    (A, 'flavor create --ram 1024 --disk 10 --vcpus 1 tiny' + ID, None, None), (A, 'flavor list -f value -c Name', 'tiny', None),
    (A, 'image create --disk-format raw --container-format bare --public --file {work}/image --property os_distro=debian --tag k8s img' + STATUS, 'active', None),
    (D, 'image list --tag k8s -f value -c Name', 'img', None), (D, 'image show img -f value -c properties', 'debian', None),
    (D, 'network create inside' + ID, None, 'net'), (D, 'subnet create --network inside --subnet-range 10.20.0.0/24 --dns-nameserver 192.0.2.1 range' + ID, None, 'range'),
    (D, 'subnet set --dns-nameserver 192.0.2.2 range', None, None), (D, 'subnet show range -f value -c dns_nameservers', '192.0.2.2', None),
    (D, 'router create way' + STATUS, 'ACTIVE', None), (D, 'router set --external-gateway outside way', None, None),
    (D, 'router add subnet way range', None, None), (D, 'router show way -f value -c external_gateway_info', '198.51.100', None),
    (D, 'security group create nodes' + ID, None, None), (D, 'security group rule create --protocol tcp --dst-port 6443 nodes' + ID, None, 'rule'),
    (D, 'security group rule create --protocol tcp --dst-port 2379:2380 --remote-group nodes nodes' + ID, None, None),
    (D, 'security group rule create --protocol 4 --remote-group nodes nodes -f value -c protocol', '4', None),
    (D, 'security group rule list nodes -f value -c ID', None, None), (D, 'security group rule delete {rule}', None, None),
    (D, 'network set --tag one --tag two inside', None, None), (D, 'network list --tags one,two -f value -c Name', 'inside', None),
    (D, 'network unset --tag two inside', None, None), (D, 'router set --tag one way', None, None), (D, 'security group set --tag one nodes', None, None),
    (D, 'port create --network inside --fixed-ip subnet=range,ip-address=10.20.0.77 --security-group nodes --allowed-address ip-address=10.20.0.200 first' + STATUS, 'DOWN', None),
    (D, 'port set --description changed first', None, None), (D, 'port show first -f value -c description', 'changed', None),
    (D, 'port create --network inside --no-security-group --disable-port-security second' + ID, None, None),
    (D, 'network trunk create --parent-port second carrier' + STATUS, None, None), (D, 'network trunk list -f value -c Name', 'carrier', None), (D, 'network trunk delete carrier', None, None),
    (D, 'keypair create --private-key {work}/key mine -f value -c name', 'mine', None), (D, 'keypair list -f value -c Name', 'mine', None),
    (D, 'server group create --policy soft-anti-affinity apart' + ID, None, 'group'),
    (D, 'server create --flavor tiny --image img --key-name mine --port first --user-data {work}/user-data --config-drive True --hint group={group} --property role=cp s1' + ID, None, 's1'),
]:
    step(user, command, expected, keep)
until(D, 'server show s1' + STATUS, 'ACTIVE')
for user, command, expected, keep in [
    (D, 'server list -f value -c Name', 's1', None), (D, 'server list --name ^s1$ -f value -c Name', 's1', None),
    (D, 'server show s1 -f value -c addresses', '10.20.0.77', None), (D, 'port show first -f value -c status -c device_owner', 'ACTIVE', None),
    (A, 'port show first -f value -c binding_vif_type', 'ovs', None), (D, 'server set --property more=yes s1', None, None),
    (D, 'server show s1 -f value -c properties', 'more', None), (D, 'console log show s1', None, None),
    (D, 'floating ip create outside -f value -c floating_ip_address', None, 'ip'), (D, 'floating ip set --port first {ip}', None, None),
    (D, 'server show s1 -f value -c addresses', '198.51.100', None), (D, 'floating ip list -f value', '10.20.0.77', None), (D, 'floating ip unset --port {ip}', None, None),
    (D, 'volume create --size 1 data' + ID, None, None),
]:
    step(user, command, expected, keep)
until(D, 'volume show data' + STATUS, 'available')
step(D, 'server add volume s1 data -f value -c Device', '/dev/vd')
until(D, 'volume show data' + STATUS, 'in-use')
step(D, 'server remove volume s1 data')
until(D, 'volume show data' + STATUS, 'available')
step(D, 'volume set --size 2 data')
step(D, 'volume show data -f value -c size', '2')
step(D, 'server create --flavor tiny --image img --boot-from-volume 2 --network inside s2' + ID, None, 's2')
until(D, 'server show s2' + STATUS, 'ACTIVE')
step(D, 'server stop s1')
until(D, 'server show s1' + STATUS, 'SHUTOFF')
step(D, 'server start s1')
until(D, 'server show s1' + STATUS, 'ACTIVE')
BALANCED = 'loadbalancer show lb -f value -c provisioning_status'
step(D, 'loadbalancer provider list -f value -c name', 'amphora')
for command in ['loadbalancer create --name lb --vip-subnet-id range' + ID,
                'loadbalancer listener create --name front --protocol TCP --protocol-port 6443 --allowed-cidr 10.0.0.0/8 lb' + ID,
                'loadbalancer pool create --name back --listener front --protocol TCP --lb-algorithm ROUND_ROBIN' + ID,
                'loadbalancer healthmonitor create --name watch --delay 5 --timeout 3 --max-retries 3 --type TCP back' + ID,
                'loadbalancer member create --name m --address 10.20.0.77 --protocol-port 6443 back' + ID]:
    step(D, command)
    until(D, BALANCED, 'ACTIVE')
step(D, 'loadbalancer member list back -f value -c address', '10.20.0.77')
step(D, 'application credential create --secret s3cret robot' + ID, None, 'robot')
os.environ['OS_CLIENT_CONFIG_FILE'] = '/dev/null'
code, text = client(shlex.split(f'--os-auth-type v3applicationcredential --os-auth-url {AUTH} --os-application-credential-id {kept["robot"]} '
                                '--os-application-credential-secret s3cret --os-region-name RegionOne server list -f value -c Name'))
done += 1
if code or 's1' not in text:
    wrong.append(f'application credential: {text}')
os.environ['OS_CLIENT_CONFIG_FILE'] = f'{WORK}/clouds.yaml'
step(D, 'loadbalancer delete --cascade lb')
until(D, BALANCED, None)
for command in ['floating ip delete {ip}', 'server delete --wait s1 s2', 'volume delete data', 'port delete first second', 'server group delete {group}',
                'keypair delete mine', 'application credential delete robot', 'router remove subnet way range', 'router delete way',
                'network delete inside', 'security group delete nodes']:
    step(D, command)
# A volume that a server was made on stays, unless somebody asked for the opposite.
until(D, 'volume list -f value -c Status', 'available')
step(D, 'volume list -f value -c ID', None, 'root')
step(D, 'volume delete {root}')
until(D, 'volume list -f value -c ID', '')
for command in ['network delete outside', 'image delete img', 'flavor delete tiny']:
    step(A, command)
for command in ['server list --all-projects', 'port list', 'network list', 'router list', 'volume list --all-projects', 'floating ip list',
                'loadbalancer list', 'image list']:
    until(A, command + ' -f value', '')
print(f'{done} steps, {len(wrong)} wrong')
sys.exit(bool(wrong) or done < 90)
