"""PyKMIP's server, as its own command starts it: configuration file, and which versions of KMIP and of TLS it speaks.

kmip_server.py CONFIGURATION LOG KMIP-VERSIONS TLS-VERSION, as in `1.4,2.0 1.3`
"""

from __future__ import annotations

import ssl
import sys

from kmip.core.messages import contents
from kmip.services import auth
from kmip.services.server import KmipServer

configuration, log, versions, tls = sys.argv[1:]
server = KmipServer(config_path=configuration, log_path=log)
spoken = [contents.ProtocolVersion(*map(int, version.split("."))) for version in versions.split(",")]
if tls == "1.3":
    # Its own suites end at 1.2.
    suite = auth.TLS12AuthenticationSuite()
    suite._protocol = ssl.PROTOCOL_TLS_SERVER
    server.auth_suite = suite
with server:
    server._engine._protocol_versions = spoken
    server.serve()
