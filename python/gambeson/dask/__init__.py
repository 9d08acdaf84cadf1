"""Dask over sealed links: the comm backend `gambeson://` of dask.distributed. docs/dask.md has the words.

    import dask
    from distributed import Client, LocalCluster
    from gambeson.dask import credential

    dask.config.set({"distributed.comm.gambeson.credential": credential("cluster.toml")})
    cluster = LocalCluster(protocol="gambeson://")
    client = Client(cluster)

Every process of a cluster reads the same credential file and proves with it that it belongs; each has a key of its own,
made when it starts. Dask finds the backend by its entry point: nothing has to be imported where a scheduler or worker
starts.
"""

from gambeson.dask._backend import Backend
from gambeson.dask._credential import credential
from gambeson.dask._traffic import Explanation, Traffic, explain, traffic

__all__ = ["Backend", "Explanation", "Traffic", "credential", "explain", "traffic"]
