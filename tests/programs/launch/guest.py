"""Somebody with a key that nobody knows, who asks around at the authority's daemon.

guest.py IDENTITY AUTHORITIES ADDRESS < QUESTIONS

IDENTITY holds a certificate and its key. QUESTIONS is a JSON list of pairs: the name that he attaches to, and what he
says there. The answers come as such a list.
"""

import json
import sys
from pathlib import Path

from gambeson import link

identity, authorities = (Path(path).read_bytes() for path in sys.argv[1:3])
trust = link.Trust().authorities(authorities)
answers = []
with link.Domain(link.Identity.from_pem(identity, identity), trust) as domain:
    for name, said in json.load(sys.stdin):
        try:
            startpoint = domain.attach(sys.argv[3], name, role="authority", timeout=10)
            answers.append(startpoint.call(0, said.encode(), timeout=10).decode())
        except link.Error as refused:
            answers.append(f"refused: {refused}")
print(json.dumps(answers))
