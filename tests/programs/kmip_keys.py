"""What the keeper of a key server does with its keys, by PyKMIP's client.

kmip_keys.py CONFIGURATION create MASK...      a key of AES-256 that is for this; prints its name
kmip_keys.py CONFIGURATION activate|revoke|destroy NAME
"""

from __future__ import annotations

import sys

from kmip.core import enums
from kmip.pie.client import ProxyKmipClient

configuration, what, *words = sys.argv[1:]
with ProxyKmipClient(config="client", config_file=configuration) as client:
    if what == "create":
        masks = [enums.CryptographicUsageMask[word] for word in words]
        print(client.create(enums.CryptographicAlgorithm.AES, 256, cryptographic_usage_mask=masks))
    elif what == "activate":
        client.activate(words[0])
    elif what == "revoke":
        client.revoke(enums.RevocationReasonCode.CESSATION_OF_OPERATION, words[0])
    else:
        client.destroy(words[0])
