"""What the real cloud-init makes of the documents in a directory: `reference.py DIRECTORY` prints JSON by name.

Only its own code is used: user_data takes a document apart, the part handlers merge and render it, cc_write_files decodes
contents. Nothing is written outside of a temporary directory and nothing is run.
"""
import json
import logging
import pathlib
import sys
import tempfile

from cloudinit import handlers, helpers, user_data, util
from cloudinit.config import cc_write_files
from cloudinit.handlers import boot_hook, cloud_config, jinja_template, shell_script
from cloudinit.settings import FREQUENCIES, PER_ALWAYS

INSTANCE = {'name': 'worker-1', 'uuid': '1f'}


class Source:
    def __init__(self, paths):
        self.paths, self.distro = paths, None

    def get_instance_id(self):
        return INSTANCE['uuid']


class Hook(boot_hook.BootHookPartHandler):
    """Kept, not run."""
    def handle_part(self, data, ctype, filename, payload, frequency):
        if ctype not in handlers.CONTENT_SIGNALS:
            self.seen.append(util.fully_decoded_payload(payload) if hasattr(util, 'nothing') else payload)


class Script(shell_script.ShellScriptPartHandler):
    def handle_part(self, data, ctype, filename, payload, frequency):
        if ctype not in handlers.CONTENT_SIGNALS:
            self.seen.append(payload)


def read(document):
    with tempfile.TemporaryDirectory() as folder:
        paths = helpers.Paths({'cloud_dir': folder, 'run_dir': folder})
        paths.datasource = Source(paths)
        pathlib.Path(paths.get_ipath_cur()).mkdir(parents=True, exist_ok=True)
        pathlib.Path(paths.get_ipath()).mkdir(parents=True, exist_ok=True)
        (pathlib.Path(folder) / 'instance').mkdir(exist_ok=True)
        v1 = {'local_hostname': INSTANCE['name'], 'instance_id': INSTANCE['uuid'], 'availability_zone': 'nova'}
        meta = {'local_hostname': INSTANCE['name'], 'hostname': INSTANCE['name'], 'name': INSTANCE['name'], 'uuid': INSTANCE['uuid']}
        data = json.dumps({'v1': v1, 'ds': {'meta_data': meta}, 'base64_encoded_keys': []})
        for name in ('instance_data_sensitive', 'instance_data'):
            try:
                pathlib.Path(paths.get_runpath(name)).write_text(data)
            except KeyError:
                pass
        seen = []
        config = cloud_config.CloudConfigPartHandler(paths)
        hook, script = Hook(paths, Source(paths)), Script(paths)
        hook.seen = script.seen = seen
        jinja = jinja_template.JinjaTemplatePartHandler(paths, sub_handlers=[config, script])
        known = handlers.InclusiveTypes() if hasattr(handlers, 'InclusiveTypes') else helpers.ContentHandlers()
        for handler in (config, script, hook, jinja):
            known.register(handler, overwrite=True) if hasattr(known, 'register') else None
        state = {'handlerdir': folder, 'data': None, 'frequency': PER_ALWAYS, 'handlercount': 0, 'excluded': []}
        message = user_data.UserDataProcessor(paths).process(document)
        for handler in (config, script, hook, jinja):
            handlers.call_begin(handler, None, PER_ALWAYS)
        handlers.walk(message, handlers.walker_callback, data={**state, 'handlers': known})
        for handler in (config, script, hook, jinja):
            handlers.call_end(handler, None, PER_ALWAYS)
        merged = util.load_yaml(util.load_file(paths.get_ipath('cloud_config'), decode=True) or '', default={}) or {}
        files = {}
        for entry in merged.get('write_files', []):
            kinds = cc_write_files.canonicalize_extraction(entry.get('encoding'))
            text = util.decode_binary(cc_write_files.extract_contents(entry.get('content', ''), kinds))
            files[entry['path']] = files.get(entry['path'], '') + text if entry.get('append') else text
        commands = [one if isinstance(one, str) else ' '.join(one) for key in ('bootcmd', 'runcmd') for one in merged.get(key, [])]
        lines = [line for text in seen for line in (text.decode() if isinstance(text, bytes) else text).splitlines()]
        return {'files': files, 'commands': commands + lines}


logging.disable(logging.CRITICAL)
found = {}
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    if path.suffix == '.json':
        continue
    try:
        found[path.name] = read(path.read_bytes())
    except Exception as error:  # what it refuses is part of the answer
        found[path.name] = {'error': type(error).__name__}
print(json.dumps(found, indent=1, sort_keys=True))
