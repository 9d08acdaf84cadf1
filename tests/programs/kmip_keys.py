"""What the keeper of a key server does with its keys, by PyKMIP's client.

kmip_keys.py CONFIGURATION register MASK...    a key of AES-256 that is for this alone; prints its name
kmip_keys.py CONFIGURATION activate|revoke|destroy NAME
"""

from __future__ import annotations

import os
import sys

from kmip.core import enums
from kmip.pie.client import ProxyKmipClient
from kmip.pie.objects import SymmetricKey

configuration, what, *words = sys.argv[1:]
version = enums.KMIPVersion.KMIP_1_4
with ProxyKmipClient(config="client", config_file=configuration, kmip_version=version) as client:
    if what == "register":
        masks = [enums.CryptographicUsageMask[word] for word in words]
        print(client.register(SymmetricKey(enums.CryptographicAlgorithm.AES, 256, os.urandom(32), masks)))
    elif what == "activate":
        client.activate(words[0])
    elif what == "revoke":
        client.revoke(enums.RevocationReasonCode.CESSATION_OF_OPERATION, words[0])
    else:
        client.destroy(words[0])
