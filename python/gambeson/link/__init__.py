"""Links between the processes of distributed programs, with a security context each: docs/links.md has the words.

    from gambeson import link

    # One process
    identity = link.Identity.generate()                  # or link.Identity.from_pem(certificate, key)
    trust = link.Trust().pinned(others_key, "ocean", roles=["model"])
    domain = link.Domain(identity, trust, listen=["10.0.0.1:0"])
    endpoint = domain.endpoint({0: lambda request: request.payload.upper()})
    secret = bytes(endpoint.startpoint(link.Caveat.uses(1000)))      # give it to the other, secretly

    # The other
    startpoint = domain.startpoint(secret)
    startpoint.call(0, b"heat", timeout=5)               # b"HEAT"
    startpoint.submit(0, b"heat").result()               # a future
    await startpoint.request(0, b"heat", timeout=5)      # in asyncio
    for answer in startpoint.stream(1): ...              # or async for
    startpoint.call(0, [b"head", rows])                  # several buffers, one message

Everything is sealed unless it is said otherwise. Times are in seconds, sizes in bytes, keys of others the 32 bytes of
`key_hash`. Whatever has the buffer protocol is a payload and is not copied; nobody may write into it until the call is
back. A forked child has no links: with multiprocessing, choose the start method `spawn`, or open domains afterwards.
"""

from gambeson.link._answers import Answers
from gambeson.link._domain import Domain, Endpoint, Progress
from gambeson.link._errors import (
    Error,
    Garbled,
    HandlerRefused,
    IdentityUnusable,
    Lost,
    MessageUnfit,
    PolicyUnusable,
    Refused,
    StartpointRefused,
    SystemRefused,
    TimedOut,
    TransformRefused,
)
from gambeson.link._group import Group, Operation, OwnOperation
from gambeson.link._identity import Identity, Peer, Trust
from gambeson.link._pack import Pack
from gambeson.link._policy import Policy, Refusal, Refusals
from gambeson.link._region import Region
from gambeson.link._request import Handler, Request
from gambeson.link._startpoint import Capability, Carrier, Caveat, Protection, Startpoint, Transport
from gambeson.link._transform import End, Mapping, Transform

__all__ = [
    "Answers",
    "Capability",
    "Carrier",
    "Caveat",
    "Domain",
    "End",
    "Endpoint",
    "Error",
    "Garbled",
    "Group",
    "Handler",
    "HandlerRefused",
    "Identity",
    "IdentityUnusable",
    "Lost",
    "Mapping",
    "MessageUnfit",
    "Operation",
    "OwnOperation",
    "Pack",
    "Peer",
    "Policy",
    "PolicyUnusable",
    "Progress",
    "Protection",
    "Refusal",
    "Refusals",
    "Refused",
    "Region",
    "Request",
    "Startpoint",
    "StartpointRefused",
    "SystemRefused",
    "TimedOut",
    "Transform",
    "TransformRefused",
    "Transport",
    "Trust",
]
