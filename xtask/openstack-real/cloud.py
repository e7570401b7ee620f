"""A real OpenStack on this machine, without virtual machines: `cloud.py up|down|status STATE_DIRECTORY`.

Keystone, Placement, Glance, Neutron, Nova, Cinder and Octavia come from PyPI in the versions of requirements.txt and
constraints.txt, MariaDB and RabbitMQ from the distribution. Everything listens on 127.0.0.1 at ports that were free, and
keeps its files in the state directory. What is not upstream's own code is in the package hangar_lab beside this file.
"""
import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
STATE = pathlib.Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None
APIS = ['keystone', 'placement', 'glance', 'neutron', 'nova', 'cinder', 'octavia']
PORTS = APIS + ['rabbit', 'rabbit-dist', 'epmd']
DATABASES = ['keystone', 'placement', 'glance', 'neutron', 'nova_api', 'nova', 'nova_cell0', 'cinder', 'octavia']


def say(text):
    print(f'[{time.monotonic() - BEGAN:6.1f} s] {text}', flush=True)


def fail(text):
    sys.exit(f'error: {text}')


def run(*command, log=None, env=None, **more):
    """To the end; its output goes to a log that is named if it fails."""
    target = (STATE / 'log' / f'{log or pathlib.Path(command[0]).name}.log')
    with target.open('ab') as file:
        done = subprocess.run([str(part) for part in command], stdout=file, stderr=file, env=env or environment(), **more)
    if done.returncode:
        fail(f'{pathlib.Path(str(command[0])).name} ended with {done.returncode}: read {target}')


def environment(**more):
    paths = f'{STATE}/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin'
    return {**os.environ, 'PATH': paths, 'PYTHONPATH': str(HERE), 'PYTHONWARNINGS': 'ignore', 'PYTHONDONTWRITEBYTECODE': '1', 'MALLOC_ARENA_MAX': '2',
            'OS_NOVA_DISABLE_EVENTLET_PATCHING': 'true', 'OS_CINDER_DISABLE_EVENTLET_PATCHING': 'true', **more}


# ------------------------------------------------------------------ install

def install():
    needed = {'/usr/sbin/mariadbd': 'mariadb-server-core mariadb-client-core', '/usr/lib/rabbitmq/bin/rabbitmq-server': 'rabbitmq-server'}
    missing = [package for path, names in needed.items() if not os.path.exists(path) for package in names.split()]
    if missing and os.geteuid() != 0:
        fail(f'install these packages first: {" ".join(missing)}')
    if missing:
        say(f'packages: {" ".join(missing)}')
        # Nothing of this is to be started by the distribution.
        guard = pathlib.Path('/usr/sbin/policy-rc.d')
        mine = not guard.exists()
        if mine:
            guard.write_text('#!/bin/sh\nexit 101\n')
            guard.chmod(0o755)
        try:
            quiet = environment(DEBIAN_FRONTEND='noninteractive')
            run('apt-get', 'update', '-q', log='apt', env=quiet)
            run('apt-get', 'install', '-y', '-q', '--no-install-recommends', *missing, log='apt', env=quiet)
        finally:
            if mine:
                guard.unlink()
    stamp = STATE / 'venv' / 'complete'
    wanted = (HERE / 'requirements.txt').read_text() + (HERE / 'constraints.txt').read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        say('OpenStack from PyPI')
        run(sys.executable, '-m', 'venv', STATE / 'installer', log='pip')
        run(STATE / 'installer' / 'bin' / 'pip', 'install', '-q', 'uv', log='pip')
        uv = STATE / 'installer' / 'bin' / 'uv'
        run(uv, 'venv', '-q', '--clear', '--python', sys.executable, STATE / 'venv', log='pip')
        run(uv, 'pip', 'install', '-q', '--python', STATE / 'venv' / 'bin' / 'python', '-r', HERE / 'requirements.txt',
            '-c', HERE / 'constraints.txt', log='pip')
        stamp.write_text(wanted)
    info = STATE / 'venv' / 'lib' / f'python{sys.version_info.major}.{sys.version_info.minor}' / 'site-packages' / 'hangar_lab-1.dist-info'
    info.mkdir(exist_ok=True)
    (info / 'METADATA').write_text('Metadata-Version: 2.1\nName: hangar_lab\nVersion: 1\n')
    (info / 'entry_points.txt').write_text(
        '[neutron.ml2.mechanism_drivers]\nhangar_lab = hangar_lab.ml2:Driver\n'
        '[octavia.network.drivers]\nhangar_lab = hangar_lab.octavia_network:Driver\n')


