"""Runs one service in this process: a WSGI application on a port, or the main function of a program."""
import importlib
import os
import signal
import sys


def load(spec):
    module, _, name = spec.partition(':')
    return getattr(importlib.import_module(module), name)


kind, spec, port, *arguments = sys.argv[1:]
sys.argv = [spec, *arguments]
if kind == 'wsgi':
    from cheroot import wsgi
    server = wsgi.Server(('127.0.0.1', int(port)), load(spec), numthreads=4, request_queue_size=128)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    server.start()
else:
    sys.exit(load(spec)())
