"""`python -m gambeson.farm` is a worker that a manager starts, `python -m gambeson.farm station` a station."""

import sys

from gambeson.farm import station, worker

if sys.argv[1:2] == ["station"]:
    sys.exit(station.main(sys.argv[2:]))
sys.exit(worker.main())