# ------------------------------------------------------------ configuration

def facts():
    """Ports and the password: chosen once, kept."""
    path = STATE / 'facts.json'
    if not path.exists():
        held = [socket.create_server(('127.0.0.1', 0)) for _ in PORTS]
        ports = dict(zip(PORTS, (one.getsockname()[1] for one in held)))
        for one in held:
            one.close()
        path.write_text(json.dumps({'ports': ports, 'password': secrets.token_hex(8)}))
        path.chmod(0o600)
    return json.loads(path.read_text())


def url(service, path=''):
    return f'http://127.0.0.1:{FACTS["ports"][service]}{path}'


def database(name):
    return {'connection': f'mysql+pymysql://os:os@localhost/{name}?unix_socket={STATE}/mysql.sock', 'max_pool_size': 3}


def account(user):
    return {'auth_url': url('keystone', '/v3'), 'auth_type': 'password', 'username': user, 'password': FACTS['password'],
            'project_name': 'service', 'user_domain_id': 'default', 'project_domain_id': 'default', 'region_name': 'RegionOne'}


def common(user):
    """What every service but Keystone has."""
    checks = {**account(user), 'www_authenticate_uri': url('keystone', '/v3'), 'service_token_roles': 'service',
              'service_token_roles_required': 'true'}
    return {'keystone_authtoken': checks, 'oslo_concurrency': {'lock_path': f'{STATE}/lock'},
            'oslo_messaging_rabbit': {'heartbeat_in_pthread': 'false'},
            'oslo_policy': {'enforce_scope': 'true', 'enforce_new_defaults': 'true'}}


