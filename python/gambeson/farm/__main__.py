"""A worker that a manager starts: see `worker`."""

import sys

from gambeson.farm.worker import main

sys.exit(main())
