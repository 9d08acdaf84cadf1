"""Processes on other hosts, started by their daemons, with a security context for each (docs/processes.md).

    from gambeson import launch

    # The creator
    with launch.Creator() as creator:
        processes = creator.start_process(["h1", "h2"], ["/opt/model/worker"], count=4, context=b"the ocean")
        startpoints = [process.startpoint.result(timeout=30) for process in processes]
        answers = creator.domain.group(startpoints).call(0, b"begin", timeout=60)
        assert all(process.status.result() == 0 for process in processes)

    # Each of the processes
    child = launch.init_process()
    endpoint = child.domain.endpoint({0: lambda request: child.context})
    child.ready(endpoint)

`startpoint` and `status` are futures: `start_process` waits for nothing. In asyncio, `asyncio.wrap_future` awaits them.
Processes end with the `Processes` that they belong to, however their creator ends. What goes wrong is an error of
`gambeson.link`: `Refused` or `Lost`, with a sentence that names the process and its host.
"""

from gambeson.launch._child import Child, init_process
from gambeson.launch._creator import Creator
from gambeson.launch._processes import Process, Processes

__all__ = ["Child", "Creator", "Process", "Processes", "init_process"]