def configurations():
    etc, venv = STATE / 'etc', STATE / 'venv' / 'etc'
    bus = {'transport_url': f'rabbit://os:os@127.0.0.1:{FACTS["ports"]["rabbit"]}/', 'use_stderr': 'true'}
    threads = {**bus, 'concurrency_backend': 'threading', 'my_ip': '127.0.0.1', 'host': 'hangar-lab'}
    no_limit = {f'quota_{name}': -1 for name in ('port', 'network', 'subnet', 'router', 'floatingip', 'security_group', 'security_group_rule')}
    service_user = {**account('nova'), 'send_service_user_token': 'true'}
    return {
        'keystone': {
            'DEFAULT': {'use_stderr': 'true'}, 'database': database('keystone'), 'token': {'provider': 'fernet'},
            'fernet_tokens': {'key_repository': etc / 'fernet'}, 'credential': {'key_repository': etc / 'credential'},
            'identity': {'password_hash_rounds': 4}},
        'placement': {'DEFAULT': {'use_stderr': 'true'}, 'api': {'auth_strategy': 'keystone'},
                      'placement_database': database('placement'), **common('placement')},
        'glance': {
            'DEFAULT': {**bus, 'enabled_backends': 'file:file'}, 'glance_store': {'default_backend': 'file'},
            'file': {'filesystem_store_datadir': STATE / 'images'},
            'os_glance_tasks_store': {'filesystem_store_datadir': STATE / 'images' / 'tasks'},
            'os_glance_staging_store': {'filesystem_store_datadir': STATE / 'images' / 'staging'},
            'database': database('glance'),
            'paste_deploy': {'flavor': 'keystone', 'config_file': venv / 'glance' / 'glance-api-paste.ini'}, **common('glance')},
        'neutron': {
            'DEFAULT': {**bus, 'state_path': STATE / 'neutron', 'core_plugin': 'ml2', 'service_plugins': 'router,trunk,segments',
                        'api_paste_config': venv / 'neutron' / 'api-paste.ini', 'auth_strategy': 'keystone', 'rpc_workers': 1,
                        'notify_nova_on_port_status_changes': 'true', 'notify_nova_on_port_data_changes': 'true'},
            'database': database('neutron'), 'quotas': no_limit, 'nova': account('neutron'), 'placement': account('neutron'),
            'ml2': {'type_drivers': 'flat,vxlan', 'tenant_network_types': 'vxlan',
                    # The trunk plugin wants to see a driver that it knows.
                    'mechanism_drivers': 'openvswitch,hangar_lab', 'extension_drivers': 'port_security'},
            'ml2_type_flat': {'flat_networks': '*'}, 'ml2_type_vxlan': {'vni_ranges': '1:4000'}, **common('neutron')},
        'nova': {
            'DEFAULT': {**threads, 'state_path': STATE / 'nova', 'compute_driver': 'fake.FakeDriver', 'reserved_host_memory_mb': 0,
                        'vif_plugging_is_fatal': 'false', 'vif_plugging_timeout': 0},
            'api': {'auth_strategy': 'keystone'}, 'wsgi': {'api_paste_config': venv / 'nova' / 'api-paste.ini'},
            'api_database': database('nova_api'), 'database': database('nova'), 'conductor': {'workers': 1},
            'scheduler': {'workers': 1}, 'filter_scheduler': {'track_instance_changes': 'false'}, 'vnc': {'enabled': 'false'},
            'quota': {'instances': -1, 'cores': -1, 'ram': -1, 'server_groups': -1}, 'glance': account('nova'),
            'cinder': {**account('nova'), 'catalog_info': 'block-storage::publicURL'}, 'neutron': account('nova'),
            'placement': account('nova'), 'service_user': service_user, **common('nova')},
        'cinder': {
            'DEFAULT': {**threads, 'state_path': STATE / 'cinder', 'api_paste_config': venv / 'cinder' / 'api-paste.ini',
                        'resource_query_filters_file': venv / 'cinder' / 'resource_filters.json', 'auth_strategy': 'keystone',
                        'enabled_backends': 'files', 'glance_api_servers': url('glance'), 'quota_volumes': -1, 'quota_gigabytes': -1},
            'files': {'volume_driver': 'hangar_lab.volumes.Driver', 'volume_backend_name': 'files'}, 'database': database('cinder'),
            'glance': account('cinder'), 'nova': account('cinder'), 'coordination': {'backend_url': f'file://{STATE}/cinder'},
            'service_user': {**account('cinder'), 'send_service_user_token': 'true'}, **common('cinder')},
        'octavia': {
            'DEFAULT': bus,
            'api_settings': {'auth_strategy': 'keystone', 'enabled_provider_drivers': 'amphora:amphora,octavia:alias',
                             'default_provider_driver': 'amphora', 'api_base_uri': url('octavia')},
            'database': database('octavia'), 'oslo_messaging': {'topic': 'octavia_prov'},
            'certificates': {'cert_generator': 'local_cert_generator', 'cert_manager': 'local_cert_manager',
                             'ca_certificate': etc / 'octavia-ca.pem', 'ca_private_key': etc / 'octavia-ca.key',
                             'ca_private_key_passphrase': 'lab', 'server_certs_key_passphrase': 'insecure-key-do-not-use-this-key'},
            'health_manager': {'heartbeat_key': 'lab', 'bind_ip': '127.0.0.1', 'controller_ip_port_list': '127.0.0.1:5555'},
            'controller_worker': {
                'workers': 1, 'amphora_driver': 'amphora_noop_driver', 'compute_driver': 'compute_noop_driver',
                'network_driver': 'hangar_lab', 'image_driver': 'image_noop_driver', 'volume_driver': 'volume_noop_driver',
                'loadbalancer_topology': 'SINGLE', 'amp_flavor_id': 1, 'amp_image_tag': 'amphora', 'client_ca': etc / 'octavia-ca.pem',
                'amp_boot_network_list': '00000000-0000-0000-0000-000000000001'},
            'networking': {'retry_interval': 1},
            'driver_agent': {f'{name}_socket_path': STATE / f'octavia-{name}.sock' for name in ('status', 'stats', 'get')},
            'task_flow': {'engine': 'parallel'}, 'service_auth': account('octavia'), 'neutron': account('octavia'), **common('octavia')},
    }


def configure():
    for folder in ('etc/fernet', 'etc/credential', 'images/tasks', 'images/staging', 'lock', 'nova', 'neutron', 'cinder', 'rabbit'):
        (STATE / folder).mkdir(parents=True, exist_ok=True)
    for name, sections in configurations().items():
        lines = [line for section, values in sections.items()
                 for line in (f'[{section}]', *(f'{key} = {value}' for key, value in values.items()), '')]
        conf(name).parent.mkdir(exist_ok=True)
        conf(name).write_text('\n'.join(lines))
    authority = STATE / 'etc' / 'octavia-ca.pem'
    if not authority.exists():
        run('openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-days', '3650', '-subj', '/CN=octavia', '-passout', 'pass:lab',
            '-keyout', authority.with_suffix('.key'), '-out', authority)
    (STATE / 'rabbit' / 'rabbitmq.conf').write_text(
        f'listeners.tcp.1 = 127.0.0.1:{FACTS["ports"]["rabbit"]}\ndefault_user = os\ndefault_pass = os\nloopback_users = none\n'
        'vm_memory_high_watermark.absolute = 256MB\ndisk_free_limit.absolute = 50MB\n')
    (STATE / 'rabbit' / 'plugins').write_text('[].\n')


# ---------------------------------------------------------------- processes

def conf(service):
    # Glance looks for this name and no other.
    return STATE / 'etc' / service / ('glance-api.conf' if service == 'glance' else f'{service}.conf')


def services():
    """name -> (kind, what to load, whose port, arguments, environment)"""
    def option(service):
        return ['--config-file', conf(service)]

    nova = {'OS_NOVA_CONFIG_DIR': str(STATE / 'etc' / 'nova'),
            'OS_NOVA_CONFIG_FILES': f'{STATE}/venv/etc/nova/api-paste.ini;nova.conf'}
    return {
        'keystone': ('wsgi', 'keystone.wsgi.api:application', [], {'OS_KEYSTONE_CONFIG_FILES': str(conf('keystone'))}),
        'placement': ('wsgi', 'placement.wsgi.api:application', [], {'OS_PLACEMENT_CONFIG_DIR': str(conf('placement').parent)}),
        'glance': ('wsgi', 'glance.wsgi.api:application', [],
                   {'OS_GLANCE_CONFIG_DIR': str(conf('glance').parent), 'OS_GLANCE_CONFIG_FILES': 'glance-api.conf'}),
        'neutron': ('wsgi', 'neutron.wsgi.api:application', [],
                    {'OS_NEUTRON_CONFIG_DIR': str(conf('neutron').parent), 'OS_NEUTRON_CONFIG_FILES': 'neutron.conf'}),
        'nova': ('wsgi', 'nova.wsgi.osapi_compute:application', [], nova),
        'nova-conductor': ('main', 'nova.cmd.conductor:main', option('nova'), nova),
        'nova-scheduler': ('main', 'nova.cmd.scheduler:main', option('nova'), nova),
        'nova-compute': ('main', 'hangar_lab.compute:main', option('nova'), nova),
        'cinder': ('wsgi', 'cinder.wsgi.api:application', option('cinder'), {}),
        'cinder-scheduler': ('main', 'cinder.cmd.scheduler:main', option('cinder'), {}),
        'cinder-volume': ('main', 'cinder.cmd.volume:main', option('cinder'), {}),
        'octavia': ('wsgi', 'octavia.wsgi.api:application', option('octavia'), {}),
        'octavia-worker': ('main', 'octavia.cmd.octavia_worker:main', option('octavia'), {}),
    }


def spawn(name, command, env):
    if alive(name):
        return
    with (STATE / 'log' / f'{name}.log').open('ab') as log:
        child = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env,
                                 start_new_session=True)
    (STATE / 'run' / name).write_text(str(child.pid))


def start(name):
    kind, spec, arguments, env = services()[name]
    port = FACTS['ports'].get(name, 0)
    spawn(name, [STATE / 'venv' / 'bin' / 'python', HERE / 'serve.py', kind, spec, port, *arguments], environment(**env))


def alive(name):
    """A recorded process counts while it is one of ours."""
    try:
        pid = int((STATE / 'run' / name).read_text())
        line = pathlib.Path(f'/proc/{pid}/cmdline').read_bytes().decode(errors='replace')
    except (OSError, ValueError):
        return None
    ours = str(STATE) in line or str(HERE) in line or 'epmd' in line or 'rabbitmq' in line
    return pid if ours else None


def wait(what, test, seconds=180):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if test():
            return
        time.sleep(0.3)
    fail(f'{what} did not happen within {seconds} s: read the logs in {STATE}/log')


def answers(service):
    try:
        urllib.request.urlopen(url(service), timeout=5).close()
        return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def sql(statement):
    command = ['mariadb', '--no-defaults', f'--socket={STATE}/mysql.sock', '-uroot', '-N', '-e', statement]
    return subprocess.run(command, capture_output=True, text=True, env=environment())


def start_database():
    data = STATE / 'mysql'
    if not (data / 'mysql').exists():
        data.mkdir(exist_ok=True)
        run('mariadb-install-db', '--no-defaults', '--user=root', f'--datadir={data}', '--skip-test-db',
            '--auth-root-authentication-method=normal')
    # Nothing in here has to survive a power failure.
    spawn('mariadb', ['/usr/sbin/mariadbd', '--no-defaults', '--user=root', f'--datadir={data}', f'--socket={STATE}/mysql.sock',
                      f'--pid-file={STATE}/mysql.pid', '--skip-networking', '--skip-log-bin', '--innodb-buffer-pool-size=96M',
                      '--innodb-flush-log-at-trx-commit=0', '--innodb-doublewrite=0', '--max-connections=300',
                      '--performance-schema=OFF', '--character-set-server=utf8mb3',
                      '--collation-server=utf8mb3_general_ci'], environment())
    wait('the database', lambda: sql('select 1').returncode == 0, 60)
    statements = [f'CREATE DATABASE IF NOT EXISTS {name} CHARACTER SET utf8mb3;' for name in DATABASES]
    sql(' '.join(statements) + " CREATE USER IF NOT EXISTS os@localhost IDENTIFIED BY 'os'; GRANT ALL ON *.* TO os@localhost;")


def start_bus():
    ports, folder = FACTS['ports'], STATE / 'rabbit'
    env = environment(
        HOME=str(folder), ERL_EPMD_ADDRESS='127.0.0.1', ERL_EPMD_PORT=str(ports['epmd']), RABBITMQ_NODENAME=f'hangar{ports["rabbit"]}@localhost',
        RABBITMQ_CONF_ENV_FILE='/dev/null', RABBITMQ_MNESIA_BASE=str(folder / 'data'), RABBITMQ_LOG_BASE=str(STATE / 'log'),
        RABBITMQ_CONFIG_FILE=str(folder / 'rabbitmq.conf'), RABBITMQ_ENABLED_PLUGINS_FILE=str(folder / 'plugins'),
        RABBITMQ_DIST_PORT=str(ports['rabbit-dist']),
        RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS='+S 2:2 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}')
    spawn('epmd', [shutil.which('epmd') or 'epmd'], env)
    spawn('rabbitmq', ['/usr/lib/rabbitmq/bin/rabbitmq-server'], env)


def make_schemas():
    if (STATE / 'schemas').exists():
        return
    k = ['keystone-manage', '--config-file', conf('keystone')]
    n = ['nova-manage', '--config-file', conf('nova')]
    owner = ['--keystone-user', 'root', '--keystone-group', 'root']
    public = [part for name in ('public', 'internal', 'admin') for part in (f'--bootstrap-{name}-url', url('keystone', '/v3'))]
    steps = [
        [*k, 'db_sync'], [*k, 'fernet_setup', *owner], [*k, 'credential_setup', *owner],
        [*k, 'bootstrap', '--bootstrap-password', FACTS['password'], '--bootstrap-region-id', 'RegionOne', *public],
        ['neutron-db-manage', '--config-file', conf('neutron'), 'upgrade', 'heads'],
        [*n, 'api_db', 'sync'], [*n, 'cell_v2', 'map_cell0', '--database_connection', database('nova_cell0')['connection']],
        [*n, 'cell_v2', 'create_cell', '--name', 'cell1'], [*n, 'db', 'sync'],
        ['glance-manage', '--config-file', conf('glance'), 'db_sync'],
        ['placement-manage', '--config-file', conf('placement'), 'db', 'sync'],
        ['cinder-manage', '--config-file', conf('cinder'), 'db', 'sync'],
        ['octavia-db-manage', '--config-file', conf('octavia'), 'upgrade', 'head'],
    ]
    for program, *arguments in steps:
        say(f'  {program} {arguments[2]}')
        run(STATE / 'venv' / 'bin' / program, *arguments, log='schemas')
    (STATE / 'schemas').touch()


# ------------------------------------------------------------------ content

class Keystone:
    def __init__(self):
        self.token = None
        user = {'name': 'admin', 'domain': {'id': 'default'}, 'password': FACTS['password']}
        scope = {'project': {'name': 'admin', 'domain': {'id': 'default'}}}
        body = {'auth': {'identity': {'methods': ['password'], 'password': {'user': user}}, 'scope': scope}}
        self.token = self.ask('POST', '/auth/tokens', body)[1]['X-Subject-Token']

    def ask(self, method, path, body=None):
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(url('keystone', '/v3') + path, data, method=method)
        request.add_header('Content-Type', 'application/json')
        if self.token:
            request.add_header('X-Auth-Token', self.token)
        with urllib.request.urlopen(request, timeout=60) as reply:
            text = reply.read()
            return (json.loads(text) if text else {}), reply.headers

    def ensure(self, collection, key, /, **fields):
        """By name (or type), made if it is not there."""
        for known in self.ask('GET', f'/{collection}')[0][collection]:
            if all(known.get(field) == value for field, value in fields.items() if field != 'password'):
                return known['id']
        return self.ask('POST', f'/{collection}', {key: fields})[0][key]['id']

    def grant(self, project, user, *roles):
        for role in roles:
            self.ask('PUT', f'/projects/{project}/users/{user}/roles/{self.ensure("roles", "role", name=role)}')


def fill():
    if (STATE / 'filled').exists():
        return
    keystone = Keystone()

    def project(name):
        return keystone.ensure('projects', 'project', name=name, domain_id='default')

    def user(name):
        return keystone.ensure('users', 'user', name=name, domain_id='default', password=FACTS['password'])

    kinds = {'placement': ('placement', ''), 'glance': ('image', ''), 'nova': ('compute', '/v2.1'), 'neutron': ('network', ''),
             'cinder': ('block-storage', '/v3'), 'octavia': ('load-balancer', '')}
    for name, (kind, path) in kinds.items():
        keystone.grant(project('service'), user(name), 'admin', 'service')
        service = keystone.ensure('services', 'service', type=kind, name=name)
        for interface in ('public', 'internal', 'admin'):
            keystone.ensure('endpoints', 'endpoint', service_id=service, interface=interface, url=url(name, path), region_id='RegionOne')
    keystone.grant(project('demo'), user('demo'), 'member', 'load-balancer_member')
    keystone.grant(project('admin'), user('admin'), 'load-balancer_admin')
    keystone.grant(project('demo'), user('admin'), 'admin')
    (STATE / 'filled').touch()


def write_clouds():
    lines = ['clouds:']
    for name in ('admin', 'demo'):
        lines += [f'  {name}:', '    region_name: RegionOne', '    auth:', f'      auth_url: {url("keystone", "/v3")}',
                  f'      username: {name}', f'      password: {FACTS["password"]}', f'      project_name: {name}',
                  '      user_domain_id: default', '      project_domain_id: default']
    path = STATE / 'clouds.yaml'
    path.write_text('\n'.join(lines) + '\n')
    path.chmod(0o600)


# ----------------------------------------------------------------- commands

def up():
    install()
    configure()
    start_database()
    start_bus()
    say('schemas')
    make_schemas()
    wait('the message bus', lambda: socket.socket().connect_ex(('127.0.0.1', FACTS['ports']['rabbit'])) == 0, 120)
    # The others give up at once if Keystone is not there and filled.
    start('keystone')
    wait('keystone', lambda: answers('keystone'))
    fill()
    say('keystone is filled')
    for name in services():
        start(name)
    for name in APIS:
        wait(name, lambda name=name: answers(name) or not alive(name))
        if not alive(name):
            fail(f'{name} died: read {STATE}/log/{name}.log')
        say(f'{name} answers')
    if not (STATE / 'mapped').exists():
        wait('the hypervisor', lambda: sql('select count(*) from nova.compute_nodes where deleted=0').stdout.strip() == '1', 120)
        run(STATE / 'venv' / 'bin' / 'nova-manage', '--config-file', conf('nova'), 'cell_v2', 'discover_hosts', log='schemas')
        (STATE / 'mapped').touch()
    dead = [name for name in services() if not alive(name)]
    if dead:
        fail(f'these died: {", ".join(dead)}; read the logs in {STATE}/log')
    write_clouds()
    say(f'ready: {STATE}/clouds.yaml')


def family(pid):
    """A process and all its children, the children first."""
    for task in pathlib.Path(f'/proc/{pid}/task').glob('*/children'):
        for child in task.read_text().split():
            yield from family(int(child))
    yield pid


def down():
    for names in ([*services()], ['rabbitmq', 'mariadb'], ['epmd']):
        pids = [one for name in names if (pid := alive(name)) for one in family(pid)]
        for pid in pids:
            quietly(pid, signal.SIGTERM)
        end = time.monotonic() + 15
        while time.monotonic() < end and any(quietly(pid, 0) for pid in pids):
            time.sleep(0.2)
        for pid in pids:
            quietly(pid, signal.SIGKILL)
        for name in names:
            (STATE / 'run' / name).unlink(missing_ok=True)
    say('stopped')


def quietly(pid, number):
    try:
        os.kill(pid, number)
        return True
    except OSError:
        return False


def status():
    for name in ['mariadb', 'epmd', 'rabbitmq', *services()]:
        print(f'{name:18} {alive(name) or "not running"}')


BEGAN = time.monotonic()
COMMANDS = {'up': up, 'down': down, 'status': status}
if __name__ == '__main__':
    if len(sys.argv) != 3 or sys.argv[1] not in COMMANDS:
        sys.exit(__doc__)
    for folder in ('log', 'run'):
        (STATE / folder).mkdir(parents=True, exist_ok=True)
    FACTS = facts()
    COMMANDS[sys.argv[1]]()
